"""Generators and embedders of images."""
