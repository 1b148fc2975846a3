"""Models by role: what a config names, how it is identified, loaded and asked."""
