"""The loss distribution bounds epsilon from above, closely, and a grid that does not is caught."""

import dataclasses
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ndtr

from privsyn.dp import loss_distribution
from privsyn.dp.conversions import gaussian_deltas, gaussian_epsilon
from privsyn.dp.events import Composed, Gaussian, Pure, SampledGaussian
from privsyn.dp.filters import covering_mu_squared, gaussian_mu_squared
from privsyn.dp.loss_distribution import (
    covering_mu,
    sampled_gaussian_epsilon,
    sampled_gaussian_profile,
)

GOLDEN = json.loads((Path(__file__).parents[2] / "golden/dp_accounting.json").read_text())
CLOSE = 1.002
"""Largest ratio to the truth at the settings tried: the grid's own looseness."""
ANYWHERE = 1.01
"""The same for any one step: where epsilon is far below Chernoff's bound, as with rare samples at a
delta of 1e-9, the bound on the FFT's error is felt."""


def one_step(rate, noise, removed):
    """Exact hockey-stick divergence of one step at any real epsilon, vectorised."""

    def threshold(losses):  # x where log(1 - q + q exp((2x-1)/2s^2)) = loss
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = np.log((np.exp(losses) - (1 - rate)) / rate)
        return np.where(np.isnan(inner), -np.inf, noise**2 * inner + 0.5)

    def delta(epsilon):
        epsilon = np.asarray(epsilon, float)
        if removed:
            x = threshold(epsilon)
            mixed = (1 - rate) * ndtr(-x / noise) + rate * ndtr((1 - x) / noise)
            return mixed - np.exp(epsilon) * ndtr(-x / noise)
        x = threshold(-epsilon)
        mixed = (1 - rate) * ndtr(x / noise) + rate * ndtr((x - 1) / noise)
        return ndtr(x / noise) - np.exp(epsilon) * mixed

    return delta


def curve(rate, noise, steps, removed):
    """Exact delta of one or two steps: the second by integrating over the first's outcome."""
    step = one_step(rate, noise, removed)
    if steps == 1:
        return step
    x = np.linspace(-14 * noise, 1 + 14 * noise, 200_001)
    plain = np.exp(-((x / noise) ** 2) / 2) / (noise * math.sqrt(2 * math.pi))
    moved = np.exp(-(((x - 1) / noise) ** 2) / 2) / (noise * math.sqrt(2 * math.pi))
    mixed = (1 - rate) * plain + rate * moved
    weights = (mixed if removed else plain) * (x[1] - x[0])
    with np.errstate(divide="ignore"):
        losses = np.log(1 - rate + rate * np.exp((2 * x - 1) / (2 * noise**2)))
    losses = losses if removed else -losses
    return lambda epsilon: float(weights @ step(epsilon - losses))


def exact(rate, noise, steps, delta):
    """Exact epsilon of one or two steps."""
    found = []
    for removed in (True, False):
        total = curve(rate, noise, steps, removed)
        if total(0.0) <= delta:
            found.append(0.0)
        else:
            found.append(brentq(lambda e, f=total: float(f(e)) - delta, 0, 600, xtol=1e-12))
    return max(found)


RATES = st.floats(1e-4, 1.0)
NOISES = st.floats(0.3, 20.0)


@settings(max_examples=60, deadline=None)
@given(RATES, NOISES, st.sampled_from([1e-9, 1e-6, 1e-3]))
@example(1e-4, 0.3, 1e-6)
@example(1.0, 0.3, 1e-6)
@example(0.999, 0.5, 1e-9)
@example(0.00390625, 1.0, 1e-3)  # Chernoff's epsilon is far above: the FFT's error was blown up
@example(0.000169, 0.729, 1e-9)
@example(0.00172, 0.5, 1e-3)  # epsilon is a few grid steps
@example(0.00010551115579531926, 0.5, 1e-6)
def test_one_step_is_bounded_from_above_and_closely(rate, noise, delta):
    truth = exact(rate, noise, 1, delta)
    bound = sampled_gaussian_epsilon(((rate, noise, 1),), delta)
    assert truth <= bound <= truth * ANYWHERE + 1e-6


