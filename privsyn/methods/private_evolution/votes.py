"""Nearest-neighbor votes: each private row has exactly one vote, for its nearest candidate.

A unit's votes are clipped together, to an L2 norm of the root of the most that it may have [E15].

A vote must depend on its own row and the public candidates alone, not on other rows, the batch size
or the number of threads; otherwise one changed record could move the votes of others. Sums of
floats do not guarantee that. So vectors are rounded to integers with lengths of at most ``REACH``.
Then every norm, product and partial sum of a squared distance is an integer below 2^24, which
float32 holds exactly, whatever the order in which FAISS and its BLAS add ([E3] in guarantee.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.errors import ModelError

REACH = 2000
"""Length of the longest vector on the grid: (2 REACH)^2 < 2^24."""

_FAR = 2.0**20
"""Public coordinates are clipped to this magnitude before the grid is computed."""

_ROWS = 4096
"""Private rows per comparison, to bound memory."""


@dataclass(frozen=True)
class Grid:
    """The grid to which vectors are rounded: integers around a public center.

    Attributes:
        center: Zero of the grid, shape (width,).
        scale: Grid steps per unit of the vectors.
    """

    center: NDArray[np.float32]
    scale: np.float32

    @classmethod
    def around(cls, public: NDArray[np.float32]) -> Grid:
        """The grid on which public vectors, shape (candidates, width), reach half of ``REACH``."""
        # privacy: center and scale depend on public candidates alone [E3]
        exact = np.clip(np.nan_to_num(public.astype(np.float64)), -_FAR, _FAR)
        center = exact.mean(axis=0).astype(np.float32)
        spread = _length(exact - center) or _length(exact) or 1.0
        return cls(center, np.float32(REACH / 2 / max(spread, 1e-9)))

    def round(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """The vectors in integer grid steps; longer ones are shortened to ``REACH``.

        Guarantee: a row's result depends on that row alone. Total: NaN counts as the center,
        infinities as far away.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            steps = np.subtract(vectors, self.center, dtype=np.float32)  # (rows, width)
            steps *= self.scale
        np.nan_to_num(steps, copy=False, posinf=REACH, neginf=-REACH)
        np.clip(steps, -REACH, REACH, out=steps)
        np.rint(steps, out=steps)
        # Sums of squares are exact up to 2^24 and only grow, so the comparison is exact.
        long = np.einsum("ij,ij->i", steps, steps) > REACH**2  # (rows,)
        if long.any():
            far = steps[long].astype(np.float64)
            lengths = np.sqrt((far * far).sum(axis=1, keepdims=True))  # (long rows, 1)
            # Toward zero: rounding must not make a vector longer than REACH.
            steps[long] = np.trunc(far * (REACH / lengths))
        return steps


class Voters:
    """The private vectors of one label, kept in memory only.

    Args:
        vectors: Shape (records, width). There may be no rows.

    Raises:
        ModelError: FAISS does not count exactly on this machine.
    """

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        _probe(vectors.shape[1])
        self.vectors = vectors

    def nearest(self, candidates: NDArray[np.float32]) -> NDArray[np.int64]:
        """The candidate that each row votes for, shape (records,); ties go to the lowest index.

        Guarantee: every row has exactly one vote, and adding or removing another row moves none.

        Args:
            candidates: Public vectors, shape (candidates, width), at least one.
        """
        import faiss  # late: planning does not vote

        grid = Grid.around(candidates)
        places = grid.round(candidates)  # (candidates, width)
        votes = np.empty(len(self.vectors), np.int64)
        for start in range(0, len(self.vectors), _ROWS):
            rows = grid.round(self.vectors[start : start + _ROWS])  # (at most _ROWS, width)
            # privacy: exactly one vote per row [E3]
            votes[start : start + _ROWS] = faiss.knn(rows, places, 1)[1][:, 0]  # from (rows, 1)
        return votes


