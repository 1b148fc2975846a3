"""Nearest-neighbour votes: one vote of each private row for its nearest candidate, exactly.

A vote may depend on its own row and the public candidates alone, not on the rows beside it, the
size of a batch or the number of threads; otherwise one changed record could move the votes of
others. Sums of floats do not promise that. So vectors are rounded to whole numbers, with lengths of
at most ``REACH``: every norm, product and partial sum of a squared distance is then a whole number
below 2^24, which float32 holds exactly, in whatever order FAISS and its BLAS add: [E3] in
private_evolution.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsyn.errors import ModelError

REACH = 2000
"""Longest vector on the grid: (2 REACH)^2 < 2^24."""

_FAR = 2.0**20
_ROWS = 4096  # rounded at a time


@dataclass(frozen=True)
class Grid:
    """Where vectors are rounded: whole numbers around a public centre.

    Attributes:
        centre: Zero of the grid.
        scale: Grid steps per unit of the vectors.
    """

    centre: NDArray[np.float32]
    scale: float

    @classmethod
    def around(cls, public: NDArray[np.float32]) -> Grid:
        """The grid on which public vectors reach half of ``REACH``."""
        exact = _finite(public.astype(np.float64))
        centre = exact.mean(axis=0).astype(np.float32)
        spread = _length(exact - centre)
        if spread == 0:
            spread = _length(exact) or 1.0
        return cls(centre, REACH / 2 / spread)

    def fits(self, public: NDArray[np.float32]) -> bool:
        """Whether these vectors lie within the grid's reach and use a fair part of it."""
        spread = _length(_finite(public.astype(np.float64)) - self.centre) * self.scale
        return bool(REACH / 8 <= spread <= REACH - np.sqrt(public.shape[1]))

    def round(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """The vectors in whole grid steps; longer ones are shortened to ``REACH``.

        Guarantee: row by row; a row's result depends on that row alone. Total: NaN counts as the
        centre, infinities as far away.
        """
        out = np.empty(vectors.shape, np.float32)
        for start in range(0, len(vectors), _ROWS):
            rows = vectors[start : start + _ROWS].astype(np.float64)
            rows -= self.centre
            rows *= self.scale
            steps = np.rint(np.clip(np.nan_to_num(rows, copy=False), -_FAR, _FAR, out=rows))
            squares = np.einsum("ij,ij->i", steps, steps)  # whole numbers below 2^53: exact
            if (long := squares > REACH**2).any():
                steps[long] = np.trunc(steps[long] * (REACH / np.sqrt(squares[long]))[:, None])
            out[start : start + _ROWS] = steps
        return out


class Voters:
    """The private vectors of one label, in memory only.

    Args:
        vectors: Shape (records, width); no rows are fine.

    Raises:
        ModelError: FAISS does not count exactly on this machine.
    """

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        _probe(vectors.shape[1])
        self._vectors = vectors
        self._grid: Grid | None = None
        self._rows = np.empty((0, 0), np.float32)

    def votes(self, candidates: NDArray[np.float32]) -> NDArray[np.int64]:
        """How many rows are nearest to each candidate; ties go to the lowest index.

        Guarantee: every row adds exactly one vote, and another row's coming or going moves none.

        Args:
            candidates: Public vectors, shape (candidates, width), at least one.
        """
        if self._grid is None or not self._grid.fits(candidates):  # decided by public vectors
            self._grid = Grid.around(candidates)
            self._rows = self._grid.round(self._vectors)
        nearest = _nearest(self._rows, self._grid.round(candidates))
        return np.bincount(nearest, minlength=len(candidates)).astype(np.int64)


def _nearest(rows: NDArray[np.float32], candidates: NDArray[np.float32]) -> NDArray[np.int64]:
    """Index of the candidate nearest to each row, both of whole grid steps; the lowest of a tie."""
    import faiss  # late: planning casts no vote

    if not len(rows):
        return np.empty(0, np.int64)
    _, found = faiss.knn(rows, candidates, 1)
    return np.asarray(found[:, 0], np.int64)


_probed: set[int] = set()


def _probe(width: int) -> None:
    """Compare FAISS with integer arithmetic, on vectors of this width with many ties."""
    if width in _probed:
        return
    import faiss

    rng = np.random.default_rng(0)  # public randomness: which vectors the probe reads
    most = max(1, int(REACH / np.sqrt(width)))
    for count, n in ((1, 7), (40, 300), (40, 1100)):
        rows = rng.integers(-most, most + 1, (count, width))
        candidates = rng.integers(-most, most + 1, (n, width))[rng.integers(0, max(1, n // 3), n)]
        distances = (rows**2).sum(1)[:, None] + (candidates**2).sum(1) - 2 * rows @ candidates.T
        found = faiss.knn(rows.astype(np.float32), candidates.astype(np.float32), 1)
        exact = distances.argmin(axis=1), distances.min(axis=1)
        if not (np.array_equal(found[1][:, 0], exact[0]) and (found[0][:, 0] == exact[1]).all()):
            raise ModelError(
                f"FAISS counts distances of width {width} inexactly on this machine, so that votes "
                "would depend on one another.",
                hint="Install the faiss-cpu that requirements.lock names.",
            )
    _probed.add(width)


def _finite(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.clip(np.nan_to_num(vectors), -_FAR, _FAR)


def _length(vectors: NDArray[np.float64]) -> float:
    return float(np.sqrt((vectors**2).sum(axis=1).max(initial=0.0)))
