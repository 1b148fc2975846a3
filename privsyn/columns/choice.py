"""Pairs of columns that noisy scores choose: ``columns.pairs: auto`` (guarantee.md, [C4]).

Source: McKenna, Miklau, Sheldon 2021, Winning the NIST contest, section 3.2: the pairs of a
spanning tree, one after another, each by the exponential mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privsyn.dp.events import Event
from privsyn.dp.histograms import LATTICE, sensitivity
from privsyn.dp.mechanisms import DiscreteGaussian, ExponentialMechanism

Pair = tuple[int, int]
"""Places of two columns, from 1 on."""


@dataclass(frozen=True)
class Choice:
    """Which pairs are counted, and the noise of their tables.

    Guarantee: ``events``, in sequence; the tables are counted once all pairs are chosen.

    Attributes:
        mechanism: Draws one pair.
        noise: Of the chosen pairs' tables.
        rounds: Pairs that are chosen: as many as join all columns.
    """

    mechanism: ExponentialMechanism
    noise: DiscreteGaussian
    rounds: int

    @classmethod
    def of(cls, rounds: int, moves: int, most: int, choosing: float, counting: float) -> Choice:
        """For so much zCDP of the choice, and so much of the tables."""
        # privacy: one record moves a score by one at most, since it is in one cell of each pair
        widest = moves * most * LATTICE
        # R draws of range eta cost R eta^2 / 8 zCDP. Six digits, rounded down, as in marginals.py.
        eta = float(f"{math.sqrt(8 * choosing / rounds) * (1 - 1e-5):.6g}")
        mechanism = ExponentialMechanism(widest, 2 * widest / eta)
        return cls(mechanism, gaussian(moves, rounds * most, counting), rounds)

    @property
    def events(self) -> tuple[Event, ...]:
        """The draws of the pairs, then their tables."""
        return replace(self.mechanism.event, count=self.rounds), self.noise.event

    def scores(
        self, exact: Iterable[NDArray[np.int64]], explained: Iterable[NDArray[np.float64]]
    ) -> NDArray[np.int64]:
        """How far each pair's counts are from what is explained, beyond noise; (pairs,).

        Args:
            exact: Counts of each pair in lattice steps, (cells,). Not yet private.
            explained: What the noisy tables so far make of them in records, (cells, cells).
        """
        apart = []
        for counts, by_star in zip(exact, explained, strict=True):
            far = np.abs(counts - np.rint(by_star.ravel() * LATTICE).astype(np.int64)).sum()
            # What noise alone would make of the table: a public number of each pair.
            apart.append(int(far) - round(math.sqrt(2 / math.pi) * self.noise.sigma) * len(counts))
        return np.array(apart, np.int64)

    def choose(self, pairs: Sequence[Pair], draw: Callable[[int, list[int]], int]) -> list[Pair]:
        """The pairs of a tree.

        Args:
            pairs: All there are.
            draw: Given the round and the places among ``pairs`` that close no circle, draws one of
                these places by its own place.
        """
        groups = {place: place for pair in pairs for place in pair}
        chosen: list[Pair] = []
        for number in range(self.rounds):
            free = [n for n, (one, other) in enumerate(pairs) if groups[one] != groups[other]]
            one, other = pairs[free[draw(number, free)]]
            chosen.append((one, other))
            joined = groups[other]
            groups = {at: groups[one] if of == joined else of for at, of in groups.items()}
        return chosen


def gaussian(moves: int, most: int, rho: float) -> DiscreteGaussian:
    """Noise for so much zCDP on vectors, of which a unit's has an L2 norm of root ``most``."""
    l2 = sensitivity(moves, most)
    # A draw of multiplier z costs 1 / (2 z^2) zCDP, and is 1 / z-Gaussian DP. Six digits, rounded
    # up: the last digits of the target's differ between processors, and verify asks for the same
    # event.
    multiplier = float(f"{math.sqrt(1 / (2 * rho)) * (1 + 1e-5):.6g}")
    return DiscreteGaussian(l2, multiplier * l2)
