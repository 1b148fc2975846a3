"""Token selection: the distribution drawn is softmax, and softmax costs what is charged.

Every check comes with the mistake it must catch: permute-and-flip noise, a monotonic distance.
"""

import math
from itertools import permutations, product

import numpy as np
import pytest
from opendp.combinators import make_composition
from scipy.stats import chisquare

from privsyn.dp import noise
from privsyn.dp.clipping import LATTICE
from privsyn.dp.mechanisms import ExponentialMechanism
from privsyn.dp.noise import OpenDPNoise
from tests.noise import SeededNoise

SCORES = np.array([3, 2, 2, 1, 0], np.int64) * LATTICE
SCALE = 1.3 * LATTICE
CANNOT_BE_CHANCE = 1e-9
"""Of chi-square, on 130 expected counts a candidate at least: what an honest sampler fails with.
The wrong laws below are taken for right ones with probability 1e-26 at most (noncentral chi-square
with n sum (p - q)^2 / q)."""
ORDERS = (1.01, 1.5, 2.0, 4.0, 16.0, 64.0)


def softmax(scores, scale):
    weights = np.exp((scores - scores.max()) / scale)
    return weights / weights.sum()


def permute_and_flip(scores, scale):
    """Exact distribution of McKenna and Sheldon 2020, over all orders of the candidates."""
    accept = np.exp((scores - scores.max()) / scale)
    chances = np.zeros(len(scores))
    orders = list(permutations(range(len(scores))))
    for order in orders:
        reached = 1.0 / len(orders)
        for index in order:
            chances[index] += reached * accept[index]
            reached *= 1 - accept[index]
    return chances


def counts_of(source, draws):
    mechanism = ExponentialMechanism(LATTICE, SCALE)
    drawn = [mechanism.draw(SCORES, source) for _ in range(draws)]
    return np.bincount(drawn, minlength=len(SCORES))


def fit(counts, chances):
    return float(chisquare(counts, chances * counts.sum()).pvalue)


def counts_of_many(draws, together=1000):
    """Draws of the very measurement ``noisy_max`` calls, composed: a fourth of the time a draw."""
    measurement = noise._noisy_max(SCALE, LATTICE)
    composed = make_composition([measurement] * together)
    drawn = [composed(SCORES) for _ in range(draws // together)]
    return np.bincount(np.concatenate(drawn), minlength=len(SCORES))


@pytest.mark.slow
def test_draws_are_softmax_and_not_permute_and_flip():
    counts = counts_of(OpenDPNoise(), 10_000) + counts_of_many(50_000)
    assert counts.sum() == 60_000
    assert fit(counts, softmax(SCORES, SCALE)) > CANNOT_BE_CHANCE
    assert fit(counts, permute_and_flip(SCORES, SCALE)) < CANNOT_BE_CHANCE


def test_few_draws_already_tell_a_wrong_temperature():
    counts = counts_of(OpenDPNoise(), 3_000)
    assert fit(counts, softmax(SCORES, SCALE)) > CANNOT_BE_CHANCE
    for wrong in (SCALE / 2, SCALE * 2):
        assert fit(counts, softmax(SCORES, wrong)) < CANNOT_BE_CHANCE


def test_the_seeded_twin_has_the_same_distribution():
    counts = counts_of(SeededNoise(11), 50_000)
    assert fit(counts, softmax(SCORES, SCALE)) > 1e-4  # seeded: always or never
    assert fit(counts, permute_and_flip(SCORES, SCALE)) < CANNOT_BE_CHANCE


def renyi(p, q, order):
    return math.log(float(np.sum(p * (p / q) ** (order - 1)))) / (order - 1)


def worst_excess(scale, rho, chances=softmax):
    """Largest divergence over a rho, on every neighbor of a small set of score vectors."""
    worst = 0.0
    for base in product((0, 1, 3), repeat=3):
        p = chances(np.array(base) * LATTICE, scale)
        for shift in product((-1, 0, 1), repeat=3):
            q = chances((np.array(base) + np.array(shift)) * LATTICE, scale)
            worst = max(worst, *(renyi(p, q, order) / (order * rho) for order in ORDERS))
    return worst


def rho_of(scale):
    return ExponentialMechanism(LATTICE, scale).event.range ** 2 / 8


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0, 8.0])
def test_softmax_costs_what_is_charged(temperature):
    scale = temperature * LATTICE
    charged = rho_of(scale)
    assert worst_excess(scale, charged) <= 1 + 1e-9


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0, 8.0])
def test_the_log_ratios_of_softmax_lie_in_the_range_that_is_charged(temperature):
    scale = temperature * LATTICE
    widest = 0.0
    for base in product((0, 1, 3), repeat=3):
        p = softmax(np.array(base) * LATTICE, scale)
        for shift in product((-1, 0, 1), repeat=3):
            q = softmax((np.array(base) + np.array(shift)) * LATTICE, scale)
            ratios = np.log(p) - np.log(q)
            assert ratios.min() <= 1e-12
            assert ratios.max() >= -1e-12
            widest = max(widest, float(np.ptp(ratios)))
    charged = ExponentialMechanism(LATTICE, scale).event.range
    assert charged * (1 - 1e-9) <= widest <= charged * (1 + 1e-9)  # reached, and never passed
