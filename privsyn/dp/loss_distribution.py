"""The privacy loss distribution of Poisson-sampled Gaussian noise, by numerical upper bounds.

The Renyi curve of a sampled Gaussian overstates epsilon by 10 to 15% at the end of training. The
distribution of losses does not: one step is discretized so that the grid dominates it, the steps
are convolved, and delta is computed with every numerical error counted against the release.

Sources: Koskela, Jaelkoe, Honkela 2020 (convolution by FFT); Doroshenko, Ghazi, Kamath, Kumar,
Manurangsi 2022, "Connect the Dots" (the grid); Zhu, Dong, Wang 2022, Theorem 11 (the two directions
of Poisson sampling). Proofs: [B11] and [B20] in bounds.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from privsyn.dp import random_allocation
from privsyn.dp.bounded_range import before_response
from privsyn.dp.conversions import LATTICE_SLACK, ROUNDING, golden_section
from privsyn.dp.conversions import covering_mu as covering_gaussian
from privsyn.dp.event_tree import Allocation, Part, PureSteps

POINTS = 2**18
"""Grid points of the composed distribution."""

_COARSE = 2**13
_TAIL = 1e-6
"""Share of delta for the cut tails of all steps; it is charged."""
_ASIDE = 1e-6
"""Share of delta reserved for the noise sampler [B12] [B13]."""
_READ = 1e-9
"""Share of delta reserved for rounding when epsilon is read between grid points."""
_BLIND = 1e-3
"""Largest share of delta for the FFT's error before another tilt is tried."""

_RATIO_POINTS = 2400
"""Grid points of an allocation's ratio, which is composed with itself."""
_SPLIT = 2.0**-40
"""What a share of a split mass may lack by its roundings: moving mass up dominates, too."""

_WIDEST = 690.0
"""Largest loss of a step: exponentials of larger losses overflow."""
_TILTS, _CLOSER = 8, 1e-4
_TILT_RANGE = math.log(1e-2), math.log(1e5)
_NUDGE = 1e-5
_EPSILON = float(np.finfo(np.float64).eps)

_MOST_PURE = 300.0
"""Largest sum of pure losses: beyond it e^loss and the grid would be too large."""


@lru_cache(maxsize=256)
def sampled_gaussian_epsilon(
    parts: tuple[Part, ...], delta: float, pure: tuple[float, ...] = ()
) -> float:
    """An upper bound on epsilon at ``delta`` of composed sampled Gaussians and other fixed pairs.

    Guarantee: (epsilon, delta)-DP for neighbors that differ by the presence of one unit, despite
    numerical errors. Tests compare it with the truth.

    Args:
        parts: The steps, by kind; rates in (0, 1].
        delta: In (0, 1).
        pure: Losses of pure steps on the same units, each as randomized response [B3].

    Returns:
        Epsilon, at least 0; infinite if the grid cannot hold the losses.
    """
    if math.fsum(pure) > _MOST_PURE:
        return math.inf
    # Composed separately: removal is usually the larger direction, so the other can stop early.
    removal = _direction(parts, delta, True, pure=pure)
    return max(removal, _direction(parts, delta, False, enough=removal, pure=pure))


@lru_cache(maxsize=64)
def sampled_gaussian_profile(
    parts: tuple[Part, ...], pure: tuple[float, ...] = ()
) -> tuple[tuple[float, float], ...]:
    """Points (epsilon, delta) of the profile of composed sampled Gaussians and pure steps.

    Guarantee: as ``sampled_gaussian_epsilon``, at every point. It is tight for deltas above 1e-4.

    Args:
        parts: Rate in (0, 1], noise multiplier and steps of each.
        pure: Losses of pure steps on the same units.

    Returns:
        No point if the grid cannot hold the losses.
    """
    if math.fsum(pure) > _MOST_PURE:
        return ()
    points: list[tuple[float, float]] = []
    at = np.append(0.0, np.geomspace(1e-3, _PROFILE_TO, _PROFILE_POINTS))
    for delta in _PROFILED:
        bounds = _both_sides(parts, delta, [delta], pure, reach=0.0)
        if bounds is None:
            return ()
        epsilons, deltas = at + ROUNDING * (1 + at), np.minimum(bounds(at), 1.0)
        points += zip(epsilons.tolist(), deltas.tolist(), strict=True)
    return tuple(points)


