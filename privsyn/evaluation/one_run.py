"""The epsilon that a single run is shown to exceed, from guesses of who was in it.

Setting. Each of m units is in the run with probability ``prior``, by a coin of its own; the coins
are secret and fair in that sense, everything else about the units is fixed. Someone who knows all
units, and the output of the run, but no coin, names some units as having been in (and, where
``both``, some as having been out). Let r be the number named and W the number named rightly.

Theorem. Let the run be (epsilon, delta)-DP when one unit is put in or taken out, p the prior,
q = p e^epsilon / (p e^epsilon + 1 - p) and c = m delta p (1 - p), twice that where units are named
as out, too, which asks for p = 1/2. Then for every J >= 0 fixed beforehand and alpha in (0, 1)

    P[ P(Bin(r, q) >= W - J) + c / (J + 1) <= alpha ] <= alpha.

Proof. Let S_i be the coins and T the guesses. Fix i and S_1..S_(i-1) = s. Let P1 and P0 be the laws
of T given s and S_i = 1 or 0: mixtures, with the same weights, of runs that differ in unit i, so
P1 <= e^epsilon P0 + delta on every event. Of the posterior a_i(T, s) = p P1 / (p P1 + (1 - p) P0),

    E[(a_i - q)+ ; i named in] = sum (p P1 - q (p P1 + (1 - p) P0))+
                               = p (1 - p) / (p e^epsilon + 1 - p) sum (P1 - e^epsilon P0)+

with sums over the T that name i as in; the last one is at most delta, so all of it is at most
p (1 - p) delta. Draw T, then one after the other U_i uniform and S_i = 1 if U_i < a_i: that is the
joint law. Each right guess has U_i < q, or q <= U_i < a_i. Given T the U_i are independent, so the
first kind are Bin(r, q) in number, whatever r. The second kind are, in expectation, at most c. If W
is so large that P(Bin(r, q) >= W - J) <= alpha - c / (J + 1), then either the first kind are at
least W - J, which has at most that probability given T, or the second kind are more than J, which
has probability at most c / (J + 1) by Markov. Guesses that a unit was out: the same with p and
1 - p, P1 and P0 exchanged, which is the same q where p = 1/2. QED.

Units are named through one output, so guesses are dependent; nothing above asks them not to be. A
rate of true and one of false positives with an interval each (Clopper-Pearson), as for guesses of
independent runs, would claim too much.

Source: Steinke, Nasr, Jagielski 2023, *Privacy Auditing with One (1) Training Run*, Theorem 5.2,
which is about p = 1/2; here with the prior of a hold-out and Markov's bound for delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

CONFIDENCE = 0.95
_MOST = 50.0
"""No bound is sought above this epsilon."""

_SLACK = 0.2
"""Share of alpha that delta may take, by J."""


@dataclass(frozen=True)
class Guesses:
    """What was named from one run.

    Attributes:
        units: Units whose coin was fair (m).
        named: Units named (r).
        right: Named rightly (W).
        prior: Probability that a unit was in the run, in (0, 1).
        both: Whether units were named as out, too; the prior is 1/2 then.
    """

    units: int
    named: int
    right: int
    prior: float = 0.5
    both: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.named <= self.units:
            raise ValueError(f"{self.right} right of {self.named} named of {self.units} units")
        if not 0 < self.prior < 1 or (self.both and self.prior != 0.5):
            raise ValueError(f"prior={self.prior}, both={self.both}")

    def p_value(self, epsilon: float = 0.0, delta: float = 0.0, alpha: float = 0.05) -> float:
        """How likely as many right guesses are, at most, if the run is (epsilon, delta)-DP.

        Args:
            epsilon: 0: the output tells nothing of the coins.
            delta: As in the guarantee.
            alpha: Level of the test; it fixes J. Ignored where delta is 0.
        """
        from scipy.special import expit, logit
        from scipy.stats import binom

        if not self.named:
            return 1.0
        stray = self.units * delta * self.prior * (1 - self.prior) * (2 if self.both else 1)
        spare = max(0, math.ceil(stray / (_SLACK * alpha)) - 1)
        chance = expit(epsilon + logit(self.prior))
        tail = float(binom.sf(self.right - spare - 1, self.named, chance))
        return min(1.0, tail + stray / (spare + 1))

    def least_epsilon(self, delta: float, alpha: float = 1 - CONFIDENCE) -> float:
        """An epsilon that no (epsilon, delta)-DP run is below, but with probability alpha.

        Args:
            delta: Of the guarantee that is audited.
            alpha: One minus the confidence.

        Returns:
            0 where the guesses show nothing.
        """
        if self.p_value(0.0, delta, alpha) > alpha:
            return 0.0
        low, high = 0.0, _MOST
        while high - low > 1e-6:  # the p-value grows with epsilon
            middle = (low + high) / 2
            low, high = (
                (middle, high)
                if self.p_value(middle, delta, alpha) <= alpha
                else (
                    low,
                    middle,
                )
            )
        return low
