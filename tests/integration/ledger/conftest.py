"""Ledgers on both databases, as the quick tests have them."""

from tests.unit.ledger.conftest import clock, ledger, lite, url

__all__ = ["clock", "ledger", "lite", "url"]
