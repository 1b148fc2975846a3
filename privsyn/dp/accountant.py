"""What events cost: composition, guarantee, calibration, and the filter behind an account's cap.

Two uses, kept apart. A *single release* may quote the tightest bound known for its kind, over all
orders. An *account* composes events that are chosen after earlier releases were seen; there the
order must be fixed in advance (Feldman and Zrnic 2021, Lecuyer 2021: a Renyi filter), because the
minimum over orders of a running sum lets an adaptive adversary exceed delta ([B9] in bounds.md).
"""

from __future__ import annotations

import decimal
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsyn.dp import bounded_range, conversions
from privsyn.dp.events import (
    ZCDP,
    BoundedRange,
    DiscreteGaussian,
    Disjoint,
    Event,
    Gaussian,
    Pure,
    Rounds,
    SampledGaussian,
    Sequence,
    leaves,
)

_FAR = 20.0
"""Logarithm of epsilon over the target beyond which ``calibrate`` halves its range."""

CALIBRATION_MARGIN = 1e-12
"""Relative room left below a target, for the roundings of the caller's own arithmetic."""


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-DP.

    Attributes:
        epsilon: At least 0, finite.
        delta: In [0, 1).
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < math.inf:
            raise ValueError(f"epsilon={self.epsilon!r} must be a finite number of at least 0")
        _check_delta(self.delta)


@dataclass(frozen=True)
class RDPCurve:
    """Renyi loss of an event at any order above 1; an infinite order is pure DP.

    >>> RDPCurve(ZCDP(rho=0.1))(3.0)
    0.30000000000000004
    """

    event: Event

    def __call__(self, order: float) -> float:
        """Loss in nats at one order."""
        if not order > 1:
            raise ValueError(f"order={order!r} must be above 1")
        return _fold(self.event, lambda leaf: _renyi_loss(leaf, order))

    def at(self, orders: Iterable[float]) -> NDArray[np.float64]:
        """Losses at several orders."""
        return np.array([self(order) for order in orders], dtype=np.float64)


def rdp(event: Event) -> RDPCurve:
    """The Renyi curve of an event: the shared currency of all kinds."""
    return RDPCurve(event)


def loss_at(event: Event, order: float) -> float:
    """Renyi loss at one order: what a release takes from an account."""
    return RDPCurve(event)(order)


def rho(event: Event) -> float | None:
    """Total zCDP rho, or None where the event has none (a sampled Gaussian).

    >>> rho(Sequence((Pure(1.0), ZCDP(0.25, count=2))))
    1.0
    """
    total = _fold(event, _rho)
    return total if math.isfinite(total) else None


def guarantee(event: Event, delta: float) -> Guarantee:
    """The tightest known guarantee at ``delta``.

    Pure loss by randomised response, zCDP by CKS20 Corollary 13 at the best real order, Gaussian
    noise by its exact curve, bounded-range draws and what is mixed with them by their exact
    adaptive composition, sampled Gaussians by their loss distribution; the smallest where several
    apply. Epsilon is rounded up.

    Raises:
        ValueError: delta outside [0, 1), or no finite epsilon at this delta (zCDP at delta 0).
    """
    epsilon = epsilon_at(event, delta)
    if math.isinf(epsilon):
        raise ValueError(f"the event has no finite epsilon at delta={delta!r}; raise delta")
    return Guarantee(epsilon, delta)


def epsilon_at(event: Event, delta: float) -> float:
    """Epsilon of ``guarantee``; infinite where there is none."""
    _check_delta(delta)
    pure = _fold(event, _pure)
    if delta == 0:
        return pure
    found = [conversions.pure_epsilon(pure, delta)] if math.isfinite(pure) else [math.inf]
    mu_squared = _fold(event, _mu_squared)
    if math.isfinite(mu_squared):
        found.append(conversions.gaussian_epsilon(math.sqrt(mu_squared), delta))
    found.append(conversions.zcdp_epsilon(_fold(event, _rho), delta))
    if any(isinstance(leaf, Pure | SampledGaussian) for leaf in leaves(event)):
        found.append(renyi_epsilon(event, delta))  # else it is the rho curve
    found.append(composed_epsilon(event, delta))
    found.append(loss_distribution_epsilon(event, delta))
    return min(found)


