"""The numbers that the ledger compares: an account's order, its budget there, and events' losses.

An account composes events that are chosen after a look at earlier releases. So its order must be
fixed in advance (Feldman and Zrnic 2021, Lecuyer 2021: a Renyi filter), because the minimum over
orders of a running sum lets an adaptive adversary exceed delta ([B9] in bounds.md).
"""

from __future__ import annotations

import math

from privsyn.dp import bounded_range, conversions, random_allocation
from privsyn.dp.adjacency import check_delta
from privsyn.dp.event_tree import (
    Allocation,
    Part,
    PureSteps,
    composition,
    fold,
    mu_squared_of_leaf,
    pure_of_leaf,
    split_allocation,
    without_secret,
)
from privsyn.dp.events import (
    Composed,
    DiscreteGaussian,
    Event,
    Gaussian,
    Pure,
    RandomAllocation,
    Rounds,
    SampledGaussian,
    leaves,
)


def filter_order(epsilon: float, delta: float) -> float:
    """The order that an account of this cap fixes at its creation: the one that admits most zCDP.

    It maximizes ``filter_budget(a) / a``. At delta 0 it is infinite, where pure losses add.

    >>> [round(filter_order(epsilon, 1e-6), 1) for epsilon in (1, 3, 8)]
    [22.0, 8.9, 4.4]
    """
    _check_cap(epsilon, delta)
    return conversions.zcdp_order(epsilon, delta) if delta else math.inf


def filter_budget(epsilon: float, delta: float, order: float) -> float:
    """The total Renyi loss that an account may spend: eps + (ln d + ln a)/(a-1) - ln(1-1/a).

    Guarantee: releases chosen adaptively, in any order, whose losses at ``order`` sum to at most
    this are together (epsilon, delta)-DP. Rounded down; may be negative at a bad order.
    """
    _check_cap(epsilon, delta)
    _check_order(order, delta)
    return conversions.rdp_budget(epsilon, order, delta)


def filter_epsilon(spent: float, delta: float, order: float) -> float:
    """Epsilon at ``delta`` of a loss ``spent`` at ``order``, rounded up; 0 for no loss."""
    check_delta(delta)
    _check_order(order, delta)
    if not spent >= 0:
        raise ValueError(f"spent={spent!r} must be at least 0")
    return conversions.rdp_epsilon(spent, order, delta) if spent else 0.0


def gaussian_mu_squared(event: Event, cells: int = bounded_range.CELLS) -> float:
    """The squared mu of an event that is mu-Gaussian DP; infinite if no mu is known.

    Guarantee: events chosen adaptively, whose squared mu add up to mu^2, are together mu-Gaussian
    DP (Dong, Roth, Su 2022). Draws get the least mu whose curve covers theirs [B16]. A sampled
    Gaussian has no useful mu without a chance to reveal all: see ``covering_mu_squared``.

    Args:
        event: The event.
        cells: Grid cells per range of a draw. Fewer take less time and give a larger mu.
    """
    gaussian = all(math.isfinite(mu_squared_of_leaf(leaf)) for leaf in leaves(event))
    return fold(event, mu_squared_of_leaf) if gaussian else _sum_mu_squared(event, cells)


