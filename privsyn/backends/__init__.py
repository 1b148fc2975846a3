"""Models behind narrow protocols: what a method may ask of a language model."""