def composed_epsilon(event: Event, delta: float, cells: int = bounded_range.CELLS) -> float:
    """Epsilon by the exact adaptive composition of [B15]; infinite where it does not apply.

    It applies to pure and bounded-range steps in their order, and to Gaussian noise that no
    bounded-range draw follows.

    Args:
        event: What is priced.
        delta: In [0, 1).
        cells: Fineness of the grid; fewer are quicker, and never below the truth either.
    """
    _check_delta(delta)
    composed = _composed(event)
    if composed is None or delta == 0 or not composed.blocks:
        return math.inf
    return bounded_range.epsilon(composed.priced, delta, composed.mu_squared, cells)


def composed_roughly(event: Event, delta: float) -> float:
    """``composed_epsilon`` on a coarse grid: quick, up to .5% more, never below the truth."""
    return composed_epsilon(event, delta, cells=_QUICK_CELLS)


def _largest_first(blocks: tuple[bounded_range.Rounds, ...]) -> tuple[bounded_range.Rounds, ...]:
    """Pure steps alone, which commute: one price for every order."""
    counts: Counter[bounded_range.Step] = Counter()
    for steps, count in blocks:
        for step in steps:
            counts[step] += count
    losses = sorted(counts.items(), key=lambda item: -bounded_range.width_of(item[0]))
    return tuple(((step,), count) for step, count in losses)


def renyi_epsilon(event: Event, delta: float) -> float:
    """Epsilon by the Renyi curve alone, at its best order: quick, and never below the truth."""
    _check_delta(delta)
    return conversions.best_epsilon(RDPCurve(event), delta)


def loss_distribution_epsilon(event: Event, delta: float) -> float:
    """Epsilon by the loss distribution alone; infinite where the event has no sampled Gaussian."""
    _check_delta(delta)
    parts, pure = _sampled_parts(event)
    if not parts or delta == 0:
        return math.inf
    from privsyn.dp.loss_distribution import sampled_gaussian_epsilon  # late: loads scipy

    return sampled_gaussian_epsilon(parts, delta, pure)


def profile(event: Event) -> list[tuple[float, float]]:
    """Points (epsilon, delta) of an event's privacy profile, each of which holds.

    Guarantee: the event is (epsilon, delta)-DP at every point, and so at all of them together.

    Returns:
        A few to some thousands of points, in no order. Source: Balle, Barthe, Gaboardi 2018,
        "Privacy Amplification by Subsampling", Section 2 (the name).
    """
    points: list[tuple[float, float]] = []
    pure, total, mu_squared = (_fold(event, price) for price in (_pure, _rho, _mu_squared))
    if math.isfinite(pure):
        points.append((pure, 0.0))
    grid = np.concatenate(([0.0], np.geomspace(1e-3, _PROFILE_TO, _PROFILE_POINTS)))
    if math.isfinite(total):
        points += [(float(epsilon), conversions.zcdp_delta(total, epsilon)) for epsilon in grid]
    if math.isfinite(mu_squared) and mu_squared:
        deltas = conversions.gaussian_deltas(math.sqrt(mu_squared), grid)
        deltas = np.minimum(deltas * (1 + conversions.GAUSSIAN_MARGIN), 1.0)
        points += zip(grid.tolist(), deltas.tolist(), strict=True)
    composed = _composed(event)
    if composed is not None and composed.blocks:
        reach = min(conversions.zcdp_epsilon(total, _PROFILE_DELTA), _PROFILE_TO)
        curve = bounded_range.curve(composed.priced, reach, composed.mu_squared)
        if curve is not None:
            at = curve.first + curve.width * np.arange(len(curve.deltas))
            held = at >= 0
            points += zip(at[held].tolist(), curve.deltas[held].tolist(), strict=True)
    parts, losses = _sampled_parts(event)
    if parts:
        from privsyn.dp.loss_distribution import sampled_gaussian_profile  # late: loads scipy

        points += sampled_gaussian_profile(parts, losses)
    if not points:  # by the Renyi curve
        points = [(epsilon_at(event, delta), delta) for delta in _PROFILE_DELTAS]
    return [(epsilon, delta) for epsilon, delta in points if math.isfinite(epsilon)]


