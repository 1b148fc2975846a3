"""The cap of an account: filters, each valid for events chosen adaptively, that share its delta.

At creation the account splits its delta over three filters and fixes their budgets:

- *Renyi*: at the order ``a`` that leaves the most room, losses sum to at most
  ``B = epsilon + (ln delta + ln a) / (a - 1) - ln(1 - 1/a)`` (Feldman and Zrnic 2021, with the
  conversion of Canonne, Kamath and Steinke 2020, Cor. 13). Taking the best order of the running sum
  instead would be wrong: whoever picks the second release after seeing the first reaches twice the
  delta.
- *Gaussian*: squared mu of releases that are mu-Gaussian DP sum to at most that of the Gaussian
  mechanism at the cap (Smith and Thakurta 2022; Koskela, Tobaben, Honkela 2023). A training or a
  random allocation is covered by Gaussian noise but for a small chance; of such chances a share of
  delta pays for a fixed number. An account may be opened with rooms for trainings and pure steps,
  which are then composed exactly.
- *Repeats*: all releases so far are of one event, which the first release fixed before anything was
  seen, and that many of it compose to the cap by their exact loss distribution [B22].

Two rules need no delta: *pure* releases whose epsilons add up to the cap, and a *first* release
within the cap by its own certificate, after which nothing fits. A release is admitted while one of
the five holds for everything charged; [B16] in dp/bounds.md proves that they are together the cap.
With delta = 0 the loss is the pure epsilon and the budget the cap.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from privsyn.dp.accountant import epsilon_at, fixed_epsilon, guarantee, loss_at
from privsyn.dp.conversions import LATTICE_SLACK, gaussian_epsilon
from privsyn.dp.event_tree import scaled
from privsyn.dp.events import (
    ZCDP,
    Event,
    RandomAllocation,
    SampledGaussian,
    branches,
    dump,
    load,
)
from privsyn.dp.filters import (
    covering_mu_squared,
    filter_budget,
    filter_epsilon,
    filter_order,
    fixed_parts,
    gaussian_budget,
    pure_loss,
)
from privsyn.dp.rooms import NO_ROOMS, Rooms, Used
from privsyn.errors import BudgetError, ConfigError
from privsyn.ledger.entries import Entry
from privsyn.ledger.spec import AccountSpec, Row, Split, Terms, rooms_of, split_of


@dataclass(frozen=True)
class Charge:
    """What a release takes from a cap.

    Attributes:
        loss: Renyi loss at the cap's order; pure epsilon where delta is 0.
        mu_squared: Squared mu of its Gaussian DP; of a training or a random allocation but for the
            chance that its account pays for. None where the cap's delta is 0.
        event: The event, as the ledger stores it.
    """

    loss: float
    mu_squared: float | None
    event: Mapping[str, Any]

    @property
    def chance(self) -> bool:
        """Whether it takes one of the chances to reveal all that the cap's delta pays for."""
        return _takes_chance(self.event)

    @classmethod
    def of(cls, entry: Entry, *, period: bool = False) -> Charge:
        """What an entry takes from the lifetime cap, or from the period cap."""
        loss = (entry.period_loss or 0.0) if period else entry.loss
        return cls(loss, entry.mu_squared, entry.event)


