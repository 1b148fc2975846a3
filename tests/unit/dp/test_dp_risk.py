"""What an attacker can do: bounds against the best tests there are, and against another library."""

import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from privsyn.dp.accountant import epsilon_at, profile
from privsyn.dp.events import (
    ZCDP,
    BoundedRange,
    Composed,
    DiscreteGaussian,
    Gaussian,
    Pure,
    RandomAllocation,
    SampledGaussian,
)
from privsyn.dp.risk import (
    Risk,
    Strength,
    group_risk,
    of_profile,
    risk,
    strength,
    true_positive_rate,
)

RATES = (0.001, 0.01, 0.1, 0.5)


def best_test(p, q, rate):
    """True positive rate of the most powerful test (Neyman, Pearson) at a false positive rate."""
    order = np.argsort(-(p / q))
    spent, power = 0.0, 0.0
    for i in order:
        share = min(1.0, (rate - spent) / q[i])
        if share <= 0:
            break
        spent, power = spent + share * q[i], power + share * p[i]
    return float(power)


def responses(losses):
    p, q = [], []
    for signs in product((1, -1), repeat=len(losses)):
        p.append(math.prod(1 / (1 + math.exp(-s * e)) for s, e in zip(signs, losses, strict=True)))
        q.append(math.prod(1 / (1 + math.exp(s * e)) for s, e in zip(signs, losses, strict=True)))
    return np.array(p), np.array(q)


@pytest.mark.parametrize("losses", [[0.1], [3.0], [1.0, 1.0], [0.5, 0.7, 0.9, 0.2], [0.3] * 8])
def test_pure_steps_against_the_best_test(losses):
    p, q = responses(losses)
    points = profile(Composed(tuple(Pure(loss) for loss in losses)))
    for rate in RATES:
        best = best_test(p, q, rate)
        assert best * (1 - 1e-9) <= true_positive_rate(points, rate) <= best * 1.01
    advantage = float(np.maximum(p - q, 0).sum())
    bound = of_profile(points).advantage
    assert advantage * (1 - 1e-9) <= bound <= advantage * 1.001


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 2.2, 5.0])
@pytest.mark.parametrize("kind", [Gaussian, DiscreteGaussian])
def test_gaussian_noise_against_its_closed_form(mu, kind):
    event = kind(1 / mu)
    points = profile(event)
    for rate in RATES:
        best = float(norm.cdf(norm.ppf(rate) + mu))
        assert best * (1 - 1e-9) <= true_positive_rate(points, rate) <= best * 1.05
    advantage = 2 * float(norm.cdf(mu / 2)) - 1
    assert advantage * (1 - 1e-9) <= of_profile(points).advantage <= advantage * 1.001


@pytest.mark.parametrize(("rate", "noise"), [(0.2, 0.8), (0.1, 0.5), (0.5, 0.5), (0.01, 2.0)])
def test_a_sampled_step_against_its_densities(rate, noise):
    x = np.linspace(-12 * noise, 1 + 12 * noise, 200_001)
    q = norm.pdf(x, 0, noise) * (x[1] - x[0])
    p = (1 - rate) * q + rate * norm.pdf(x, 1, noise) * (x[1] - x[0])
    points = profile(SampledGaussian(rate, noise, 1))
    for false_positives in RATES:
        best = max(best_test(p, q, false_positives), best_test(q, p, false_positives))
        assert best * (1 - 1e-4) <= true_positive_rate(points, false_positives) <= best * 1.05
    advantage = float(np.maximum(p - q, 0).sum())
    assert advantage * (1 - 1e-4) <= of_profile(points).advantage <= advantage * 1.01


def test_draws_against_the_exponential_mechanism():
    width, count = 0.4, 6
    event = BoundedRange(width, count)
    points = profile(event)
    for t in np.linspace(0.02, 0.98, 9) * width:  # one draw's ratios lie in [t - width, t]
        up = (1 - math.exp(t - width)) / (1 - math.exp(-width))
        p1, q1 = np.array([up, 1 - up]), np.array([up * math.exp(-t), 0.0])
        q1[1] = 1 - q1[0]
        p, q = np.array([1.0]), np.array([1.0])
        for _ in range(count):
            p, q = np.outer(p, p1).ravel(), np.outer(q, q1).ravel()
        for rate in RATES:
            assert best_test(p, q, rate) <= true_positive_rate(points, rate)
        assert float(np.maximum(p - q, 0).sum()) <= of_profile(points).advantage
    assert true_positive_rate(points, 0.01) <= true_positive_rate(
        profile(ZCDP(width**2 / 8 * count)), 0.01
    )


events = st.one_of(
    st.builds(Gaussian, st.floats(0.3, 50), st.integers(1, 20)),
    st.builds(Pure, st.floats(0.01, 5)),
    st.builds(ZCDP, st.floats(1e-4, 5)),
    st.builds(BoundedRange, st.floats(0.01, 1.0), st.integers(1, 40)),
)


@settings(max_examples=25)
@given(events, events)
def test_more_releases_are_more_risk_and_none_is_below_its_guarantee(a, b):
    one, both = risk(a), risk(Composed((a, b)))
    for name, value in one.figures().items():
        assert 0 <= value <= both.figures()[name] * (1 + 1e-3) <= 1.001
    # A guarantee is a point of the profile: it never says less than the bounds.
    epsilon, delta = epsilon_at(a, 1e-3), 1e-3
    assert one.found_at_1_percent <= true_positive_rate([(epsilon, delta)], 0.01) * 1.02
    assert one.advantage <= (math.expm1(epsilon) + 2 * delta) / (math.exp(epsilon) + 1) * 1.02


