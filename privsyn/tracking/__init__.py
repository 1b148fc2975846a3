"""Lineage of releases."""
