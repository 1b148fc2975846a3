"""Walks over a tree of events: its leaves priced and folded, its rounds laid out in sequence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
"""Logarithm of epsilon over the target beyond which ``calibrate`` halves its range."""


def repeated(event: Event, count: int) -> Event | None:
    """``count`` copies of an event as one event that the loss distribution prices.

    None for other events than sampled and plain Gaussians in sequence: only there are the
    dominating distributions fixed with the first copy.
    """
    match event:
        case SampledGaussian(rate, noise, steps):
            return SampledGaussian(rate, noise, steps * count)
        case Gaussian(noise, once):
            return Gaussian(noise, once * count)
        case DiscreteGaussian(noise, once):
            return DiscreteGaussian(noise, once * count)
        case Composed(events):
            copies = [repeated(child, count) for child in events]
            repeats = tuple(copy for copy in copies if copy is not None)
            return Composed(repeats) if len(repeats) == len(copies) else None
        case _:
            return None


def scaled(event: Event, factor: float) -> Event:
    """The event with all its noise ``factor`` times as large."""
    match event:
        case Pure(epsilon):
            return Pure(epsilon / factor)
        case ZCDP(one, count):
            return ZCDP(one / factor**2, count)
        case BoundedRange(width, count):
            return BoundedRange(width / factor, count)
        case Gaussian(noise, count):
            return Gaussian(noise * factor, count)
        case DiscreteGaussian(noise, count):
            return DiscreteGaussian(noise * factor, count)
        case SampledGaussian(rate, noise, steps):
            return SampledGaussian(rate, noise * factor, steps)
        case Composed(events):
            return Composed(tuple(scaled(child, factor) for child in events))
        case Rounds(events, count):
            return Rounds(tuple(scaled(child, factor) for child in events), count)
        case Disjoint(events, cells):
            return Disjoint(tuple(scaled(child, factor) for child in events), cells)
        case RandomAllocation(inner, places):
            return RandomAllocation(scaled(inner, factor), places)


def fold(event: Event, price: Callable[[Event], float]) -> float:
    """Sum over sequences and rounds, maximum over disjoint parts [B8].

    A random allocation is priced as without its secret, which is never less than with it [B19].
    """
    match event:
        case Composed(events):
            return math.fsum(fold(child, price) for child in events)
        case Rounds(events, count):
            return count * math.fsum(fold(child, price) for child in events)
        case Disjoint(events):
            return max(fold(child, price) for child in events)
        case RandomAllocation(inner):
            return fold(inner, price)
        case _:
            return price(event)


def renyi_loss(leaf: Event, order: float) -> float:
    """Renyi divergence of a leaf at an order: the least of its proven bounds."""
    match leaf:
        case Pure(epsilon):
            return conversions.pure_rdp(epsilon, order)
        case SampledGaussian(rate, noise, steps) if rate < 1:
            slack = conversions.LATTICE_SLACK * (1 + 0.5 / (order - 1)) if rate else 0.0
            return steps * conversions.sampled_gaussian_rdp(rate, noise, order) + slack
        case _:
            total = zcdp_loss(leaf)
            return order * total if total else 0.0


def zcdp_loss(leaf: Event) -> float:
    """Rho-zCDP of a leaf; infinite where it has none."""
    match leaf:
        case Pure(epsilon):
            return epsilon * epsilon / 2
        case ZCDP(one, count):
            return one * count
        case BoundedRange(width, count):
            return width * width / 8 * count * (1 + conversions.ROUNDING)
        case _:
            return mu_squared_of_leaf(leaf) / 2


@dataclass(frozen=True)
class Composition:
    """Input of exact composition: steps in their order, and Gaussian noise after them."""

    blocks: tuple[bounded_range.Rounds, ...] = ()
    mu_squared: float = 0.0

    @property
    def draws(self) -> bool:
        """Whether a round of it draws from scores of bounded range."""
        steps = (step for steps, _ in self.blocks for step in steps)
        return any(isinstance(step, bounded_range.Draw) for step in steps)

    @property
    def priced(self) -> tuple[bounded_range.Rounds, ...]:
        """The blocks in the order they are priced in."""
        return self.blocks if self.draws else largest_first(self.blocks)

    def then(self, other: Composition) -> Composition | None:
        """This composition, then another; None where a draw would follow Gaussian noise."""
        if self.mu_squared and other.draws:
            return None
        return Composition(self.blocks + other.blocks, self.mu_squared + other.mu_squared)

    def times(self, count: int) -> Composition | None:
        """This composition ``count`` times in a row."""
        if count == 1 or not self.blocks:
            return Composition(self.blocks, self.mu_squared * count)
        if self.mu_squared and self.draws:
            return None
        length = sum(times * len(steps) for steps, times in self.blocks)
        if length > _LONGEST_ROUND:
            return None
        once = tuple(step for steps, times in self.blocks for _ in range(times) for step in steps)
        return Composition(((once, count),), self.mu_squared * count)


_LONGEST_ROUND = 1000
"""Steps of one round that exact composition takes; longer ones are priced by their Renyi curve."""


def composition(event: Event) -> Composition | None:
    """An event as [B15] composes it; None where [B15] does not hold."""
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
            gaussian = [part for part in parts if part is not None and not part.blocks]
            if len(gaussian) < len(parts):
                return None
            return Composition(mu_squared=max(part.mu_squared for part in gaussian))
        case RandomAllocation(inner):
            return composition(inner)
        case _:
            mu_squared = mu_squared_of_leaf(event)
            return Composition(mu_squared=mu_squared) if math.isfinite(mu_squared) else None


def in_sequence(event: Event) -> Iterator[Event]:
    """The events of a sequence, and of sequences in it, in their order."""
    if isinstance(event, Composed):
        for child in event.events:
            yield from in_sequence(child)
    else:
        yield event


def sampled_parts(
    event: Event,
) -> tuple[tuple[tuple[float, float, int], ...], tuple[float, ...]]:
    """Sampled and plain Gaussians, and pure losses, of a sequence with a sampled one; or nothing.

    All of them are dominated by one pair of distributions whatever is chosen adaptively, so their
    order does not matter.
    """
    children = in_sequence(event)
    parts: list[tuple[float, float, int]] = []
    pure: list[float] = []
    for child in children:
        match child:
            case SampledGaussian(rate, noise, steps):
                parts += [(rate, noise, steps)] if rate else []
            case Gaussian(noise, count) | DiscreteGaussian(noise, count):
                parts.append((1.0, noise, count))
            case Pure(epsilon):
                pure += [epsilon] if epsilon else []
            case _:
                return (), ()
    return (tuple(parts), tuple(pure)) if any(rate < 1 for rate, *_ in parts) else ((), ())


def allocated(event: Event) -> tuple[RandomAllocation | None, tuple[Event, ...]]:
    """The random allocation of a sequence, and the other events of it.

    Where there are several, the one of most places is named and the others are among the rest.
    """
    parts = list(in_sequence(event))
    drawn = [part for part in parts if isinstance(part, RandomAllocation)]
    first = max(drawn, key=lambda part: part.places, default=None)
    return first, tuple(part for part in parts if part is not first)


def check_delta(delta: float) -> None:
    """ValueError unless a delta lies in [0, 1)."""
    if not 0 <= delta < 1:
        raise ValueError(f"delta={delta!r} must lie in [0, 1)")


def pure_of_leaf(leaf: Event) -> float:
    """Largest loss of a leaf; infinite where it has no bound."""
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
            return rate * steps / noise**2
        case _:
            return math.inf


def largest_first(blocks: tuple[bounded_range.Rounds, ...]) -> tuple[bounded_range.Rounds, ...]:
    """Pure steps, largest loss first: they commute, so every order has one price."""
    counts: Counter[bounded_range.Step] = Counter()
    for steps, count in blocks:
        for step in steps:
            counts[step] += count
    losses = sorted(counts.items(), key=lambda item: -bounded_range.width_of(item[0]))
    return tuple(((step,), count) for step, count in losses)
