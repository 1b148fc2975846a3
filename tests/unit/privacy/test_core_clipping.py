"""Sensitivity of clipped sums on every kind of hostile row, and the variants that break it."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from privsyn.dp.clipping import LATTICE, clip_difference, clip_recenter, grid_bound, to_grid

BOUND = 0.37
PUBLIC = np.array([0.0, -2.0, 5.0, -np.inf], np.float32)
ROWS = np.array(
    [
        [0.0, -2.0, 5.0, -np.inf],
        [9.0, -9.0, 9.0, 9.0],
        [-9.0, 9.0, -9.0, 9.0],
        [np.nan, 0.1, np.nan, np.nan],
        [np.inf, np.inf, -np.inf, -np.inf],
        [np.nan] * 4,
        [3.4e38, -3.4e38, 3.4e38, 0.0],
        [1e-30, -1.9999, 5.0001, -1.0],
    ],
    np.float32,
)
Rows = NDArray[np.float32]
Sum = Callable[[Rows], NDArray[np.int64]]


def invisible_ink(rows, gain=3.0):
    return to_grid(clip_difference(rows, PUBLIC, BOUND, gain), BOUND).sum(axis=0)


def private_prediction(rows):
    return to_grid(clip_recenter(rows, BOUND), BOUND).sum(axis=0)


def gain_after_the_clip(rows):
    clipped = 3.0 * clip_difference(rows, PUBLIC, BOUND)
    return np.rint(clipped * LATTICE).astype(np.int64).sum(axis=0)


def no_second_clip(rows):
    clipped = clip_difference(rows, PUBLIC, BOUND)
    return np.ceil(np.abs(clipped) * LATTICE).astype(np.int64).sum(axis=0)


def nan_filled_from_the_batch(rows):
    filled = np.nan_to_num(rows.astype(np.float64), posinf=9.0, neginf=-9.0, nan=np.nan)
    counts = np.isfinite(filled).sum(axis=0)
    means = np.where(counts, np.nansum(filled, axis=0) / np.maximum(counts, 1), 0.0)
    return invisible_ink(np.where(np.isnan(filled), means, filled).astype(np.float32), 1.0)


def mean_over_the_batch(rows):
    clipped = clip_difference(rows, PUBLIC, BOUND)
    shared = clipped.mean(axis=0) if len(rows) else np.zeros(4)
    return to_grid(clipped - shared, 2 * BOUND).sum(axis=0) + to_grid(8 * shared, 8 * BOUND)


def worst_move(total):
    """Largest L-inf move by removing one row, and by replacing one, over subsets of ROWS."""
    rng = np.random.default_rng(5)
    removed = replaced = 0
    for _ in range(300):
        rows = ROWS[rng.integers(0, len(ROWS), size=rng.integers(1, 6))]
        place, other = rng.integers(len(rows)), ROWS[rng.integers(len(ROWS))]
        changed = rows.copy()
        changed[place] = other
        whole = total(rows)
        removed = max(removed, int(np.abs(total(np.delete(rows, place, axis=0)) - whole).max()))
        replaced = max(replaced, int(np.abs(total(changed) - whole).max()))
    return removed, replaced


@pytest.mark.parametrize("total", [invisible_ink, private_prediction])
def test_one_record_moves_a_sum_by_the_bound_and_a_swap_by_twice_it(total):
    removed, replaced = worst_move(total)
    assert removed == grid_bound(BOUND)  # reached, so the bound is not slack either
    assert replaced == 2 * grid_bound(BOUND)


@pytest.mark.parametrize(
    "total", [gain_after_the_clip, no_second_clip, nan_filled_from_the_batch, mean_over_the_batch]
)
def test_broken_variants_exceed_the_bound(total):
    removed, replaced = worst_move(total)
    assert removed > grid_bound(BOUND) or replaced > 2 * grid_bound(BOUND)


def test_an_empty_bucket_sums_to_zero():
    for total in (invisible_ink, private_prediction):
        np.testing.assert_array_equal(total(ROWS[:0]), np.zeros(4, np.int64))
