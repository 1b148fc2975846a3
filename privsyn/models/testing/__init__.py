"""Toys in numpy in place of models: no weights, exact row independence, logits by script."""
