"""Rows of declared columns without a text."""
