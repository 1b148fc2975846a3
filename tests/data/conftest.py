"""What the tests of files share."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest


@contextmanager
def _full_disk(limit: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def full_disk() -> Callable[[int], AbstractContextManager[None]]:
    """A block in which no file grows beyond so many bytes: a full disk without being root."""
    return _full_disk
