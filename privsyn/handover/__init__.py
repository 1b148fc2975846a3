"""Export of releases for other tools. Nothing is pushed anywhere."""
