"""Training by several processes together."""
