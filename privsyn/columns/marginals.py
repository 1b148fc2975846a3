"""Noisy marginals of declared columns: one draw over all their cells.

Guarantee, proof and the tags [C1] ... of these lines: guarantee.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privsyn.columns.choice import Choice, Pair, gaussian
from privsyn.columns.settings import AUTO, ColumnsConfig
from privsyn.data.columns import Column
from privsyn.data.records import Bucket
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.calibration import calibrate_rho
from privsyn.dp.events import Event
from privsyn.dp.filters import gaussian_budget, gaussian_mu_squared
from privsyn.dp.histograms import LATTICE, histogram
from privsyn.dp.mechanisms import DiscreteGaussian

_FOR_CHOICE = 0.1
"""Share of the columns' zCDP by which pairs are chosen, where they are."""
_MARGIN = 1e-3
"""Of a table alone: what less zCDP of the choices may leave of its mu, and more."""
_AT_ONCE = 1 << 15
"""Units whose records are counted at once: memory does not grow with tables times records."""
_LOUD = 0.5
"""Noise over the records that a cell holds on average, from which on noise decides."""


@dataclass(frozen=True)
class Marginals:
    """Noisy counts of every declared cell: each column by label, and public pairs of columns.

    Guarantee: ``events``, for neighbors of the account's adjacency.

    Attributes:
        columns: The declared columns.
        labels: The public labels; (None,) without labels.
        tables: What is counted together, by place: 0 is the label, 1 the first column.
        most: Most records of a unit (m).
        noise: Adds noise to all tables at once, and prices it.
        choice: What chooses further pairs by these tables; None where pairs are named.
    """

    columns: Mapping[str, Column]
    labels: tuple[str | None, ...]
    tables: tuple[tuple[int, int], ...]
    most: int
    noise: DiscreteGaussian
    choice: Choice | None = None

    @classmethod
    def of(
        cls,
        cfg: ColumnsConfig,
        columns: Mapping[str, Column],
        labels: tuple[str, ...],
        target: Guarantee,
        adjacency: Adjacency,
        unit: PrivacyUnit,
        *,
        alone: bool = False,
    ) -> Marginals:
        """The marginals with the least noise for their share of a release's target.

        ``alone``, the target is all theirs: nothing else of the release reads a record.
        """
        names = [None, *columns]
        tables = [(0, place) for place in range(1, len(names))]
        moves, most, choice = adjacency.moves, unit.max_records, None
        if alone:  # nothing but Gaussian noise, whose mu is exact, and choices
            rho = gaussian_budget(target.epsilon, target.delta) / 2
        else:
            rho = cfg.share * calibrate_rho(target)
        if cfg.pairs != AUTO:
            tables += [(names.index(one), names.index(other)) for one, other in cfg.pairs]
        elif rounds := len(columns) - 1:
            if alone:  # [B16] the squared mu of the choices is above twice their rho
                picks = Choice.of(rounds, moves, most, _FOR_CHOICE * rho, rho).events[0]
                # Few digits: the last ones differ between processors, as those of the target do.
                spent = 1 - _FOR_CHOICE + round(gaussian_mu_squared(picks) / (2 * rho), 4)
                rho *= (1 - _MARGIN) / spent
            # Every table has the same noise, whether chosen or not.
            each = (1 - _FOR_CHOICE) * rho / (len(tables) + rounds)
            choice = Choice.of(rounds, moves, most, _FOR_CHOICE * rho, rounds * each)
            rho = len(tables) * each
        # privacy: a record counts in every one of the K tables, so a unit has K m votes [C2]
        noise = gaussian(moves, len(tables) * most, rho)
        return cls(columns, tuple(labels) or (None,), tuple(tables), most, noise, choice)

    @property
    def events(self) -> tuple[Event, ...]:
        """All draws, in order."""
        return (self.noise.event, *(self.choice.events if self.choice else ()))

    @property
    def candidates(self) -> Marginals:
        """The tables of all pairs of columns, to count: their noise is that of ``choice``."""
        pairs = combinations(range(1, len(self.columns) + 1), 2)
        return replace(self, tables=tuple(pairs), choice=None)

    def with_pairs(self, pairs: Iterable[Pair]) -> Marginals:
        """These tables and, behind them, those of chosen pairs."""
        return replace(self, tables=(*self.tables, *pairs), choice=None)

    @cached_property
    def widths(self) -> list[int]:
        """Cells of the label and of each column."""
        return [len(self.labels), *(len(column.cells) for column in self.columns.values())]

    @cached_property
    def sizes(self) -> list[int]:
        """Cells of each table."""
        return [self.widths[one] * self.widths[other] for one, other in self.tables]

    @property
    def largest(self) -> int:
        """Cells of the largest table that is counted, or may be."""
        return max(self.sizes + (self.candidates.sizes if self.choice else []))

    @cached_property
    def ends(self) -> list[int]:
        """Where each table ends among all cells; the last one is their number."""
        return [int(end) for end in np.cumsum(self.sizes)]

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on a cell, in records."""
        return self.noise.sigma / LATTICE

    @property
    def least(self) -> float:
        """Records of a label below which noise spreads its rows over the cells of a column."""
        return self.deviation * max(self.widths[1:])

    def count(self, buckets: Iterable[Bucket]) -> NDArray[np.int64]:
        """Records of every cell in lattice steps, each unit's clipped, (cells,). Not yet private.

        Guarantee: a function of units, whose sum it is; each adds no negative number, and an L2
        norm of at most the root of K m records [C2].
        """
        codes = [np.empty((0, 1 + len(self.columns)), np.int32)]  # (records, places)
        names = [np.empty(0, "S1")]
        for bucket in buckets:
            # privacy: a cell is a function of its own record [C1]
            rows = np.array(bucket.rows.reveal(), np.int32).reshape(-1, len(self.columns))
            label = np.full((len(rows), 1), self.labels.index(bucket.cell.label), np.int32)
            codes.append(np.hstack([label, rows]))
            # Keyed hashes: none ends in a zero byte, which numpy would drop.
            names.append(np.array([name.encode() for name in bucket.units.reveal()], np.bytes_))
        together = np.concatenate(names)
        names.clear()
        units, unit = np.unique(together, return_inverse=True)
        return self._clipped(np.concatenate(codes), unit, len(units))

    def _clipped(
        self, codes: NDArray[np.int32], unit: NDArray[np.int64], units: int
    ) -> NDArray[np.int64]:
        """Counts of records by the number of their unit, for so many units at a time."""
        steps = np.zeros(self.ends[-1], np.int64)
        for first in range(0, units, _AT_ONCE):
            # privacy: all records of a unit, over all tables and labels [C2]
            now = (unit >= first) & (unit < first + _AT_ONCE)
            some = codes[now].astype(np.int64)
            votes = [
                begin + some[:, one] * self.widths[other] + some[:, other]
                for begin, (one, other) in zip([0, *self.ends[:-1]], self.tables, strict=True)
            ]
            names = np.tile(unit[now], len(self.tables)).tolist()
            most = len(self.tables) * self.most
            steps += histogram(np.concatenate(votes), names, self.ends[-1], most, LATTICE)
        return steps

    def split(self, noisy: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
        """The noisy tables in records, each of shape (cells, cells)."""
        parts = np.split(noisy / LATTICE, self.ends[:-1])
        for part, (one, other) in zip(parts, self.tables, strict=True):
            yield part.reshape(self.widths[one], self.widths[other])

    def advice(self, records: float | None) -> str | None:
        """What to do where noise drowns a table; None where it does not, or nobody knows.

        Args:
            records: Records of all labels, by public numbers.
        """
        largest = self.largest
        if records is None or self.deviation < _LOUD * records / largest:
            return None
        return (
            f"columns: noise of {self.deviation:.3g} records on each of the {largest:,} cells "
            f"of a table, which hold {records / largest:.2g} on average: noise decides. Take "
            "fewer bins or columns, or raise columns.share."
        )
