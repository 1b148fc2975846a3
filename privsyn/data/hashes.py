"""How often each of very many hashes occurs, exactly, in bounded memory."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator
from typing import IO

import numpy as np
from numpy.typing import NDArray

_TOGETHER = 1 << 20
"""Hashes in memory before they are sorted and go to the file."""


class Hashes:
    """Hashes of 64 bits, such as ``hash`` gives: sorted runs of them in a nameless file."""

    def __init__(self) -> None:
        self._last: array[int] = array("q")
        self._file: IO[bytes] | None = None
        self._runs = 0

    def add(self, number: int) -> None:
        """Count one.

        Raises:
            OSError: The folder for temporary files is full.
        """
        self._last.append(number)
        if len(self._last) == _TOGETHER:
            if self._file is None:
                self._file = tempfile.TemporaryFile()
            run = np.sort(np.frombuffer(self._last, np.int64))
            self._file.write(run.tobytes())
            self._runs += 1
            self._last = array("q")

    def counts(self) -> Iterator[NDArray[np.int64]]:
        """How often each distinct one occurs, those of one range of values after the other."""
        last = np.sort(np.frombuffer(self._last, np.int64))
        runs = [last]
        if self._file is not None:
            self._file.flush()
            whole = np.memmap(self._file, np.int64, "r", shape=(self._runs, _TOGETHER))
            runs += list(whole)
        edges = np.linspace(-(2.0**63), 2.0**63, len(runs) + 1)[1:-1].astype(np.int64)
        cuts = [[0, *np.searchsorted(run, edges).tolist(), len(run)] for run in runs]
        for n in range(len(runs)):
            parts = [run[cut[n] : cut[n + 1]] for run, cut in zip(runs, cuts, strict=True)]
            yield np.unique(np.concatenate(parts), return_counts=True)[1]