def test_without_any_point_everything_is_possible():
    assert true_positive_rate([], 0.01) == 1.0
    assert Risk(1.0, 1.0, 1.0).right == 1.0
    assert risk(Pure(1e308)) == Risk(1.0, 1.0, 1.0)


def test_words_round_up():
    first, second = Risk(0.0871, 0.0151, 0.381).words("patient", "add_remove")
    assert first.endswith(
        "if a given patient's data was used: right 50 times in 100 from a release made without it, "
        "at most 70 times in 100 from this one."
    )
    assert second == (
        "If 1 of 100 patients whose data was not used may be accused wrongly, at most 9 of 100 "
        "whose data was used are found; if 1 of 1,000, at most 2 of 100."
    )
    first, second = Risk(0.0871, 0.0151, 0.381).words("patient", "replace_one")
    assert "which of two patients' data was used: right 50 times" in first
    assert second == (
        "If the wrong one of the two may be named 1 time in 100, the right one is named at most 9 "
        "times in 100; if 1 time in 1,000, at most 2 times in 100."
    )


@pytest.mark.parametrize(
    ("epsilon", "right", "said"),
    [
        (1e-6, None, Strength.STRONG),
        (1.0, 0.55, Strength.STRONG),
        (1.01, 0.55, Strength.MODERATE),
        (9.99, 0.83, Strength.MODERATE),
        (3.0, 0.953, Strength.WEAK),
        (10.0, 0.83, Strength.WEAK),
        (30.0, 0.9899, Strength.WEAK),
        (30.0, 0.9901, Strength.NONE),
        (40.0, None, Strength.NONE),
        (math.inf, 1.0, Strength.NONE),
    ],
)
def test_strength_is_the_weaker_of_epsilon_and_odds(epsilon, right, said):
    assert strength(epsilon, right) is said


GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "risk.json").read_text())


@pytest.mark.parametrize("row", GOLDEN["rows"], ids=lambda row: row["name"])
def test_against_another_library(row):
    kind, *values = row["event"]
    made = {"gaussian": Gaussian, "sampled": SampledGaussian, "pure": Pure}[kind](*values)
    ours = risk(made).figures()
    for name, theirs in row["risk"].items():
        # Theirs is from a discretised loss distribution: above the truth by a little itself.
        assert theirs * (1 - 2e-3) <= ours[name] <= theirs * 1.03


def _total_variation(p, q):
    return float(np.maximum(p - q, 0).sum())


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.5])
@pytest.mark.parametrize("units", [1, 2, 4, 7])
def test_a_group_against_gaussian_noise_of_as_many_units(mu, units):
    exact = 2 * float(norm.cdf(units * mu / 2)) - 1
    assert exact * (1 - 1e-9) <= group_risk(Gaussian(1 / mu), units).advantage <= exact * 1.001


@pytest.mark.parametrize(("epsilon", "units"), [(0.2, 3), (1.0, 2), (0.5, 5)])
def test_a_group_against_a_noisy_count(epsilon, units):
    at = np.arange(-300, 300)
    p, q = (np.exp(-epsilon * abs(at - shift)) for shift in (units, 0))
    p, q = p / p.sum(), q / q.sum()
    found = group_risk(Pure(epsilon), units)
    assert _total_variation(p, q) <= found.advantage
    most = math.exp(units * epsilon) * 0.01 * (1 + 1e-9)
    assert best_test(p, q, 0.01) <= found.found_at_1_percent <= most


@pytest.mark.parametrize("rate", [0.05, 0.4])
@pytest.mark.parametrize("units", [2, 4])
def test_a_group_in_a_sampled_step_against_its_densities(rate, units):
    noise, at = 1.5, np.linspace(-20, 30, 200_001)
    q = norm.pdf(at, 0, noise)
    p = sum(binom.pmf(k, units, rate) * norm.pdf(at, k, noise) for k in range(units + 1))
    truth = _total_variation(p, q) * (at[1] - at[0])
    found = group_risk(SampledGaussian(rate, noise, 1), units)
    # The group's own bound holds and is better than to say nothing.
    assert truth <= found.advantage < 1


def test_a_group_in_secret_places_against_its_densities():
    mu, axis = 1.0, np.linspace(-7, 11, 601)
    at = np.stack(np.meshgrid(axis, axis, indexing="ij"))
    q = norm.pdf(at[0]) * norm.pdf(at[1])
    # Two units, each in one of two places.
    p = sum(
        weight * norm.pdf(at[0] - mu * first) * norm.pdf(at[1] - mu * (2 - first))
        for first, weight in ((0, 0.25), (1, 0.5), (2, 0.25))
    )
    truth = _total_variation(p, q) * (axis[1] - axis[0]) ** 2
    found = group_risk(RandomAllocation(Gaussian(1 / mu), 2), 2)
    without = 2 * float(norm.cdf(2 * mu / 2)) - 1
    assert truth <= found.advantage <= without * 1.001


@settings(max_examples=25)
@given(events)
def test_more_units_are_never_safer(event):
    one, two, five = (group_risk(event, units) for units in (1, 2, 5))
    assert risk(event).advantage == pytest.approx(one.advantage, rel=1e-3)
    for name, value in one.figures().items():
        assert value <= two.figures()[name] * (1 + 1e-3)
        assert two.figures()[name] <= five.figures()[name] * (1 + 1e-3)