@pytest.mark.parametrize(("rate", "noise"), [(0.1, 0.6), (0.01, 0.5), (0.5, 2.0), (0.9, 1.0)])
@pytest.mark.parametrize("delta", [1e-8, 1e-5])
def test_two_steps_are_bounded_from_above_and_closely(rate, noise, delta):
    truth = exact(rate, noise, 2, delta)
    bound = sampled_gaussian_epsilon(((rate, noise, 2),), delta)
    assert truth * (1 - 1e-7) <= bound <= truth * CLOSE + 2e-4
    twice = sampled_gaussian_epsilon(((rate, noise, 1), (rate, noise, 1)), delta)
    assert twice == pytest.approx(bound, rel=1e-3)


@pytest.mark.parametrize("row", GOLDEN["sampled_gaussian"], ids=str)
def test_between_the_bounds_of_dp_accounting(row):
    """Its pessimistic estimate rounds otherwise; both lie above its optimistic one."""
    part = (row["rate"], row["noise_multiplier"], row["steps"])
    bound = sampled_gaussian_epsilon((part,), row["delta"])
    assert row["pld_low"] <= bound <= row["pld_high"] * CLOSE


def test_the_figures_of_the_papers():
    rate = 2048 / 182034
    assert 1.828 <= sampled_gaussian_epsilon(((0.01, 1.0, 1000),), 1e-5) <= 1.90
    assert 2.12 <= sampled_gaussian_epsilon(((rate, 1.1, 889),), 1e-7) <= 2.17
    assert 1.88 <= sampled_gaussian_epsilon(((rate, 1.1, 889),), 1e-6) <= 1.93


@pytest.mark.parametrize(("noise", "steps"), [(10.0, 10), (0.5, 3), (40.0, 1000)])
def test_without_sampling_it_is_the_gaussian_curve(noise, steps):
    truth = gaussian_epsilon(math.sqrt(steps) / noise, 1e-6)
    bound = sampled_gaussian_epsilon(((1.0, noise, steps),), 1e-6)
    assert truth * (1 - 1e-6) <= bound <= truth * CLOSE + 1e-4


@pytest.mark.parametrize("part", [(0.1, 0.6, 1), (0.9, 1.0, 1), (0.1, 0.6, 2), (0.5, 2.0, 2)])
def test_cut_tails_are_charged(monkeypatch, part):
    """With nine tenths of delta in the tails a bound that forgets them is below the truth."""
    truth = exact(*part, 1e-5)
    monkeypatch.setattr(loss_distribution, "_TAIL", 0.9)
    assert sampled_gaussian_epsilon.__wrapped__((part,), 1e-5) >= truth * (1 - 1e-7)
    discrete = loss_distribution._discrete
    monkeypatch.setattr(
        loss_distribution,
        "_discrete",
        lambda *args, **kwargs: dataclasses.replace(discrete(*args, **kwargs), infinite=0.0),
    )
    assert sampled_gaussian_epsilon.__wrapped__((part,), 1e-5) < truth


def test_what_the_sampler_adds_is_set_aside(monkeypatch):
    """Half of delta set aside is epsilon at half of delta."""
    part = (0.1, 0.6, 2)
    half = sampled_gaussian_epsilon.__wrapped__((part,), 5e-6)
    monkeypatch.setattr(loss_distribution, "_ASIDE", 0.5)
    assert sampled_gaussian_epsilon.__wrapped__((part,), 1e-5) == pytest.approx(half, rel=1e-6)


@pytest.mark.parametrize(
    "part",
    [
        (1e-6, 1.0, 10**6),
        (0.01, 0.05, 1),
        (0.01, 0.01, 1),
        (0.5, 1e-3, 3),
        (1.0, 1e-9, 1),
        (0.5, 100.0, 10**5),
        (1e-3, 0.6, 10**5),
    ],
)
def test_extremes_stay_finite_or_say_so(part):
    bound = sampled_gaussian_epsilon((part,), 1e-6)
    assert bound >= 0


def test_every_pure_step_is_charged():
    found = [sampled_gaussian_epsilon(((0.1, 0.8, 20),), 1e-5, (0.5,) * n) for n in range(4)]
    assert all(after > before + 0.2 for before, after in itertools.pairwise(found))


