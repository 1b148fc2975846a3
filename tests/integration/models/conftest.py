"""The tiny models, as the quick tests have them."""

from tests.unit.models.conftest import folders, two_threads

__all__ = ["folders", "two_threads"]