_PROFILED = (0.1, 1e-3)
_PROFILE_TO, _PROFILE_POINTS = 40.0, 400


@lru_cache(maxsize=256)
def covering_mu(parts: tuple[Part, ...], failure: float) -> float:
    """The least mu whose Gaussian, with a chance ``failure`` to reveal all, covers the steps.

    Guarantee: delta(epsilon) <= failure + (1 - failure) delta of the Gaussian, at every epsilon and
    in both directions, whatever the noise sampler adds. So mu and failure add up with those of
    other releases [B20].

    Args:
        parts: Rate in (0, 1], noise multiplier and steps of each.
        failure: In (0, 1).

    Returns:
        mu; infinite if none is found.
    """
    if not _LEAST_FAILURE <= failure < 1:
        return math.inf
    deltas = _both_sides(parts, failure, np.geomspace(0.2, failure / 2, _COVER_TILTS).tolist())
    if deltas is None:
        return math.inf
    # Beyond ``last`` delta is below ``failure``: nothing has to be compared.
    far = np.linspace(0.0, _COVER_TO, _COVER_POINTS)
    beyond = np.flatnonzero(deltas(far) <= failure)
    if not len(beyond):
        return math.inf
    last = float(far[max(int(beyond[0]), 1)])
    ends = np.linspace(0.0, last, _COVER_CELLS + 1)
    # What the Gaussian must cover once the chance has taken its part.
    need = np.maximum(deltas(ends) - failure, 0.0) / (1 - failure)
    return covering_gaussian(ends[:-1], last / _COVER_CELLS, need, _LARGEST_MU)


_COVERED = 2**14
"""Grid points of a curve that is covered: mu is about .05% above the limit of a fine grid."""
_LEAST_FAILURE, _COVER_TO = 2.0**-100, 48.0
"""[B13] Least delta and largest epsilon for which _ASIDE holds what the noise's table owes."""
_COVER_POINTS, _COVER_CELLS, _LARGEST_MU = 4801, 1500, 40.0
_COVER_TILTS = 12
_GENTLE_TILTS = 4.0, 32.0


def _both_sides(
    parts: Sequence[Part],
    delta: float,
    near: Sequence[float],
    pure: Sequence[float] = (),
    reach: float = math.inf,
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]] | None:
    """Upper bounds of delta at any epsilons, whatever the sampler adds; None beyond any grid.

    Close to the truth where delta is about one of those that are ``near``.
    """
    sides = [_side(parts, delta, removed, pure, _COVERED) for removed in (True, False)]
    curves = [_curves(side, near, reach) for side in sides if side is not None]
    if len(curves) < len(sides):
        return None
    slack = len(parts) * LATTICE_SLACK

    def bounds(at: NDArray[np.float64]) -> NDArray[np.float64]:
        both = [np.minimum.reduce([one.at(at - slack) for one in side]) for side in curves]
        charged: NDArray[np.float64] = np.maximum(*both) / ((1 - _ASIDE) * (1 - _READ))
        return charged

    return bounds


