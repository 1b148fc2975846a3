"""The cap of an account: a fixed-order Renyi filter, valid for events chosen adaptively.

At creation the account fixes the order ``a`` that leaves the most room and the budget
``B = epsilon + (ln delta + ln a) / (a - 1) - ln(1 - 1/a)``; a release is admitted while the losses
at ``a`` sum to at most ``B`` (Feldman and Zrnic 2021, with the conversion of Canonne, Kamath and
Steinke 2020, Cor. 13). Taking the best order of the running sum instead would be wrong: whoever
picks the second release after seeing the first reaches twice the delta. With delta = 0 the loss is
the pure epsilon and the budget the cap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from privsyn.dp.events import Event, SampledGaussian, leaves
from privsyn.errors import BudgetError
from privsyn.ledger.accounts import AccountSpec


@dataclass(frozen=True)
class Cap:
    """One filter.

    Attributes:
        epsilon: What is never exceeded.
        delta: At this delta.
        order: Renyi order, fixed at creation; None where delta is 0.
        budget: Largest sum of losses at that order (nats).
    """

    epsilon: float
    delta: float
    order: float | None
    budget: float

    @classmethod
    def of(cls, epsilon: float, delta: float) -> Cap:
        """The filter of a new account."""
        from privsyn.dp.accountant import filter_budget, filter_order

        order = filter_order(epsilon, delta)
        budget = filter_budget(epsilon, delta, order)
        return cls(epsilon, delta, order if math.isfinite(order) else None, budget)

    def loss(self, event: Event) -> float:
        """What an event takes from the budget; inf where the filter cannot admit its kind."""
        from privsyn.dp.accountant import loss_at

        return float(loss_at(event, self.order or math.inf))

    def fits(self, losses: Iterable[float], asked: float) -> bool:
        """Whether the budget covers ``losses`` and ``asked``, without rounding in the sum."""
        if not asked < math.inf:
            return False
        return sum((self._exact(loss) for loss in losses), self._exact(asked)) <= self._exact(
            self.budget
        )

    def total(self, losses: Iterable[float]) -> float:
        """Sum of losses, rounded once."""
        return float(sum((self._exact(loss) for loss in losses), Fraction(0)))

    def _exact(self, value: float) -> Fraction:
        # A pure epsilon is the decimal that was written: three releases of 0.1 fill a cap of 0.3.
        return Fraction(repr(value)) if self.order is None else Fraction(value)

    def spent_epsilon(self, spent: float) -> float:
        """Epsilon proved for a sum of losses."""
        from privsyn.dp.accountant import filter_epsilon

        return filter_epsilon(spent, self.delta, self.order or math.inf)

    def room_epsilon(self, left: float) -> float:
        """Epsilon, at the cap's delta, of the largest zCDP release that ``left`` pays for."""
        if self.order is None or left <= 0:
            return max(0.0, left)
        from privsyn.dp.accountant import guarantee
        from privsyn.dp.events import ZCDP

        return guarantee(ZCDP(left / self.order), self.delta).epsilon


def check_kind(spec: AccountSpec, event: Event) -> None:
    """Refuse an event whose claim does not hold for the account's neighbours.

    Raises:
        BudgetError: A kind without pure epsilon on an account with delta 0, or a sampled Gaussian
            where neighbours replace a unit by another.
    """
    from privsyn.dp.accountant import loss_at

    if spec.delta == 0 and math.isinf(loss_at(event, math.inf)):
        raise BudgetError(
            f"account {spec.name} has delta=0 and takes pure events only.",
            hint="Use a method with pure epsilon, or an account with delta above 0.",
        )
    if spec.adjacency == "replace_one" and any(
        isinstance(leaf, SampledGaussian) for leaf in leaves(event)
    ):
        raise BudgetError(
            f"account {spec.name} has adjacency=replace_one, under which a sampled Gaussian's cost "
            "does not hold.",
            hint="Use a dataset and account with add_remove or replace_null.",
        )
