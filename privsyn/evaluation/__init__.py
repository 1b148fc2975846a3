"""Utility of a release. Numbers that read held-out real records are internal."""
