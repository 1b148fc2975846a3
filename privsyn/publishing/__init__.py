"""Published versions of releases."""

from privsyn.publishing.dvc import DvcPublisher, DvcRevision

__all__ = ["DvcPublisher", "DvcRevision"]
