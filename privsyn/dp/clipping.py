"""Clipping of logits and rounding to the integer lattice on which private sums are exact.

Every function treats rows independently: a row's result depends on that row and on public
arguments alone, so one record changes one row. NaN and infinities are first mapped within their
row: a private text can make a model emit them, and they must neither spread nor escape a bound.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

LATTICE = 2**24
"""Lattice steps per unit of a logit."""

DEEPEST = 2.0**15
"""Largest distance of a token below the largest logit of a public row, in logits. At any sensible
temperature the probability of such a token is 0."""

_LARGEST = float(np.finfo(np.float64).max) / 4
_MOST_SUM = 2**61
_LOW = 32


def clip_difference(
    private: NDArray[Any], public: NDArray[Any], bound: float, gain: float = 1.0
) -> NDArray[np.float64]:
    """Clip ``gain * (private - public)`` to [-bound, bound] (InvisibleInk, Algorithm 1).

    Guarantee: for any input and any gain, every entry of every row is in [-bound, bound], so adding
    or removing a record changes a sum of rows by at most ``bound`` in L-inf. A NaN difference
    counts as 0, an infinite one as the bound with its sign.

    Args:
        private: Logits, shape (rows, vocabulary). Zero rows are allowed.
        public: Logits of the public row, shape (vocabulary,).
        bound: The clip bound C in logits, at least 0.
        gain: Public factor before the clip. It does not change the bound.

    Raises:
        ValueError: The bound or the gain is not a finite number in range.

    >>> clip_difference(np.array([[9.0, -1.0, np.nan]]), np.zeros(3), bound=2.0)
    array([[ 2., -1.,  0.]])
    """
    _check(bound)
    if not (math.isfinite(gain) and gain > 0):
        raise ValueError(f"gain={gain!r} must be a finite number above 0")
    with np.errstate(invalid="ignore", over="ignore"):
        # float64: a difference of float32 logits is exact in it.
        difference = gain * (np.asarray(private, np.float64) - np.asarray(public, np.float64))
    return _clip(difference, bound)


def clip_recenter(z: NDArray[Any], c: float) -> NDArray[np.float64]:
    """``max(-c, z_i - max_j z_j + c)`` in each row (Amin et al. 2024, section 3).

    Guarantee: for any input, every entry of every row is in [-c, c]. NaN counts as the smallest
    logit of its row, an infinity as the largest number of its sign.

    Args:
        z: Logits, shape (..., vocabulary).
        c: The clip bound in logits, at least 0.

    Raises:
        ValueError: ``c`` is not a finite number of at least 0.
    """
    _check(c)
    rows = np.nan_to_num(np.asarray(z, np.float64), nan=-_LARGEST).clip(-_LARGEST, _LARGEST)
    # Per row, shape (..., 1): a maximum over all rows would couple records.
    top = rows.max(axis=-1, keepdims=True, initial=-_LARGEST)
    return _clip(rows - top + c, c)


def grid_bound(bound: float) -> int:
    """Largest lattice value within ``bound``: the L-inf sensitivity of one row of ``to_grid``.

    >>> grid_bound(1.5) / LATTICE
    1.5
    """
    _check(bound)
    return math.floor(bound * LATTICE)  # scaling by a power of two is exact, so floor rounds once


def to_grid(x: NDArray[Any], bound: float) -> NDArray[np.int64]:
    """Round to multiples of 2^-24, returned as int64 counts of them, and clip again.

    Guarantee: for any input, every entry is in [-grid_bound(bound), grid_bound(bound)]; NaN counts
    as 0. So rounding never moves a row beyond its clip bound. Sums of rows are exact and do not
    depend on their order.

    Args:
        x: Clipped logits.
        bound: The clip bound in logits.

    Raises:
        ValueError: ``bound`` is negative, not finite or above 2^23.
    """
    limit = grid_bound(bound)
    steps = np.rint(_clip(np.asarray(x, np.float64), bound) * LATTICE).astype(np.int64)
    # Rounding to nearest may exceed the bound by half a step.
    return steps.clip(-limit, limit)


def public_grid(z: NDArray[Any]) -> NDArray[np.int64]:
    """Logits of public rows on the lattice, shifted by a constant per row.

    Guarantee: for any input, every entry is in [-2^38, 2^38]. The largest entry of a row is at the
    upper end; minus infinity, NaN and everything more than ``DEEPEST`` below it are at the lower
    end. So 10^6 times an entry plus a held ExactSum fits int64 [B14].

    Args:
        z: Logits, shape (..., vocabulary).

    >>> (public_grid(np.array([1e4, 9999.0, -3.4e38])) / LATTICE).tolist()
    [16384.0, 16383.0, -16384.0]
    """
    # The shift is the same for all tokens of a row, so it does not change the draw.
    half = DEEPEST / 2
    return to_grid(clip_recenter(z, half), half)


class ExactSum:
    """An exact sum of rows of integers, for any number of rows of any size.

    Guarantee: ``held`` is the true sum, clipped once at the end to [-2^61, 2^61]. Adding a row with
    entries in [-D, D] changes it by at most D in L-inf, whatever the sum is. An int64 sum that
    wraps around would change by 2^64 [B14].

    Args:
        size: Entries of a row.

    >>> total = ExactSum(1)
    >>> for _ in range(8):
    ...     total.add(np.array([[2**62]]))
    >>> total.clipped().tolist() == [2**61]
    True
    """

    def __init__(self, size: int) -> None:
        self._high = np.zeros(size, np.int64)
        self._low = np.zeros(size, np.int64)  # 0 to 2^32 - 1

    def add(self, rows: NDArray[np.int64]) -> None:
        """Add rows of a micro-batch, shape (fewer than 2^31, size)."""
        # Two words, as in long addition: the lower 32 bits of fewer than 2^31 rows fit int64.
        low = self._low + (rows & (2**_LOW - 1)).sum(axis=0, dtype=np.int64)
        self._high += (rows >> _LOW).sum(axis=0, dtype=np.int64) + (low >> _LOW)
        self._low = low & (2**_LOW - 1)

    def clipped(self) -> NDArray[np.int64]:
        """The sum clipped to [-2^61, 2^61], shape (size,)."""
        most = _MOST_SUM >> _LOW
        whole = (np.clip(self._high, -most - 1, most) << _LOW) + self._low
        total: NDArray[np.int64] = np.clip(whole, -_MOST_SUM, _MOST_SUM)
        return total


def probability_grid(z: NDArray[Any]) -> NDArray[np.int64]:
    """Softmax of each row in multiples of 2^-24, rounded down, returned as int64 counts of them.

    Guarantee: for any input, every row has non-negative counts that sum to at most 2^24, so adding
    or removing a record changes a sum of rows by at most 2^24 in L1. NaN and infinities are treated
    as in clip_recenter.

    Args:
        z: Logits, shape (..., vocabulary).

    >>> probability_grid(np.array([0.0, 0.0])) / LATTICE
    array([0.5, 0.5])
    """
    rows = np.nan_to_num(np.asarray(z, np.float64), nan=-_LARGEST).clip(-_LARGEST, _LARGEST)
    weights = np.exp(rows - rows.max(axis=-1, keepdims=True, initial=-_LARGEST))
    weights /= weights.sum(axis=-1, keepdims=True)
    counts: NDArray[np.int64] = np.floor(weights * LATTICE).astype(np.int64)
    excess = np.maximum(counts.sum(axis=-1, keepdims=True) - LATTICE, 0)
    if excess.any():  # a quotient was rounded up across a lattice point
        top = counts.argmax(axis=-1, keepdims=True)
        np.put_along_axis(counts, top, np.take_along_axis(counts, top, -1) - excess, -1)
    return counts


def _clip(x: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
    clipped = np.clip(x, -bound, bound)
    clipped[np.isnan(clipped)] = 0.0  # np.clip maps infinities to the bound but passes NaN through
    return clipped


def _check(bound: float) -> None:
    # 2^47 lattice steps are exact in float64.
    if not 0 <= bound <= 2.0**23:
        raise ValueError(f"bound={bound!r} must lie in [0, 2^23]")
