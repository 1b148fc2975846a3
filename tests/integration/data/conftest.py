"""Folders of parts, as the quick tests have them."""

from tests.unit.data.test_remote_sources import folder

__all__ = ["folder"]
