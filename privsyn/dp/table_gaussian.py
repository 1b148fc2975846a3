"""Discrete Gaussian noise on a fine lattice, by rejection from a table of cells.

OpenDP's sampler is exact and takes 8 to 12 us per number; a step of DP-SGD needs one number per
weight. This sampler takes about 0.2 us. Its table is exact to 2^-256. Acceptance probabilities are
computed in floating point, and the price includes their error: [B13] in bounds.md.

    cell      with probability proportional to exp(-c^2 / 2 sigma^2), c its edge nearest 0
    offset    uniform in the cell, which has 2^bits lattice points, including its lower edge
    accept    x = lower edge + offset with probability exp(-(x^2 - c^2) / 2 sigma^2)
"""

from __future__ import annotations

import math
import secrets
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

LEAST_SIGMA, MOST_SIGMA = 2.0**20, 2.0**57
"""Range of sigma in lattice steps: cells are powers of two, and noise stays below 2^62."""

PRECISION = 256
"""Bits of a cell's probability."""

REACH = 20
"""Covered standard deviations; the mass beyond is below 2^-286."""

RandomBytes = Callable[[int], bytes]

_HIGH = 64
_GUARD = 64
_TOGETHER = 1 << 15
"""Numbers drawn at once, to bound memory."""


@dataclass(frozen=True, eq=False)
class GaussianTable:
    """Cells from -REACH to REACH standard deviations, symmetric about 0.

    Attributes:
        bits: A cell has 2^bits lattice points.
        edges: Increasing from 0 to 2^PRECISION; their differences, divided by 2^PRECISION, are the
            probabilities.
        high: Upper 64 bits of the inner edges, shape (cells - 1,).
        steepness: 1 / (2 sigma^2), rounded to nearest.
    """

    bits: int
    edges: tuple[int, ...]
    high: NDArray[np.uint64]
    steepness: float


@lru_cache(maxsize=16)
def table(sigma: float) -> GaussianTable:
    """The table for a standard deviation in lattice steps. Building it takes tenths of a second.

    Raises:
        ValueError: sigma outside [LEAST_SIGMA, MOST_SIGMA].
    """
    if not LEAST_SIGMA <= sigma <= MOST_SIGMA:
        raise ValueError(f"sigma={sigma!r} must be within [2^20, 2^57] lattice steps")
    return _build(sigma)


def _build(sigma: float) -> GaussianTable:
    bits = math.frexp(sigma)[1] - 7  # floor(log2 sigma) - 6: 64 to 128 cells per deviation
    exact = Fraction(sigma)
    steepness = 1 / (2 * exact**2)
    cells = math.ceil(REACH * exact / 2**bits)
    # A separate context: correctly rounded, whatever other code has set for the process.
    context = Context(prec=120, rounding=ROUND_HALF_EVEN, Emin=-999999, Emax=999999, traps=[])
    unit = Decimal(2 ** (PRECISION + _GUARD))
    weights = []
    for i in range(cells):
        exponent = steepness * (i << bits) ** 2
        power = context.divide(Decimal(-exponent.numerator), Decimal(exponent.denominator))
        # Integers of PRECISION + _GUARD bits: their sums are exact.
        weights.append(int(context.multiply(context.exp(power), unit)))
    sums = list(accumulate([*reversed(weights), *weights], initial=0))
    edges = tuple((part << PRECISION) // sums[-1] for part in sums)
    high = np.array([edge >> (PRECISION - _HIGH) for edge in edges[1:-1]], np.uint64)
    # The table is cached and shared by threads.
    high.flags.writeable = False
    return GaussianTable(bits, edges, high, float(steepness))


def sample(
    table: GaussianTable, count: int, random_bytes: RandomBytes = secrets.token_bytes
) -> NDArray[np.int64]:
    """Independent discrete Gaussian numbers, shape (count,), with the error of [B13].

    Args:
        table: Table of the standard deviation.
        count: How many numbers.
        random_bytes: Source of uniform bytes: the operating system, except in tests.
    """
    numbers = np.empty(count, np.int64)
    done = 0
    while done < count:
        # Attempts are independent and identically distributed, so accepted ones are, too.
        accepted = _attempts(table, min(_TOGETHER, count - done), random_bytes)
        numbers[done : done + len(accepted)] = accepted
        done += len(accepted)
    return numbers


def acceptance(table: GaussianTable, x: NDArray[np.int64]) -> NDArray[np.float64]:
    """Probability to accept each x: in [.73, 1], with relative error below 2^-50 [B13]."""
    cell = x >> table.bits
    near = (cell + (cell < 0)) << table.bits
    distance = np.abs(x - near).astype(np.float64)  # at most 2^51: exact
    exponent = distance * np.abs(x + near).astype(np.float64) * table.steepness
    probability: NDArray[np.float64] = np.exp(-exponent)
    return probability


def _attempts(table: GaussianTable, count: int, random_bytes: RandomBytes) -> NDArray[np.int64]:
    """The accepted numbers among ``count`` attempts, shape (accepted,)."""
    words = np.frombuffer(random_bytes(24 * count), "<u8").astype(np.uint64, copy=False)
    high, offset, uniform = words.reshape(3, count)
    cell = np.searchsorted(table.high, high, side="right")  # inner edges not above
    # Equal upper bits: the lower bits decide. (For cell 0 the index wraps to the last edge.)
    for place in np.flatnonzero(table.high[cell - 1] == high):
        low = int.from_bytes(random_bytes((PRECISION - _HIGH) // 8), "little")
        number = (int(high[place]) << (PRECISION - _HIGH)) | low
        cell[place] = bisect_right(table.edges, number, 1, len(table.edges) - 1) - 1
    signed = cell.astype(np.int64, copy=False) - (len(table.edges) - 1) // 2
    x = (signed << table.bits) + (offset >> np.uint64(64 - table.bits)).astype(np.int64)
    # 53 random bits against a multiple of 2^-53: the comparison adds no error [B13].
    return x[(uniform >> np.uint64(11)).astype(np.float64) * 2.0**-53 < acceptance(table, x)]
