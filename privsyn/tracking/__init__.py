"""Lineage of releases."""

from privsyn.tracking.base import BestEffort, Tracker
from privsyn.tracking.mlflow import MlflowTracker
from privsyn.tracking.null import NullTracker

__all__ = ["BestEffort", "MlflowTracker", "NullTracker", "Tracker"]