_PROFILE_TO, _PROFILE_POINTS, _PROFILE_DELTA = 40.0, 400, 1e-4
_PROFILE_DELTAS = (0.4, 0.2, 0.1, 0.05, 0.02, 7e-3, 2e-3, 5e-4)


def calibrate_rho(target: Guarantee) -> float:
    """Largest rho whose zCDP guarantee stays within ``target``, rounded down.

    Guarantee: ``guarantee(ZCDP(rho), target.delta).epsilon <= target.epsilon``, also after a few
    roundings of rho by the caller; and the release fits a fresh account of the same cap.

    Raises:
        ValueError: delta is 0, which no zCDP mechanism reaches.

    >>> round(calibrate_rho(Guarantee(1.0, 1e-6)), 6)
    0.024356
    """
    if target.delta == 0:
        raise ValueError("delta=0 is reached by pure events only; set delta above 0")
    if target.epsilon == 0:
        return 0.0
    order = filter_order(target.epsilon, target.delta)
    slack = CALIBRATION_MARGIN
    budget = filter_budget(target.epsilon, target.delta, order)
    found = max(0.0, budget / order * (1 - slack))  # so that order times it is within the budget
    while conversions.zcdp_epsilon(found, target.delta) > target.epsilon * (1 - CALIBRATION_MARGIN):
        found *= 1 - slack
        slack = min(2 * slack, 0.5)
    return found


def calibrate(
    make: Callable[[float], Event],
    target: Guarantee,
    low: float,
    high: float,
    increasing: bool,
    *,
    price: Callable[[Event, float], float] | None = None,
    tolerance: float = 1e-10,
) -> float:
    """The parameter in [low, high] whose event comes closest to ``target`` from the private side.

    Args:
        make: Event of a parameter, its epsilon monotone in it.
        target: What the event may cost.
        low: Smallest parameter, above 0.
        high: Largest parameter.
        increasing: Whether epsilon grows with the parameter (a clip bound, a count), so that the
            largest one within the target is wanted; else (a noise scale) the smallest.
        price: Epsilon of an event at a delta, never below the truth. None: ``epsilon_at``.
        tolerance: How close, relative to the parameter or to epsilon, whichever comes first.

    Returns:
        A parameter that was itself checked: its event is within the target.

    Raises:
        ValueError: Not even the most private end of the range is within the target.
    """
    if not 0 < low <= high < math.inf:
        raise ValueError(f"low={low!r} and high={high!r} must be finite with 0 < low <= high")

    ends = {math.log(low): low, math.log(high): high}

    def parameter(log_value: float) -> float:
        return ends.get(log_value) or min(max(math.exp(log_value), low), high)

    def excess(log_value: float) -> float:
        """Logarithm of epsilon over the target: at most 0 where the parameter fits."""
        epsilon = (price or epsilon_at)(make(parameter(log_value)), target.delta)
        if epsilon <= target.epsilon:
            return max(-_FAR, math.log(epsilon / target.epsilon)) if epsilon else -_FAR
        return min(_FAR, math.log(epsilon / target.epsilon)) if target.epsilon else _FAR

    safe, bold = math.log(low if increasing else high), math.log(high if increasing else low)
    at_safe = excess(safe)
    if at_safe > 0:
        raise ValueError(
            f"no parameter in [{low:g}, {high:g}] reaches epsilon={target.epsilon:g} at "
            f"delta={target.delta:g}; widen the range"
        )
    at_bold = excess(bold)
    if at_bold <= 0:
        return parameter(bold)
    width = math.inf
    while abs(bold - safe) > tolerance and at_safe < -tolerance:
        # A secant in logarithms, aimed a little to the safe side; the middle where it gains little.
        middle = (safe + bold) / 2
        if max(at_bold, -at_safe) < _FAR and abs(bold - safe) < width / 2:
            middle = safe + (bold - safe) * (at_safe + tolerance / 2) / (at_safe - at_bold)
            middle = min(max(middle, min(safe, bold)), max(safe, bold))
        width = abs(bold - safe)
        if middle in (safe, bold):
            break
        at_middle = excess(middle)
        if at_middle <= 0:
            safe, at_safe = middle, at_middle
        else:
            bold, at_bold = middle, at_middle
    return parameter(safe)