def clip_steps(steps: Sequence[int], most: int, one: int) -> list[int]:
    """Whole numbers at an L2 norm of at most ``one`` times the root of ``most`` [E15].

    They stay where their norm is within it; else each is rounded toward zero.
    """
    squared, bound = sum(step * step for step in steps), most * one * one
    if squared <= bound:
        return list(steps)
    # privacy: rounded number by number, so the norm is within the bound; isqrt is exact
    shorter = (math.isqrt(step * step * bound // squared) for step in steps)
    return [short if step > 0 else -short for short, step in zip(shorter, steps, strict=True)]


def exact_sums(
    vectors: Sequence[NDArray[np.float32]], units: Sequence[str], grid: Grid, most: int, one: int
) -> NDArray[np.int64]:
    """Sum of the directions of each label's rows, shape (labels * width,). Not yet private.

    Guarantee: a row adds an integer vector of an L2 norm of at most ``one`` to its label's sum, and
    a unit, with all its rows of all labels, one of at most ``one`` times the root of ``most``,
    whatever the rows hold. These vectors do not depend on the rows of other units [E14].

    Args:
        vectors: The rows of each label, shape (records, width).
        units: The unit of each row, over all labels.
        grid: Made from public candidates.
        most: Most rows of a unit.
        one: Lattice steps of the unit norm.
    """
    width, counts = len(grid.center), Counter(units)
    sums = np.zeros((len(vectors), width), np.int64)
    shared: dict[str, dict[int, NDArray[np.int64]]] = {}  # by unit and label, (width,)
    owners = iter(units)
    for label, rows in enumerate(vectors):
        for start in range(0, len(rows), _ROWS):
            part = directions(grid.round(rows[start : start + _ROWS]))
            steps = np.trunc(part * one).astype(np.int64)
            # privacy: squares of integers, compared exactly; a row that rounding made too long
            # counts as none
            steps[np.einsum("ij,ij->i", steps, steps) > one * one] = 0
            for row, unit in zip(steps, owners, strict=False):
                if counts[unit] == 1:
                    sums[label] += row
                else:
                    mine = shared.setdefault(unit, {})
                    mine[label] = mine.get(label, 0) + row
    for mine in shared.values():
        whole = clip_steps(np.concatenate([*mine.values()]).tolist(), most, one)
        sums[[*mine]] += np.reshape(whole, (len(mine), width))
    return sums.ravel()


def directions(steps: NDArray[Any]) -> NDArray[np.float64]:
    """Rows of whole numbers at length 1, shape (rows, width); a row of zeros stays.

    Guarantee: a row's result depends on that row alone, since its squared length is exact.
    """
    exact = np.asarray(steps, np.float64)
    squares = np.einsum("ij,ij->i", exact, exact)[:, None]
    return np.asarray(exact / np.sqrt(np.where(squares > 0, squares, 1.0)))


def labels_of(
    noisy: NDArray[np.int64], vectors: NDArray[np.float32], grid: Grid, sizes: Sequence[int]
) -> NDArray[np.int64]:
    """Place of the label whose noisy mean points nearest, of every candidate; (candidates,).

    Every label gets at least as many as it releases: those that lose least, of labels with more.
    Post-processing of the noisy sums.

    Args:
        noisy: Noisy sums of directions, shape (labels * width,).
        vectors: Public vectors of the candidates, shape (candidates, width).
        grid: As for the sums.
        sizes: Samples that each label releases, together no more than there are candidates.
    """
    means = directions(noisy.reshape(len(sizes), -1))
    nearness = directions(grid.round(vectors)) @ means.T  # (candidates, labels)
    labels = nearness.argmax(axis=1)
    counts = np.bincount(labels, minlength=len(sizes))
    for label, size in enumerate(sizes):
        loss = nearness.max(axis=1) - nearness[:, label]
        for candidate in np.argsort(loss, kind="stable"):
            if counts[label] >= size:
                break
            if counts[labels[candidate]] > sizes[labels[candidate]]:
                counts[labels[candidate]] -= 1
                counts[label] += 1
                labels[candidate] = label
    return np.asarray(labels, np.int64)


_probed: set[int] = set()


def _probe(width: int) -> None:
    """Compare FAISS with integer arithmetic on vectors of this width with many ties."""
    if width in _probed:
        return
    import faiss

    rng = np.random.default_rng(0)  # public randomness: which vectors the probe reads
    most = max(1, int(REACH / np.sqrt(width)))
    for count, n in ((1, 7), (40, 300), (40, 1100)):
        rows = rng.integers(-most, most + 1, (count, width))
        candidates = rng.integers(-most, most + 1, (n, width))[rng.integers(0, max(1, n // 3), n)]
        # squared distances, (count, n)
        distances = (rows**2).sum(1)[:, None] + (candidates**2).sum(1) - 2 * rows @ candidates.T
        smallest, nearest = faiss.knn(rows.astype(np.float32), candidates.astype(np.float32), 1)
        exact = distances.argmin(axis=1), distances.min(axis=1)
        if not (np.array_equal(nearest[:, 0], exact[0]) and (smallest[:, 0] == exact[1]).all()):
            raise ModelError(
                f"FAISS computes distances of width {width} inexactly on this machine, so votes "
                "would depend on each other.",
                hint="Install the version of faiss-cpu in requirements.lock.",
            )
    _probed.add(width)


def _length(vectors: NDArray[np.float64]) -> float:
    """Length of the longest vector; 0 without vectors."""
    return float(np.sqrt((vectors**2).sum(axis=1).max(initial=0.0)))
