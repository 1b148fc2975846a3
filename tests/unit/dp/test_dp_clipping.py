"""Clipping: the stated bounds hold for any float, and a row's result is its own."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privsyn.dp.clipping import (
    DEEPEST,
    LATTICE,
    ExactSum,
    clip_difference,
    clip_recenter,
    grid_bound,
    public_grid,
    to_grid,
)

bounds = st.floats(0, 2.0**20) | st.sampled_from([0.0, 1e-9, 0.1, 1 / 3, 2.0**23])
shapes = st.tuples(st.integers(0, 4), st.just(6))
any_rows = st.one_of(
    hnp.arrays(np.float32, shapes, elements=st.floats(width=32)),
    hnp.arrays(np.float64, shapes, elements=st.floats()),
)
any_row = hnp.arrays(np.float32, 6, elements=st.floats(width=32))


@given(any_rows, any_row, bounds, st.floats(1e-3, 1e6))
@settings(deadline=None, max_examples=100)
def test_differences_stay_within_the_bound(rows, public, bound, gain):
    clipped = clip_difference(rows, public, bound, gain)
    assert clipped.shape == rows.shape
    assert clipped.dtype == np.float64
    assert np.all(np.abs(clipped) <= bound)  # False for NaN


@given(any_rows, bounds)
@settings(deadline=None, max_examples=100)
def test_recentered_rows_stay_within_the_bound(rows, bound):
    clipped = clip_recenter(rows, bound)
    assert clipped.shape == rows.shape
    assert np.all(np.abs(clipped) <= bound)


@given(any_rows, bounds)
@settings(deadline=None, max_examples=100)
def test_lattice_rows_stay_within_the_lattice_bound(rows, bound):
    steps = to_grid(rows, bound)
    assert steps.dtype == np.int64
    assert np.all(np.abs(steps) <= grid_bound(bound))
    assert grid_bound(bound) <= bound * LATTICE


@given(any_rows, any_row, st.floats(1e-3, 100), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=100)
def test_a_row_depends_on_itself_alone(rows, public, bound, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    stranger = np.array([[np.nan, np.inf, -np.inf, 3e38, -3e38, 0]], rows.dtype)
    mixed = np.concatenate([stranger, rows[order], stranger])
    for clip in (lambda z: clip_difference(z, public, bound), lambda z: clip_recenter(z, bound)):
        alone, among = to_grid(clip(rows), bound), to_grid(clip(mixed), bound)
        np.testing.assert_array_equal(among[1:-1], alone[order])
        # Integer sums do not know the order of their rows.
        np.testing.assert_array_equal(among[1:-1].sum(axis=0), alone.sum(axis=0))


def test_difference_values():
    public = np.array([1.0, 1.0, 1.0, 1.0, 1.0, np.inf])
    private = np.array([[2.0, 9.0, -9.0, np.nan, -np.inf, np.inf]])
    np.testing.assert_array_equal(clip_difference(private, public, 3.0), [[1, 3, -3, 0, -3, 0]])
    np.testing.assert_array_equal(
        clip_difference(private, public, 3.0, 2.0), [[2, 3, -3, 0, -3, 0]]
    )


def test_an_equal_row_contributes_nothing():
    row = np.array([1.5, -np.inf, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(clip_difference(row[None], row, 2.0), np.zeros((1, 4)))


def test_recentered_values():
    z = np.array([[5.0, 4.0, -30.0], [np.inf, 4.0, np.nan], [-np.inf] * 3])
    np.testing.assert_array_equal(
        clip_recenter(z, 10.0), [[10, 9, -10], [10, -10, -10], [10, 10, 10]]
    )


def test_lattice_values():
    np.testing.assert_array_equal(
        to_grid(np.array([0.0, 1.0, -0.5, 2**-25, 2**-24, np.nan, np.inf, -7.0]), 1.5),
        [0, LATTICE, -LATTICE // 2, 0, 1, 0, LATTICE * 3 // 2, -LATTICE * 3 // 2],
    )


def test_rounding_does_not_lift_a_row_above_its_bound():
    bound = (1000 + 0.75) / LATTICE
    assert np.rint(bound * LATTICE) == 1001  # rounding alone would
    assert to_grid(np.array([bound]), bound)[0] == grid_bound(bound) == 1000
    assert to_grid(np.array([-bound]), bound)[0] == -1000


@pytest.mark.parametrize("bad", [-1e-9, math.nan, math.inf, 2.0**24])
def test_a_bound_out_of_range_is_refused(bad):
    rows = np.zeros((1, 2))
    for call in (
        lambda: clip_difference(rows, rows[0], bad),
        lambda: clip_recenter(rows, bad),
        lambda: to_grid(rows, bad),
        lambda: grid_bound(bad),
    ):
        with pytest.raises(ValueError, match="bound="):
            call()


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_gain_out_of_range_is_refused(bad):
    with pytest.raises(ValueError, match="gain="):
        clip_difference(np.zeros((1, 2)), np.zeros(2), 1.0, bad)


whole = st.integers(-(2**62), 2**62 - 1) | st.sampled_from([2**62 - 1, -(2**62), 2**32, -1, 0])


@given(st.lists(st.lists(whole, max_size=9), max_size=5))
@settings(deadline=None)
def test_exact_sums_are_those_of_whole_numbers_held_once(blocks):
    total = ExactSum(1)
    for block in blocks:
        total.add(np.array(block, np.int64).reshape(-1, 1))
    exact = sum(map(sum, blocks))
    assert total.clipped().tolist() == [min(max(exact, -(2**61)), 2**61)]


@given(st.lists(whole, max_size=9), st.integers(0, 2**47))
@settings(deadline=None)
def test_one_row_moves_a_held_sum_by_no_more_than_itself(rows, row):
    def held(*last):
        total = ExactSum(1)
        total.add(np.array([*rows, *last], np.int64).reshape(-1, 1))
        return int(total.clipped()[0])

    assert 0 <= held(row) - held() <= row
    assert 0 <= held() - held(-row) <= row


@given(any_rows)
@settings(deadline=None, max_examples=100)
def test_public_scores_leave_room_for_the_private_ones(rows):
    steps = public_grid(rows)
    assert steps.dtype == np.int64
    assert np.abs(steps).max(initial=0) * 10**6 < 2**58 * 1.0
    if rows.size:
        assert (steps.max(axis=1) == DEEPEST / 2 * LATTICE).all()


def test_public_scores_keep_differences_and_put_what_is_masked_lowest():
    top = 1e4
    masked = [-np.inf, np.nan, np.finfo(np.float32).min, -1e12]
    steps = public_grid(np.array([top, top - 1.5, *masked, top - DEEPEST, top - DEEPEST + 1]))
    assert steps[0] - steps[1] == 1.5 * LATTICE
    assert len(set(steps[2:7])) == 1
    assert steps[7] - steps[6] == LATTICE
