"""Lineage of releases in MLflow."""
