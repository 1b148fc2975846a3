"""Synthetic files to validate, as the quick tests have them."""

from tests.unit.validation.conftest import write

__all__ = ["write"]
