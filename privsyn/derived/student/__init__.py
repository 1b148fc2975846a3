"""A small model from the texts of a release."""
