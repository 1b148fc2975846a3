"""Prices of events: composition, and the guarantee of a single release.

A single release may use the tightest bound known for its kind, over all orders. The comparisons of
an account, whose events are still being chosen, are in filters.py. The search for the largest
parameter or the least noise within a target is in calibration.py.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterator
from functools import lru_cache, partial

import numpy as np

from privsyn.dp import bounded_range, conversions, random_allocation
from privsyn.dp.adjacency import Guarantee, check_delta
from privsyn.dp.event_tree import (
    Part,
    composition,
    fold,
    is_amplified,
    mu_squared_of_leaf,
    pure_of_leaf,
    renyi_loss,
    split_allocation,
    without_secret,
    zcdp_loss,
)
from privsyn.dp.events import Event, Pure, SampledGaussian, leaves
from privsyn.dp.filters import gaussian_mu_squared, sampled_parts


def loss_at(event: Event, order: float) -> float:
    """Renyi loss of an event at any order above 1, in nats: what its release is charged.

    An infinite order means pure DP.

    >>> from privsyn.dp.events import ZCDP
    >>> loss_at(ZCDP(rho=0.1), 3.0)
    0.30000000000000004
    """
    if not order > 1:
        raise ValueError(f"order={order!r} must be above 1")
    return fold(event, lambda leaf: renyi_loss(leaf, order))


def rho(event: Event) -> float | None:
    """Total zCDP rho, or None if the event has no finite rho (a sampled Gaussian).

    >>> from privsyn.dp.events import Composed, Pure, ZCDP
    >>> rho(Composed((Pure(1.0), ZCDP(0.25, count=2))))
    1.0
    """
    total = fold(event, zcdp_loss)
    return total if math.isfinite(total) else None


def mu(event: Event) -> float | None:
    """The event is mu-Gaussian DP, exactly; None for an event that is not Gaussian noise alone.

    Source: Dong, Roth, Su 2022, "Gaussian Differential Privacy", Definition 4 and Corollary 2: the
    mus of several releases add in squares.

    >>> from privsyn.dp.events import Gaussian
    >>> mu(Gaussian(2.0, count=4))
    1.0
    """
    total = fold(event, mu_squared_of_leaf)
    return math.sqrt(total) if math.isfinite(total) else None


def guarantee(event: Event, delta: float) -> Guarantee:
    """The tightest known guarantee at ``delta``.

    Pure loss is priced by randomized response, zCDP by CKS20 Corollary 13 at the best real order,
    Gaussian noise by its exact curve, bounded-range draws (also mixed with others) by exact
    adaptive composition, sampled Gaussians by their loss distribution, and random allocations by
    the ratio of their dominating pair. If several apply, the smallest is used. Epsilon is rounded
    up.

    Raises:
        ValueError: delta is outside [0, 1), or epsilon is not finite at this delta (zCDP at 0).
    """
    epsilon = epsilon_at(event, delta)
    if math.isinf(epsilon):
        raise ValueError(f"the event has no finite epsilon at delta={delta!r}; raise delta")
    return Guarantee(epsilon, delta)


def epsilon_without_secret(event: Event, delta: float) -> float | None:
    """Epsilon against somebody who knows the place of each unit; None where that adds nothing."""
    return guarantee(without_secret(event), delta).epsilon if is_amplified(event) else None


@lru_cache(maxsize=256)
def epsilon_at(event: Event, delta: float) -> float:
    """Epsilon of ``guarantee``; infinite if the event has no guarantee at this delta."""
    check_delta(delta)
    pure = fold(event, pure_of_leaf)
    # Only pure DP holds at delta 0; every other bound below needs log(1 / delta).
    if delta == 0:
        return pure
    bounds = [conversions.pure_epsilon(pure, delta)] if math.isfinite(pure) else [math.inf]
    mu_squared = fold(event, mu_squared_of_leaf)
    if math.isfinite(mu_squared):
        bounds.append(conversions.gaussian_epsilon(math.sqrt(mu_squared), delta))
    by_zcdp = conversions.zcdp_epsilon(fold(event, zcdp_loss), delta)
    bounds.append(by_zcdp)
    if any(isinstance(leaf, Pure | SampledGaussian) for leaf in leaves(event)):
        bounds.append(renyi_epsilon(event, delta))  # otherwise the Renyi curve is the rho curve
    bounds.append(loss_distribution_epsilon(event, delta))
    by_places = allocation_epsilon(event, delta)
    bounds.append(by_places)
    # Where the secret place gains much, the fine curve of one place cannot be the least bound.
    if math.isinf(by_places) or by_places > 0.9 * composed_epsilon(event, delta, QUICK_CELLS):
        composed = composed_epsilon(event, delta)
        bounds.append(composed)
        if by_zcdp * (1 - 1e-9) <= composed:
            # More draws than a grid holds, or noise before them: by the mu of pieces [B16].
            mu_squared = gaussian_mu_squared(event)
            bounds.append(conversions.gaussian_epsilon(math.sqrt(mu_squared), delta))
    # Each bound is valid by itself and depends on public parameters alone, so the least is valid.
    return min(bounds)


def composed_epsilon(event: Event, delta: float, cells: int = bounded_range.CELLS) -> float:
    """Epsilon by the exact adaptive composition of [B15]; infinite if it does not apply.

    It applies to pure and bounded-range steps in their order, and to Gaussian noise that is not
    followed by a bounded-range draw.

    Args:
        event: The event to price.
        delta: In [0, 1).
        cells: Grid cells per range; fewer are faster and give a larger epsilon.
    """
    check_delta(delta)
    composed = composition(event)
    if composed is None or delta == 0 or not composed.blocks:
        return math.inf
    return bounded_range.epsilon(composed.in_price_order, delta, composed.mu_squared, cells)


@lru_cache(maxsize=256)
def roughly(event: Event, delta: float) -> float:
    """Epsilon on coarse grids: fast, and never below the truth.

    It is at most 2% above the fine grid for pure and bounded-range steps, Gaussian noise, and
    random allocations of them. Other events get their Renyi curve.
    """
    composed = composed_epsilon(event, delta, cells=QUICK_CELLS)
    rough = min(composed, allocation_epsilon(event, delta, QUICK_POINTS, QUICK_CELLS))
    return rough if math.isfinite(rough) else renyi_epsilon(event, delta)


@lru_cache(maxsize=256)
def renyi_epsilon(event: Event, delta: float) -> float:
    """Epsilon by the Renyi curve alone, at its best order: fast, and never below the truth."""
    check_delta(delta)
    return conversions.best_epsilon(partial(loss_at, event), delta)


def fixed_epsilon(parts: tuple[Part, ...], delta: float) -> float:
    """Epsilon at ``delta`` of pairs that are fixed in advance, by their exact composition [B22]."""
    check_delta(delta)
    from privsyn.dp.loss_distribution import sampled_gaussian_epsilon  # late: loads scipy

    return sampled_gaussian_epsilon(parts, delta) if delta else math.inf


def loss_distribution_epsilon(event: Event, delta: float) -> float:
    """Epsilon by the loss distribution alone; infinite without a sampled Gaussian."""
    check_delta(delta)
    parts, pure = sampled_parts(event)
    if not parts or delta == 0:
        return math.inf
    from privsyn.dp.loss_distribution import sampled_gaussian_epsilon  # late: loads scipy

    return sampled_gaussian_epsilon(parts, delta, pure)


def allocation_epsilon(
    event: Event,
    delta: float,
    points: int = random_allocation.POINTS,
    cells: int = bounded_range.CELLS,
) -> float:
    """Epsilon by the secret place of each unit alone [B19]; infinite for other events.

    Args:
        event: The event to price.
        delta: In [0, 1).
        points: Grid points of a sum of ratios; fewer are faster and give a larger epsilon.
        cells: As in ``composed_epsilon``.
    """
    check_delta(delta)
    bounds = (
        random_allocation.epsilon(mu, places, delta, squared, points, loss)
        for mu, places, squared, loss in _allocations(event, cells)
        if delta
    )
    return min(bounds, default=math.inf)


def _allocations(
    event: Event, cells: int = bounded_range.CELLS
) -> Iterator[tuple[float, int, float, float]]:
    """Mu of one place, number of places; squared mu and pure loss of the sequence's other events.

    Pure steps may count as either. Nothing where there is no allocation, or no mu.
    """
    drawn, others = split_allocation(event)
    # One place hides nothing: the plain price of its event is exact.
    if drawn is None or drawn.places == 1:
        return
    mu = math.sqrt(gaussian_mu_squared(drawn.event, cells))
    alike = [all(isinstance(leaf, Pure) for leaf in leaves(other)) for other in others]
    for apart in {False, any(alike)}:
        loss, squared = 0.0, 0.0
        for other, pure in zip(others, alike, strict=True):
            loss += fold(other, pure_of_leaf) if pure and apart else 0.0
            squared += 0.0 if pure and apart else gaussian_mu_squared(other, cells)
        if math.isfinite(mu + squared):
            yield mu, drawn.places, squared, loss


@lru_cache(maxsize=64)
def profile(event: Event) -> list[tuple[float, float]]:
    """Points (epsilon, delta) of an event's privacy profile. Each point is a valid guarantee.

    Guarantee: the event is (epsilon, delta)-DP at all points at once.

    Returns:
        A few to some thousands of unsorted points. Source of the name: Balle, Barthe, Gaboardi
        2018, "Privacy Amplification by Subsampling", Section 2.
    """
    points: list[tuple[float, float]] = []
    pure, total, mu_squared = (
        fold(event, price) for price in (pure_of_leaf, zcdp_loss, mu_squared_of_leaf)
    )
    if math.isfinite(pure):
        points.append((pure, 0.0))
    grid, exact_to = _PROFILE_GRID, -math.inf
    if math.isfinite(mu_squared):
        points += gaussian_profile(math.sqrt(mu_squared)) if mu_squared else []
        exact_to = math.inf
    composed = composition(event)
    if composed is not None and composed.blocks:
        reach = min(conversions.zcdp_epsilon(total, _PROFILE_DELTA), _PROFILE_TO)
        # The zCDP bound is above the exact curve, so the grid reaches far enough.
        curve = bounded_range.curve(composed.in_price_order, reach, composed.mu_squared)
        if curve is not None:
            at = curve.first + curve.width * np.arange(len(curve.deltas))
            nonnegative = at >= 0
            points += zip(at[nonnegative].tolist(), curve.deltas[nonnegative].tolist(), strict=True)
            exact_to = float(at[-1])
    if math.isfinite(total):  # where no exact curve is below it
        beyond = grid[grid > exact_to].tolist()
        points += [(epsilon, conversions.zcdp_delta(total, epsilon)) for epsilon in beyond]
    parts, losses = sampled_parts(event)
    if parts:
        from privsyn.dp.loss_distribution import sampled_gaussian_profile  # late: loads scipy

        points += sampled_gaussian_profile(parts, losses)
    for mu, places, squared, loss in _allocations(event):
        amplified = random_allocation.deltas(mu, places, grid, squared, loss)
        points += zip(grid.tolist(), amplified.tolist(), strict=True)
    if not points:  # only the Renyi curve is left
        points = [(epsilon_at(event, delta), delta) for delta in _PROFILE_DELTAS]
    return [(epsilon, delta) for epsilon, delta in points if math.isfinite(epsilon)]


def gaussian_profile(mu: float, chance: float = 0.0) -> list[tuple[float, float]]:
    """Points of the profile of Gaussian noise that, with a public ``chance``, tells all."""
    deltas = conversions.gaussian_deltas(mu, _PROFILE_GRID)
    # Raised as gaussian_epsilon lowers its target: for rounding and the lattice [B6].
    deltas = np.minimum(deltas * (1 + conversions.GAUSSIAN_MARGIN) + chance, 1.0)
    return list(zip(_PROFILE_GRID.tolist(), deltas.tolist(), strict=True))


_PROFILE_TO, _PROFILE_DELTA = 40.0, 1e-4

_PROFILE_GRID = np.concatenate(([0.0], np.geomspace(1e-3, _PROFILE_TO, 400)))

_PROFILE_DELTAS = (0.4, 0.2, 0.1, 0.05, 0.02, 7e-3, 2e-3, 5e-4)


def format_epsilon(epsilon: float, digits: int = 6) -> str:
    """An epsilon as text with ``digits`` significant digits, rounded up: never below the truth.

    >>> format_epsilon(8.0004, digits=4), format_epsilon(9.9999997), format_epsilon(1e-5, digits=4)
    ('8.001', '10', '1e-05')
    """
    nearest = f"{epsilon:.{digits}g}"
    if float(nearest) >= epsilon:
        return nearest
    up = decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING)
    return f"{float(up.create_decimal_from_float(epsilon)):.{digits}g}"


def percent(share: float) -> str:
    """A share of a cap as text, rounded up to tenths: never below the spent share.

    >>> percent(0.2411), percent(0.05), percent(1e-15), percent(0.0)
    ('24.2%', '5%', '0.1%', '0%')
    """
    if not math.isfinite(share):
        return f"{share:.1%}"
    return f"{max(math.ceil(1000 * share - 1e-9), share > 0) / 10:g}%"


QUICK_CELLS, QUICK_POINTS = 10, 200
