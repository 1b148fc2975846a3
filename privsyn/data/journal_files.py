"""Values that a journal keeps as files beside it."""

from __future__ import annotations

import os
from pathlib import Path

from privsyn.data.artifacts import atomic_file, private_folder, storage_error, sync_folder
from privsyn.data.journal_lines import digest_of
from privsyn.errors import ReleaseLost


def opener(name: str, flags: int) -> int:
    """Opens no link."""
    return os.open(name, flags | os.O_NOFOLLOW)


def store_file(file: Path, value: bytes) -> None:
    """Write a file beside the journal, durably."""
    if not file.parent.is_dir():
        private_folder(file.parent)
        try:
            sync_folder(file.parent.parent)
        except OSError as error:
            raise storage_error("write", file.parent, error) from error
    with atomic_file(file) as stream:
        stream.write(value)


def stored_file(file: Path, digest: str) -> bytes:
    """The content of a file beside the journal, checked against its noted digest."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        content = None
    except OSError as error:
        raise storage_error("read", file, error) from error
    if content is None or digest_of(content) != digest:
        raise ReleaseLost(
            f"{file} is gone, dropped or changed; what was drawn cannot go on from it.",
            hint="Restore the file, or give the release up: its cost stays charged.",
        )
    return content
