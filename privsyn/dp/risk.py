"""What a guarantee means for one person: how well the best attacker can do.

He knows the settings, the release and every record but one unit's, and tells apart two cases: the
unit is in the data, or it is not (under replace_one: it is this unit, or that one). Each point
(epsilon, delta) of the privacy profile bounds his true positive rate at a false positive rate a by

    min(delta + e^epsilon a, 1 - e^-epsilon (1 - delta - a)),

and the difference of the two rates by (e^epsilon - 1 + 2 delta) / (e^epsilon + 1); the least over
all points holds.

Source: Kairouz, Oh, Viswanath 2015, "The Composition Theorem for Differential Privacy", Theorem
2.1 (the region of an (epsilon, delta)); Kulynych et al. 2024, "Attack-Aware Noise Calibration"
(risks from the profile). Proof: [B17] in bounds.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass

from privsyn.dp.accountant import profile
from privsyn.dp.events import Event

_ROUNDING = 2.0**-40
"""Over all roundings of the formulas here, none of which cancels."""


@dataclass(frozen=True)
class Risk:
    """Upper bounds on what any attacker achieves against one unit.

    Attributes:
        found_at_1_percent: True positive rate at a false positive rate of 1%.
        found_at_1_permille: True positive rate at a false positive rate of .1%.
        advantage: Largest difference of the two rates.
    """

    found_at_1_percent: float
    found_at_1_permille: float
    advantage: float

    def figures(self) -> dict[str, float]:
        """The bounds by name."""
        return dataclasses.asdict(self)

    @property
    def right(self) -> float:
        """Chance to name the right case of two that are equally likely: a coin has .5."""
        return (1 + self.advantage) / 2

    def words(self, unit: str, adjacency: str) -> tuple[str, str]:
        """The bounds as two sentences, for who does not know what epsilon is.

        Args:
            unit: What is protected, as the account names it.
            adjacency: What neighbours differ by.
        """
        cases = (
            f"which of two {unit}s is in the data"
            if adjacency == "replace_one"
            else f"whether a given {unit} is in the data"
        )
        return (
            f"somebody who knows all the rest and has to say {cases} is right at most "
            f"{_of(self.right, 100)} times in 100; with a coin 50",
            f"accepting 1 wrong accusation in 100 he finds at most "
            f"{_of(self.found_at_1_percent, 100)} in 100; accepting 1 in 1,000, "
            f"{_of(self.found_at_1_permille, 1000)} in 1,000",
        )


def _of(chance: float, whole: int) -> str:
    return f"{math.ceil(chance * whole - 1e-9):,}"


def risk(event: Event) -> Risk:
    """Risks of a release, from the privacy profile of its event."""
    return of_profile(profile(event))


def of_profile(points: Iterable[tuple[float, float]]) -> Risk:
    """Risks, given points of the profile."""
    points = list(points)
    return Risk(
        found_at_1_percent=found(points, 0.01),
        found_at_1_permille=found(points, 0.001),
        advantage=_up(min((_advantage(*point) for point in points), default=1.0)),
    )


def found(points: Iterable[tuple[float, float]], false_positives: float) -> float:
    """Largest true positive rate at a false positive rate, given points of the profile."""
    return _up(min((_found(*point, false_positives) for point in points), default=1.0))


def _found(epsilon: float, delta: float, false_positives: float) -> float:
    most = delta + math.exp(min(epsilon, 700.0)) * false_positives
    return min(1.0, most, 1 - math.exp(-epsilon) * (1 - delta - false_positives))


def _advantage(epsilon: float, delta: float) -> float:
    return min(1.0, math.tanh(epsilon / 2) + 2 * delta / (math.exp(min(epsilon, 700.0)) + 1))


def _up(value: float) -> float:
    return min(1.0, value * (1 + _ROUNDING))
