"""Published versions of releases."""
