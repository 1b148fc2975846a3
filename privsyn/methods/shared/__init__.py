"""What several methods do alike: prompts, label splits, the public model alone."""
