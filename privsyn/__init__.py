"""privsyn: differentially private synthetic data on a schedule."""

__version__ = "0.1.0"
