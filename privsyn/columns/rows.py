"""Synthetic rows from noisy marginals: post-processing, by public randomness.

Every label has the distribution of its noisy tables [C3]; a public pair adds what ties its columns,
which is the same for all labels but for their own counts (a log-linear model without interactions
of three, fitted by iterative proportional fitting: Deming and Stephan 1940). Columns that no pair
ties are independent within a label. Pairs form trees, so a row is drawn column by column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsyn.columns.choice import Pair
from privsyn.columns.marginals import Marginals
from privsyn.data.records import Row

_ROUNDS = 50
"""Rounds of proportional fitting."""


def synthetic_rows(
    marginals: Marginals,
    tables: Sequence[NDArray[np.float64]],
    counts: Mapping[str | None, int],
    rng: np.random.Generator,
) -> dict[str | None, list[Row]]:
    """As many rows of each label as ``counts`` says, in random order; of its noisy ``tables``.

    A column that is the first of its tree has each cell as often as its noisy share says, up to one
    row.
    """
    model = _Model.fit(marginals, tables)
    rows = {}
    for label, count in counts.items():
        codes = model.draw(marginals.labels.index(label), count, rng)
        rows[label] = [tuple(row) for row in codes.tolist()]
    return rows


def explained(
    marginals: Marginals, tables: Sequence[NDArray[np.float64]], pairs: Sequence[Pair]
) -> Iterator[NDArray[np.float64]]:
    """Records of the cells of each pair, if nothing but the label ties its columns."""
    alone = _Model.fit(marginals, tables).alone
    for one, other in pairs:
        shares = alone[one - 1] / np.maximum(alone[one - 1].sum(axis=1, keepdims=True), 1e-9)
        yield np.asarray(shares.T @ alone[other - 1])


@dataclass(frozen=True)
class _Model:
    """Distributions of all labels.

    Attributes:
        alone: Counts of the cells of each column, (labels, cells), by place from 0.
        tied: Counts of two columns together, (labels, cells, cells), by places.
    """

    alone: list[NDArray[np.float64]]
    tied: dict[tuple[int, int], NDArray[np.float64]]

    @classmethod
    def fit(cls, marginals: Marginals, tables: Sequence[NDArray[np.float64]]) -> _Model:
        columns = len(marginals.columns)
        by_label, pairs = tables[:columns], tables[columns:]
        # Each column tells the records of a label: their mean has the least noise. Not less than
        # noise alone explains, which spreads the rows of a label that is hardly there.
        totals = np.mean([table.sum(axis=1) for table in by_label], axis=0)  # (labels,)
        totals = np.maximum(totals, marginals.least)
        alone = [
            np.array([nearest(row, total) for row, total in zip(table, totals, strict=True)])
            for table in by_label
        ]
        tied = {}
        for (one, other), pair in zip(marginals.tables[columns:], pairs, strict=True):
            together = nearest(pair.ravel(), totals.sum()).reshape(pair.shape)
            tied[one - 1, other - 1] = _tie(alone[one - 1], alone[other - 1], together)
        return cls(alone, tied)

    def draw(self, label: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Rows of a label, (count, columns)."""
        codes = np.full((count, len(self.alone)), -1, np.int64)
        done: set[int] = set()
        for root, table in enumerate(self.alone):
            if root in done:
                continue
            codes[:, root] = _spread(table[label], count, rng)
            done.add(root)
            tree = [root]
            for parent in tree:
                for pair, counts in self.tied.items():
                    child = sum(pair) - parent
                    if parent not in pair or child in done:
                        continue
                    shares = counts[label] if pair[0] == parent else counts[label].T
                    for cell in np.unique(codes[:, parent]):
                        of = np.flatnonzero(codes[:, parent] == cell)
                        codes[of, child] = _spread(shares[cell], len(of), rng)
                    done.add(child)
                    tree.append(child)
        return codes


def nearest(counts: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """The nearest counts of a sum, none of them negative; (cells,).

    Source: Duchi et al. 2008, "Efficient projections onto the l1-ball", figure 1.

    >>> nearest(np.array([3.0, 1.0, -2.0]), 2.0)
    array([2., 0., 0.])
    """
    falling = np.sort(counts)[::-1]
    shifts = (np.cumsum(falling) - total) / np.arange(1, len(counts) + 1)
    last = np.flatnonzero(falling > shifts)[-1]
    return np.asarray(np.maximum(counts - shifts[last], 0.0))


def _tie(
    one: NDArray[np.float64], other: NDArray[np.float64], together: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Two columns of each label, tied as they are together, (labels, cells, cells)."""
    # A cell without a count is rare, not impossible: the counts of a label must find a place.
    together = np.maximum(together, 1e-3 * together.mean())
    fitted = one[:, :, None] * other[:, None, :]
    # The label's own counts last, and alone in the second half: the pair's need not agree.
    for number in range(2 * _ROUNDS):
        if number < _ROUNDS:
            fitted *= _ratio(together, fitted.sum(axis=0))
        fitted *= _ratio(one, fitted.sum(axis=2))[:, :, None]
        fitted *= _ratio(other, fitted.sum(axis=1))[:, None, :]
    return fitted


def _ratio(target: NDArray[np.float64], is_now: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(target, is_now, out=np.zeros_like(target), where=is_now > 0)


def _spread(
    weights: NDArray[np.float64], count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Cells in proportion to their weights, each as often as its share up to one; (count,)."""
    if not weights.sum():
        weights = np.ones_like(weights)
    ends = np.cumsum(weights) / weights.sum()
    places = (np.arange(count) + rng.random()) / max(count, 1)
    cells = np.minimum(np.searchsorted(ends, places, side="right"), len(weights) - 1)
    return rng.permutation(cells).astype(np.int64)
