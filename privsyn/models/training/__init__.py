"""Training a causal language model, with per-sample gradients and without."""
