"""The accuracy a release pays for: exact laws of neighbors, and coverage."""

import itertools
import math

import numpy as np
import pytest

from privsyn.dp.accuracy import CONFIDENCE, STEPS, NoisyAccuracy, sums
from privsyn.dp.adjacency import Adjacency
from tests.noise import NoNoise, SeededNoise

EPSILON = 0.7
UNITS = [(True,), (False,), (True, False), (True, True, False), (False, False, False)]
"""What the records of a unit may be answered."""


def neighbors(adjacency):
    """Pairs of small hold-outs; a replaced unit may also leave the hold-out or come into it."""
    for others in ([], [UNITS[0]], [UNITS[1], UNITS[2]]):
        for unit in UNITS:
            yield [*others, unit], others
            yield others, [*others, unit]
        if adjacency is Adjacency.REPLACE_ONE:
            for one, other in itertools.permutations(UNITS, 2):
                yield [*others, one], [*others, other]


def loss(mechanism, first, second):
    """Largest log ratio of the laws of the two noisy sums, exactly: attained beyond both."""
    return sum(abs(int(a) - int(b)) for a, b in zip(first, second, strict=True)) / (
        mechanism.noise.scale
    )


def worst(mechanism, statistic=sums):
    return max(
        loss(mechanism, statistic(data), statistic(other))
        for data, other in neighbors(mechanism.adjacency)
    )


@pytest.mark.parametrize("adjacency", Adjacency)
def test_no_pair_of_neighbors_loses_more_than_is_charged(adjacency):
    mechanism = NoisyAccuracy(EPSILON, adjacency)
    assert worst(mechanism) <= mechanism.event.epsilon * (1 + 1e-12)
    assert worst(mechanism) == pytest.approx(EPSILON)  # and one loses all of it
    assert EPSILON * (1 - 1e-12) <= mechanism.event.epsilon <= EPSILON


@pytest.mark.parametrize("adjacency", Adjacency)
def test_one_draw_of_two_numbers_is_all_that_is_drawn(adjacency):
    noise, mechanism = NoNoise(), NoisyAccuracy(EPSILON, adjacency)
    drawn = mechanism.draw(UNITS, noise)
    [asked] = noise.drawn
    assert (asked.draw, asked.scale) == ("laplace", mechanism.noise.scale)
    assert asked.scale >= adjacency.moves * STEPS / EPSILON
    assert drawn.tolist() == sums(UNITS).tolist()
    assert drawn.sum() == len(UNITS) * STEPS


def test_no_number_of_units_wraps():
    right, wrong = sums(itertools.repeat((True,), 3))
    assert (right, wrong) == (3 * STEPS, 0)
    assert sums([]).tolist() == [0, 0]
    assert sums([]).dtype == np.int64


@pytest.mark.parametrize(
    ("epsilon", "units", "truth", "records"),
    [(0.5, 200, 0.8, 1), (0.5, 60, 0.95, 2), (1.0, 400, 0.5, 1), (0.2, 20, 0.7, 1), (0.5, 0, 0, 1)],
)
def test_intervals_hold_the_truth_as_often_as_they_say(epsilon, units, truth, records):
    rng, noise = np.random.default_rng(5), SeededNoise(7)
    mechanism, runs, held, held_tested = NoisyAccuracy(epsilon, Adjacency.ADD_REMOVE), 120, 0, 0
    for _ in range(runs):
        answers = (rng.random((units, records)) < truth).tolist()
        tested = float(np.mean(answers)) if units else truth
        found = mechanism.read(*map(int, mechanism.draw(answers, noise)))
        assert 0 <= found.low <= found.noise_low <= found.noise_high <= found.high <= 1
        held += found.low <= truth <= found.high
        held_tested += found.noise_low <= tested <= found.noise_high
    spread = 3 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / runs)
    assert held / runs >= CONFIDENCE - spread
    assert held_tested / runs >= CONFIDENCE - spread


def test_intervals_shrink_with_epsilon_and_with_units():
    def width(epsilon, units, adjacency=Adjacency.ADD_REMOVE):
        right = units * STEPS * 4 // 5
        found = NoisyAccuracy(epsilon, adjacency).read(right, units * STEPS - right)
        assert found.value == pytest.approx(0.8)
        return found.high - found.low, found.noise_high - found.noise_low

    assert width(0.5, 200) > width(2.0, 200) > width(2.0, 800)
    assert width(0.5, 200, Adjacency.REPLACE_ONE) > width(0.5, 200)


@pytest.mark.parametrize("drawn", [(0, 0), (-5, -9), (3 * STEPS, -40 * STEPS), (-9 * STEPS, 90)])
def test_whatever_the_noise_makes_of_few_units_can_be_read(drawn):
    found = NoisyAccuracy(0.5, Adjacency.ADD_REMOVE).read(*drawn)
    assert 0 <= found.low <= found.high <= 1
    assert 0 <= found.noise_low <= found.noise_high <= 1
    assert found.value is None or 0 <= found.value <= 1
    assert (found.value is None) == (max(drawn) <= 0)
