"""Synthetic files to validate."""

from functools import partial

import pytest

from tests.unit.report.release_folder import write_rows


@pytest.fixture
def write(tmp_path):
    """Write rows as a synthetic file; bytes are written as a line of their own."""
    return partial(write_rows, tmp_path)
