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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any, TypeAlias

from privsyn.dp import conversions
from privsyn.dp.accountant import epsilon_at, fixed_epsilon, gaussian_profile, guarantee, loss_at
from privsyn.dp.calibration import rooms_budget, rooms_epsilon
from privsyn.dp.conversions import LATTICE_SLACK, gaussian_epsilon
from privsyn.dp.event_tree import scaled
from privsyn.dp.events import ZCDP, Event, RandomAllocation, SampledGaussian, branches, dump, load
from privsyn.dp.filters import (
    covering_mu_squared,
    filter_budget,
    filter_epsilon,
    filter_order,
    fixed_parts,
    gaussian_budget,
    pure_loss,
)
from privsyn.dp.risk import group_curve, of_profile
from privsyn.dp.rooms import NO_ROOMS, Rooms
from privsyn.errors import BudgetError, ConfigError
from privsyn.ledger.entries import Entry, State
from privsyn.ledger.spec import AccountSpec, Row, Split, Terms, rooms_of, split_of

Meter: TypeAlias = tuple[Sequence[float], float]
"""What each charge takes of a sum, and the most that the sum may be."""


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
        split = split or Split()
        try:
            if delta == 0:
                return cls(epsilon, delta, None, filter_budget(epsilon, delta, math.inf))
            order = filter_order(epsilon, delta * split.renyi)
            budget = max(filter_budget(epsilon, delta * split.renyi, order), 0.0)
            gaussian = gaussian_budget(epsilon, delta * split.gaussian) if split.gaussian else None
            cls(epsilon, delta, order, budget, split, gaussian).room_epsilon([])
        except (ArithmeticError, ValueError):
            raise ConfigError(
                f"an account's cap of epsilon={epsilon:g} at delta={delta:g} is out of the range "
                "that can be computed.",
                hint="Choose account.epsilon, account.delta and account.period less extreme.",
            ) from None
        if rooms:
            try:
                gaussian = rooms_budget(rooms, epsilon, delta * split.gaussian)
            except ValueError:
                raise ConfigError(
                    f"account.rooms: {rooms} leave nothing of epsilon={epsilon:g} at "
                    f"delta={delta:g}.",
                    hint="Ask for fewer, or raise account.epsilon.",
                ) from None
        return cls(epsilon, delta, order, budget, split, gaussian, rooms)

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

    def _takes(self, charge: Charge) -> tuple[int, int, int, int]:
        """Chances, and steps, responses and allocations of the rooms, that a charge takes."""
        if not self.rooms:
            return int(charge.chance), 0, 0, 0
        need = self.rooms.need(load(charge.event))
        # A training in its room is composed exactly, without a chance.
        chance = need.rest is not None and _takes_chance(dump(need.rest))
        return int(chance), *need.used

    def _counts(self, charges: Sequence[Charge]) -> list[Meter]:
        """What charges take of the chances that delta pays for, and of the rooms."""
        # privacy: the share and the budget are fixed at opening and never traded for each other
        wholes = (MOST_CHANCES if self._chance else 0, *self.rooms.wholes)
        takes = list(map(self._takes, charges)) if any(wholes) else []
        return [([one[n] for one in takes], whole) for n, whole in enumerate(wholes) if whole]

    def _rules(self, charges: Sequence[Charge]) -> Iterator[tuple[str, list[Meter]]]:
        """The rules that are sums: each covers charges that are within all of its meters."""
        yield "renyi" if self.order else "pure", [([one.loss for one in charges], self.budget)]
        if self.split is None:
            return
        if self.gaussian_budget:
            squares = [_mu_squared(one) for one in charges]
            yield "gaussian", [(squares, self.gaussian_budget), *self._counts(charges)]
        yield "pure", [([pure_loss(load(one.event)) for one in charges], self.epsilon)]

    def admits(
        self, earlier: Sequence[Charge], request: Charge, *, repeats: bool = True
    ) -> str | None:
        """The rule that covers the earlier charges and the request; None if none does.

        ``repeats=False`` leaves out the rule for repeated events, which takes up to a second.
        """
        charges = (*earlier, request)
        # One rule has to cover all charges together: none covers some and another the rest [B16].
        for rule, meters in self._rules(charges):
            if all(_within(*meter, _EXACT[rule]) for meter in meters):
                return rule
        if self.split is None:
            return None
        events = [load(charge.event) for charge in charges]
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
        most = 1 if self.admits(earlier, request, repeats=not earlier) else 0
        for rule, meters in self._rules((*earlier, request)):
            exact, fitting = _EXACT[rule], [MOST_COPIES]
            for amounts, whole in meters:
                if not all(map(math.isfinite, amounts)):
                    fitting.append(0)
                    continue
                *spent, each = map(exact, amounts)
                left = exact(whole) - sum(spent, Fraction(0))
                if each or left < 0:
                    fitting.append(math.floor(left / each) if each else 0)
            most = max(most, min(fitting))
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

        def fits(factor: float) -> bool:
            try:
                return self.fits(earlier, self.charge(scaled(event, factor)))
            except (ArithmeticError, ValueError):  # noise beyond what a number holds
                return False

        # A factor on all noise: more noise always fits at least as well.
        near, step, least = 1.0, _STEP, fits(1.0)
        while step < _FURTHEST:
            further = near / step if least else near * step
            if fits(further) is not least:
                break
            near, step = further, step**2
        else:
            if not least:
                return 0.0
        quiet, noisy = min(near, further), max(near, further)
        noisy = conversions.bisected(fits, quiet, noisy, read=0.01)[1]
        return min(epsilon_at(scaled(event, noisy), self.delta), self.epsilon)

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

        def filled(amounts: Sequence[float], whole: float) -> list[float]:
            exact = (self._exact(one) if math.isfinite(one) else math.inf for one in amounts)
            return [float(spent) / whole for spent in accumulate(exact)]

        full = [[1.0] * len(charges)]
        for _, meters in islice(self._rules(charges), 2 if self.gaussian_budget else 1):
            if all(whole for _, whole in meters):
                full.append(list(map(max, zip(*(filled(*one) for one in meters), strict=True))))
        return [0.0, *map(min, zip(*full, strict=True))]

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
        if self.split.gaussian and math.isfinite(mu_squared) and self._counts_fit(charges):
            delta = self.delta * self.split.gaussian
            if self.rooms:
                _, *used = map(sum, zip(*map(self._takes, charges), strict=True))
                taken = used[0], used[1], used[2]
                bounds.append(rooms_epsilon(self.rooms, delta, mu_squared, taken))
            else:
                bounds.append(gaussian_epsilon(math.sqrt(mu_squared), delta))
        return min(self.epsilon, *bounds)  # charged at all means covered by some rule

    def right(self, charges: Sequence[Charge], spent_epsilon: float, units: int = 1) -> float:
        """Chance to name the right one of two equally likely cases from all charged releases.

        An upper bound, from the same proofs as ``spent_epsilon``, which is theirs; guessing has .5.
        Of several ``units`` either all are in the data or none [B23].
        """
        if not charges:
            return 0.5
        points = list(group_curve([(spent_epsilon, self.delta)], units))
        mu_squared = math.fsum(map(_mu_squared, charges))
        if self.gaussian_budget and math.isfinite(mu_squared) and self._counts_fit(charges):
            chances, *used = map(sum, zip(*map(self._takes, charges), strict=True))
            if not any(used):  # what is in rooms is told by its epsilon alone
                noise, chance = math.sqrt(mu_squared), chances * self._chance
                points += group_curve(gaussian_profile(noise, chance), units)
                points += gaussian_profile(units * noise) if not chances else []
        return of_profile(points).right

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
        spent = math.fsum(map(_mu_squared, earlier)) if self._counts_fit(earlier) else math.inf
        mu_squared = max(0.0, self.gaussian_budget - spent, 2 * left / self.order)
        return min(self.epsilon, gaussian_epsilon(math.sqrt(mu_squared), self.delta))

    def _counts_fit(self, charges: Sequence[Charge]) -> bool:
        return all(_within(*one, Fraction) for one in self._counts(charges))

    def _exact(self, value: float) -> Fraction:
        return _decimal(value) if self.order is None else Fraction(value)