@dataclass(frozen=True)
class _Curve:
    """Upper bounds of delta at losses, which rise in equal steps; both of shape (points,)."""

    losses: NDArray[np.float64]
    deltas: NDArray[np.float64]

    def at(self, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
        """Upper bounds at any epsilons: between grid points delta is below its chord in e^epsilon.

        1 below the window, and the last value above it.
        """
        width = float(self.losses[1] - self.losses[0])
        left = np.searchsorted(self.losses, epsilons, side="right") - 1
        index = np.clip(left, 0, len(self.losses) - 2)
        inside = np.clip(epsilons - self.losses[index], 0.0, width)
        share = np.minimum(np.expm1(inside) / math.expm1(width), 1.0)
        chord = self.deltas[index] + share * (self.deltas[index + 1] - self.deltas[index])
        bounds: NDArray[np.float64] = np.where(left < 0, 1.0, chord)
        return bounds


def _curves(side: _Side, near: Sequence[float], reach: float) -> list[_Curve]:
    """Curves of a direction, each close to the truth near one delta; see ``_tilted_deltas``."""
    tilts = [(delta, _tilt_at(side, delta)) for delta in near]
    # If the largest loss is small, the best tilts are steep and useless for small losses.
    tilts += [(tilts[0][0], gentle) for gentle in _GENTLE_TILTS if gentle < tilts[0][1]]
    curves = []
    for delta, tilt in tilts:
        losses, deltas, _ = _tilted_deltas(replace(side, delta=delta), tilt, reach)
        # The truth decreases, so the running minimum is still an upper bound.
        curves.append(_Curve(losses, np.minimum.accumulate(np.minimum(deltas, 1.0))))
    return curves


@dataclass(frozen=True)
class _Step:
    """Losses of one step: ``mass[i]`` at ``(first + i) * width``, and ``infinite`` beyond.

    Attributes:
        mass: Probabilities under the first distribution, shape (points,).
        first: Number of the first grid point.
        infinite: Probability of an infinite loss.
        steps: Number of such steps.
    """

    mass: NDArray[np.float64]
    first: int
    infinite: float
    steps: int

    @cached_property
    def logs(self) -> NDArray[np.float64]:
        """Logarithms of the masses, shape (points,)."""
        with np.errstate(divide="ignore"):
            logs: NDArray[np.float64] = np.log(self.mass)
        return logs

    @cached_property
    def places(self) -> NDArray[np.float64]:
        """Numbers of the grid points, shape (points,)."""
        return self.first + np.arange(len(self.mass), dtype=np.float64)


@dataclass(frozen=True)
class _Side:
    """One of the two directions, with its losses on a coarse grid.

    Attributes:
        parts: The steps, by kind.
        delta: Delta for which the window is chosen.
        removed: Whether the unit is present in the first distribution.
        pure: Losses of pure steps.
        tail: Share of a step's mass that is cut and charged.
        span: Largest width of a step's losses.
        points: Grid points of the composed distribution.
        steps: The steps, at ``width``.
    """

    parts: Sequence[Part]
    delta: float
    removed: bool
    pure: Sequence[float]
    tail: float
    span: float
    points: int
    steps: list[_Step]

    @property
    def width(self) -> float:
        """Step of the coarse grid."""
        return self.span / min(_COARSE, self.points // 8)

    def at(self, width: float) -> list[_Step]:
        """The steps on a grid of another width."""
        return [
            _discrete(part, width=width, removed=self.removed, tail=self.tail)
            for part in self.parts
        ]


def _side(
    parts: Sequence[Part],
    delta: float,
    removed: bool,
    pure: Sequence[float],
    points: int | None = None,
) -> _Side | None:
    """A direction; None if the grid cannot hold its losses."""
    tail = delta * _TAIL / sum(steps for *_, steps in parts)
    span = max(math.fsum(_range(part, removed, tail)) for part in parts)
    if not span < _WIDEST:
        return None
    side = _Side(parts, delta, removed, pure, tail, span, points or POINTS, [])
    return replace(side, steps=side.at(side.width))


def _direction(
    parts: Sequence[Part],
    delta: float,
    removed: bool,
    enough: float = 0.0,
    pure: Sequence[float] = (),
) -> float:
    """A bound for one direction; below ``enough`` it need not be tight."""
    side = _side(parts, delta, removed, pure)
    if side is None:
        return math.inf
    # Every tilt gives a valid bound, so the least of several is valid. The best tilt of Chernoff's
    # bound at delta is nearly the best here. If epsilon is far below Chernoff's, that tilt inflates
    # the FFT's error; then the best tilt at the epsilon found is tried.
    tilt, least = _tilt_at(side, delta), math.inf
    for _ in range(_TILTS):
        epsilon, blind = _tilted_epsilon(side, tilt, least)
        closer, least = epsilon < least * (1 - _CLOSER), min(least, epsilon)
        if not (blind and closer) or least <= enough:
            break
        tilt = _tilt(partial(_log_delta, side, least))
    return least


def _tilted_epsilon(side: _Side, tilt: float, bound: float) -> tuple[float, bool]:
    """Epsilon from the FFT with one tilt, and whether its error took a large share of delta.

    The window reaches down to ``bound``, an earlier upper bound on epsilon, if that is finite.
    """
    losses, deltas, fft_error = _tilted_deltas(side, tilt, bound)
    most = side.delta * (1 - _ASIDE) * (1 - _READ)
    fits = np.flatnonzero(deltas > most)
    slack = len(side.parts) * LATTICE_SLACK
    if not len(fits):
        return max(0.0, float(losses[0]) + slack), bool(losses[0] > 0)
    last = int(fits[-1])
    # Delta is too large even at the end of the window.
    if last + 1 >= side.points:
        return math.inf, False
    # Between grid points delta is linear in e^epsilon.
    share = float((deltas[last] - most) / (deltas[last] - deltas[last + 1]))
    width = float(losses[1] - losses[0])
    if width > _WIDEST:  # nothing is known between such points
        return math.inf, False
    epsilon = float(losses[last]) + math.log1p(share * math.expm1(width))
    blind = float(fft_error[last]) > _BLIND * side.delta and epsilon > 0
    return max(0.0, epsilon + slack + ROUNDING * (1 + abs(epsilon))), blind


def _tilted_deltas(
    side: _Side, tilt: float, bound: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Losses at grid points, upper bounds of delta there, and the FFT's share of them; (points,).

    The window is chosen for the side's delta, and reaches down to ``bound`` if that is finite.
    """
    width, steps, log_delta = side.width, side.steps, math.log(side.delta)
    reach = max(10 * _deviation(steps, width, tilt), 12 / tilt)
    if math.isfinite(bound):
        reach = max(reach, (_moment(steps, width, tilt) - log_delta) / tilt - bound / 2)
    reach += math.fsum(side.pure)  # a response reads delta as far away as its loss
    width = max(2 * reach, side.span) / side.points
    steps = side.at(width)
    log_moment = _moment(steps, width, tilt)
    center = max((log_moment - log_delta) / tilt, 0.0)
    low = round(center / width) - side.points // 2
    mass = _compose(steps, width, tilt, low, side.points)
    losses: NDArray[np.float64] = width * (low + np.arange(side.points, dtype=np.float64))
    # Mass above the window is bounded by Chernoff, the FFT's error in the tilted measure [B11].
    size = sum(step.steps for step in steps)
    error = 10 * _EPSILON * math.log2(side.points) * (size + 2) * math.sqrt(side.points)
    beyond = math.exp(min(log_moment - tilt * float(losses[-1]), 0.0))
    infinite = math.fsum(step.steps * step.infinite for step in steps)
    # delta(e) e^(tilt e - log_moment) at a grid point e: sums of the tilted mass above it.
    down, decay = math.exp(-tilt * width), math.exp(-(1 + tilt) * width)
    above = _discount(mass, down) - _discount(mass, decay)
    untilted = np.exp(np.minimum(log_moment - tilt * losses, 700.0))
    deltas: NDArray[np.float64] = (above + error) * untilted + (infinite + beyond)
    for loss in side.pure:
        deltas = before_response(np.minimum(deltas, 1.0), loss, width)
    return losses, deltas, error * untilted


def _range(part: Part, removed: bool, tail: float) -> tuple[float, float]:
    """Largest upward and downward loss of one step, except for a share ``tail``."""
    if isinstance(part, Allocation | PureSteps):
        losses, *_ = _atoms(part, removed, tail)
        return max(float(losses[-1]), 0.0), max(-float(losses[0]), 0.0)
    rate, noise, _ = part
    z = -float(ndtri(tail))
    # removed: x from the mixture with loss l(x); otherwise x from N(0, noise^2) with loss -l(x).
    highest = _loss(noise * z + (1 if removed else 0), rate, noise)
    lowest = -_loss(-noise * z, rate, noise)
    up, down = (highest, lowest) if removed else (lowest, highest)
    return max(up, 0.0), max(down, 0.0)


@lru_cache(maxsize=64)
def _atoms(
    part: Allocation | PureSteps, removed: bool, tail: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Losses of one step, rising, their masses under the first distribution, and the mass beyond.

    Losses of an allocation that are rarer than ``tail`` count as infinite [B22].
    """
    if isinstance(part, PureSteps):
        right = 1 / (1 + math.exp(-part.loss))
        return np.array([-part.loss, part.loss]), np.array([1 - right, right]), 0.0
    known = random_allocation.ratio(part.mu, part.places, _RATIO_POINTS)
    if known is None:
        return np.array([_WIDEST]), np.array([1.0]), 0.0
    seen = (known.mass > 0) & (known.values > 0)
    value, mass = known.values[seen], known.mass[seen] * (1 + random_allocation.MARGIN)
    if removed:
        losses, mass, infinite = np.log(value), mass * value, known.infinite
    else:  # mirrored, so that the losses rise
        losses, mass = -np.log(value)[::-1], mass[::-1]
        infinite = float(known.mass[known.values == 0].sum())
    losses = losses + random_allocation.ABSOLUTE  # a larger loss dominates
    last = len(mass) - int(np.searchsorted(np.cumsum(mass[::-1]), tail, side="right"))
    kept = max(last, 1)
    return losses[:kept], mass[:kept], infinite + float(mass[kept:].sum())


def _loss(x: float, rate: float, noise: float) -> float:
    """l(x) = log(1 - q + q exp((2x - 1) / (2 s^2))), the loss of the mixture against N(0, s^2)."""
    exponent = (2 * x - 1) / (2 * noise**2)
    if rate == 1:
        return exponent
    return float(np.logaddexp(math.log1p(-rate), math.log(rate) + exponent))


def _inverse(losses: NDArray[np.float64], rate: float, noise: float) -> NDArray[np.float64]:
    """The x of each loss; minus infinity below the least loss."""
    # Of a loss below all there are exp may overflow: it is infinite, and its x too.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rest = np.log1p(-(1 - rate) * np.exp(-losses))
    above = np.where(np.isnan(rest), -np.inf, losses + rest)
    x: NDArray[np.float64] = noise**2 * (above - math.log(rate)) + 0.5
    return x


def _discrete(part: Part, *, width: float, removed: bool, tail: float) -> _Step:
    """One step on a grid that dominates it: each interval's mass goes to its two ends.

    The split keeps the interval's mass under both distributions, so every hockey-stick divergence
    is unchanged at grid points and larger between them [B11].
    """
    if isinstance(part, Allocation | PureSteps):
        losses, one, infinite = _atoms(part, removed, tail)
        first = math.floor(losses[0] / width)
        cell = np.floor(losses / width).astype(np.int64) - first
        above = np.clip(losses - width * (first + cell), 0.0, width)
        right = np.clip(np.expm1(-above) / math.expm1(-width) + _SPLIT, 0.0, 1.0) * one
        size = int(cell[-1]) + 2
        spread = np.bincount(cell, one - right, size) + np.bincount(cell + 1, right, size)
        return _Step(spread.astype(np.float64), first, infinite, part.steps)
    rate, noise, steps = part
    up, down = _range(part, removed, tail)
    first, last = math.floor(-down / width) - 1, math.ceil(up / width) + 1
    edges: NDArray[np.float64] = width * np.arange(first, last + 1, dtype=np.float64)
    if removed:
        x = _inverse(edges, rate, noise)
    else:
        x = -_inverse(-edges, rate, noise)  # mirrored, so that x increases with the loss
    shift = 1.0 if removed else -1.0
    plain = _between(x / noise)
    shifted = _between((x - shift) / noise)
    mixture = (1 - rate) * plain + rate * shifted
    one, other = (mixture, plain) if removed else (plain, mixture)
    # On a wide grid exp may overflow; a smaller one moves more mass up, which dominates.
    right = (one - other * np.exp(np.minimum(edges[:-1], 700.0))) / -math.expm1(-width)
    # Moving mass to a higher loss dominates, too: more than cancellation may have taken [B11].
    right = np.clip(right + _NUDGE * one, 0.0, one)
    mass = np.zeros(len(edges))
    mass[:-1] += one - right
    mass[1:] += right
    ends = np.array([x[0], -x[-1]]) / noise
    if removed:
        below = (1 - rate) * ndtr(ends[0]) + rate * ndtr(ends[0] - 1 / noise)
        above = (1 - rate) * ndtr(ends[1]) + rate * ndtr(ends[1] + 1 / noise)
    else:
        below, above = ndtr(ends[0]), ndtr(ends[1])
    mass[0] += below  # raised to the lowest grid point, which dominates
    return _Step(mass, first, float(above), steps)


def _between(edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard normal mass between neighboring edges, from the smaller tail; (edges - 1,)."""
    lower, upper = ndtr(edges), ndtr(-edges)
    mass: NDArray[np.float64] = np.where(edges[1:] <= 0, np.diff(lower), -np.diff(upper))
    return mass


def _log_moment(step: _Step, width: float, tilt: float) -> float:
    """Log E exp(tilt loss) of the finite part."""
    weights = _weights(step, width, tilt)
    most = float(weights.max())
    return most + math.log(float(np.exp(weights - most).sum()))


def _weights(step: _Step, width: float, tilt: float) -> NDArray[np.float64]:
    """Logarithms of mass * exp(tilt * loss), shape (points,)."""
    return step.logs + tilt * width * step.places


def _moment(steps: Sequence[_Step], width: float, tilt: float) -> float:
    """Log E exp(tilt loss) of all steps composed."""
    return math.fsum(step.steps * _log_moment(step, width, tilt) for step in steps)


def _tilt(bound: Callable[[float], float]) -> float:
    """The tilt of the best Chernoff bound; every tilt gives a valid one."""
    best = golden_section(lambda log_tilt: bound(math.exp(log_tilt)), *_TILT_RANGE, steps=24)
    return math.exp(best[0])


def _log_delta(side: _Side, epsilon: float, tilt: float) -> float:
    """Log of Chernoff's bound at epsilon."""
    return _moment(side.steps, side.width, tilt) - tilt * epsilon


def _tilt_at(side: _Side, delta: float) -> float:
    """The best tilt at a delta."""
    return _tilt(lambda tilt: (_moment(side.steps, side.width, tilt) - math.log(delta)) / tilt)


def _tilted_mass(step: _Step, width: float, tilt: float) -> NDArray[np.float64]:
    mass: NDArray[np.float64] = np.exp(_weights(step, width, tilt) - _log_moment(step, width, tilt))
    return mass


def _deviation(steps: Sequence[_Step], width: float, tilt: float) -> float:
    """Standard deviation of the composed loss in the tilted measure."""
    variance = 0.0
    for step in steps:
        mass = _tilted_mass(step, width, tilt)
        points = width * step.places
        mean = float(mass @ points)
        variance += step.steps * float(mass @ (points - mean) ** 2)
    return math.sqrt(max(variance, 0.0))


def _compose(
    steps: Sequence[_Step], width: float, tilt: float, low: int, points: int
) -> NDArray[np.float64]:
    """Tilted mass of the sum at grid points from ``low``, wrapped around the window; (points,)."""
    spectrum: NDArray[np.complex128] = np.ones(points // 2 + 1, np.complex128)
    shift = 0
    for step in steps:
        places = np.arange(len(step.mass)) % points
        wrapped = np.bincount(places, weights=_tilted_mass(step, width, tilt), minlength=points)
        spectrum *= np.fft.rfft(wrapped) ** step.steps
        shift += step.first * step.steps
    # Mass that wraps around from below lands at higher losses, which only raises delta [B11].
    mass = np.fft.irfft(spectrum, points)
    return np.maximum(np.roll(mass, shift - low), 0.0)


def _discount(mass: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
    """Sum over j > i of mass[j] * factor^(j - i) for every i, shape of ``mass``.

    By doubling: after step n every sum has 2^n terms, and each term was rounded n times.
    """
    sums = factor * np.append(mass[1:], 0.0)
    reach = 1
    while reach < len(mass) and factor > 0:
        sums[:-reach] += factor * sums[reach:]  # numpy evaluates the right side first
        reach, factor = 2 * reach, factor * factor
    return sums