@dataclass(frozen=True)
class Cap:
    """The filters of one cap.

    Attributes:
        epsilon: Largest epsilon of all charged releases together.
        delta: Delta of that epsilon.
        order: Renyi order, fixed at creation; None where delta is 0.
        budget: Largest sum of losses at that order (nats).
        split: Shares of delta; None where that is 0.
        gaussian_budget: Largest sum of squared mu; None as ``split``.
        rooms: Rooms of the Gaussian filter for trainings and responses, beside that sum [B21].
    """

    epsilon: float
    delta: float
    order: float | None
    budget: float
    split: Split | None = None
    gaussian_budget: float | None = None
    rooms: Rooms = NO_ROOMS

    @classmethod
    def of(
        cls, epsilon: float, delta: float, split: Split | None = None, rooms: Rooms = NO_ROOMS
    ) -> Cap:
        """The filters of a new account.

        Raises:
            ConfigError: The cap is so extreme that its budget cannot be computed, or the rooms
                leave nothing of it.
        """
        try:
            cap = cls._of(epsilon, delta, split or Split())
            if rooms:
                cap = cap._with(rooms)
            cap.room_epsilon([])
        except (ArithmeticError, ValueError):
            raise ConfigError(
                f"an account's cap of epsilon={epsilon:g} at delta={delta:g} is out of the range "
                "that can be computed.",
                hint="Choose account.epsilon, account.delta and account.period less extreme.",
            ) from None
        return cap

    @classmethod
    def _of(cls, epsilon: float, delta: float, split: Split) -> Cap:
        if delta == 0:
            return cls(epsilon, delta, None, filter_budget(epsilon, delta, math.inf))
        renyi = delta * split.renyi
        order = filter_order(epsilon, renyi)
        budget = filter_budget(epsilon, renyi, order)
        room = gaussian_budget(epsilon, delta * split.gaussian) if split.gaussian else None
        return cls(epsilon, delta, order, max(budget, 0.0), split, room)

    def _with(self, rooms: Rooms) -> Cap:
        """This cap with rooms in its Gaussian filter."""
        share = self.delta * self.split.gaussian if self.split else 0.0
        try:
            room = rooms.budget(self.epsilon, share)
        except ValueError:
            raise ConfigError(
                f"account.rooms: {rooms} leave nothing of epsilon={self.epsilon:g} at "
                f"delta={self.delta:g}.",
                hint="Ask for fewer, or raise account.epsilon.",
            ) from None
        return replace(self, rooms=rooms, gaussian_budget=room)

    def charge(self, event: Event) -> Charge:
        """What an event takes; inf where a filter cannot admit its kind."""
        loss = float(loss_at(event, self.order or math.inf))
        mu_squared = None
        if self.split:
            rest = self.rooms.need(event).rest
            mu_squared = float(covering_mu_squared(rest, self._chance)) if rest else 0.0
        return Charge(loss, mu_squared, dump(event))

    @property
    def _chance(self) -> float:
        """Chance of one release that it reveals more than Gaussian noise does."""
        return self.delta * self.split.chances / MOST_CHANCES if self.split else 0.0

    def _chances_fit(self, charges: Sequence[Charge]) -> bool:
        """Whether the share of delta for chances pays for those that are charged."""
        # privacy: the share and the budget are fixed at opening and never traded for each other
        return not self._chance or self._chances(charges) <= MOST_CHANCES

    def _chances(self, charges: Sequence[Charge]) -> int:
        """How many of some charges take a chance to reveal all."""
        if not self.rooms:
            return sum(charge.chance for charge in charges)
        # A training in its room is composed exactly, without a chance.
        rests = [self.rooms.need(load(charge.event)).rest for charge in charges]
        return sum(rest is not None and _takes_chance(dump(rest)) for rest in rests)

    def _rooms_used(self, charges: Sequence[Charge]) -> Used:
        """What some charges take of the rooms."""
        if not self.rooms:
            return 0, 0, 0
        used = [self.rooms.need(load(charge.event)).used for charge in charges]
        steps, responses, allocations = (sum(kind) for kind in zip((0, 0, 0), *used, strict=True))
        return steps, responses, allocations

    def _rooms_fit(self, charges: Sequence[Charge]) -> bool:
        used = zip(self._rooms_used(charges), self.rooms.wholes, strict=True)
        return all(count <= whole for count, whole in used)

    def admits(
        self, earlier: Sequence[Charge], request: Charge, *, repeats: bool = True
    ) -> str | None:
        """The rule that covers the earlier charges and the request; None if none does.

        ``repeats=False`` leaves out the rule for repeated events, which takes up to a second.
        """
        # One rule has to cover all charges together: none covers some and another the rest [B16].
        losses = [charge.loss for charge in (*earlier, request)]
        if self._within(losses, self.budget):
            return "renyi" if self.order else "pure"
        if self.split is None:
            return None
        room = self.gaussian_budget
        charges = (*earlier, request)
        squares = [charge.mu_squared for charge in charges]
        covered = room and self._within(squares, room) and self._chances_fit(charges)
        if covered and self._rooms_fit(charges):
            return "gaussian"
        events = [load(charge.event) for charge in charges]
        pure = [pure_loss(event) for event in events]
        if all(map(math.isfinite, pure)) and sum(map(_decimal, pure)) <= _decimal(self.epsilon):
            return "pure"
        # The first release was chosen before anything was seen: its own certificate is enough.
        if not earlier:
            return "first" if epsilon_at(events[-1], self.delta) <= self.epsilon else None
        if repeats and self.split.repeats and all(event == events[0] for event in events):
            delta = self.delta * self.split.repeats
            if _copies_fit(events[0], len(events), self.epsilon, delta):
                return "repeats"
        return None

    def fits(self, earlier: Sequence[Charge], request: Charge) -> bool:
        """Whether some rule covers them."""
        return self.admits(earlier, request) is not None

    def copies(self, earlier: Sequence[Charge], request: Charge) -> int:
        """How many more releases of this event fit, one after the other.

        A lower bound for a sampled Gaussian, whose repeats take seconds to count exactly;
        ``admits`` does so for one request.
        """
        charges = [*earlier, request]
        rules = [([charge.loss for charge in charges], self.budget, MOST_COPIES)]
        if self.gaussian_budget and self._chances_fit(earlier) and self._rooms_fit(earlier):
            chances = self._chance and self._chances([request])
            more = MOST_CHANCES - self._chances(earlier) if chances else MOST_COPIES
            wants = self._rooms_used([request])
            taken = self._rooms_used(earlier)
            for whole, used, want in zip(self.rooms.wholes, taken, wants, strict=True):
                more = min(more, max(0, whole - used) // want if want else more)
            rules.append(([_mu_squared(charge) for charge in charges], self.gaussian_budget, more))
        if self.split:
            losses = [pure_loss(load(charge.event)) for charge in charges]
            rules.append((losses, self.epsilon, MOST_COPIES))
        most = 1 if self.admits(earlier, request, repeats=not earlier) else 0
        for losses, budget, limit in rules:
            if not all(map(math.isfinite, losses)):
                continue
            *spent, each = map(self._exact, losses)
            left = self._exact(budget) - sum(spent, Fraction(0))
            fitting = limit if each == 0 else math.floor(left / each)
            most = max(most, min(fitting, limit))
        return most

    def room(self, earlier: Sequence[Charge], event: Event) -> float:
        """Epsilon, at the cap's delta, of the largest release of this kind that fits; 0 if none.

        The kind is the event with all its noise larger or smaller. Rounded down by up to 2%.
        """
        if self.order is None:
            return self.room_epsilon(earlier)
        # An empty account takes any first release within its cap.
        if self.split is not None and not earlier:
            return self.epsilon  # as a first release

        def fits(log_factor: float) -> bool:
            try:
                return self.fits(earlier, self.charge(scaled(event, math.exp(log_factor))))
            except (ArithmeticError, ValueError):  # noise beyond what a number holds
                return False

        # Bisects the logarithm of a factor on all noise: more noise always fits at least as well.
        noisy, quiet = 0.0, 0.0
        step = 0.5
        if fits(0.0):
            while step < _FURTHEST and fits(quiet - step):
                quiet -= step
                step *= 2
            noisy, quiet = quiet, quiet - step
        else:
            while not fits(noisy + step):
                noisy += step
                step *= 2
                if noisy > _FURTHEST:
                    return 0.0
            noisy, quiet = noisy + step, noisy
        while noisy - quiet > 0.01:
            middle = (noisy + quiet) / 2
            noisy, quiet = (middle, quiet) if fits(middle) else (noisy, middle)
        return min(epsilon_at(scaled(event, math.exp(noisy)), self.delta), self.epsilon)

    def total(self, losses: Iterable[float]) -> float:
        """Sum of losses, rounded once."""
        losses = list(losses)
        if not all(map(math.isfinite, losses)):
            return math.inf
        return float(sum((self._exact(loss) for loss in losses), Fraction(0)))

    def share(self, charges: Sequence[Charge]) -> float:
        """Spent part of the cap, 0 to 1, by the filter that is the least full."""
        return self.shares(charges)[-1]

    def shares(self, charges: Sequence[Charge]) -> list[float]:
        """The share before the first charge and after each, in one pass: an account has many."""
        wholes = (MOST_CHANCES if self._chance else 0, *self.rooms.wholes)
        spent: Fraction | float = Fraction(0)
        noise: Fraction | float = Fraction(0)
        counts = [0] * len(wholes)
        shares = [0.0]
        for charge in charges:
            spent += self._exact(charge.loss) if math.isfinite(charge.loss) else math.inf
            rules = [float(spent) / self.budget] if self.budget else []
            if self.gaussian_budget:
                mu_squared = _mu_squared(charge)
                noise += Fraction(mu_squared) if math.isfinite(mu_squared) else math.inf
                takes = (
                    self._chances([charge]) if self._chance else 0,
                    *self._rooms_used([charge]),
                )
                counts = [count + more for count, more in zip(counts, takes, strict=True)]
                used = [count / whole for count, whole in zip(counts, wholes, strict=True) if whole]
                rules.append(max([float(noise) / self.gaussian_budget, *used]))
            shares.append(min([1.0, *rules]))
        return shares

    def spent_epsilon(self, charges: Sequence[Charge]) -> float:
        """Epsilon, at the cap's delta, that a filter proves of the charges; at most the cap."""
        if not charges:
            return 0.0
        spent = self.total(charge.loss for charge in charges)
        if self.split is None:
            return filter_epsilon(spent, self.delta, self.order or math.inf)
        bounds = [filter_epsilon(spent, self.delta * self.split.renyi, self.order or math.inf)]
        mu_squared = math.fsum(_mu_squared(charge) for charge in charges)
        # privacy: chances beyond those that delta pays for leave no proof to the Gaussian filter
        if self.split.gaussian and math.isfinite(mu_squared) and self._chances_fit(charges):
            delta = self.delta * self.split.gaussian
            if not self.rooms:
                bounds.append(gaussian_epsilon(math.sqrt(mu_squared), delta))
            elif self._rooms_fit(charges):
                bounds.append(self.rooms.epsilon(delta, mu_squared, self._rooms_used(charges)))
        return min(self.epsilon, *bounds)  # charged at all means covered by some rule

    def room_epsilon(self, earlier: Sequence[Charge]) -> float:
        """Epsilon, at the cap's delta, of the largest release of Gaussian noise that fits."""
        left = max(0.0, self.budget - self.total(charge.loss for charge in earlier))
        if self.order is None:
            return left
        if self.gaussian_budget is None:
            return guarantee(ZCDP(left / self.order), self.delta).epsilon
        if not earlier:
            return self.epsilon
        # Beyond its chances or its rooms the Gaussian filter admits nothing more.
        admits = self._chances_fit(earlier) and self._rooms_fit(earlier)
        spent = math.fsum(map(_mu_squared, earlier)) if admits else math.inf
        mu_squared = max(0.0, self.gaussian_budget - spent, 2 * left / self.order)
        return min(self.epsilon, gaussian_epsilon(math.sqrt(mu_squared), self.delta))

    def _within(self, losses: Sequence[float | None], budget: float) -> bool:
        """Whether losses are within a budget, without rounding in their sum."""
        finite = [loss for loss in losses if loss is not None and math.isfinite(loss)]
        if len(finite) < len(losses):
            return False
        # The exact sum, also of decimals, but for its last digit or two.
        nearly = math.fsum(finite)
        if abs(nearly - budget) > _NEAR * max(nearly, budget):
            return nearly < budget
        return sum(map(self._exact, finite), Fraction(0)) <= self._exact(budget)

    def _exact(self, value: float) -> Fraction:
        return _decimal(value) if self.order is None else Fraction(value)


def _copies_fit(event: Event, count: int, epsilon: float, delta: float) -> bool:
    """Whether so many copies of an event compose to at most (epsilon, delta).

    Results are remembered: more copies never cost less.
    """

    def fit(number: int) -> bool:
        parts = fixed_parts(event, number)
        # Of the noise's lattice or table, once a release: of epsilon, and of delta [B21].
        slack = number * LATTICE_SLACK
        return bool(parts) and fixed_epsilon(parts, delta * (1 - slack)) + slack <= epsilon

    # Monotone in the count: what is known of one count bounds all the others.
    fitting, beyond = _KNOWN.get((event, epsilon, delta), (0, MOST_COPIES))
    if fitting < count < beyond:
        if fit(count):
            further = min(2 * count, (count + beyond) // 2)  # so that a long history costs little
            fitting, beyond = (further, beyond) if fit(further) else (count, further)
        else:
            beyond = count
        _KNOWN[event, epsilon, delta] = fitting, beyond
    return count <= fitting


_KNOWN: dict[tuple[Event, float, float], tuple[int, int]] = {}

MOST_CHANCES = 256
"""Trainings and random allocations that an account's share of delta for chances pays for. More make
each of them dearer, and another number would charge what ledgers hold anew: it is part of their
schema."""

_NEAR = 2.0**-48
"""Relative distance from a budget within which losses are summed as fractions."""

MOST_COPIES = 2**17
_FURTHEST = 40.0


_WITH_CHANCE = frozenset({"random_allocation", "sampled_gaussian"})


def _takes_chance(event: Mapping[str, Any]) -> bool:
    """Whether a stored event is or holds one of ``_WITH_CHANCE``: it is not parsed whole for it."""
    return event.get("kind") in _WITH_CHANCE or any(map(_takes_chance, event.get("events", ())))


def _mu_squared(charge: Charge) -> float:
    """Squared mu of a charge; infinite where its release has none."""
    return math.inf if charge.mu_squared is None else charge.mu_squared


def _decimal(value: float) -> Fraction:
    """A pure epsilon is the decimal that was written: three releases of 0.1 fill a cap of 0.3."""
    return Fraction(repr(value))


@lru_cache(maxsize=4096)
def charge_again(cap: Cap, event: str) -> Charge:
    """What an event, as the ledger stores it, takes from a cap; kept in memory."""
    return cap.charge(load(json.loads(event)))


@lru_cache(maxsize=64)
def policy_cap(epsilon: float, delta: float, split: Split | None) -> Cap:
    """The cap of a policy's period, by the shares of its account; kept in memory."""
    return Cap.of(epsilon, delta, split)


def caps_of(row: Row) -> tuple[Cap, Cap | None]:
    """The lifetime cap and the period cap an account row fixed."""
    split = split_of(row)
    lifetime = Cap(
        row["epsilon"],
        row["delta"],
        row["renyi_order"],
        row["budget"],
        split,
        row["gaussian_budget"],
        rooms_of(row),
    )
    if row["period_days"] is None:
        return lifetime, None
    period = Cap(
        row["period_epsilon"],
        row["delta"],
        row["period_order"],
        row["period_budget"],
        split,
        row["period_gaussian_budget"],
    )
    return lifetime, period


def policy_period(row: Row) -> tuple[int, Cap] | None:
    """Days and cap of the period that an account's policy holds it to; None if its own does."""
    terms = Terms.load(row["terms"])
    days, epsilon = terms.period_days, terms.period_epsilon
    if days is None or epsilon is None:
        return None
    if row["period_days"] is not None and (
        row["period_days"] >= days and row["period_epsilon"] <= epsilon
    ):
        return None
    return days, policy_cap(epsilon, row["delta"], split_of(row))


_ADD_REMOVE = {SampledGaussian: "sampled Gaussian", RandomAllocation: "random allocation"}
"""Kinds whose cost holds for one unit more or less, not for one in place of another."""


def check_kind(spec: AccountSpec, event: Event) -> None:
    """Refuse an event whose claim does not hold for the account's neighbors.

    Raises:
        BudgetError: A kind without pure epsilon on an account with delta 0, or a sampled Gaussian
            or a random allocation where neighbors replace a unit by another.
    """
    if spec.delta == 0 and math.isinf(loss_at(event, math.inf)):
        raise BudgetError(
            f"account {spec.name} has delta=0 and takes pure events only.",
            hint="Use a method with pure epsilon, or an account with delta above 0.",
        )
    # Amplification is proved for a unit that is there or not, not for a swap.
    names = [_ADD_REMOVE[type(part)] for part in branches(event) if type(part) in _ADD_REMOVE]
    if spec.adjacency == "replace_one" and names:
        raise BudgetError(
            f"account {spec.name} has adjacency=replace_one, under which the cost of a "
            f"{names[0]} does not hold.",
            hint="Use a dataset and account with add_remove or replace_null.",
        )


@dataclass(frozen=True)
class Filter:
    """A cap, the charges it holds, and the charge a release asks for.

    Attributes:
        cap: The cap.
        charges: What is charged to it, in the order in which it leaves the window.
        request: What the release would be charged.
        days: Length of its window; None for the lifetime's.
        setting: Where its epsilon comes from.
    """

    cap: Cap
    charges: tuple[Charge, ...]
    request: Charge
    days: int | None = None
    setting: str = "account.epsilon"

    @property
    def takes(self) -> float:
        """Part of the whole cap that the release takes, by the filter it weighs least in."""
        return self.cap.share([self.request])
