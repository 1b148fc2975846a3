"""Exact adaptive composition of bounded-range and pure steps, by numerical upper bounds.

A draw of the exponential mechanism changes the log probability of every outcome by an amount in
[t - eta, t], for some t in [0, eta] that may depend on all earlier draws. Over T such draws

    V_0(g) = (1 - e^g)+,
    V_k(g) = sup_t p_t V_{k-1}(g - t) + (1 - p_t) V_{k-1}(g - t + eta),

with p_t = (1 - e^(t - eta)) / (1 - e^-eta), gives delta(epsilon) = V_T(epsilon) for draws chosen
adaptively: 6 to 9% of epsilon below zCDP. A pure step is the case t = epsilon of eta = 2 epsilon.

Source: Dong, Durfee, Rogers 2020, "Optimal Differential Privacy Composition for Exponential
Mechanisms" (the recursion). [B15] in bounds.md proves it, with the grid and the rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privsyn.dp import conversions

CELLS = 40
"""Grid cells per range: the result is within .05% of the exact epsilon."""

_WORK = 1e8
"""Most cell evaluations per curve. A longer curve gets a coarser grid, which is looser."""

_FEWEST, _MOST_POINTS = 6, 2**20
"""Fewest cells for which a curve is useful, and most points for which it is affordable."""

_LARGEST_RANGE = 100.0
"""Largest range of a step: beyond it e^range would overflow, and composition gains nothing."""

_WIDEST = 0.5
"""Largest grid step: the error bounds of [B15] assume e^width < 2."""

_ROUNDING = 2.0**-46
"""[B15] Bound on a step's rounding error, relative to the magnitudes of its terms."""

_DEVIATIONS = 7.5
"""Half width of the grid, in standard deviations of the worst sum of losses."""

_LOWEST = -40.0
"""Below this g delta counts as 1, which is too high by at most e^-40."""


@dataclass(frozen=True)
class Draw:
    """A step with log ratio in [t - range, t] nats; t may depend on all earlier steps."""

    range: float


@dataclass(frozen=True)
class Response:
    """A step of pure loss ``epsilon`` (nats), which randomized response dominates."""

    epsilon: float


Step: TypeAlias = Draw | Response
Rounds: TypeAlias = tuple[tuple[Step, ...], int]
"""Steps in order, and how many times all of them run."""


@dataclass(frozen=True)
class Curve:
    """Delta at grid points of epsilon, never below the truth.

    Attributes:
        first: First grid point.
        width: Distance between grid points.
        deltas: Decreasing; ``deltas[i]`` is at ``first + i * width``. Shape (points,).
    """

    first: float
    width: float
    deltas: NDArray[np.float64]

    def epsilon(self, delta: float) -> float:
        """Least epsilon whose delta is at most ``delta``; infinite beyond the grid.

        Between grid points the curve is below its chord in e^epsilon.
        """
        fits = np.flatnonzero(self.deltas <= delta)
        if not len(fits):
            return math.inf
        right = int(fits[0])
        if right == 0:
            return max(0.0, self.first)
        above, below = float(self.deltas[right - 1]), float(self.deltas[right])
        # Rounded up, so that the epsilon is.
        part = (above - delta) / (above - below) * (1 + 2 * _ROUNDING)
        inside = min(self.width, math.log1p(part * math.expm1(self.width)))
        epsilon = self.first + self.width * (right - 1) + inside
        return max(0.0, epsilon + _ROUNDING * (1 + abs(epsilon)))


