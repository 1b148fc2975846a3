"""Toys in numpy in place of models: no weights, exact row independence, logits by script.

The noise and the journal to go with them in a test of a method are in ``privsyn/testing.py``.
"""
