"""Histograms of votes on a lattice, each unit's votes clipped together to one L2 norm."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.dp.mechanisms import root_up

LATTICE = 1 << 20
"""Lattice steps of one vote: on whole votes the continuous noise curve would not hold [B6]."""


def sensitivity(moves: int, most: int) -> float:
    """L2 sensitivity of ``histogram``, in lattice steps: the root of ``most`` votes, or of twice.

    What a unit adds has no negative number and a norm of at most sqrt(most) votes. Replacing a unit
    changes the histogram by u - v, and |u - v|^2 <= |u|^2 + |v|^2, since the product of u and v is
    not negative: [E15] in the note of private evolution.

    Args:
        moves: Units that come or go between neighbors.
        most: Most votes of a unit.
    """
    return root_up(moves * most * LATTICE**2)


def histogram(
    votes: NDArray[np.int64], units: Sequence[Hashable], bins: int, most: int, one: int
) -> NDArray[np.int64]:
    """Votes per bin in lattice steps, shape (bins,), each unit's clipped. Not yet private.

    Guarantee: what a unit adds depends on its own votes alone, is at least 0 and has an L2 norm of
    at most ``one`` times the root of ``most`` [E15].

    Args:
        votes: The bin of each vote. Shape (votes,).
        units: The unit of each vote.
        bins: Number of bins.
        most: Most votes of a unit.
        one: Lattice steps of a whole vote.
    """
    numbers: dict[Hashable, int] = {}
    unit = np.array([numbers.setdefault(name, len(numbers)) for name in units], np.int64)
    pairs, counts = np.unique(unit * bins + votes, return_counts=True)  # bins that a unit votes in
    unit, place = np.divmod(pairs, bins)
    squared = np.zeros(len(numbers), np.int64)  # (units,)
    np.add.at(squared, unit, counts**2)
    norms, which = np.unique(squared, return_inverse=True)
    weights = np.array([clipped_weight(one, most, norm) for norm in norms.tolist()], np.int64)
    steps = np.zeros(bins, np.int64)
    np.add.at(steps, place, counts * weights[which][unit])
    return steps


def clipped_weight(one: int, most: int, squared: int) -> int:
    """The weight at which a vector of integers, of squared norm ``squared``, is within the bound.

    It is ``one`` where the norm is at most the root of ``most``.
    """
    # privacy: w^2 squared <= one^2 most; isqrt is exact and rounds down, unlike a float's root
    return one if squared <= most else math.isqrt(one * one * most // squared)
