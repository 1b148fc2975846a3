"""Keyphrase prompt seeding, DP-KPS (2025)."""
