"""Private files as records, one at a time."""
