"""Privacy amplification by random allocation: the cost of buckets that a secret draw fills.

A release has n places (buckets). A uniform draw, new in every release and never published, sends
each unit's records to one of them. Who sees the release does not know the place of a unit.
Let every place alone be mu-Gaussian DP. Then the release is dominated by the pair

    P = mean of N(mu e_i, I) over i = 1 .. n,    Q = N(0, I),

in both directions. The likelihood ratio of the pair is the mean Y of n independent X_i =
exp(mu z_i - mu^2 / 2), z_i standard normal under Q, and

    delta(P, Q) = E (Y - e^epsilon)+,    delta(Q, P) = E (1 - e^epsilon Y)+.

Both are expectations of convex functions of Y. So a distribution of Y that is spread out further
with the same mean gives an upper bound, and the X_i and their sums may be spread to the points of a
grid: the result is an upper bound for every grid. Proofs, also of the roundings: [B19] in
bounds.md.

Source: Feldman, Shenfeld 2025, "Privacy amplification by random allocation" (the pair for Gaussian
noise); Dong, Roth, Su 2022, "Gaussian Differential Privacy" (domination).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privsyn.dp import conversions

POINTS = 600
"""Grid points of one sum: epsilon is about .03% above the limit of a fine grid."""

MOST_PLACES = 4096
"""More places are priced as this number, which is an upper bound."""

LARGEST_MU = 20.0
"""Above it e^(mu^2) leaves no digits, and one place alone reveals nearly everything."""

_DEVIATIONS = 9.0
"""Reach of the grid of one X, in standard deviations."""

_SHARE = 2.0**-36
"""Increase of both shares of a spread mass: far above their rounding errors."""

MARGIN = 1e-8
"""Relative margin of delta for the roundings of masses."""

ABSOLUTE = 2.0**-46
"""Margin of delta for the roundings of grid points and sums of them."""


@dataclass(frozen=True)
class Ratio:
    """An upper bound, in convex order, of the likelihood ratio Y under Q.

    Attributes:
        values: Values of Y, rising, the first 0. Shape (points,).
        mass: Their probabilities under Q. Shape (points,).
        infinite: Probability under P of a ratio above all values.
    """

    values: NDArray[np.float64]
    mass: NDArray[np.float64]
    infinite: float

    def deltas(
        self, epsilons: NDArray[np.float64], mu_squared: float = 0.0, loss: float = 0.0
    ) -> NDArray[np.float64]:
        """Delta at several epsilons of at least 0: the larger of both directions, never too low.

        Args:
            epsilons: Shape (k,).
            mu_squared: Squared mu of Gaussian noise on the same units, beside the places.
            loss: Loss of a randomized response on the same units, beside the places.
        """
        if loss:  # its two answers move what is left to spend by the loss, up or down [B3]
            right = 1 / (1 + math.exp(-loss))
            at = epsilons - loss
            near = _mirrored(self.deltas(np.abs(at), mu_squared), at)
            far = self.deltas(epsilons + loss, mu_squared)
            either: NDArray[np.float64] = (right * near + (1 - right) * far) * (1 + MARGIN)
            return np.minimum(either, 1.0)
        place = np.flatnonzero(self.mass)
        value, mass = self.values[place], self.mass[place]
        bounds = np.empty(len(epsilons))
        for i, epsilon in enumerate(epsilons.tolist()):
            if mu_squared:
                forward, backward = _beside(value, epsilon, math.sqrt(mu_squared))
            else:
                forward = np.maximum(value - math.exp(min(epsilon, 700.0)), 0.0)
                backward = np.maximum(1 - math.exp(min(epsilon, 700.0)) * value, 0.0)
            # The mass above the grid counts in full, and the margins cover the roundings of the
            # sums.
            larger = max(float(mass @ forward) + self.infinite, float(mass @ backward))
            bounds[i] = larger * (1 + MARGIN) + ABSOLUTE
        return np.minimum(bounds, 1.0)


def _beside(
    value: NDArray[np.float64], epsilon: float, mu: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The two integrands of delta at each value of Y, where mu-Gaussian noise is released as well.

    With V the Gaussian delta these are Y V(epsilon - log Y) and V(epsilon + log Y): convex in Y, as
    the perspective of a convex function and as one itself [B15].
    """
    with np.errstate(divide="ignore"):
        log_value = np.log(value)
    forward = value * _gaussian(mu, epsilon - log_value)
    return np.where(value > 0, forward, 0.0), _gaussian(mu, epsilon + log_value)


