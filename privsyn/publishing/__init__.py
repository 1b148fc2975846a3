"""Publishing of releases with DVC and git."""