def epsilon(
    blocks: tuple[Rounds, ...], delta: float, mu_squared: float = 0.0, cells: int = CELLS
) -> float:
    """An upper bound on epsilon at ``delta`` of the steps, composed adaptively.

    Guarantee: (epsilon, delta)-DP for the blocks in order, or any prefix of them, and Gaussian
    noise after them, despite numerical errors.

    Args:
        blocks: Steps in order.
        delta: In (0, 1).
        mu_squared: Sum of squared sensitivity over variance of the Gaussian noise. The noise may
            come before or between randomized responses, but not before a bounded-range draw.
        cells: Grid cells of the largest range. Fewer are faster and looser.

    Returns:
        Epsilon, at least 0; infinite if the grid would be too large.
    """
    rho = sum(count * sum(width_of(step) ** 2 for step in steps) for steps, count in blocks) / 8
    # zCDP is an upper bound, so it says how far the grid must reach.
    guess = conversions.zcdp_epsilon(rho + mu_squared / 2, delta)
    if not 0 < guess < math.inf:
        return guess
    delta_curve = curve(blocks, guess, mu_squared, cells)
    return min(guess, delta_curve.epsilon(delta)) if delta_curve else guess


@lru_cache(maxsize=64)
def curve(
    blocks: tuple[Rounds, ...], reach: float, mu_squared: float = 0.0, cells: int = CELLS
) -> Curve | None:
    """The curve of delta from about 0 or below to a little beyond ``reach``.

    Args:
        blocks: Steps in order.
        reach: Largest epsilon of interest.
        mu_squared: As in ``epsilon``.
        cells: Grid cells of the largest range.

    Returns:
        None if there is no step, or the grid or a step's loss would be too large.
    """
    each = [(width_of(step), count) for steps, count in blocks for step in steps]
    if not each or max(width for width, _ in each) > _LARGEST_RANGE:
        return None
    draws = [step.range for steps, _ in blocks for step in steps if isinstance(step, Draw)]
    variance = sum(count * width**2 for width, count in each) / 4 + mu_squared
    largest = max(draws, default=0.0)
    deviation, steps = math.sqrt(variance), sum(count for _, count in each)
    low = max(-variance / 2 - _DEVIATIONS * deviation, _LOWEST)
    high = reach + min(4 * deviation, 8.0) + largest
    finest = largest / cells if draws else deviation / (20 * cells)
    if not finest:  # the squares of such small losses underflow
        return None
    # Work is points * cells * steps. On a finer grid points and cells grow by the same factor.
    work = (high - low) / finest * steps * (largest / finest if draws else 1)
    width = finest * max(1.0, math.sqrt(work / _WORK) if draws else work / _WORK)
    if draws:  # whole cells in the largest range: rounding a range up is charged
        width = largest / max(1, math.floor(largest / min(width, _WIDEST)))
    else:  # grid points at the largest response's loss: it needs no chords then
        loss = max(width for width, _ in each) / 2
        width = loss / math.ceil(loss / width)
    width = math.nextafter(min(width, _WIDEST), math.inf)
    if (draws and largest / width < _FEWEST) or (high - low) / width > _MOST_POINTS:
        return None
    first = math.floor(low / width)
    points = width * np.arange(first, math.ceil(high / width) + 1, dtype=np.float64)
    value = _last(points, mu_squared)
    # Backward induction [B15]: from the delta that is left after all steps to the delta before
    # them.
    for block, count in reversed(blocks):
        operators = [_operator(step, width) for step in reversed(block)]
        for _ in range(count):
            for before in operators:
                value = before(value)
    # The truth decreases, so the running minimum is still an upper bound.
    return Curve(width * first, width, np.minimum.accumulate(value))