def _sum_mu_squared(event: Event, cells: int) -> float:
    """The squared mu by exact composition in pieces, or else as a sum over the children."""
    composed = composition(event)
    if composed is not None:
        total = composed.mu_squared
        for steps, count in composed.blocks:
            # Pieces of a limited length: the curve of one long composition would take too long to
            # cover.
            rounds = max(1, _MU_PIECE // len(steps))
            whole, rest = divmod(count, rounds)
            for times, pieces in ((rounds, whole), (rest, 1)):
                if times and pieces:
                    total += pieces * bounded_range.gaussian_mu(((steps, times),), cells=cells) ** 2
        return total
    match event:
        case Composed(events):
            # fsum, so that the sum does not depend on the order of the events.
            return math.fsum(gaussian_mu_squared(child, cells) for child in events)
        case Rounds(events, count):
            return count * math.fsum(gaussian_mu_squared(child, cells) for child in events)
        case RandomAllocation(inner):
            return gaussian_mu_squared(inner, cells)  # without the secret: an upper bound [B19]
        case _:
            return math.inf


_MU_PIECE = 128


def covering_mu_squared(event: Event, failure: float) -> float:
    """The squared mu of an event that is Gaussian DP except with probability ``failure``.

    Guarantee: events chosen adaptively, whose squared mu add up to mu^2 and whose chances add up to
    at most d, are together mu-Gaussian DP but for a chance d. The chance is for random allocations
    [B19] and sampled Gaussians [B20]; other events are as ``gaussian_mu_squared``.
    """
    sampled, losses = sampled_parts(event)
    if sampled:
        from privsyn.dp.loss_distribution import covering_mu  # late: loads scipy

        pure = math.fsum(gaussian_mu_squared(Pure(loss)) for loss in losses)
        return covering_mu(sampled, failure) ** 2 + pure
    drawn, others = split_allocation(event)
    if drawn is None:
        return gaussian_mu_squared(event)
    inner = gaussian_mu_squared(drawn.event)
    if math.isfinite(inner):
        inner = random_allocation.covering_mu(math.sqrt(inner), drawn.places, failure) ** 2
    return inner + math.fsum(map(gaussian_mu_squared, others))


def fixed_parts(event: Event, count: int = 1) -> tuple[Part, ...]:
    """The pairs that dominate ``count`` releases of an event; () unless all its pairs are fixed.

    They do not depend on what was released before: of sampled and plain Gaussians, pure steps, and
    random allocations, whose places every release draws anew [B22]. A second allocation of one
    release may be the same draw of places, so it counts as if its places were known.
    """
    drawn, others = split_allocation(event)
    parts: list[Part] = []
    for child in others if drawn is None else (drawn, *map(without_secret, others)):
        match child:
            case SampledGaussian(rate, noise, steps):
                parts += [(rate, noise, steps * count)] if rate else []
            case Gaussian(noise, steps) | DiscreteGaussian(noise, steps):
                parts.append((1.0, noise, steps * count))
            case Pure(loss):
                parts += [PureSteps(loss, count)] if loss else []
            case RandomAllocation(inner, places):
                mu = math.sqrt(gaussian_mu_squared(inner))
                if not mu <= random_allocation.LARGEST_MU:
                    return ()
                parts += [Allocation(mu, places, count)] if mu else []
            case _ if drawn is not None and (squared := gaussian_mu_squared(child)) < math.inf:
                parts += [(1.0, squared**-0.5, count)] if squared else []
            case _:
                return ()
    return tuple(parts)


def sampled_parts(
    event: Event,
) -> tuple[tuple[tuple[float, float, int], ...], tuple[float, ...]]:
    """Gaussians and pure losses of a sequence with a sampled Gaussian; empty for other events.

    Each is dominated by a fixed pair of distributions, whatever is chosen adaptively, so the order
    does not matter.
    """
    if split_allocation(event)[0] is not None:  # priced by its ratio
        return (), ()
    parts = fixed_parts(event)
    losses = tuple(part.loss for part in parts if isinstance(part, PureSteps))
    gaussians = tuple(part for part in parts if not isinstance(part, Allocation | PureSteps))
    return (gaussians, losses) if any(rate < 1 for rate, *_ in gaussians) else ((), ())


def pure_loss(event: Event) -> float:
    """Pure epsilon of an event; infinite where it has none."""
    return fold(event, pure_of_leaf)


def gaussian_budget(epsilon: float, delta: float) -> float:
    """Total squared mu an account may spend at (epsilon, delta), rounded down [B16]."""
    _check_cap(epsilon, delta)

    def above(squared: float) -> bool:
        return conversions.gaussian_epsilon(math.sqrt(squared), delta) > epsilon

    # Of the two the one that fits, so the result is rounded down.
    return conversions.bisected(above, 0.0, 2 * max(epsilon, 1.0) * 4)[0]


def _check_cap(epsilon: float, delta: float) -> None:
    check_delta(delta)
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon={epsilon!r} must be a finite number above 0")


def _check_order(order: float, delta: float) -> None:
    if not order > 1 or (delta == 0) != math.isinf(order):
        raise ValueError(f"order={order!r} must be above 1, and infinite exactly where delta is 0")
