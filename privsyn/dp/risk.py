"""The meaning of a guarantee for one person: bounds on the success of any attacker.

The attacker knows the settings, the release and all records but one unit's, and distinguishes two
cases: the unit is in the data, or it is not (under replace_one: it is this unit, or that one). Each
point (epsilon, delta) of the privacy profile bounds the true positive rate at false positive rate a
by

    min(delta + e^epsilon a, 1 - e^-epsilon (1 - delta - a)),

and the difference of the two rates by (e^epsilon - 1 + 2 delta) / (e^epsilon + 1). The least bound
over all points is valid.

Source: Kairouz, Oh, Viswanath 2015, "The Composition Theorem for Differential Privacy", Theorem
2.1 (the region of an (epsilon, delta)); Kulynych et al. 2024, "Attack-Aware Noise Calibration"
(risks from the profile). Proof: [B17] in bounds.md. The sentences compare odds with those of a
person whose data is not used, the form that readers understood best in Nanayakkara et al. 2023,
"What Are the Chances? Explaining the Epsilon Parameter in Differential Privacy".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from privsyn.dp.accountant import gaussian_profile, profile
from privsyn.dp.adjacency import plural
from privsyn.dp.event_tree import scaled, without_secret
from privsyn.dp.events import Event, SampledGaussian, leaves
from privsyn.dp.filters import gaussian_budget

_ROUNDING = 2.0**-40
"""Bound on all rounding errors here: no formula cancels digits."""


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
        """Chance to name the right one of two equally likely cases; guessing has .5."""
        return (1 + self.advantage) / 2

    def words_together(self, number: int, units: str) -> str:
        """The odds of ``number`` units together in a sentence; for ``group_risk``."""
        return (
            f"About {number} {units} together, a family for example, the guess is right "
            f"{odds(self.right)}."
        )

    def words(self, unit: str, adjacency: str, units: str | None = None) -> tuple[str, ...]:
        """The bounds in sentences, for readers who do not know epsilon.

        One sentence if the bounds exclude nothing, otherwise two.

        Args:
            unit: The account's name of the protected unit.
            adjacency: The account's adjacency.
            units: Several of them; None: by the rule of English.
        """
        units = units or plural(unit)
        two = adjacency == "replace_one"
        cases = (
            f"which of two {units}' data was used" if two else f"if a given {unit}'s data was used"
        )
        without = "without either" if two else "without it"
        guess = (
            f"Somebody who knows all the other data guesses {cases}: right 50 times in 100 from a "
            f"release made {without}, {odds(self.right)} from this one."
        )
        if _of_100(self.right) == 100:
            return (guess,)
        often, seldom = self.found_at_1_percent, self.found_at_1_permille
        if two:
            return guess, (
                "If the wrong one of the two may be named 1 time in 100, the right one is named "
                f"{odds(often)}; if 1 time in 1,000, {odds(seldom)}."
            )
        return guess, (
            f"If 1 of 100 {units} whose data was not used may be accused wrongly, {_people(often)} "
            f"whose data was used are found; if 1 of 1,000, {_people(seldom)}."
        )


class Strength(StrEnum):
    """Strength of a release's protection, in words that all pages share."""

    STRONG = "strong protection"
    MODERATE = "moderate protection"
    WEAK = "weak protection"
    NONE = "no protection in practice"


STRONG_EPSILON, LARGE_EPSILON, VAST_EPSILON = 1.0, 10.0, 40.0
"""Protection is strong up to the first epsilon, weak from the second, and none from the third."""

LARGE_RIGHT, VAST_RIGHT = 0.9, 0.99
"""The same for the chance to name the right case: weak from the first, none above the second.
Gaussian noise at delta 1e-6 reaches them at epsilon 15 and 32, pure mechanisms at 2.2 and 4.6."""


def strength(epsilon: float, right: float | None = None) -> Strength:
    """Strength of protection: the weaker of the verdicts by epsilon and by odds.

    Args:
        epsilon: Epsilon of the release.
        right: Risk.right of its event; None without an event.
    """
    chance = 0.5 if right is None else right
    if epsilon >= VAST_EPSILON or chance > VAST_RIGHT:
        return Strength.NONE
    if epsilon >= LARGE_EPSILON or chance >= LARGE_RIGHT:
        return Strength.WEAK
    return Strength.STRONG if epsilon <= STRONG_EPSILON else Strength.MODERATE


def odds(chance: float) -> str:
    """A chance in words, rounded up."""
    most = _of_100(chance)
    return f"at most {most} times in 100" if most < 100 else "perhaps every time"


def _of_100(chance: float) -> int:
    # Rounded up: a sentence must not understate the risk.
    return math.ceil(100 * chance - 1e-9)


def _people(chance: float) -> str:
    most = _of_100(chance)
    return f"at most {most} of 100" if most < 100 else "perhaps all"


@lru_cache(maxsize=64)
def risk(event: Event) -> Risk:
    """Risks of a release, from the privacy profile of its event."""
    return of_profile(profile(event))


def gaussian_risk(epsilon: float, delta: float) -> Risk:
    """Risks of Gaussian noise that costs epsilon at delta; all they cost together, for a sum.

    ``delta`` is above 0.
    """
    return of_profile(gaussian_profile(math.sqrt(gaussian_budget(epsilon, delta))))


FAMILY = 4
"""Units whose odds together are told beside those of one: the members of a household, say."""


@lru_cache(maxsize=64)
def group_risk(event: Event, units: int = FAMILY) -> Risk:
    """Risks for several units together: the case is that all of them are in the data, or none.

    Proof: [B23] in bounds.md. Exact for Gaussian noise, whose mu is multiplied by ``units``.
    """
    points = list(group_curve(profile(event), units))
    together = without_secret(event)
    if not any(isinstance(leaf, SampledGaussian) for leaf in leaves(together)):
        points += profile(scaled(together, 1 / units))
    return of_profile(points)


def group_curve(points: Iterable[tuple[float, float]], units: int) -> Iterator[tuple[float, float]]:
    """Points of a profile for several units, from those for one [B23]."""
    for epsilon, delta in points:
        if units * epsilon <= _MOST_EPSILON:
            growth = sum(math.exp(k * epsilon) for k in range(units))
            yield units * epsilon, min(1.0, delta * growth)


_MOST_EPSILON = 700.0
"""About the largest power of e that float64 holds; the odds are even long before."""


def of_profile(points: Iterable[tuple[float, float]]) -> Risk:
    """Risks from points of a privacy profile."""
    points = list(points)
    return Risk(
        found_at_1_percent=true_positive_rate(points, 0.01),
        found_at_1_permille=true_positive_rate(points, 0.001),
        advantage=_up(min((_advantage(*point) for point in points), default=1.0)),
    )


def true_positive_rate(points: Iterable[tuple[float, float]], false_positives: float) -> float:
    """Largest true positive rate at a false positive rate, given points of the profile."""
    return _up(min((_true_positive_rate(*point, false_positives) for point in points), default=1.0))


def _true_positive_rate(epsilon: float, delta: float, false_positives: float) -> float:
    most = delta + math.exp(min(epsilon, _MOST_EPSILON)) * false_positives
    return min(1.0, most, 1 - math.exp(-epsilon) * (1 - delta - false_positives))


def _advantage(epsilon: float, delta: float) -> float:
    return min(
        1.0, math.tanh(epsilon / 2) + 2 * delta / (math.exp(min(epsilon, _MOST_EPSILON)) + 1)
    )


def _up(value: float) -> float:
    return min(1.0, value * (1 + _ROUNDING))