@lru_cache(maxsize=256)
def gaussian_mu(blocks: tuple[Rounds, ...], mu_squared: float = 0.0, cells: int = CELLS) -> float:
    """The mu of Gaussian noise whose delta is at least the steps' delta at every epsilon.

    Guarantee: the steps, chosen adaptively, are mu-Gaussian DP (Dong, Roth, Su 2022). Delta is
    compared from 0 to the largest possible loss, beyond which the steps' delta is 0.

    Args:
        blocks: Steps in order.
        mu_squared: As in ``epsilon``.
        cells: As in ``epsilon``.

    Returns:
        mu; infinite if none is found, or if there is Gaussian noise among the steps.
    """
    most = sum(count * sum(map(width_of, steps)) for steps, count in blocks)
    delta_curve = None if mu_squared else curve(blocks, most, cells=cells)
    if delta_curve is None:
        return math.inf
    first, width = delta_curve.first, delta_curve.width
    # Grid points are multiples of the width, so 0 is one. Taken a point too low by a rounding, the
    # delta there would be compared with the Gaussian's at 0, and mu be over 1% too large.
    start = max(0, round(-first / width))
    deltas = delta_curve.deltas[start:]
    # Negative epsilons need no check: delta(-g) = 1 - e^-g + e^-g delta(g).
    left = width * np.arange(len(deltas) - 1, dtype=np.float64) + max(first, 0.0)
    left = left[left < most]
    variance = sum(count * sum(width_of(s) ** 2 for s in steps) for steps, count in blocks) / 4
    low, high = math.sqrt(variance) * 0.5, math.sqrt(variance) * 4
    deltas = deltas[: len(left) + 1]
    return conversions.covering_mu(left, width, deltas, high, low=low, margin=_MU_MARGIN)


_MU_MARGIN = 1e-9


def _last(points: NDArray[np.float64], mu_squared: float) -> NDArray[np.float64]:
    """V_0: delta of the Gaussian noise after all steps, shape (points,)."""
    if mu_squared == 0:
        deltas: NDArray[np.float64] = -np.expm1(np.minimum(points, 0.0)) * (1 + 2 * _ROUNDING)
        return deltas
    mu = math.sqrt(mu_squared)
    exact = conversions.gaussian_deltas(mu, np.abs(points))
    # delta(-g) = 1 - e^-g + e^-g delta(g): the curve is the same in both directions.
    below = np.minimum(points, 0.0)
    exact = np.where(points < 0, np.exp(below) * exact - np.expm1(below), exact)
    upper: NDArray[np.float64] = np.minimum(exact * (1 + conversions.GAUSSIAN_MARGIN), 1.0)
    return upper


def width_of(step: Step) -> float:
    """Width of the interval of a step's log ratio."""
    return step.range if isinstance(step, Draw) else 2 * step.epsilon


class _Chords:
    """A decreasing curve on the grid, extended by 1 below and by its last value above.

    Between grid points j and j + 1 it is at most ``level[j] + slope[j] x``, with x in [1, e^width],
    the ratio of e^g to its left end: the truth is convex in e^g, so it is below its chords.
    """

    def __init__(self, value: NDArray[np.float64], width: float, pad: int) -> None:
        self.value = np.concatenate((np.ones(pad), value, np.full(pad, value[-1])))
        self.slope = np.diff(self.value) / math.expm1(width)
        self.level = self.value[:-1] - self.slope
        # Magnitudes for the rounding bound: x is below 2 [B15].
        self.size = np.abs(self.level) + 2 * np.abs(self.slope)


def _operator(step: Step, width: float) -> _Operator:
    return _DrawOperator(step, width) if isinstance(step, Draw) else _ResponseOperator(step, width)


