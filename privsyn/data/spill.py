"""Sorting more lines than memory holds, by the keyed hashes they begin with.

Lines are gathered in memory and appended to many files by the first digits of their unit's hash;
then each file by itself fits, and is sorted and bounded. A file that does not fit is split by
further digits, so memory does not grow with the data; up to about 60 GB of lines no file has to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path

from privsyn.data.artifacts import private_opener

HEX = 32
"""Width of the two keyed hashes, unit and record, that a line begins with."""

_GATHERED = 1 << 25
"""Bytes of lines in memory before they are appended to their files."""

_SORTED_TOGETHER = 1 << 26
"""Bytes of lines that are sorted in memory; more are bounded by unit first, and split then."""

_SPLITS = (0, 1, 2, 4, 5, 6, 7)
"""Digits of a unit's hash by which lines are split, one after the other, beside the third and
fourth modulo 64 at first."""


class Spill:
    """Lines on their way from the order of the source to that of their units.

    The order is that of the third and fourth digit of the units' hashes modulo 64, then of the
    hashes; within a unit that of its records' hashes. It is part of the format of a partition: the
    same for any amount of memory.

    Args:
        folder: An empty private folder of its own; files in it have mode 0600 and are removed as
            they are read.
        depth: How often the lines were split already.
    """

    def __init__(self, folder: Path, depth: int = 0) -> None:
        self._folder, self._depth, self._gathered = folder, depth, 0
        self._files: dict[Path, list[bytes]] = {}
        self._queues: dict[bytes, list[bytes]] = {}
        first = _SPLITS[depth]
        self._first, self._rest = slice(first, first + 1), slice(2, 2 if depth else 4)

    def add(self, line: bytes) -> None:
        """Take a line that begins with the hashes of its unit and of its record.

        Raises:
            OSError: Disk full or no permission.
        """
        key = line[self._first] + line[self._rest]
        try:
            self._queues[key].append(line)
        except KeyError:
            self._queues[key] = self._files.setdefault(self._folder / self._name(key), [])
            self._queues[key].append(line)
        self._gathered += len(line)
        if self._gathered > _GATHERED:
            self._write()

    def _name(self, key: bytes) -> str:
        """File of the lines with these digits; by name files are in order."""
        major = f"{int(key[1:], 16) % 64:02d}" if key[1:] else ""
        return f"{self._depth}-{major}{key[:1].decode('ascii')}"

    def bounded(self, most: int) -> Iterator[bytes]:
        """All lines in order, of each unit the ``most`` with the smallest records' hashes.

        Raises:
            OSError: Disk full or no permission.
        """
        if any(path.exists() for path in self._files):
            self._write()
        for path, lines in sorted(self._files.items()):
            if lines:
                yield from self._sorted(lines, most)
                lines.clear()
            elif path.exists():
                with path.open("rb", buffering=1 << 20) as stream:
                    path.unlink()
                    yield from self._sorted(stream, most)

    def _write(self) -> None:
        for path, lines in self._files.items():
            if lines:
                with open(path, "ab", opener=private_opener) as stream:
                    stream.writelines(lines)
                lines.clear()
        self._gathered = 0

    def _sorted(self, lines: Iterable[bytes], most: int) -> Iterator[bytes]:
        """Lines of one file in order. Those of one unit beyond its bound are dropped on the way."""
        remaining = iter(lines)
        kept: list[bytes] = []
        size, last = 0, self._depth == len(_SPLITS) - 1
        limit = _SORTED_TOGETHER
        for line in remaining:
            kept.append(line)
            size += len(line)
            if size <= limit:
                continue
            kept = smallest(kept, most)
            size = sum(map(len, kept))
            if last:
                limit = max(limit, 2 * size)
            elif 2 * size > limit:
                parts = Spill(self._folder, self._depth + 1)
                for part in (kept, remaining):
                    for later in part:
                        parts.add(later)
                    kept = []
                yield from parts.bounded(most)
                return
        yield from smallest(kept, most)


def smallest(lines: list[bytes], most: int) -> list[bytes]:
    """Of each unit the ``most`` lines with the smallest hashes, sorted by unit and record."""
    lines.sort()
    return [
        line
        for _, group in groupby(lines, key=itemgetter(slice(HEX)))
        for line in islice(group, most)
    ]
