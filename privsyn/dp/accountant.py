"""What events cost: composition, guarantee, calibration, and the filter behind an account's cap.

Two uses, kept apart. A *single release* may quote the tightest bound known for its kind, over all
orders. An *account* composes events that are chosen after earlier releases were seen; there the
order must be fixed in advance (Feldman and Zrnic 2021, Lecuyer 2021: a Renyi filter), because the
minimum over orders of a running sum lets an adaptive adversary exceed delta ([B9] in bounds.md).
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsyn.dp import conversions
from privsyn.dp.events import (
    ZCDP,
    DiscreteGaussian,
    Disjoint,
    Event,
    Gaussian,
    Pure,
    SampledGaussian,
    Sequence,
    leaves,
)

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
    noise by its exact curve, sampled Gaussians by their loss distribution, mixtures by their Renyi
    curve; the smallest where several apply. Epsilon is rounded up.

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
    found.append(loss_distribution_epsilon(event, delta))
    return min(found)


def renyi_epsilon(event: Event, delta: float) -> float:
    """Epsilon by the Renyi curve alone, at its best order: quick, and never below the truth."""
    _check_delta(delta)
    return conversions.best_epsilon(RDPCurve(event), delta)


def loss_distribution_epsilon(event: Event, delta: float) -> float:
    """Epsilon by the loss distribution alone; infinite where the event has no sampled Gaussian."""
    _check_delta(delta)
    parts = _sampled_parts(event)
    if not parts or delta == 0:
        return math.inf
    from privsyn.dp.loss_distribution import sampled_gaussian_epsilon  # late: loads scipy

    return sampled_gaussian_epsilon(parts, delta)


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
        tolerance: How close, relative to the parameter.

    Returns:
        A parameter that was itself checked: its event is within the target.

    Raises:
        ValueError: Not even the most private end of the range is within the target.
    """
    if not 0 < low <= high < math.inf:
        raise ValueError(f"low={low!r} and high={high!r} must be finite with 0 < low <= high")

    def fits(value: float) -> bool:
        return (price or epsilon_at)(make(value), target.delta) <= target.epsilon

    safe, bold = (low, high) if increasing else (high, low)
    if not fits(safe):
        raise ValueError(
            f"no parameter in [{low:g}, {high:g}] reaches epsilon={target.epsilon:g} at "
            f"delta={target.delta:g}; widen the range"
        )
    if fits(bold):
        return bold
    while abs(bold - safe) > tolerance * min(bold, safe):
        middle = math.sqrt(bold) * math.sqrt(safe)
        safe, bold = (middle, bold) if fits(middle) else (safe, middle)
    return safe


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


def _fold(event: Event, price: Callable[[Event], float]) -> float:
    """Sum over sequences, maximum over disjoint parts [B8]."""
    match event:
        case Sequence(events):
            return math.fsum(_fold(child, price) for child in events)
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
        case _:
            return 0.0 if _rho(leaf) == 0 else math.inf


def _rho(leaf: Event) -> float:
    match leaf:
        case Pure(epsilon):
            return epsilon * epsilon / 2
        case ZCDP(one, count):
            return one * count
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


def _sampled_parts(event: Event) -> tuple[tuple[float, float, int], ...]:
    """Sampled and plain Gaussians in sequence, of which one is sampled; else nothing."""
    children = event.events if isinstance(event, Sequence) else (event,)
    parts: list[tuple[float, float, int]] = []
    for child in children:
        match child:
            case SampledGaussian(rate, noise, steps):
                parts += [(rate, noise, steps)] if rate else []
            case Gaussian(noise, count) | DiscreteGaussian(noise, count):
                parts.append((1.0, noise, count))
            case _:
                return ()
    return tuple(parts) if any(rate < 1 for rate, *_ in parts) else ()


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