def calibrate_range(make: Callable[[float], Event], target: Guarantee, count: int) -> float:
    """Largest range of ``count`` bounded-range draws whose event stays within ``target``.

    Guarantee: ``epsilon_at(make(range), target.delta) <= target.epsilon``.

    Args:
        make: Event of a range.
        target: What the event may cost.
        count: Draws that make up most of the event: where the search begins.

    Raises:
        ValueError: delta is 0, or no range is within the target.
    """
    by_rho = math.sqrt(8 * calibrate_rho(target) / count)  # what zCDP would allow
    return calibrate_composed(make, target, by_rho * (1 - 1e-6), _RANGE_TOLERANCE)


def calibrate_composed(
    make: Callable[[float], Event], target: Guarantee, by_zcdp: float, tolerance: float
) -> float:
    """Largest parameter whose event stays within ``target``, where more of it costs more.

    Guarantee: ``epsilon_at(make(parameter), target.delta) <= target.epsilon``.

    Exact composition mostly buys a few hundredths to tenths more than zCDP: it is looked for
    coarsely first, then exactly.

    Args:
        make: Event of a parameter.
        target: What the event may cost.
        by_zcdp: A parameter within the target, by its cost in zCDP.
        tolerance: As in ``calibrate``.

    Raises:
        ValueError: by_zcdp is not within the target.
    """
    safe = by_zcdp
    for price, widest, near in (
        (composed_roughly, 1.15, max(tolerance, 1e-4)),
        (epsilon_at, 1.02, tolerance),
    ):
        if price(make(safe), target.delta) > target.epsilon:
            safe = by_zcdp  # all prices are above the truth, and not in one order
            if price is composed_roughly:
                continue
        bold = safe * widest
        while safe < bold:
            found = calibrate(make, target, safe, bold, True, price=price, tolerance=near)
            safe, bold = found, (2 * bold if found == bold else found)
    return safe


_QUICK_CELLS = 10
_RANGE_TOLERANCE = 1e-5


def shown(epsilon: float, digits: int = 6) -> str:
    """An epsilon as text of so many significant digits, rounded up: never below the truth.

    >>> shown(8.0004, digits=4), shown(9.9999997), shown(1e-5, digits=4)
    ('8.001', '10', '1e-05')
    """
    nearest = f"{epsilon:.{digits}g}"
    if float(nearest) >= epsilon:
        return nearest
    up = decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING)
    return f"{float(up.create_decimal_from_float(epsilon)):.{digits}g}"


def filter_order(epsilon: float, delta: float) -> float:
    """The order an account of this cap fixes at creation: the one that admits most zCDP.

    It maximises ``filter_budget(a) / a``. Infinite at delta 0: pure losses are summed.

    >>> [round(filter_order(epsilon, 1e-6), 1) for epsilon in (1, 3, 8)]
    [22.0, 8.9, 4.4]
    """
    _check_cap(epsilon, delta)
    return conversions.zcdp_order(epsilon, delta) if delta else math.inf


def filter_budget(epsilon: float, delta: float, order: float) -> float:
    """Total Renyi loss at ``order`` an account may spend: eps + (ln d + ln a)/(a-1) - ln(1-1/a).

    Guarantee: releases chosen adaptively, in any order, whose losses at ``order`` sum to at most
    this are together (epsilon, delta)-DP. Rounded down; may be negative at a bad order.
    """
    _check_cap(epsilon, delta)
    _check_order(order, delta)
    return conversions.rdp_budget(epsilon, order, delta)


def filter_epsilon(spent: float, delta: float, order: float) -> float:
    """Epsilon at ``delta`` of a loss ``spent`` at ``order``, rounded up; 0 if nothing is spent."""
    _check_delta(delta)
    _check_order(order, delta)
    if not spent >= 0:
        raise ValueError(f"spent={spent!r} must be at least 0")
    return conversions.rdp_epsilon(spent, order, delta) if spent else 0.0


