"""Results made from a finished release at no cost: further records, and small language models."""
