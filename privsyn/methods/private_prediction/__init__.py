"""Private prediction (Amin et al. 2024)."""
