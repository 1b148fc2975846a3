"""A language model trained by DP-SGD, and texts from it (Yu et al. 2022, 2023)."""
