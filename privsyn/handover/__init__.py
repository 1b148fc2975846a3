"""Releases in the forms in which other people's tools read them. Nothing is ever pushed."""
