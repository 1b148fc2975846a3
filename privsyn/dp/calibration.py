"""The largest parameter, or the least noise, whose event stays within a target guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable

from privsyn.dp import conversions, random_allocation
from privsyn.dp.accountant import QUICK_CELLS, epsilon_at, fixed_epsilon, roughly
from privsyn.dp.adjacency import Guarantee
from privsyn.dp.conversions import LATTICE_SLACK
from privsyn.dp.event_tree import FAR, Allocation, Part, PureSteps, in_sequence, split_allocation
from privsyn.dp.events import Event, Gaussian
from privsyn.dp.filters import filter_budget, filter_order, gaussian_budget, gaussian_mu_squared
from privsyn.dp.rooms import Rooms, Used

CALIBRATION_MARGIN = 1e-12
"""Relative margin below a target, for the roundings of the caller's own arithmetic."""


def calibrate_rho(target: Guarantee) -> float:
    """The largest rho whose zCDP guarantee stays within ``target``, rounded down.

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
    rho = max(0.0, budget / order * (1 - slack))  # order * rho stays within the budget
    # The two formulas round differently: step down until the certified epsilon fits, too.
    while conversions.zcdp_epsilon(rho, target.delta) > target.epsilon * (1 - CALIBRATION_MARGIN):
        rho *= 1 - slack
        slack = min(2 * slack, 0.5)
    return rho


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
        make: Gives the event of a parameter; its epsilon must be monotone in the parameter.
        target: What the event may cost.
        low: Smallest parameter, above 0.
        high: Largest parameter.
        increasing: Whether epsilon grows with the parameter (a clip bound, a count), so that the
            largest parameter within the target is returned; else (a noise scale) the smallest.
        price: Gives an event's epsilon at a delta, never too low. None: ``epsilon_at``.
        tolerance: Relative error of the parameter or of epsilon, whichever is reached first.

    Returns:
        A parameter whose own event was priced and is within the target.

    Raises:
        ValueError: Not even the most private end of the range is within the target.
    """
    if not 0 < low <= high < math.inf:
        raise ValueError(f"low={low!r} and high={high!r} must be finite with 0 < low <= high")

    # exp(log(x)) may differ from x, so the ends of the range are kept as they are.
    ends = {math.log(low): low, math.log(high): high}

    def parameter(log_value: float) -> float:
        return ends.get(log_value) or min(max(math.exp(log_value), low), high)

    def excess(log_value: float) -> float:
        """Logarithm of epsilon over the target: at most 0 where the parameter fits."""
        epsilon = (price or epsilon_at)(make(parameter(log_value)), target.delta)
        if epsilon <= target.epsilon:
            return max(-FAR, math.log(epsilon / target.epsilon)) if epsilon else -FAR
        return min(FAR, math.log(epsilon / target.epsilon)) if target.epsilon else FAR

    safe, bold = math.log(low if increasing else high), math.log(high if increasing else low)
    at_safe = excess(safe)
    if at_safe > 0:
        raise ValueError(
            f"no parameter in [{low:g}, {high:g}] reaches epsilon={target.epsilon:g} at "
            f"delta={target.delta:g}; widen the range"
        )
    # From here on ``safe`` fits and ``bold`` does not. Only ``safe`` is ever returned.
    at_bold = excess(bold)
    if at_bold <= 0:
        return parameter(bold)
    aim = tolerance / 2  # slightly at the safe side
    below, above, moved = at_safe + aim, at_bold + aim, 0
    while abs(bold - safe) > tolerance and at_safe < -tolerance:
        # A secant in logarithms; an end that stays counts half (Dowell, Jarratt 1971, "A modified
        # regula falsi method"), or the other would creep up to the root.
        middle = (safe + bold) / 2
        if max(at_bold, -at_safe) < FAR:
            middle = safe + (bold - safe) * below / (below - above)
            middle = min(max(middle, min(safe, bold)), max(safe, bold))
        if middle in (safe, bold):
            break
        at_middle = excess(middle)
        if at_middle <= 0:
            safe, at_safe, below = middle, at_middle, at_middle + aim
            above, moved = (above / 2 if moved > 0 else above), 1
        else:
            bold, at_bold, above = middle, at_middle, at_middle + aim
            below, moved = (below / 2 if moved < 0 else below), -1
    return parameter(safe)


def calibrate_range(make: Callable[[float], Event], target: Guarantee, count: int) -> float:
    """The largest range of ``count`` bounded-range draws whose event stays within ``target``.

    Guarantee: ``epsilon_at(make(range), target.delta) <= target.epsilon``.

    Args:
        make: Gives the event of a range, with all that stands beside the draws.
        target: What the event may cost.
        count: Number of these draws; the search starts at what zCDP allows for them.

    Raises:
        ValueError: delta is 0, or no range is within the target.
    """
    by_rho = math.sqrt(8 * calibrate_rho(target) / count)  # what zCDP would allow
    return calibrate_composed(make, target, by_rho, _TOLERANCE)