def _gaussian(mu: float, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
    """The Gaussian delta at any real epsilon."""
    above = conversions.gaussian_deltas(mu, np.minimum(np.abs(epsilons), 700.0))
    return _mirrored(above * (1 + conversions.GAUSSIAN_MARGIN), epsilons)


def _mirrored(above: NDArray[np.float64], epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
    """Deltas at any epsilons from those at their sizes: delta(-g) = 1 - e^-g + e^-g delta(g)."""
    size = np.minimum(np.abs(epsilons), 700.0)
    # expm1, because 1 - e^-g loses all digits where g is small.
    below = np.exp(-size) * above - np.expm1(-size)
    result: NDArray[np.float64] = np.minimum(np.where(epsilons < 0, below, above), 1.0)
    return result


@lru_cache(maxsize=256)
def ratio(mu: float, places: int, points: int = POINTS) -> Ratio | None:
    """The likelihood ratio of a release with ``places`` places, each mu-Gaussian DP.

    Guarantee: the release satisfies (epsilon, ``deltas``)-DP at every epsilon, if the place of a
    unit is uniform, independent of all else, and drawn anew in every release.

    Returns:
        None where mu is too large for an amplification.
    """
    if not 0 < mu <= LARGEST_MU:
        return None
    count = min(places, MOST_PLACES)
    values, mass, infinite = _single(mu, points)
    power, summands = (values, mass, 1), []
    for bit in range(count.bit_length()):  # sums of 1, 2, 4, .. terms
        if bit:
            power = _sum(mu, *power, *power, points=points)
        if count >> bit & 1:
            summands.append(power)
    total = summands[0]
    for summand in summands[1:]:
        total = _sum(mu, *total, *summand, points=points)
    # Y is the mean of n terms. The mass that one X leaves at infinity is that of the mean, too
    # [B19].
    return Ratio(total[0] / count, total[1], infinite)


def deltas(
    mu: float,
    places: int,
    epsilons: NDArray[np.float64],
    mu_squared: float = 0.0,
    loss: float = 0.0,
) -> NDArray[np.float64]:
    """Delta at several epsilons; 1 where mu is too large for a ratio."""
    known = ratio(mu, places)
    return known.deltas(epsilons, mu_squared, loss) if known else np.ones(len(epsilons))


def epsilon(
    mu: float,
    places: int,
    delta: float,
    mu_squared: float = 0.0,
    points: int = POINTS,
    loss: float = 0.0,
) -> float:
    """The least epsilon at ``delta`` by this bound, rounded up.

    Guarantee: that of ``ratio``, with Gaussian noise of ``mu_squared`` and pure steps of ``loss``
    in all on the same units beside it.

    Args:
        mu: The mu of one place.
        places: Number of places.
        delta: In (0, 1).
        mu_squared: As in ``Ratio.deltas``.
        points: Grid points. Fewer points take less time and give a larger epsilon.
        loss: As in ``Ratio.deltas``.

    Returns:
        At most the cost of the places without the secret draw, by their Gaussian curve.
    """
    # Pure losses add to any epsilon at the same delta.
    high = conversions.gaussian_epsilon(math.sqrt(mu**2 + mu_squared), delta)
    high = (high + loss) * (1 + conversions.ROUNDING)
    known = ratio(mu, places, points)
    if known is None or not math.isfinite(high):
        return high

    def fits(value: float) -> bool:
        return bool(known.deltas(np.array([value]), mu_squared, loss)[0] <= delta)

    # The grid is too coarse to help here: the cost without the draw is still an upper bound.
    if not fits(high):
        return high
    if fits(0.0):
        return 0.0
    # What is above fits, so it is an upper bound after any number of steps.
    return conversions.bisected(fits, 0.0, high, _READ)[1]


_READ = 1e-9


_COARSE = 120


@lru_cache(maxsize=64)
def largest_mu(
    places: int, target: float, delta: float, points: int = _COARSE, tolerance: float = 1e-3
) -> float:
    """About the largest mu of a place at which the release is within (``target``, ``delta``).

    By default it uses a coarse grid: a start for a search, not its result. Rounded down by up to
    ``tolerance`` of it.
    """

    def above(mu: float) -> bool:
        return epsilon(mu, places, delta, points=points) > target

    return conversions.bisected(above, 0.0, LARGEST_MU, tolerance)[0]


@lru_cache(maxsize=256)
def covering_mu(mu: float, places: int, failure: float) -> float:
    """The least mu whose Gaussian, with a chance ``failure`` to reveal all, covers the release.

    Guarantee: delta(epsilon) <= failure + (1 - failure) delta of the Gaussian, at every epsilon and
    in both directions. So its mu and its failure add up with those of other releases [B19].

    Returns:
        At most ``mu``, which covers it without a chance to reveal all.
    """
    known = ratio(mu, places)
    if known is None or not 0 < failure < 1:
        return mu
    # Beyond ``last`` the release's delta is below ``failure``, so nothing has to be compared.
    last = epsilon(mu, places, failure)
    width = last / _COMPARED if last else 1.0
    left = width * np.arange(_COMPARED, dtype=np.float64)
    delta = known.deltas(np.append(left, last))
    # What the Gaussian must cover once the chance has taken its part, enlarged by the roundings.
    need = np.maximum(delta - failure, 0.0) * (1 + MARGIN) / (1 - failure)
    return min(mu, conversions.covering_mu(left, width, need, mu))


_COMPARED = 1500


def _single(mu: float, points: int) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """One X on its grid: values, masses under Q, and the part of its mean beyond the grid.

    The mass of a cell moves to the cell's two ends and keeps its mean. Mass beyond the last point
    moves to that point, and the rest of the mean to infinity.
    """
    grid = _grid(mu, 1, points)
    edges = np.concatenate(([-np.inf], (np.log(grid[1:]) + mu * mu / 2) / mu, [np.inf]))

    def between(at: NDArray[np.float64]) -> NDArray[np.float64]:
        lower, upper = conversions.normal_cdf(at), conversions.normal_cdf(-at)
        # Differences of the smaller tail: near 1 the distribution function has no digits left.
        cells: NDArray[np.float64] = np.where(at[1:] <= 0, np.diff(lower), -np.diff(upper))
        return cells

    mass, mean = between(edges), between(edges - mu)  # E X 1(X in cell) is the mass under N(mu, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = (mean[:-1] - grid[:-1] * mass[:-1]) / np.diff(grid) / mass[:-1]
    # Empty cells give 0/0; roundings may leave [0, 1] by a last digit.
    share = np.clip(np.nan_to_num(share), 0.0, 1.0)
    spread = np.zeros(len(grid))
    spread[:-1] += (1 - share + _SHARE) * mass[:-1]
    spread[1:] += (share + _SHARE) * mass[:-1]
    spread[-1] += mass[-1]
    return grid, spread, float(max(mean[-1], 0.0))


def _sum(
    mu: float,
    value: NDArray[np.float64],
    mass: NDArray[np.float64],
    terms: int,
    other_value: NDArray[np.float64],
    other_mass: NDArray[np.float64],
    other_terms: int,
    *,
    points: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """The sum of two independent sums, spread to a new grid with the same mean."""
    grid = _grid(mu, terms + other_terms, points)
    # No mass may fall beyond the last point: there it could not keep its mean.
    grid[-1] = max(grid[-1], value[-1] + other_value[-1])
    width = np.diff(grid)
    at, other_at = np.flatnonzero(mass), np.flatnonzero(other_mass)
    spread = np.zeros(len(grid))
    alike = mass is other_mass
    for first in range(0, len(at), _ROWS):
        rows = at[first : first + _ROWS]
        # Of two sums of one law every pair comes twice: the half below the diagonal is left out.
        columns = other_at[first:] if alike else other_at
        # Pairs of a row and a column, shape (rows, columns) before it is flattened.
        masses = mass[rows][:, None] * other_mass[columns][None, :]
        if alike:
            masses *= 2
            square = masses[:, : len(rows)]
            square[np.tril_indices(len(rows), -1)] = 0.0
            np.fill_diagonal(square, np.diagonal(square) / 2)
        sums = (value[rows][:, None] + other_value[columns][None, :]).ravel()
        masses = masses.ravel()
        cell = np.clip(np.searchsorted(grid, sums, side="right") - 1, 0, len(grid) - 2)
        sums -= grid[cell]
        sums /= width[cell]
        share = np.clip(sums, 0.0, 1.0, out=sums)
        spread += np.bincount(cell, (1 - share + _SHARE) * masses, len(grid))
        spread += np.bincount(cell + 1, (share + _SHARE) * masses, len(grid))
    return grid, spread, terms + other_terms


_ROWS = 50
"""Rows of pairs at once: as many as stay in a processor's cache."""


def _grid(mu: float, terms: int, points: int) -> NDArray[np.float64]:
    """0, then a geometric sequence that covers a sum of ``terms`` X under Q and under P."""
    # A mean of many terms varies less: its grid needs a shorter reach, and so has finer steps.
    reach = mu * _DEVIATIONS / math.sqrt(terms)
    low = terms * math.exp(-reach - mu * mu / 2)
    one = math.exp(mu * (_DEVIATIONS + mu) - mu * mu / 2)  # under P one of the z has mean mu
    high = one + (terms - 1) * math.exp(reach + mu * mu / 2)
    return np.concatenate(([0.0], np.geomspace(low, high, points)))
