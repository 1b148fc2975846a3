"""Conversion of Renyi curves and closed forms to (epsilon, delta), never below the truth.

Renyi DP of order a is turned into (epsilon, delta) by Canonne, Kamath and Steinke 2020 (CKS20),
Corollary 13,

    delta = exp((a - 1)(loss - epsilon)) / (a - 1) * (1 - 1/a)^a,

valid for every a > 1, so a numerical optimum over a is at worst looser than the true one. Orders
are stored as u = a - 1, which keeps its digits if a is near 1. Every reported epsilon is raised by
a bound on its own rounding error. Tags such as [B1] refer to the proofs in bounds.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

ROUNDING = 2.0**-46
"""[B10] Bound on the rounding error of a sum of few terms, relative to the sum of magnitudes."""

GAUSSIAN_MARGIN = 1e-6
"""Relative share of delta reserved for rounding and for lattice noise instead of real noise."""

FRACTIONAL_BELOW = 64.0
"""Sampled Gaussian: lower fractional orders have their own series, higher ones use chords."""

LARGEST_SUM = 2**16
"""Sampled Gaussian: most terms of the binomial sum. Higher orders use the unsampled curve."""


def rdp_epsilon(loss: float, order: float, delta: float) -> float:
    """Epsilon at ``delta`` of a mechanism whose Renyi loss at ``order`` is at most ``loss``."""
    if math.isinf(order):
        return loss  # infinite order is pure DP
    return _epsilon(loss, order - 1, -math.log(delta))


def rdp_budget(epsilon: float, order: float, delta: float) -> float:
    """Largest Renyi loss at ``order`` that implies (epsilon, delta), rounded down.

    Rounded down by twice the error bound, so that rdp_epsilon returns at most ``epsilon`` for it.
    """
    if math.isinf(order):
        return epsilon
    u, log_inverse_delta = order - 1, -math.log(delta)
    shrink, tail = -math.log1p(1 / u), (log_inverse_delta - math.log1p(u)) / u
    size = epsilon - shrink + (log_inverse_delta + math.log1p(u)) / u
    return epsilon - shrink - tail - 2 * ROUNDING * size


def best_epsilon(curve: Callable[[float], float], delta: float) -> float:
    """Smallest epsilon over orders 1 + [1e-3, 1e6]: by a grid, then by golden section.

    The log moment is convex in the order, so epsilon is quasi-convex in it and has one valley. Any
    tried order gives a valid epsilon [B1].
    """

    def at(log_u: float) -> float:
        u = math.exp(log_u)
        return _epsilon(curve(1 + u), u, -math.log(delta))

    grid = np.log(np.geomspace(1e-3, 1e6, 91)).tolist()
    known = cache(at)
    # One valley: to the left of its lowest point each value is above the next.
    lowest = bisect_left(
        range(len(grid) - 1), True, key=lambda place: known(grid[place]) <= known(grid[place + 1])
    )
    low, high = grid[max(lowest - 1, 0)], grid[min(lowest + 1, len(grid) - 1)]
    return min(known(grid[lowest]), golden_section(at, low, high, steps=30)[1])


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon at ``delta`` of rho-zCDP, at the best real order.

    The derivative in u is zero at rho u^2 = log(1 / (delta a)), which has one root [B2].

    >>> round(zcdp_epsilon(0.019223, 1e-6), 4)
    0.8811
    """
    if rho == 0:
        return 0.0
    if math.isinf(rho):
        return math.inf
    log_inverse_delta = -math.log(delta)
    high = math.sqrt(log_inverse_delta / rho)
    low = 2 * log_inverse_delta / (1 + math.sqrt(1 + 4 * rho * log_inverse_delta))
    u = _root(lambda u: rho * u * u + math.log1p(u) - log_inverse_delta, min(low, high), high)
    return _epsilon(rho * (1 + u), u, log_inverse_delta)


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Delta at ``epsilon`` of rho-zCDP, at the best real order."""
    if rho == 0:
        return 0.0
    high = epsilon / rho + 1 / math.sqrt(rho)
    low = math.exp(min(0.0, max(epsilon - 3 * rho, -700.0)))
    u = _root(lambda u: rho * (1 + 2 * u) - epsilon - math.log1p(1 / u), min(low, high), high)
    terms = (u * (1 + u) * rho, -u * epsilon, -u * math.log1p(1 / u), -math.log1p(u))
    log_delta = math.fsum(terms) + ROUNDING * math.fsum(map(abs, terms))
    return min(1.0, math.exp(min(0.0, log_delta)))


def zcdp_order(epsilon: float, delta: float) -> float:
    """The order that converts the largest rho-zCDP mechanism within (epsilon, delta).

    It maximizes ``rdp_budget(epsilon, a, delta) / a``. Along the optimal pairs rho falls and u
    grows as epsilon falls, so u is the root of a decreasing function [B2].
    """
    log_inverse_delta = -math.log(delta)

    def excess(log_u: float) -> float:
        u = math.exp(log_u)
        rest = log_inverse_delta - math.log1p(u)
        return epsilon - (rest / u * (1 + 1 / u) - math.log1p(1 / u) + rest / u)

    # At u = 1/delta - 1 the optimal rho is 0; below 2^-40 an order loses its digits.
    high = log_inverse_delta + math.log(-math.expm1(-log_inverse_delta))
    low = min(-40 * math.log(2), high)
    # The root is at a smaller order than floats resolve; any order is valid [B1].
    if excess(low) >= 0:
        return 1 + math.exp(low)
    return 1 + math.exp(_root(excess, low, high))


def pure_rdp(epsilon: float, order: float) -> float:
    """Renyi loss of randomized response, the worst epsilon-DP mechanism at every order [B3].

    log((e^(a eps) + e^((1-a) eps)) / (1 + e^eps)) / (a - 1), as a ratio of hyperbolic cosines.
    """
    if math.isinf(order):
        return epsilon
    u = order - 1
    large, small = (order - 0.5) * epsilon, 0.5 * epsilon
    if large < 1:  # the logarithms would nearly cancel
        ratio = 2 * math.sinh(order * small) * math.sinh(u * small) / math.cosh(small)
        return min(epsilon, math.log1p(ratio) / u)
    tails = math.log1p(math.exp(-2 * large)) - math.log1p(math.exp(-2 * small))
    return min(epsilon, epsilon + tails / u)


def pure_epsilon(epsilon: float, delta: float) -> float:
    """Epsilon at ``delta`` of pure loss ``epsilon``: exact for randomized response [B3]."""
    # Rounded down, so that its logarithm is rounded up. log1p, because 1 - x loses digits of x.
    rounded = delta * (1 + math.exp(-epsilon)) * (1 - ROUNDING)
    if rounded >= 1:
        return 0.0
    spared = math.log1p(-rounded)
    return max(0.0, (epsilon + spared) + ROUNDING * (epsilon - spared))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Delta of Gaussian noise with sensitivity over deviation ``mu`` (Balle and Wang 2018, Thm. 8).

    Phi(x) - e^epsilon Phi(y), x = mu/2 - epsilon/mu, y = x - mu; e^epsilon phi(y) = phi(x) [B5].
    """
    first, second = _gaussian_term(mu, epsilon)
    return max(0.0, first - second)