def calibrate_composed(
    make: Callable[[float], Event], target: Guarantee, start: float, tolerance: float
) -> float:
    """The largest parameter whose event stays within ``target``; cost must grow with it.

    Guarantee: ``epsilon_at(make(parameter), target.delta) <= target.epsilon``.

    The search is coarse first, then exact: exact composition mostly allows a few percent to some
    tens of percent more than zCDP, a random allocation several times as much, and what stands
    beside them less.

    Args:
        make: Event of a parameter.
        target: What the event may cost.
        start: A parameter to begin with, such as what zCDP allows.
        tolerance: As in ``calibrate``.

    Raises:
        ValueError: No parameter is found within the target.
    """
    safe = start
    stages = [(roughly, 1.15, max(tolerance, 1e-4)), (epsilon_at, 1.02, tolerance)]
    drawn, _ = split_allocation(make(start))
    if drawn is not None:
        safe = _by_one_place(make, drawn.places, target, start)
        stages = [(epsilon_at, 1.01, tolerance)]
    for price, widest, near in stages:
        least, bold = safe, safe * widest
        while (beyond := price(make(least), target.delta) > target.epsilon) and (
            least > _LEAST * start
        ):
            least, bold = least / widest, least
            widest *= widest
        if beyond and price is roughly:
            continue  # the grid is too coarse for it
        safe = least
        while safe < bold:
            largest = calibrate(make, target, safe, bold, True, price=price, tolerance=near)
            safe, bold = largest, (2 * bold if largest == bold else largest)
    return safe


_LEAST = 1e-9
"""Share of its start below which no parameter is looked for."""
_TOLERANCE = 5e-7


def _by_one_place(
    make: Callable[[float], Event], places: int, target: Guarantee, by_zcdp: float
) -> float:
    """Where to begin with a random allocation: the parameter whose places have the mu they may."""

    def mu(event: Event, _: float = 0.0) -> float:
        drawn, _others = split_allocation(event)
        return math.sqrt(gaussian_mu_squared(drawn.event, QUICK_CELLS)) if drawn else math.inf

    most = random_allocation.largest_mu(places, target.epsilon, target.delta)
    if not 0 < mu(make(by_zcdp)) < most:
        return by_zcdp
    aim = Guarantee(most, target.delta)  # of mu in place of epsilon
    return calibrate(make, aim, by_zcdp, _AMPLIFIED * by_zcdp, True, price=mu, tolerance=1e-4)


_AMPLIFIED = 16.0
"""How much more than by zCDP is looked for where a random allocation is priced."""


def rooms_epsilon(rooms: Rooms, delta: float, mu_squared: float, used: Used) -> float:
    """Epsilon at ``delta`` of releases of so much squared mu and so much of the rooms together.

    What the noise's lattice or table owes is added for every step and every allocation, as if
    each were a release.
    """
    steps, responses, allocations = used
    parts: list[Part] = []
    if responses:
        parts.append(PureSteps(rooms.loss, responses))
    if steps:
        parts.append((rooms.rate, rooms.noise_multiplier, steps))
    if allocations:
        parts.append(Allocation(rooms.mu, rooms.places, allocations))
    if mu_squared:
        parts.append((1.0, mu_squared**-0.5, 1))
    owed = (steps + allocations) * LATTICE_SLACK
    return fixed_epsilon(tuple(parts), delta * (1 - owed)) + owed if parts else 0.0


def rooms_budget(rooms: Rooms, epsilon: float, delta: float) -> float:
    """The largest squared mu beside the rooms, all of them in use; rounded down.

    Raises:
        ValueError: The rooms leave nothing of (``epsilon``, ``delta``).
    """
    most = gaussian_budget(epsilon, delta)
    if not rooms:
        return most

    def price(event: Event, _: float) -> float:
        (noise,) = (part for part in in_sequence(event) if isinstance(part, Gaussian))
        return rooms_epsilon(rooms, delta, noise.noise_multiplier**-2, rooms.wholes)

    # A hair of squared mu is taken off for the roundings of its way through the multiplier.
    squared = calibrate(
        lambda squared: Gaussian(squared**-0.5),
        Guarantee(epsilon, delta),
        1e-3 * most,
        most,
        True,
        price=price,
        tolerance=1e-4,
    )
    return squared * (1 - CALIBRATION_MARGIN)
