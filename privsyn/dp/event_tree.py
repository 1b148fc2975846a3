"""Traversals of a tree of events: prices of leaves, their sums, and the order of steps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from privsyn.dp import bounded_range, conversions
from privsyn.dp.events import (
    ZCDP,
    BoundedRange,
    Composed,
    DiscreteGaussian,
    Disjoint,
    Event,
    Gaussian,
    Pure,
    RandomAllocation,
    Rounds,
    SampledGaussian,
)

FAR = 20.0
"""Log of epsilon over target above which ``calibrate`` bisects: a secant would be misled."""


class Allocation(NamedTuple):
    """``steps`` random allocations, each drawn anew; a place is mu-Gaussian DP [B19]."""

    mu: float
    places: int
    steps: int


class PureSteps(NamedTuple):
    """``steps`` randomized responses of one loss (nats), which dominate pure steps [B3]."""

    loss: float
    steps: int


Part = tuple[float, float, int] | Allocation | PureSteps
"""Rate, noise multiplier and steps of a sampled Gaussian; or another pair that is fixed."""


def scaled(event: Event, factor: float) -> Event:
    """The event with ``factor`` times as much noise everywhere."""
    changes: dict[str, Any] = {}
    for name, value in vars(event).items():
        if name in _NOISE:
            changes[name] = value * factor ** _NOISE[name]
        elif name == "events":
            changes[name] = tuple(scaled(child, factor) for child in value)
        elif name == "event":
            changes[name] = scaled(value, factor)
    return replace(event, **changes)


_NOISE = {"epsilon": -1, "rho": -2, "range": -1, "noise_multiplier": 1}
"""Power of the factor in each field of an event that follows from its noise."""


def fold(event: Event, price: Callable[[Event], float]) -> float:
    """Fold prices of leaves: sum over sequences and rounds, maximum over disjoint parts [B8].

    A random allocation is priced without its secret, which is never less than with it [B19].
    """
    match event:
        case Composed(events):
            return math.fsum(fold(child, price) for child in events)
        case Rounds(events, count):
            return count * math.fsum(fold(child, price) for child in events)
        case Disjoint(events):
            # [B8] A unit's shares of the parts add up to at most 1, so the dearest part bounds them
            # all.
            return max(fold(child, price) for child in events)
        case RandomAllocation(inner):
            return fold(inner, price)
        case _:
            return price(event)


def renyi_loss(leaf: Event, order: float) -> float:
    """Renyi divergence of a leaf at an order: the least proven bound."""
    match leaf:
        case Pure(epsilon):
            return conversions.pure_rdp(epsilon, order)
        case SampledGaussian(rate, noise, steps) if rate < 1:
            # [B12] [B13] What the lattice and the table may add to the loss, at this order.
            slack = conversions.LATTICE_SLACK * (1 + 0.5 / (order - 1)) if rate else 0.0
            return steps * conversions.sampled_gaussian_rdp(rate, noise, order) + slack
        case _:
            total = zcdp_loss(leaf)
            return order * total if total else 0.0


def zcdp_loss(leaf: Event) -> float:
    """Rho of a leaf; infinite if it is not zCDP."""
    match leaf:
        case Pure(epsilon):
            return epsilon * epsilon / 2
        case ZCDP(one, count):
            return one * count
        case BoundedRange(width, count):
            # [B4] Bounded range eta implies eta^2 / 8 zCDP.
            return width * width / 8 * count * (1 + conversions.ROUNDING)
        case _:
            return mu_squared_of_leaf(leaf) / 2


@dataclass(frozen=True)
class Composition:
    """Input of exact composition: steps in order, and Gaussian noise after them."""

    blocks: tuple[bounded_range.Rounds, ...] = ()
    mu_squared: float = 0.0

    @property
    def draws(self) -> bool:
        """Whether any step is a bounded-range draw."""
        steps = (step for steps, _ in self.blocks for step in steps)
        return any(isinstance(step, bounded_range.Draw) for step in steps)

    @property
    def in_price_order(self) -> tuple[bounded_range.Rounds, ...]:
        """The blocks in the order of pricing."""
        # Draws may depend on earlier results, so their order is the order of the steps.
        return self.blocks if self.draws else largest_first(self.blocks)

    def then(self, other: Composition) -> Composition | None:
        """This composition, then another; None if a draw would follow Gaussian noise."""
        # [B15] Draws are not linear maps, so they do not commute with the noise, which comes last.
        if self.mu_squared and other.draws:
            return None
        return Composition(self.blocks + other.blocks, self.mu_squared + other.mu_squared)

    def times(self, count: int) -> Composition | None:
        """This composition repeated ``count`` times, or None."""
        if count == 1 or not self.blocks:
            return Composition(self.blocks, self.mu_squared * count)
        # Repeating it would put a draw after Gaussian noise.
        if self.mu_squared and self.draws:
            return None
        length = sum(times * len(steps) for steps, times in self.blocks)
        if length > _LONGEST_ROUND:
            return None
        once = tuple(step for steps, times in self.blocks for _ in range(times) for step in steps)
        return Composition(((once, count),), self.mu_squared * count)


_LONGEST_ROUND = 1000
"""Most steps of a round in exact composition; a longer one is priced by its Renyi curve."""


def composition(event: Event) -> Composition | None:
    """An event as input of [B15]; None if [B15] does not cover it."""
    match event:
        case Pure(epsilon):
            steps = (bounded_range.Response(epsilon),)
            return Composition(((steps, 1),)) if epsilon else Composition()
        case BoundedRange(width, count):
            draw = (bounded_range.Draw(width),)
            return Composition(((draw, count),)) if width else Composition()
        case Composed(events) | Rounds(events):
            whole: Composition | None = Composition()
            for child in events:
                part = composition(child)
                whole = whole.then(part) if whole is not None and part is not None else None
            count = event.count if isinstance(event, Rounds) else 1
            return whole.times(count) if whole is not None else None
        case Disjoint(events):
            parts = [composition(child) for child in dict.fromkeys(events)]
            if len(parts) == 1:
                return parts[0]
            # [B15] Cells with the same steps cost one cell; different ones compose only if all are
            # Gaussian.
            gaussian = [part for part in parts if part is not None and not part.blocks]
            if len(gaussian) < len(parts):
                return None
            return Composition(mu_squared=max(part.mu_squared for part in gaussian))
        case RandomAllocation(inner):
            return composition(inner)  # without its secret: an upper bound
        case _:
            mu_squared = mu_squared_of_leaf(event)
            return Composition(mu_squared=mu_squared) if math.isfinite(mu_squared) else None


def in_sequence(event: Event) -> Iterator[Event]:
    """The events of a sequence and of nested sequences, in order."""
    if isinstance(event, Composed):
        for child in event.events:
            yield from in_sequence(child)
    else:
        yield event


def split_allocation(event: Event) -> tuple[RandomAllocation | None, tuple[Event, ...]]:
    """The random allocation of a sequence, and its other events.

    If there are several, the one with the most places is returned; the others count as other
    events.
    """
    parts = tuple(in_sequence(event))
    drawn = [(at, part) for at, part in enumerate(parts) if isinstance(part, RandomAllocation)]
    if not drawn:
        return None, parts
    # By position: one object may stand in a sequence more than once, and each time costs.
    at, first = max(drawn, key=lambda entry: entry[1].places)
    return first, parts[:at] + parts[at + 1 :]


def without_secret(event: Event) -> Event:
    """The event for somebody who knows the place of every unit: of a random allocation, one place.

    Never costs less than the event itself.
    """
    match event:
        case RandomAllocation(inner):
            return inner
        case Composed(events):
            return Composed(tuple(map(without_secret, events)))
        case _:
            return event


def is_amplified(event: Event) -> bool:
    """Whether an event's cost counts on the secret of places."""
    return without_secret(event) != event