def _within(amounts: Sequence[float], whole: float, exact: Callable[[float], Fraction]) -> bool:
    """Whether amounts are within a whole, without rounding in their sum."""
    if not all(map(math.isfinite, amounts)):
        return False
    # The exact sum, also of decimals, but for its last digit or two.
    nearly = math.fsum(amounts)
    if abs(nearly - whole) > _NEAR * max(nearly, whole):
        return nearly < whole
    return sum(map(exact, amounts), Fraction(0)) <= exact(whole)


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
_STEP, _FURTHEST = math.exp(0.5), math.exp(40.0)


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


_EXACT: Mapping[str, Callable[[float], Fraction]] = {
    "renyi": Fraction,
    "gaussian": Fraction,
    "pure": _decimal,
}
"""How a rule reads what is summed."""


@lru_cache(maxsize=4096)
def _charge_again(cap: Cap, event: str) -> Charge:
    """What an event, as the ledger stores it, takes from a cap; kept in memory."""
    return cap.charge(load(json.loads(event)))


@lru_cache(maxsize=64)
def _period_cap(epsilon: float, delta: float, split: Split | None) -> Cap:
    """The cap of a period, by the shares of its account; kept in memory."""
    return Cap.of(epsilon, delta, split)


@dataclass(frozen=True)
class Limit:
    """A cap that an account is held to: of its lifetime, or of a sliding window.

    Attributes:
        cap: The cap. That of a window follows from its epsilon, and is stored nowhere.
        days: Length of its window; None for the lifetime's.
        setting: Where its epsilon comes from.
    """

    cap: Cap
    days: int | None = None
    setting: str = "account.epsilon"

    def charge(self, entry: Entry) -> Charge:
        """What a release takes from it."""
        if self.days is None:  # as it was charged
            return Charge(entry.loss, entry.mu_squared, entry.event)
        return _charge_again(self.cap, entry.event_text)

    def inside(self, entries: Iterable[Entry], now: datetime) -> list[Entry]:
        """The releases of its account that count now, in the order in which they leave a window.

        A release draws at any time between its reservation and its end, so it counts all that time
        and for a window's length after: whatever was drawn within a window is inside when the
        window ends.
        """
        # RESERVED counts, too: otherwise two reservations could share what one of them needs.
        charged = [entry for entry in entries if entry.is_charged]
        if self.days is None:
            return charged
        start = now - timedelta(days=self.days)
        inside = [entry for entry in charged if entry.open or entry.changed_at > start]
        return sorted(inside, key=lambda entry: (entry.open, entry.changed_at))

    def charges(self, entries: Iterable[Entry], now: datetime) -> list[Charge]:
        """What is charged to it now, in that order."""
        return [self.charge(entry) for entry in self.inside(entries, now)]


