"""Discrete Gaussian noise on a fine lattice, by rejection from a table of cells.

OpenDP's sampler is exact and takes 8 to 12 us a number; a step of DP-SGD needs one for every
weight. This one takes some 0.2 us. Its table is exact to 2^-256, the chance to accept a number is
computed in floating point, and what that changes is in the price: [B13] in bounds.md.

    cell      with probability in proportion to exp(-c^2 / 2 sigma^2), c its edge nearest 0
    offset    uniform in the cell, which holds 2^bits lattice points, its lower edge among them
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
"""Lattice steps: cells of whole powers of two, and noise that stays below 2^62."""

PRECISION = 256
"""Bits of a cell's probability."""

REACH = 20
"""Standard deviations covered; beyond lies less than 2^-286."""

RandomBytes = Callable[[int], bytes]

_HIGH = 64
_GUARD = 64
_TOGETHER = 1 << 15
"""Numbers drawn at once: what lies in memory at a time."""


@dataclass(frozen=True, eq=False)
class GaussianTable:
    """Cells from -REACH to REACH standard deviations, as many below 0 as above.

    Attributes:
        bits: A cell holds 2^bits lattice points.
        edges: Rising from 0 to 2^PRECISION; their differences over that are the probabilities.
        high: Upper 64 bits of the inner edges.
        steepness: 1 / (2 sigma^2), rounded to nearest.
    """

    bits: int
    edges: tuple[int, ...]
    high: NDArray[np.uint64]
    steepness: float


@lru_cache(maxsize=16)
def table(sigma: float) -> GaussianTable:
    """The table of a standard deviation in lattice steps. It takes tenths of a second, once.

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
    # A context of its own: correctly rounded, whatever the process has set.
    context = Context(prec=120, rounding=ROUND_HALF_EVEN, Emin=-999999, Emax=999999, traps=[])
    unit = Decimal(2 ** (PRECISION + _GUARD))
    weights = []
    for i in range(cells):
        exponent = steepness * (i << bits) ** 2
        power = context.divide(Decimal(-exponent.numerator), Decimal(exponent.denominator))
        weights.append(int(context.multiply(context.exp(power), unit)))
    sums = list(accumulate([*reversed(weights), *weights], initial=0))
    edges = tuple((part << PRECISION) // sums[-1] for part in sums)
    high = np.array([edge >> (PRECISION - _HIGH) for edge in edges[1:-1]], np.uint64)
    high.flags.writeable = False
    return GaussianTable(bits, edges, high, float(steepness))


def sample(
    table: GaussianTable, count: int, random_bytes: RandomBytes = secrets.token_bytes
) -> NDArray[np.int64]:
    """Independent discrete Gaussian numbers, but for what [B13] says.

    Args:
        table: Of the standard deviation.
        count: How many.
        random_bytes: Uniform bytes; the operating system's, but in tests.
    """
    numbers = np.empty(count, np.int64)
    done = 0
    while done < count:
        # Attempts are independent and alike, and so are those of them that are accepted.
        accepted = _attempts(table, min(_TOGETHER, count - done), random_bytes)
        numbers[done : done + len(accepted)] = accepted
        done += len(accepted)
    return numbers


def acceptance(table: GaussianTable, x: NDArray[np.int64]) -> NDArray[np.float64]:
    """Probability to accept x: in [.73, 1], relative error below 2^-50 [B13]."""
    cell = x >> table.bits
    near = (cell + (cell < 0)) << table.bits
    distance = np.abs(x - near).astype(np.float64)  # at most 2^51: exact
    exponent = distance * np.abs(x + near).astype(np.float64) * table.steepness
    probability: NDArray[np.float64] = np.exp(-exponent)
    return probability


def _attempts(table: GaussianTable, count: int, random_bytes: RandomBytes) -> NDArray[np.int64]:
    """The accepted ones of some attempts."""
    words = np.frombuffer(random_bytes(24 * count), "<u8").astype(np.uint64, copy=False)
    high, offset, uniform = words.reshape(3, count)
    cell = np.searchsorted(table.high, high, side="right")  # inner edges not above
    # Equal upper bits need the lower ones. (Cell 0 looks at the last edge, which is above it.)
    for place in np.flatnonzero(table.high[cell - 1] == high):
        low = int.from_bytes(random_bytes((PRECISION - _HIGH) // 8), "little")
        number = (int(high[place]) << (PRECISION - _HIGH)) | low
        cell[place] = bisect_right(table.edges, number, 1, len(table.edges) - 1) - 1
    signed = cell.astype(np.int64, copy=False) - (len(table.edges) - 1) // 2
    x = (signed << table.bits) + (offset >> np.uint64(64 - table.bits)).astype(np.int64)
    # 53 bits against a multiple of 2^-53: the comparison adds no error.
    return x[(uniform >> np.uint64(11)).astype(np.float64) * 2.0**-53 < acceptance(table, x)]
