"""Exact adaptive composition: never below an adversary, close to the truth, as published."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.dp import accountant, bounded_range, conversions
from privsyn.dp.accountant import epsilon_at
from privsyn.dp.adjacency import Guarantee
from privsyn.dp.bounded_range import Draw
from privsyn.dp.calibration import calibrate_range, calibrate_rho
from privsyn.dp.events import (
    BoundedRange,
    Composed,
    Disjoint,
    Gaussian,
    Pure,
    Rounds,
    SampledGaussian,
)

DELTA = 1e-6


def by_rho(epsilon, count):
    """The range of a draw of which zCDP certifies ``count`` at this epsilon."""
    return math.sqrt(8 * calibrate_rho(Guarantee(epsilon, DELTA)) / count)


def strategy_delta(epsilon, eta, count, choices):
    """Delta of the best adversary who picks t among multiples of eta / choices, exactly.

    Losses then stay on a lattice, so nothing is interpolated: it is never above the truth.
    """
    step, reach = eta / choices, count * choices
    value = np.maximum(0.0, -np.expm1(epsilon + step * np.arange(-reach, reach + 1)))
    for _ in range(count):
        ts = step * np.arange(choices + 1)
        p = np.expm1(ts - eta) / math.expm1(-eta)
        inner = len(value) - 2 * choices
        value = np.max(
            [
                p[i] * value[choices - i :][:inner] + (1 - p[i]) * value[2 * choices - i :][:inner]
                for i in range(choices + 1)
            ],
            axis=0,
        )
    return float(value[0])


def test_private_prediction_of_the_paper():
    """r=100, c=10, s=255, tau=2, sigma=.2: 2.0963 by zCDP."""
    rounds = Rounds((Pure(2 / (255 * 0.2)), BoundedRange(2 * 10 / (255 * 2))), 100)
    assert 1.92 < epsilon_at(Disjoint((rounds,), cells=8), DELTA) <= 1.932
    assert epsilon_at(BoundedRange(2 * 10 / (255 * 2), 100), DELTA) <= 0.8170


@given(
    eta=st.floats(0.05, 3.0),
    count=st.integers(1, 12),
    epsilon=st.floats(0.0, 6.0),
    choices=st.integers(1, 12),
)
@settings(deadline=None, max_examples=60)
def test_no_strategy_beats_the_bound(eta, count, epsilon, choices):
    """Strategies enumerated on their lattice: a lower bound that the curve must not cross."""
    truth = strategy_delta(epsilon, eta, count, choices)
    if truth > 1e-290:
        assert epsilon_at(BoundedRange(eta, count), truth * (1 - 1e-9)) >= epsilon * (1 - 1e-9)


@pytest.mark.parametrize(("eta", "count"), [(0.5065, 48), (0.1104, 16), (1.5, 30)])
def test_the_bound_is_close_to_an_adversary(eta, count):
    """From below and from above: the bracket is a thousandth of epsilon wide."""
    found = epsilon_at(BoundedRange(eta, count), DELTA)
    assert strategy_delta(found * 0.999, eta, count, 40) > DELTA


@pytest.mark.parametrize("eta", [0.2, 1.0, 4.0])
def test_one_draw_is_exact(eta):
    """One draw: the best t is known in closed form, t = (eta + epsilon) / 2 where it is inside."""
    curve = bounded_range.curve((((Draw(eta),), 1),), eta, 0.0, 400)
    for epsilon in np.linspace(0, eta * 0.95, 7).tolist():
        ts = np.linspace(0, eta, 20001)
        p = np.expm1(ts - eta) / np.expm1(-eta)
        truth = np.max(
            p * np.maximum(0, -np.expm1(epsilon - ts))
            + (1 - p) * np.maximum(0, -np.expm1(epsilon - ts + eta))
        )
        found = curve.epsilon(float(truth))
        assert epsilon * (1 - 1e-9) <= found <= epsilon + 0.003 * eta


def test_pure_steps_are_randomized_response_composed():
    """Kairouz, Oh, Viswanath 2015: the optimal composition of pure steps, summed exactly."""
    loss, count, epsilon = 0.1, 20, 0.6
    p = 1 / (1 + math.exp(-loss))
    truth = sum(
        math.comb(count, k)
        * p ** (count - k)
        * (1 - p) ** k
        * max(0.0, -math.expm1(epsilon - (count - 2 * k) * loss))
        for k in range(count + 1)
    )
    found = epsilon_at(Composed((Pure(loss),) * count), truth)
    assert epsilon * (1 - 1e-12) <= found <= epsilon * 1.002


def test_pure_and_gaussian_against_quadrature():
    loss, mu, epsilon = 0.8, 0.5, 2.0
    p = 1 / (1 + math.exp(-loss))
    truth = p * conversions.gaussian_delta(mu, epsilon - loss)
    truth += (1 - p) * conversions.gaussian_delta(mu, epsilon + loss)
    event = Composed((Pure(loss), Disjoint((Gaussian(1 / mu),), cells=5)))
    assert epsilon * (1 - 1e-9) <= epsilon_at(event, truth) <= epsilon * 1.002
    assert epsilon_at(event, truth) < 0.97 * accountant.renyi_epsilon(event, truth)


@pytest.mark.parametrize("multiplier", [1e-2, 1.0, 1e3, 1e9, 1e15])
def test_noise_of_any_size_is_priced_beside_a_pure_step(multiplier):
    """Nearly no Gaussian loss leaves the pure one; a large one leaves the Gaussian."""
    pure, noise = Pure(6.5), Gaussian(multiplier)
    both = epsilon_at(Composed((pure, noise)), DELTA)
    assert both >= max(epsilon_at(pure, DELTA), epsilon_at(noise, DELTA)) * (1 - 1e-9)
    assert both <= (6.5 + epsilon_at(noise, DELTA)) * (1 + 1e-3)


def test_pure_and_sampled_gaussian_lie_between_their_parts():
    sampled = SampledGaussian(rate=0.1, noise_multiplier=1.0, steps=30)
    alone, both = epsilon_at(sampled, 1e-6), epsilon_at(Composed((sampled, Pure(0.5))), 1e-6)
    assert alone < both < alone + 0.5
    assert both < accountant.renyi_epsilon(Composed((sampled, Pure(0.5))), 1e-6)
    swapped = epsilon_at(Composed((Pure(0.5), sampled)), 1e-6)
    assert swapped == pytest.approx(both, rel=1e-9)
    second = epsilon_at(Composed((sampled, Pure(0.5), Pure(0.7))), 1e-6)
    assert both + 0.1 < second < both + 0.7


@given(
    eta=st.floats(0.01, 1.5),
    count=st.integers(1, 24),
    pure=st.floats(0.0, 1.0),
    delta=st.sampled_from([1e-9, 1e-6, 1e-3, 0.2]),
)
@settings(deadline=None, max_examples=40)
def test_more_costs_more_and_never_more_than_the_parts(eta, count, pure, delta):
    event = BoundedRange(eta, count)
    less = epsilon_at(event, delta)
    assert less <= epsilon_at(BoundedRange(eta * 1.3, count), delta) * (1 + 1e-9)
    assert less <= epsilon_at(BoundedRange(eta, count + 3), delta) * (1 + 1e-9)
    assert less <= eta * count * (1 + 1e-9)
    assert less <= conversions.zcdp_epsilon(count * eta**2 / 8, delta) * (1 + 1e-9)
    mixed = epsilon_at(Composed((Pure(pure), event)), delta)
    assert less * (1 - 2e-3) <= mixed <= (less + pure) * (1 + 1e-3)  # chords of the grid


def test_the_order_of_a_mixture_is_that_of_the_event():
    """A draw after Gaussian noise has no proof in [B15]: it falls back to the Renyi curve."""
    draw, noise = BoundedRange(0.3, 4), Gaussian(3.0)
    assert accountant.composed_epsilon(Composed((draw, noise)), DELTA) < math.inf
    assert math.isinf(accountant.composed_epsilon(Composed((noise, draw)), DELTA))
    assert accountant.composed_epsilon(Rounds((draw, noise), 1), DELTA) < math.inf
    assert math.isinf(accountant.composed_epsilon(Rounds((draw, noise), 2), DELTA))
    different = Disjoint((BoundedRange(1.0, 1), BoundedRange(0.1, 100)), cells=2)
    assert math.isinf(accountant.composed_epsilon(different, DELTA))
    assert epsilon_at(different, DELTA) < math.inf


@pytest.mark.parametrize(
    "event",
    [
        BoundedRange(1e-9, 10**6),
        BoundedRange(50.0, 3),
        BoundedRange(500.0, 2),
        BoundedRange(0.001, 10**7),
        Rounds((Pure(1e-6), BoundedRange(1e-6)), 5000),
        Composed((Pure(70.0), Gaussian(0.01))),
        Composed((Pure(1e-9), Gaussian(1e9))),
        Rounds((Rounds((Pure(0.1),) * 40, 40),), 40),
    ],
)
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 0.5, 0.999])
def test_extremes_stay_bounded(event, delta):
    found = epsilon_at(event, delta)
    assert 0 <= found <= accountant.renyi_epsilon(event, delta) * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "count"), list(itertools.product([0.01, 1.0, 30.0], [1, 48])))
def test_calibration_uses_what_the_target_allows(epsilon, count):
    target = Guarantee(epsilon, DELTA)
    found = calibrate_range(lambda eta: BoundedRange(eta, count), target, count)
    cost = epsilon_at(BoundedRange(found, count), DELTA)
    assert epsilon * (1 - 1e-4) <= cost <= epsilon
    assert found > by_rho(epsilon, count) * 1.03


GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "bounded_range.json").read_text())


@pytest.mark.parametrize("draw", GOLDEN["draws"], ids=lambda draw: f"{draw['count']}")
def test_golden_adversaries(draw):
    """Another implementation, from below: the price is above it, and by a thousandth at most."""
    found = epsilon_at(BoundedRange(draw["range"], draw["count"]), draw["delta"])
    assert draw["epsilon"] * (1 - 1e-12) <= found <= draw["epsilon"] * 1.0015


@pytest.mark.parametrize("steps", [3.0, 98.9, 99.5, 100.0, 101.5, 5e4])
def test_a_response_wider_than_the_grid_needs_no_wider_grid(steps):
    width, value = 0.01, np.linspace(0.9, 0.1, 100)
    wide = math.ceil(steps) + 2
    padded = np.concatenate((np.ones(wide), value, np.full(wide, value[-1])))
    raised = bounded_range.before_response(value, steps * width, width)
    within = bounded_range.before_response(padded, steps * width, width)[wide:-wide]
    assert raised == pytest.approx(within, rel=1e-12)
    assert np.all(raised >= value)


def test_a_response_of_the_largest_loss_on_the_finest_grid():
    value = np.linspace(0.9, 0.1, 100)
    raised = bounded_range.before_response(value, 100.0, 1e-12)  # 1e14 cells wide
    assert raised == pytest.approx(np.ones(100))


def test_no_rounding_of_the_grid_moves_gaussian_mu():
    """At the first range the point 0 of the grid came out as its neighbor: mu was 1.5% larger."""
    first, second = (
        bounded_range.gaussian_mu((((Draw(width),), 6),)) for width in (1.2100919268348, 1.21009193)
    )
    assert first == pytest.approx(second, rel=1e-6)
