"""Columns beside the text: noisy marginals, and the synthetic rows that follow from them."""