def gaussian_deltas(mu: float, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
    """``gaussian_delta`` at several epsilons of at least 0."""
    first, second = _gaussian_terms(mu, epsilons)  # each (k,)
    return np.maximum(0.0, first - second)


def gaussian_chord(
    mu: float, epsilons: NDArray[np.float64], width: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values at epsilon and epsilon + width of a line in e^epsilon that is below delta.

    Delta is convex in e^epsilon with derivative -Phi(y), and the line is its tangent at the middle.
    A curve that is below its own chord is below delta if its ends are below these values.
    """
    first, second = _gaussian_terms(mu, epsilons + width / 2)
    middle = first - second
    return middle - second * math.expm1(-width / 2), middle - second * math.expm1(width / 2)


def covering_mu(
    left: NDArray[np.float64],
    width: float,
    deltas: NDArray[np.float64],
    high: float,
    *,
    low: float = 0.0,
    margin: float = GAUSSIAN_MARGIN,
) -> float:
    """The least mu whose Gaussian delta is at or above a curve of deltas; infinite above ``high``.

    The curve is convex in e^epsilon, so it is below its chords and the Gaussian above its tangents:
    comparing the ends of every cell compares the curves everywhere between [B16].

    Args:
        left: Left ends of the cells. Shape (k,).
        width: Width of a cell.
        deltas: Upper bounds of the curve at the ends of the cells. Shape (k + 1,).
        high: Largest mu that is tried.
        low: A mu that is too small.
        margin: What the Gaussian delta is lowered by, as a part of itself.
    """

    def covers(mu: float, at: NDArray[np.intp]) -> NDArray[np.bool_]:
        lower, upper = gaussian_chord(mu, left[at], width)
        fits: NDArray[np.bool_] = deltas[:-1][at] <= lower * (1 - margin)
        return fits & (deltas[1:][at] <= upper * (1 - margin))

    def least(at: NDArray[np.intp], bare: float, most: float, read: float) -> tuple[float, float]:
        """By bisection a mu too small for some of the cells, and one that covers them."""
        return bisected(lambda mu: bool(covers(mu, at).all()), max(low, bare), most, read)

    cells = np.arange(len(left))
    # Some cells say what mu is too small. Few of the others ask for more, and they alone decide.
    bare, near = least(cells[:: max(1, len(cells) // _SOME)], low, high, 1e-4)
    at, mu = cells[~covers(bare, cells)], min(near * _NEAR, high)
    mu = mu if covers(mu, at).all() else high
    for read in (1e-6, 1e-9, _MU_READ):
        bare, mu = least(at, bare, mu, read)
        at = at[~covers(bare, at)]
    # privacy: whatever the search compared, the result covers every cell
    if covers(mu, cells).all():
        return mu
    _, mu = least(cells, low, high, _MU_READ)  # near zero rounding decides single cells
    return next((one for one in (mu, high) if covers(one, cells).all()), math.inf)


_SOME, _NEAR = 60, 1.001

# A ledger is verified on other processors: what their rounding moves stays below its slack of 1e-9.
_MU_READ = 1e-12


def _gaussian_terms(
    mu: float, epsilons: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Phi(x) and e^epsilon Phi(y), each of shape (k,)."""
    if epsilons.size <= FEW:
        terms = [_gaussian_term(mu, epsilon) for epsilon in epsilons.tolist()]
        first, second = np.array(terms).reshape(-1, 2).T
        return first, second
    from scipy.special import erfcx, ndtr  # late: see FEW

    x = mu / 2 - epsilons / mu
    half = 0.5 * np.exp(-x * x / 2)
    first = np.where(x > 0, ndtr(x), half * erfcx(np.maximum(-x, 0.0) * _HALF_ROOT))
    return first, half * erfcx((mu - x) * _HALF_ROOT)


def _gaussian_term(mu: float, epsilon: float) -> tuple[float, float]:
    # erfcx is scaled by e^(z^2), so both terms keep their digits where they nearly agree [B5].
    x = mu / 2 - epsilon / mu
    half = 0.5 * math.exp(-x * x / 2)
    first = 0.5 * math.erfc(-x * _HALF_ROOT) if x > 0 else half * erfcx(-x * _HALF_ROOT)
    return first, half * erfcx((mu - x) * _HALF_ROOT)


def erfcx(x: float) -> float:
    """exp(x^2) erfc(x) at an x of at least 0, to a few units in the last place."""
    if x >= _FAR:
        # Abramowitz and Stegun 1964, 7.1.23: alternating, cut where terms are below 2^-53.
        step, total = -0.5 / (x * x), 1.0
        for odd in (13, 11, 9, 7, 5, 3, 1):
            total = 1.0 + odd * step * total
        return total / (x * _ROOT_PI)
    square = x * x
    # exp makes 300 units in the last place of the rounding of a square of 600.
    high = x * _SPLIT
    high -= high - x
    low = x - high
    rest = ((high * high - square) + 2 * high * low) + low * low
    return math.exp(square) * (1.0 + rest) * math.erfc(x)


def normal_cdf(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The distribution function of the standard normal law, shape (k,)."""
    return np.array([0.5 * math.erfc(value) for value in (x * -_HALF_ROOT).tolist()])


_FAR, _ROOT_PI, _HALF_ROOT = 25.0, math.sqrt(math.pi), math.sqrt(0.5)
_SPLIT = 2.0**27 + 1
"""Splits a float into two halves whose products are exact (Dekker 1971)."""
FEW = 2**14
"""Up to so many values are computed one by one: scipy.special takes .3 CPU seconds to import."""


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon at ``delta`` of Gaussian noise: the exact curve at delta (1 - 1e-6)."""
    if mu == 0 or math.isinf(mu):
        return mu
    target = delta * (1 - GAUSSIAN_MARGIN)
    if gaussian_delta(mu, 0.0) <= target:
        return 0.0
    high = zcdp_epsilon(mu * mu / 2, delta)
    # Rounding may lift the exact curve above the zCDP bound; that bound is valid, too.
    if gaussian_delta(mu, high) > target:
        return high
    return bisected(lambda epsilon: gaussian_delta(mu, epsilon) <= target, 0.0, high)[1]


LATTICE_SLACK = 2.0**-22
"""[B12] [B13] Loss that the noise sampler may add to a sampled Gaussian, over all steps."""


def sampled_gaussian_rdp(rate: float, noise_multiplier: float, order: float) -> float:
    """Renyi loss of one Poisson-sampled Gaussian step when one unit is added or removed.

    Mironov, Talwar and Zhang 2019: A(a) = E[(1 - q + q exp((2z - 1) / 2s^2))^a], z ~ N(0, s^2),
    covers both directions. Integer orders use their finite sum. Fractional orders use the chord of
    log A, which is convex in a, so the chord is never too low; below order 64 also their series,
    plus its omitted rest, if it is smaller. The result is never above the loss without sampling
    [B7].
    """
    unsampled = order / (2 * noise_multiplier**2)
    if rate == 0:
        return 0.0
    if rate == 1 or order >= LARGEST_SUM:
        return unsampled
    whole = math.floor(order)
    part = order - whole
    log_moment = (1 - part) * _log_moment(rate, noise_multiplier, whole)
    if part:
        log_moment += part * _log_moment(rate, noise_multiplier, whole + 1)
        if order < FRACTIONAL_BELOW and 1e-6 < part < 1 - 1e-6:
            log_moment = min(log_moment, _log_moment_series(rate, noise_multiplier, order))
    return min(unsampled, log_moment / (order - 1))


def _log_moment(rate: float, sigma: float, order: int) -> float:
    """Log A(a) at an integer order, from sum_k binom(a, k) (1-q)^(a-k) q^k (e^g - 1), all >= 0.

    Subtracting 1 first keeps all digits if A is near 1.
    """
    if order < 2:
        return 0.0
    factorials = _log_factorials()
    # Shape (order - 1,). Terms k = 0 and 1 are zero after 1 is subtracted.
    k = np.arange(2, order + 1, dtype=np.float64)
    growth = k * (k - 1) / (2 * sigma**2)
    parts = (
        factorials[order] - factorials[2 : order + 1] - factorials[order - 2 :: -1],
        (order - k) * math.log1p(-rate) + k * math.log(rate),
        growth + np.log(-np.expm1(-growth)),
    )
    size = float(factorials[order]) + sum(float(np.abs(part).max()) for part in parts)
    terms = sum(parts)
    # Scaled by the largest term: the terms themselves overflow.
    top = float(np.max(terms))
    log_sum = top + math.log(float(np.exp(terms - top).sum()))
    return float(np.logaddexp(0.0, log_sum + ROUNDING * size))


@cache
def _log_factorials() -> NDArray[np.float64]:
    """log(n!) for n up to LARGEST_SUM + 1, shape (LARGEST_SUM + 2,)."""
    from scipy.special import gammaln

    logs: NDArray[np.float64] = gammaln(np.arange(LARGEST_SUM + 2, dtype=np.float64) + 1)
    return logs


def _log_moment_series(rate: float, sigma: float, order: float, terms: int = 512) -> float:
    """Log A(a) at a fractional order (their section 3.3), rounded up.

    On each side of z0 the binomial series in a ratio below 1 alternates and decreases once the
    index passes a, so its rest is at most its first omitted term, which is added.
    """
    from scipy.special import gammaln, gammasgn, log_ndtr

    i = np.arange(terms + 1, dtype=np.float64)
    j = order - i
    z0 = sigma**2 * math.log(1 / rate - 1) + 0.5
    log_binomial = gammaln(order + 1) - gammaln(i + 1) - gammaln(j + 1)
    sign = gammasgn(j + 1)
    # The first omitted term, added with a plus sign.
    sign[-1] = 1.0
    log_rate, log_rest = math.log(rate), math.log1p(-rate)
    below = i * log_rate + j * log_rest + (i * i - i) / (2 * sigma**2) + log_ndtr((z0 - i) / sigma)
    above = j * log_rate + i * log_rest + (j * j - j) / (2 * sigma**2) + log_ndtr((j - z0) / sigma)
    exponents = log_binomial + np.logaddexp(below, above)
    top = float(exponents.max())
    scaled = np.exp(exponents - top)
    # Each exponent is a sum of parts of at most this size, and each part is off by a few ulps.
    size = 4 + gammaln(i + 1) + np.abs(gammaln(j + 1)) + (i * i + j * j) / sigma**2
    size += (i + np.abs(j)) * (abs(log_rate) + abs(log_rest))
    total = math.fsum(sign * scaled) + ROUNDING / 8 * math.fsum(size * scaled)
    return max(0.0, top + math.log(total)) if total > 0 else math.inf


def _epsilon(loss: float, u: float, log_inverse_delta: float) -> float:
    """Solve Corollary 13 for epsilon at order 1 + u, rounded up."""
    shrink = -math.log1p(1 / u)  # log(1 - 1/a) without cancellation [B10]
    rest = (log_inverse_delta - math.log1p(u)) / u
    size = loss - shrink + (log_inverse_delta + math.log1p(u)) / u
    return max(0.0, loss + shrink + rest + ROUNDING * size)


def bisected(
    above: Callable[[float], bool], low: float, high: float, read: float = 0.0
) -> tuple[float, float]:
    """The numbers on both sides of where ``above``, false at ``low``, becomes true; by bisection.

    Args:
        above: Whether a number is above the place that is looked for.
        low: Below it.
        high: Above it.
        read: Distance of the two at which it ends, relative to the second; 0: to the last digit.
    """
    for _ in range(200):
        middle = (low + high) / 2
        if high - low <= read * high or middle in (low, high):
            break
        low, high = (low, middle) if above(middle) else (middle, high)
    return low, high


def _root(increasing: Callable[[float], float], low: float, high: float) -> float:
    # The upper end: the lower one does not reach the target.
    return bisected(lambda value: increasing(value) > 0, low, high)[1]


def golden_section(
    valley: Callable[[float], float], low: float, high: float, steps: int
) -> tuple[float, float]:
    """A place near the least value of a quasi-convex function, and the least that was seen."""
    ratio, least = (math.sqrt(5) - 1) / 2, math.inf
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = valley(left), valley(right)
    for _ in range(steps):
        least = min(least, at_left, at_right)
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = valley(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = valley(right)
    return (low + high) / 2, least
