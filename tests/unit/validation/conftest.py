"""Synthetic files to validate."""

import json

import pytest


@pytest.fixture
def write(tmp_path):
    """Write rows as a synthetic file; bytes are written as a line of their own."""

    def _write(rows):
        path = tmp_path / "synthetic.jsonl"
        path.write_bytes(
            b"".join(
                (row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n"
                for row in rows
            )
        )
        return path

    return _write