def test_the_sampler_of_each_part_is_charged(monkeypatch):
    parts, epsilons, points = ((0.1, 0.8, 2), (0.05, 1.0, 3)), [], []
    for slack in (0.0, 0.125):
        monkeypatch.setattr(loss_distribution, "LATTICE_SLACK", slack)
        epsilons.append(sampled_gaussian_epsilon.__wrapped__(parts, 1e-5))
        points.append(sampled_gaussian_profile.__wrapped__(parts))
    assert epsilons[1] == pytest.approx(epsilons[0] + 2 * 0.125)
    # What both samplers may add is charged: a delta is that of an epsilon .25 below.
    half = len(points[0]) // 2  # a curve close to the truth near one delta, and one near another
    for first in (0, half):
        at, bare = np.array(points[0][first : first + half]).T
        _, charged = np.array(points[1][first : first + half]).T
        above = at > 2 * 0.125
        place = np.searchsorted(at, at[above] - 2 * 0.125, side="right")
        assert np.all(charged[above] <= bare[place - 1] * (1 + 1e-9))
        assert np.all(charged[above] >= bare[place] * (1 - 1e-9))


@pytest.mark.parametrize(
    "part", [(0.1, 0.6, 1), (0.01, 0.5, 1), (0.1, 0.8, 2), (0.5, 2.0, 2), (0.9, 1.0, 2)]
)
@pytest.mark.parametrize("failure", [1e-4, 1e-9])
def test_covering_mu_covers_both_directions_and_is_the_least(part, failure):
    """Against the exact curve of one step in closed form, of two by an integral."""
    mu = covering_mu((part,), failure)
    at = np.linspace(0, 25, 151)
    both = [curve(*part, removed) for removed in (True, False)]
    truth = np.array([max(float(one(epsilon)) for one in both) for epsilon in at])
    allowed = [failure + (1 - failure) * gaussian_deltas(m, at) for m in (mu, 0.99 * mu)]
    assert np.all(truth <= allowed[0] * (1 + 1e-9))
    assert np.any(truth > allowed[1])


@pytest.mark.parametrize(("failure", "ratio"), [(1e-8, 1.012), (1e-9, 1.028), (1e-10, 1.043)])
def test_golden_covers(failure, ratio):
    """Golden: from pessimistic loss distributions of dp-accounting 0.6.0 at interval 1e-4."""
    noise = 2.711173743307408  # 30 steps at rate .1 are of epsilon 1
    alike = brentq(lambda mu: gaussian_epsilon(mu, 1e-6) - 1, 0.1, 1)
    cover = covering_mu(((0.1, noise, 30),), failure)
    assert cover / alike == pytest.approx(ratio, abs=1.5e-3)


def test_what_no_gaussian_covers_is_said_to_be_infinite():
    assert covering_mu(((0.1, 0.3, 30),), 1e-9) == math.inf  # epsilon above 48
    assert covering_mu(((0.1, 3.0, 30),), 0.0) == math.inf
    assert covering_mu(((0.1, 3.0, 30),), 1e-40) == math.inf  # below what the table's noise owes
    assert covering_mu(((0.5, 1e-3, 3),), 1e-9) == math.inf


def test_the_charge_of_a_training_with_other_steps_is_of_all_of_them():
    trained = SampledGaussian(0.1, 2.7, 30)
    alone = covering_mu_squared(trained, 1e-9)
    assert alone == covering_mu(((0.1, 2.7, 30),), 1e-9) ** 2
    assert covering_mu_squared(Composed((trained, Gaussian(5.0))), 1e-9) > 0.9 * alone + 1 / 25
    both = covering_mu_squared(Composed((Pure(0.5), trained)), 1e-9)
    assert both == pytest.approx(alone + gaussian_mu_squared(Pure(0.5)))
    assert covering_mu_squared(Composed((trained, trained)), 1e-9) < 2 * alone


def test_the_sampler_of_a_training_is_in_its_charge(monkeypatch):
    part, halves = (0.1, 2.7, 30), ((0.1, 2.7, 15),) * 2
    bare = covering_mu.__wrapped__((part,), 1e-9)
    monkeypatch.setattr(loss_distribution, "LATTICE_SLACK", 0.01)
    once = covering_mu.__wrapped__((part,), 1e-9)
    assert once > bare * 1.005
    assert covering_mu.__wrapped__(halves, 1e-9) > once * 1.005
    monkeypatch.setattr(loss_distribution, "LATTICE_SLACK", 2.0**-22)
    monkeypatch.setattr(loss_distribution, "_ASIDE", 0.1)
    assert covering_mu.__wrapped__((part,), 1e-9) > bare * 1.0005


def test_a_grid_too_wide_for_its_losses_is_priced_without_a_warning():
    """As an account's room asks for of noise that is almost nothing."""
    with np.errstate(all="raise", under="ignore"):
        assert sampled_gaussian_epsilon(((1 - 1e-12, 0.05, 10**6),), 1e-6) > 2e8
