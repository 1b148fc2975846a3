"""InvisibleInk (Vinod et al. 2025)."""
