"""Reading files that somebody else wrote: never waits for a pipe, never fails on deep nesting."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO


def open_file(path: Path) -> BinaryIO:
    """A regular file, opened for reading. A pipe or a device is refused, not waited for.

    Raises:
        OSError: It cannot be opened, or is of another kind.
    """
    stream = open(path, "rb", opener=_at_once)
    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return stream
    stream.close()
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def read_file(path: Path) -> bytes:
    """The bytes of a regular file. Errors as ``open_file``."""
    with open_file(path) as stream:
        return stream.read()


def read_json(path: Path) -> Any:
    """The JSON value in a regular file. Errors as ``open_file`` and ``parse_json``."""
    return parse_json(read_file(path))


def parse_json(text: str | bytes) -> Any:
    """A JSON value.

    Raises:
        ValueError: It is none, or is nested too deep to be read.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _at_once(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK)