class _DrawOperator:
    """V_k from V_{k-1} for a bounded-range draw: the maximum over every cell of t.

    At grid points t the objective is p_t V(g - t) + (1 - p_t) V(g - t + eta). Within a cell, with
    s = e^(t - right end of the cell) in [e^-width, 1], both chords give for cell i
    K + P_i D + A / s + P_i E s, where A, D, E, K do not depend on i. It has a maximum inside only
    if A and E are negative: at s^2 = A / (P_i E), which lies in at most two cells, since P_i grows
    by e^width from one to the next.
    """

    def __init__(self, draw: Draw, width: float) -> None:
        self.width = width
        self.cells = max(1, math.ceil(draw.range / width))
        # The division may have been rounded down; a range that is too small would be too cheap.
        if self.cells * width < draw.range:
            self.cells += 1
        eta = self.cells * width
        self.up = 1 / -math.expm1(-eta)
        self.down = -1 / math.expm1(eta)  # 1 - up
        count = np.arange(1, self.cells + 1)
        self.weights = np.exp(width * count - eta) * self.up
        # p_t and 1 - p_t at the points t between 0 and eta; at these two they are 0 and 1.
        left = -np.expm1(-width * count[::-1][1:]) * self.up
        right = np.expm1(width * count[:-1]) * -self.down
        self.ends = list(zip(left.tolist(), right.tolist(), strict=True))

    def __call__(self, value: NDArray[np.float64]) -> NDArray[np.float64]:
        points, cells = len(value), self.cells
        chords = _Chords(value, self.width, cells)
        highest = value.copy()  # t = 0: a draw without information
        term, other = np.empty(points), np.empty(points)
        for i, (left, right) in enumerate(self.ends, start=1):
            # In place: this loop is most of the time of a price.
            np.multiply(chords.value[cells - i : cells - i + points], left, out=term)
            np.multiply(chords.value[2 * cells - i : 2 * cells - i + points], right, out=other)
            term += other
            np.maximum(highest, term, out=highest)
        highest *= 1 + _ROUNDING
        self._raise_inside(highest, chords)
        return np.minimum(highest, 1.0)

    def _raise_inside(self, highest: NDArray[np.float64], chords: _Chords) -> None:
        """Raise the maximum to the maxima inside of cells."""
        points, cells = len(highest), self.cells
        # Arrays below have shape (points + cells - 1,): one entry per shift of the curve by a cell.
        near, far = slice(0, points + cells - 1), slice(cells, points + 2 * cells - 1)
        level, slope, size = chords.level, chords.slope, chords.size
        inverse = self.up * slope[near] + self.down * slope[far]
        linear = level[far] - level[near]
        constant = self.up * level[near] + self.down * level[far]
        constant += _ROUNDING * self.up * (size[near] + size[far])
        per_weight = slope[far] - slope[near]
        concave = (inverse < 0) & (linear < 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            best = inverse / linear  # P_i times the square of the best s
        # The cells are the first whose weight is at least that, and the one after it.
        first = np.searchsorted(self.weights, best)
        shift = np.arange(1 - cells, points)
        for cell in (first, first + 1):
            place = shift + cell  # of g
            (at,) = np.nonzero(concave & (cell < cells) & (place >= 0) & (place < points))
            weight = self.weights[cell[at]]
            s = np.sqrt(best[at] / weight)
            np.clip(s, math.exp(-self.width), 1.0, out=s)
            here = inverse[at] / s
            here += weight * (per_weight[at] + linear[at] * s) + constant[at]
            np.maximum.at(highest, place[at], here)


class _ResponseOperator:
    """V_k from V_{k-1} for randomized response."""

    def __init__(self, response: Response, width: float) -> None:
        self.width, self.loss = width, response.epsilon
        self.whole = math.floor(self.loss / width)
        self.rest = min(max(self.loss - self.whole * width, 0.0), width)

    def __call__(self, value: NDArray[np.float64]) -> NDArray[np.float64]:
        points = len(value)
        whole = min(self.whole, points)  # beyond the grid the curve is constant
        pad = whole + 1
        chords = _Chords(value, self.width, pad)
        lower, upper = slice(0, points), slice(pad + whole, pad + whole + points)
        more = 1 / (1 + math.exp(-self.loss))
        less = 1 / (1 + math.exp(self.loss))
        near = chords.level[lower] + chords.slope[lower] * math.exp(self.width - self.rest)
        far = chords.level[upper] + chords.slope[upper] * math.exp(self.rest)
        size = more * chords.size[lower] + less * chords.size[upper]
        bound = more * near + less * far + _ROUNDING * (1 + self.loss) * size
        result: NDArray[np.float64] = np.minimum(np.maximum(bound, value), 1.0)
        return result


_Operator: TypeAlias = _DrawOperator | _ResponseOperator


def before_response(value: NDArray[np.float64], loss: float, width: float) -> NDArray[np.float64]:
    """Delta at grid points of epsilon with an additional randomized response of ``loss``.

    Args:
        value: Delta without it, decreasing, never below the truth.
        loss: Loss of the randomized response in nats.
        width: Grid step, at most .5.
    """
    return _ResponseOperator(Response(loss), width)(value)
