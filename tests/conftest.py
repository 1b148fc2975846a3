"""Where tests run when several processes share them (``make test``)."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file stays in one process, for its fixtures; so do all that look at the three drivers."""
    for item in items:
        driven = "driven" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("drivers" if driven else str(item.path)))