def pure_of_leaf(leaf: Event) -> float:
    """Largest loss of a leaf; infinite if it is unbounded."""
    match leaf:
        case Pure(epsilon):
            return epsilon
        case BoundedRange(width, count):
            return width * count
        case _:
            return 0.0 if zcdp_loss(leaf) == 0 else math.inf


def mu_squared_of_leaf(leaf: Event) -> float:
    """Squared sensitivity over variance, for events that are Gaussian; else infinite."""
    match leaf:
        case Gaussian(noise, count) | DiscreteGaussian(noise, count):
            return count / noise**2
        case SampledGaussian(rate, noise, steps) if rate in (0, 1):
            # Sampled at rate 1, all units are in: plain Gaussian noise. At rate 0 none is.
            return rate * steps / noise**2
        case _:
            return math.inf


def largest_first(blocks: tuple[bounded_range.Rounds, ...]) -> tuple[bounded_range.Rounds, ...]:
    """Pure steps, largest loss first: they commute, and one order makes one cache entry."""
    counts: Counter[bounded_range.Step] = Counter()
    for steps, count in blocks:
        for step in steps:
            counts[step] += count
    losses = sorted(counts.items(), key=lambda item: -bounded_range.width_of(item[0]))
    return tuple(((step,), count) for step, count in losses)
