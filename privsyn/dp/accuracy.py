"""How often a classifier is right about people, as a mechanism: two noisy sums, and an interval.

Every unit weighs the same, one: split between *right* and *wrong* by the share of its records that
are answered right. The two sums over all units are published with discrete Laplace noise, and the
accuracy is read off them alone: how many units there are is as private as their answers, so nothing
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
from privsyn.dp.events import Pure
from privsyn.dp.mechanisms import Laplace
from privsyn.dp.noise import NoiseSource

STEPS = 2**20
"""Lattice steps of the weight of one unit."""

CONFIDENCE = 0.95
"""Chance, at least, that an interval holds what it is about."""

_MOST = 2**61


@dataclass(frozen=True)
class Estimate:
    """An accuracy as it may be published.

    Attributes:
        value: The estimate, 0 to 1; None where the noise left nothing to divide.
        low: Lower end of the interval for units like those tested, 0 to 1: noise and sampling.
        high: Upper end.
        noise_low: Lower end of the interval for the units tested themselves: noise alone.
        noise_high: Upper end.
        units: About how many units were tested: a noisy number, and may be negative.
    """

    value: float | None
    low: float
    high: float
    noise_low: float
    noise_high: float
    units: float


@dataclass(frozen=True)
class NoisyAccuracy:
    """Share of units that a public classifier is right about.

    Guarantee: pure loss ``epsilon`` for neighbours of the given adjacency, whatever is in the
    units and however many there are.

    Attributes:
        epsilon: What one draw may cost.
        adjacency: What neighbours differ by.
    """

    epsilon: float
    adjacency: Adjacency

    @property
    def noise(self) -> Laplace:
        """What is drawn with: scale and price."""
        # privacy: L1 distance of (right, wrong); a unit has STEPS in all, and two may differ.
        sensitivity = self.adjacency.moves * STEPS
        return Laplace(sensitivity, _up(Fraction(sensitivity) / Fraction(self.epsilon)))

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
            answers: Of each unit whether each of its records is answered right, at least one.
            noise: Where randomness comes from.
        """
        return self.noise.draw(sums(answers), noise)

    def read(self, right: int, wrong: int) -> Estimate:
        """The accuracy by the two noisy sums, in steps: post-processing."""
        # No true sum is negative, and raised to 0 each of them only widens the intervals.
        ours, others = max(0.0, right / STEPS), max(0.0, wrong / STEPS)
        return Estimate(
            value=ours / (ours + others) if ours + others else None,
            low=self._least(ours, others),
            high=1 - self._least(others, ours),
            noise_low=self._least_tested(ours, others),
            noise_high=1 - self._least_tested(others, ours),
            units=(right + wrong) / STEPS,
        )

    def _least(self, right: float, wrong: float) -> float:
        """Lower limit for units like those tested, given the noisy sums in units."""
        miss = (1 - CONFIDENCE) / 10  # the chance that there are more units than is taken here
        most = right + wrong + self.scale * _sum_of_two(miss) + 2 / STEPS
        side = math.log((1 - CONFIDENCE - miss) / 2)
        rates = _RATES / (self.scale * np.maximum(_GRID, 1 - _GRID)[:, None])
        beyond = right - _GRID * (right + wrong) - 1 / STEPS
        sampling = np.log1p(_GRID[:, None] * np.expm1(rates)) - rates * _GRID[:, None]
        noise = -sum(
            np.log1p(-((rates * self.scale * weight[:, None]) ** 2))
            for weight in (_GRID, 1 - _GRID)
        )
        chances = (most * sampling + noise - rates * beyond[:, None]).min(axis=1)
        return _first(chances >= side)

    def _least_tested(self, right: float, wrong: float) -> float:
        """Lower limit for the units tested themselves."""
        beyond = right - _GRID * (right + wrong) - 1 / STEPS
        chances = _two_sided_sum(beyond / self.scale, 1 - _GRID, _GRID)
        return _first(chances >= (1 - CONFIDENCE) / 2)


_GRID = np.linspace(0.0, 1.0, 2001)
_RATES = np.geomspace(1e-4, 0.999, 60)


def sums(answers: Iterable[Sequence[bool]]) -> NDArray[np.int64]:
    """Weight of the units answered right and wrong, in steps: whole numbers that cannot wrap."""
    right = wrong = 0
    for unit in answers:
        share = STEPS * sum(unit) // len(unit)
        right, wrong = right + share, wrong + STEPS - share
    return np.array([min(right, _MOST), min(wrong, _MOST)], np.int64)


def _first(accepted: NDArray[np.bool_]) -> float:
    """The point of the grid before the first accepted one. The last one always is accepted."""
    return float(_GRID[max(0, int(np.argmax(accepted)) - 1)])


def _two_sided_sum(
    far: NDArray[np.float64], first: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Chance that ``first`` and ``second`` times a Laplace variable each (scale 1) pass ``far``."""
    small, large = np.minimum(first, second), np.maximum(first, second)
    small = np.where(large - small < 1e-9, large - 1e-5, np.maximum(small, 1e-9))  # nearly there
    out = np.maximum(far, 0.0)
    tails = large**2 * np.exp(-out / large) - small**2 * np.exp(-out / small)
    tail = tails / (2 * (large**2 - small**2))
    return np.where(far <= 0, 1.0, tail)


def _sum_of_two(chance: float) -> float:
    """What the sum of two Laplace variables of scale 1 passes with this chance at most."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        passed = (2 + middle) / 4 * math.exp(-middle)
        low, high = (middle, high) if passed > chance else (low, middle)
    return high


def _up(exact: Fraction) -> float:
    value = float(exact)
    return value if Fraction(value) >= exact else math.nextafter(value, math.inf)
