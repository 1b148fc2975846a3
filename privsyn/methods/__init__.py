"""The generators: one file and one note each, read against its paper."""
