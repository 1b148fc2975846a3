"""Accuracy of a classifier as a mechanism: two noisy sums, and a confidence interval.

Every unit has weight 1, which is split between *right* and *wrong* by the share of its records that
are classified right. The two sums over all units are published with discrete Laplace noise, and the
accuracy is computed from them alone: the number of units is as private as their answers, so nothing
is divided by a true count. Proof of sensitivity and interval: [B18] in bounds.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privsyn.dp.adjacency import Adjacency
from privsyn.dp.conversions import bisected
from privsyn.dp.events import Pure
from privsyn.dp.mechanisms import Laplace, round_up
from privsyn.dp.noise import NoiseSource

STEPS = 2**20
"""Lattice steps of one unit's weight."""

CONFIDENCE = 0.95
"""Least probability that an interval contains its target."""

_MOST = 2**61


@dataclass(frozen=True)
class Estimate:
    """An accuracy that may be published.

    Attributes:
        value: The estimate, 0 to 1; None if both noisy sums are at most 0.
        low: Lower end of the interval for units like those tested, 0 to 1: noise and sampling.
        high: Upper end of that interval.
        noise_low: Lower end of the interval for the tested units themselves: noise alone.
        noise_high: Upper end of that interval.
        units: Noisy number of tested units; it may be negative.
    """

    value: float | None
    low: float
    high: float
    noise_low: float
    noise_high: float
    units: float


@dataclass(frozen=True)
class NoisyAccuracy:
    """Share of units that a public classifier classifies right.

    Guarantee: pure loss ``epsilon`` for neighbors of the given adjacency, for any units and any
    number of them.

    Attributes:
        epsilon: Most that one draw may cost.
        adjacency: The account's adjacency.
    """

    epsilon: float
    adjacency: Adjacency

    @property
    def noise(self) -> Laplace:
        """The mechanism: its scale and price."""
        # privacy: the L1 distance of (right, wrong). A unit has STEPS in total; two may differ.
        sensitivity = self.adjacency.moves * STEPS
        return Laplace(sensitivity, round_up(Fraction(sensitivity) / Fraction(self.epsilon)))

    @property
    def event(self) -> Pure:
        """Price of one draw, at most ``epsilon``."""
        return self.noise.event

    @property
    def scale(self) -> float:
        """Scale of the noise on each sum, in units."""
        return self.noise.scale / STEPS

    def draw(self, answers: Iterable[Sequence[bool]], noise: NoiseSource) -> NDArray[np.int64]:
        """The two noisy sums, right and wrong, in steps.

        Args:
            answers: For each unit, whether each of its records is right; at least one record.
            noise: Source of randomness.
        """
        return self.noise.draw(sums(answers), noise)

    def read(self, right: int, wrong: int) -> Estimate:
        """The accuracy from the two noisy sums, in steps: post-processing."""
        # True sums are not negative, and raising a noisy sum to 0 only widens the intervals [B18].
        ours, others = max(0.0, right / STEPS), max(0.0, wrong / STEPS)
        return Estimate(
            value=ours / (ours + others) if ours + others else None,
            low=self._least(ours, others),
            high=1 - self._least(others, ours),
            noise_low=self._tested_low(ours, others),
            noise_high=1 - self._tested_low(others, ours),
            units=(right + wrong) / STEPS,
        )

    def _least(self, right: float, wrong: float) -> float:
        """Lower limit for units like those tested, from the noisy sums in units."""
        miss = (1 - CONFIDENCE) / 10  # the chance that there are more units than ``most``
        most = right + wrong + self.scale * _sum_of_two(miss) + 2 / STEPS
        side = math.log((1 - CONFIDENCE - miss) / 2)
        # Chernoff bounds, shape (grid, rates): any rate is valid, so the least bound is [B18].
        rates = _RATES / (self.scale * np.maximum(_GRID, 1 - _GRID)[:, None])
        beyond = right - _GRID * (right + wrong) - 1 / STEPS
        sampling = np.log1p(_GRID[:, None] * np.expm1(rates)) - rates * _GRID[:, None]
        noise = -sum(
            np.log1p(-((rates * self.scale * weight[:, None]) ** 2))
            for weight in (_GRID, 1 - _GRID)
        )
        chances = (most * sampling + noise - rates * beyond[:, None]).min(axis=1)
        return _first(chances >= side)

    def _tested_low(self, right: float, wrong: float) -> float:
        """Lower limit for the tested units themselves."""
        beyond = right - _GRID * (right + wrong) - 1 / STEPS
        chances = _two_sided_sum(beyond / self.scale, 1 - _GRID, _GRID)
        return _first(chances >= (1 - CONFIDENCE) / 2)


_GRID = np.linspace(0.0, 1.0, 2001)
_RATES = np.geomspace(1e-4, 0.999, 60)


def sums(answers: Iterable[Sequence[bool]]) -> NDArray[np.int64]:
    """Weights of right and wrong answers in steps, shape (2,); integers that cannot wrap around."""
    right = wrong = 0
    for unit in answers:
        # Python integers, rounded down: a unit adds exactly STEPS in total, however many records it
        # has.
        share = STEPS * sum(unit) // len(unit)
        right, wrong = right + share, wrong + STEPS - share
    return np.array([min(right, _MOST), min(wrong, _MOST)], np.int64)


def _first(accepted: NDArray[np.bool_]) -> float:
    """The grid point before the first accepted one. The last one is always accepted."""
    return float(_GRID[max(0, int(np.argmax(accepted)) - 1)])


def _two_sided_sum(
    far: NDArray[np.float64], first: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Chance that the sum of two Laplace variables of these scales exceeds ``far``."""
    small, large = np.minimum(first, second), np.maximum(first, second)
    # Equal scales would divide 0 by 0; the tail at almost equal scales replaces it.
    small = np.where(large - small < 1e-9, large - 1e-5, np.maximum(small, 1e-9))
    out = np.maximum(far, 0.0)
    tails = large**2 * np.exp(-out / large) - small**2 * np.exp(-out / small)
    tail = tails / (2 * (large**2 - small**2))
    return np.where(far <= 0, 1.0, tail)


def _sum_of_two(chance: float) -> float:
    """A bound that the sum of two Laplace variables of scale 1 exceeds with at most this chance."""
    return bisected(lambda at: (2 + at) / 4 * math.exp(-at) <= chance, 0.0, 100.0)[1]
