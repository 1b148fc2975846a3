"""The bound on epsilon from guesses of one run: it holds, and it is not idle."""

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import binom

from privsyn.evaluation.audit import Guesses

RUNS = 1500
ALPHA = 0.05
MOST = binom.isf(1e-6, RUNS, ALPHA)
"""Rejections that a test of level ALPHA passes with probability 1e-6."""


def test_without_delta_it_is_the_binomial_tail_at_the_posterior_of_randomized_response():
    found = Guesses(units=1000, named=80, right=70, prior=0.75)
    assert found.p_value() == pytest.approx(binom.sf(69, 80, 0.75))
    assert found.p_value(1.2) == pytest.approx(binom.sf(69, 80, expit(1.2 + logit(0.75))))


def test_all_right_is_the_closed_form_and_nothing_named_shows_nothing():
    found = Guesses(units=1000, named=100, right=100, prior=0.9)
    assert found.least_epsilon(0.0) == pytest.approx(
        logit(0.05 ** (1 / 100)) - logit(0.9), abs=1e-5
    )
    assert Guesses(1000, 0, 0).least_epsilon(0.0) == 0
    assert Guesses(1000, 0, 0).p_value() == 1


def test_delta_makes_it_smaller_and_never_larger():
    found = Guesses(units=1000, named=200, right=198)
    bounds = [found.least_epsilon(delta) for delta in (0.0, 1e-7, 1e-5, 1e-3)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[1] == pytest.approx(bounds[0], abs=0.02)
    assert bounds[3] < bounds[0]


@pytest.mark.parametrize(
    ("prior", "both", "delta", "spare", "stray"),
    [
        (0.75, False, 1e-5, 0, 1000 * 1e-5 * 0.75 * 0.25),
        (0.5, False, 1e-5, 0, 1000 * 1e-5 * 0.25),
        (0.5, True, 1e-5, 0, 2 * 1000 * 1e-5 * 0.25),
        (0.5, True, 1e-4, 4, 2 * 1000 * 1e-4 * 0.25),
    ],
)
def test_delta_takes_what_the_theorem_says(prior, both, delta, spare, stray):
    found = Guesses(units=1000, named=80, right=70, prior=prior, both=both)
    tail = binom.sf(69 - spare, 80, expit(1.2 + logit(prior)))
    assert found.p_value(1.2, delta, ALPHA) == pytest.approx(tail + stray / (spare + 1))


@pytest.mark.parametrize("prior", [0.5, 0.75, 0.95])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0])
def test_randomized_response_is_not_found_above_its_epsilon(prior, epsilon):
    rng = np.random.default_rng(5)
    units, found = 200, []
    for _ in range(RUNS):
        inside = rng.random(units) < prior
        told = inside ^ (rng.random(units) < expit(-epsilon))
        guesses = Guesses(units, int(told.sum()), int(inside[told].sum()), prior)
        found.append(guesses.p_value(epsilon) <= ALPHA)
    assert sum(found) <= MOST


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_where_all_guesses_hang_on_one_draw_it_holds_too(epsilon):
    """Exponential mechanism over two outputs: one names the first half, one the second."""
    rng = np.random.default_rng(6)
    units, found = 60, []
    half = np.arange(units) < units // 2
    for _ in range(RUNS):
        inside = rng.random(units) < 0.5
        score = inside[half].sum() - inside[~half].sum()
        told = half if rng.random() < expit(epsilon * score) else ~half
        guesses = Guesses(units, units // 2, int(inside[told].sum()))
        found.append(guesses.p_value(epsilon) <= ALPHA)
    assert sum(found) <= MOST


def ruined(delta, units, rng):
    """Each unit is told outright with probability delta: (0, delta)-DP."""
    inside = rng.random(units) < 0.5
    told = inside & (rng.random(units) < delta)
    return Guesses(units, int(told.sum()), int(told.sum()))


def test_what_delta_allows_is_not_held_against_epsilon():
    rng = np.random.default_rng(7)
    runs = [ruined(0.02, 400, rng) for _ in range(300)]
    assert sum(run.p_value(0.0, 0.02, ALPHA) <= ALPHA for run in runs) <= 15
    blind = sum(run.p_value(0.0, 0.0, ALPHA) <= ALPHA for run in runs)
    assert blind > 100  # a bound that forgets delta is wrong here


def test_the_bound_comes_near_a_leak():
    rng = np.random.default_rng(8)
    inside = rng.random(4000) < 0.5
    told = inside ^ (rng.random(4000) < expit(-3.0))
    named, right = int(told.sum()), int(inside[told].sum())
    least = Guesses(4000, named, right).least_epsilon(1e-9, alpha=1e-6)
    assert 2.4 < least < 3.0  # with probability 1e-6 above


@pytest.mark.parametrize(
    "wrong",
    [
        {"units": 3, "named": 4, "right": 4},
        {"units": 3, "named": 2, "right": 3},
        {"units": 3, "named": 2, "right": 1, "prior": 1.0},
        {"units": 3, "named": 2, "right": 1, "prior": 0.9, "both": True},
    ],
)
def test_impossible_counts_are_refused(wrong):
    with pytest.raises(ValueError, match=r"named of|prior="):
        Guesses(**wrong)
