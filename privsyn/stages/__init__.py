"""The steps of a release as plain functions; every driver calls these."""