def gaussian_mu_squared(event: Event) -> float:
    """Squared mu of an event that is mu-Gaussian DP; infinite where none is known.

    Guarantee: events chosen adaptively, whose squared mu add up to mu^2, are together mu-Gaussian
    DP (Dong, Roth, Su 2022). Draws get the least mu whose curve covers theirs [B16]. A sampled
    Gaussian has none: its noise is on a lattice, or from a table, for which a release owes delta
    that a sum of mu does not hold.
    """
    gaussian = all(math.isfinite(_mu_squared(leaf)) for leaf in leaves(event))
    return _fold(event, _mu_squared) if gaussian else _covered(event)


def _covered(event: Event) -> float:
    """By the curve of exact composition, in pieces of so many steps; sums over what has none."""
    composed = _composed(event)
    if composed is not None:
        total = composed.mu_squared
        for steps, count in composed.blocks:
            rounds = max(1, _MU_PIECE // len(steps))
            whole, rest = divmod(count, rounds)
            for times, pieces in ((rounds, whole), (rest, 1)):
                if times and pieces:
                    total += pieces * bounded_range.gaussian_mu(((steps, times),)) ** 2
        return total
    match event:
        case Sequence(events):
            return math.fsum(gaussian_mu_squared(child) for child in events)
        case Rounds(events, count):
            return count * math.fsum(gaussian_mu_squared(child) for child in events)
        case _:
            return math.inf


_MU_PIECE = 128


def pure_loss(event: Event) -> float:
    """Pure epsilon of an event; infinite where it has none."""
    return _fold(event, _pure)


def gaussian_budget(epsilon: float, delta: float) -> float:
    """Total squared mu an account may spend at (epsilon, delta), rounded down [B16]."""
    _check_cap(epsilon, delta)
    low, high = 0.0, 2 * max(epsilon, 1.0) * 4
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        fits = conversions.gaussian_epsilon(math.sqrt(middle), delta) <= epsilon
        low, high = (middle, high) if fits else (low, middle)
    return low


def repeated(event: Event, count: int) -> Event | None:
    """``count`` copies of an event as one that is priced by its loss distribution.

    None where copies are no such event: only sampled and plain Gaussians in sequence are, whose
    dominating distributions are fixed with the first copy.
    """
    match event:
        case SampledGaussian(rate, noise, steps):
            return SampledGaussian(rate, noise, steps * count)
        case Gaussian(noise, once):
            return Gaussian(noise, once * count)
        case DiscreteGaussian(noise, once):
            return DiscreteGaussian(noise, once * count)
        case Sequence(events):
            copies = [repeated(child, count) for child in events]
            kept = tuple(copy for copy in copies if copy is not None)
            return Sequence(kept) if len(kept) == len(copies) else None
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
        case Sequence(events):
            return Sequence(tuple(scaled(child, factor) for child in events))
        case Rounds(events, count):
            return Rounds(tuple(scaled(child, factor) for child in events), count)
        case Disjoint(events, cells):
            return Disjoint(tuple(scaled(child, factor) for child in events), cells)


def _fold(event: Event, price: Callable[[Event], float]) -> float:
    """Sum over sequences and rounds, maximum over disjoint parts [B8]."""
    match event:
        case Sequence(events):
            return math.fsum(_fold(child, price) for child in events)
        case Rounds(events, count):
            return count * math.fsum(_fold(child, price) for child in events)
        case Disjoint(events):
            return max(_fold(child, price) for child in events)
        case _:
            return price(event)


def _renyi_loss(leaf: Event, order: float) -> float:
    match leaf:
        case Pure(epsilon):
            return conversions.pure_rdp(epsilon, order)
        case SampledGaussian(rate, noise, steps) if rate < 1:
            slack = conversions.LATTICE_SLACK * (1 + 0.5 / (order - 1)) if rate else 0.0
            return steps * conversions.sampled_gaussian_rdp(rate, noise, order) + slack
        case _:
            total = _rho(leaf)
            return order * total if total else 0.0


def _pure(leaf: Event) -> float:
    match leaf:
        case Pure(epsilon):
            return epsilon
        case BoundedRange(width, count):
            return width * count
        case _:
            return 0.0 if _rho(leaf) == 0 else math.inf


def _rho(leaf: Event) -> float:
    match leaf:
        case Pure(epsilon):
            return epsilon * epsilon / 2
        case ZCDP(one, count):
            return one * count
        case BoundedRange(width, count):
            return width * width / 8 * count * (1 + conversions.ROUNDING)
        case _:
            return _mu_squared(leaf) / 2


def _mu_squared(leaf: Event) -> float:
    """Squared sensitivity over variance, for events that are Gaussian; else infinite."""
    match leaf:
        case Gaussian(noise, count) | DiscreteGaussian(noise, count):
            return count / noise**2
        case SampledGaussian(rate, noise, steps) if rate in (0, 1):
            return rate * steps / noise**2
        case _:
            return math.inf


@dataclass(frozen=True)
class _Composed:
    """What exact composition takes: steps in their order, and Gaussian noise after them."""

    blocks: tuple[bounded_range.Rounds, ...] = ()
    mu_squared: float = 0.0

    @property
    def draws(self) -> bool:
        steps = (step for steps, _ in self.blocks for step in steps)
        return any(isinstance(step, bounded_range.Draw) for step in steps)

    @property
    def priced(self) -> tuple[bounded_range.Rounds, ...]:
        """The blocks in the order they are priced in."""
        return self.blocks if self.draws else _largest_first(self.blocks)

    def then(self, other: _Composed) -> _Composed | None:
        """One after the other; None where a draw would follow Gaussian noise."""
        if self.mu_squared and other.draws:
            return None
        return _Composed(self.blocks + other.blocks, self.mu_squared + other.mu_squared)

    def times(self, count: int) -> _Composed | None:
        """So many in a row."""
        if count == 1 or not self.blocks:
            return _Composed(self.blocks, self.mu_squared * count)
        if self.mu_squared and self.draws:
            return None
        length = sum(times * len(steps) for steps, times in self.blocks)
        if length > _LONGEST_ROUND:
            return None
        once = tuple(step for steps, times in self.blocks for _ in range(times) for step in steps)
        return _Composed(((once, count),), self.mu_squared * count)


_LONGEST_ROUND = 1000
"""Steps of one round that exact composition takes; longer ones are priced by their Renyi curve."""


def _composed(event: Event) -> _Composed | None:
    """An event for [B15]; None for one it does not hold for."""
    match event:
        case Pure(epsilon):
            steps = (bounded_range.Response(epsilon),)
            return _Composed(((steps, 1),)) if epsilon else _Composed()
        case BoundedRange(width, count):
            draw = (bounded_range.Draw(width),)
            return _Composed(((draw, count),)) if width else _Composed()
        case Sequence(events) | Rounds(events):
            whole: _Composed | None = _Composed()
            for child in events:
                part = _composed(child)
                whole = whole.then(part) if whole is not None and part is not None else None
            count = event.count if isinstance(event, Rounds) else 1
            return whole.times(count) if whole is not None else None
        case Disjoint(events):
            parts = [_composed(child) for child in dict.fromkeys(events)]
            if len(parts) == 1:
                return parts[0]
            gaussian = [part for part in parts if part is not None and not part.blocks]
            if len(gaussian) < len(parts):
                return None
            return _Composed(mu_squared=max(part.mu_squared for part in gaussian))
        case _:
            mu_squared = _mu_squared(event)
            return _Composed(mu_squared=mu_squared) if math.isfinite(mu_squared) else None


def _in_sequence(event: Event) -> Iterator[Event]:
    if isinstance(event, Sequence):
        for child in event.events:
            yield from _in_sequence(child)
    else:
        yield event


def _sampled_parts(
    event: Event,
) -> tuple[tuple[tuple[float, float, int], ...], tuple[float, ...]]:
    """Sampled and plain Gaussians, and pure losses, of a sequence with a sampled one; or nothing.

    All of them are dominated by one pair of distributions whatever is chosen adaptively, so their
    order does not matter.
    """
    children = _in_sequence(event)
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


def _check_delta(delta: float) -> None:
    if not 0 <= delta < 1:
        raise ValueError(f"delta={delta!r} must lie in [0, 1)")


def _check_cap(epsilon: float, delta: float) -> None:
    _check_delta(delta)
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon={epsilon!r} must be a finite number above 0")


def _check_order(order: float, delta: float) -> None:
    if not order > 1 or (delta == 0) != math.isinf(order):
        raise ValueError(f"order={order!r} must be above 1, and infinite exactly where delta is 0")
