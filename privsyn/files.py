"""Reading files that somebody else wrote: never waits for a pipe, never fails on deep nesting."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

import yaml


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


def parse_yaml(content: bytes) -> Any:
    """A YAML value whose mappings name each key once: of two, YAML would drop the first in silence.

    Raises:
        ValueError: It is none, names a key twice or is nested too deep. Says on which line, and
            quotes nothing but the key.
    """
    try:
        return yaml.load(content.decode("utf-8"), Loader=_EachKeyOnce)  # noqa: S506  # a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        if isinstance(error, _KeyTwice):
            raise ValueError(f"names {error.problem} twice, again{where}.") from None
        raise ValueError(f"is not valid YAML{where}.") from None
    except RecursionError:
        raise ValueError("is nested too deep.") from None


class _KeyTwice(yaml.MarkedYAMLError):
    """A mapping names a key twice."""


class _EachKeyOnce(yaml.SafeLoader):
    """Refuses a mapping that names a key twice, as it is written: merged keys may be overridden."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise _KeyTwice(problem=f"{key.value!r:.80}", problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return node


def _at_once(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK)