def limits_of(row: Row, slack: float = 0.0) -> list[Limit]:
    """The caps of an account: of its lifetime, of its period and of its policy's period.

    Args:
        row: The account.
        slack: Part by which epsilons may be exceeded: what sums differ by between machines.
    """
    split, more = split_of(row), 1 + slack
    lifetime = Cap(
        row["epsilon"] * more,
        row["delta"],
        row["renyi_order"],
        row["budget"],
        split,
        row["gaussian_budget"],
        rooms_of(row),
    )
    period = Terms.load(row["terms"]).period
    windows = [(row["period_days"], row["period_epsilon"], "account.period.epsilon")]
    if period is not None:
        windows.append((period.days, period.epsilon, "the policy's period.epsilon"))
    return [
        Limit(lifetime),
        *(
            Limit(_period_cap(epsilon * more, row["delta"], split), days, setting)
            for days, epsilon, setting in windows
            if days is not None
        ),
    ]


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
    """A cap, what is charged to it, and what a release would be charged.

    Attributes:
        limit: The cap.
        charges: In the order in which they leave its window.
        request: Of the release.
    """

    limit: Limit
    charges: tuple[Charge, ...]
    request: Charge

    @property
    def fits(self) -> bool:
        """Whether the cap admits the release."""
        return self.limit.cap.fits(self.charges, self.request)


def filters_of(
    limits: Sequence[Limit], entries: Sequence[Entry], event: Event, now: datetime
) -> list[Filter]:
    """What an event asks of each cap of an account: whoever admits a release asks them all."""
    return [Filter(one, tuple(one.charges(entries, now)), one.cap.charge(event)) for one in limits]


def begins(
    limits: Sequence[Limit], entries: Iterable[Entry], entry: Entry, now: datetime
) -> list[Filter]:
    """What a release that begins asks of the caps of periods, beside all that were drawn."""
    others = [other for other in entries if other.state is not State.RESERVED]
    return [
        Filter(one, tuple(one.charges(others, now)), one.charge(entry))
        for one in limits
        if one.days is not None
    ]
