"""Conversions against 40-digit arithmetic and against two independent libraries."""

import json
import math
import sys
from decimal import Decimal, localcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from privsyn.dp import conversions
from privsyn.dp.accountant import guarantee, loss_at
from privsyn.dp.conversions import FEW, gaussian_deltas
from privsyn.dp.events import (
    ZCDP,
    BoundedRange,
    Composed,
    Disjoint,
    Gaussian,
    Pure,
    RandomAllocation,
    SampledGaussian,
)
from privsyn.dp.risk import risk

GOLDEN = Path(__file__).parents[2] / "golden"


def golden(name, part):
    rows: list[dict[str, Any]] = json.loads((GOLDEN / f"{name}.json").read_text())[part]
    return rows


def sampled(row):
    return SampledGaussian(row["rate"], row["noise_multiplier"], row["steps"])


def test_zcdp_epsilon_is_the_optimum_and_never_below_it():
    for row in golden("exact", "zcdp"):
        found, truth = Decimal(conversions.zcdp_epsilon(row["rho"], row["delta"])), row["epsilon"]
        assert Decimal(truth) <= found <= Decimal(truth) * (1 + Decimal("1e-12")), row


def test_gaussian_epsilon_is_the_exact_curve_and_never_below_it():
    for row in golden("exact", "gaussian"):
        found = Decimal(conversions.gaussian_epsilon(row["mu"], row["delta"]))
        assert Decimal(row["epsilon"]) <= found <= Decimal(row["epsilon_at_lower_delta"]), row


def test_pure_curve_keeps_its_digits():
    for row in golden("exact", "pure_rdp"):
        found = conversions.pure_rdp(row["epsilon"], row["order"])
        assert found == pytest.approx(float(row["loss"]), rel=1e-13), row


def test_sampled_gaussian_curve_is_never_below_the_integral():
    for row in golden("exact", "sampled_moment"):
        rate, sigma, order = row["rate"], row["sigma"], row["order"]
        truth = Decimal(row["log_moment"])
        loss = conversions.sampled_gaussian_rdp(rate, sigma, order)
        # The product with (a - 1) costs one more rounding than the loss itself.
        found = Decimal(loss) * (Decimal(order) - 1) * (1 + Decimal("1e-15"))
        assert found >= truth, row
        if order.is_integer():
            assert found <= truth * (1 + Decimal("1e-9")), row
        elif order < conversions.FRACTIONAL_BELOW and rate >= 0.001:
            assert found <= truth * (1 + Decimal("1e-3")), row
        elif order >= conversions.FRACTIONAL_BELOW:
            assert found <= truth * (1 + Decimal("1e-3")), row


def test_sampled_gaussian_curve_agrees_with_dp_accounting():
    for row in golden("dp_accounting", "sampled_curve"):
        for order, theirs in zip(row["orders"], row["losses"], strict=True):
            ours = conversions.sampled_gaussian_rdp(row["rate"], row["noise_multiplier"], order)
            # Between integers theirs is looser, or missing (infinite).
            assert ours <= theirs * (1 + 1e-8), (row["rate"], order)
            if float(order).is_integer():
                assert ours == pytest.approx(theirs, rel=1e-8), (row["rate"], order)


def test_dp_sgd_agrees_with_dp_accounting_and_opacus():
    rows = zip(
        golden("dp_accounting", "sampled_gaussian"),
        golden("opacus", "sampled_gaussian"),
        strict=True,
    )
    for theirs, opacus in rows:
        renyi = conversions.best_epsilon(partial(loss_at, sampled(theirs)), theirs["delta"])
        assert 0.997 * theirs["rdp"] <= renyi <= theirs["rdp"] * (1 + 1e-9), theirs
        assert renyi == pytest.approx(opacus["rdp"], rel=0.003), opacus
        ours = guarantee(sampled(theirs), theirs["delta"]).epsilon
        assert theirs["pld_low"] <= ours <= theirs["pld_high"] * 1.002, theirs
        assert ours >= opacus["prv_upper"] - 2 * opacus["prv_error"], opacus


def test_pure_composition_against_randomized_response():
    for row in golden("dp_accounting", "pure"):
        event = Composed(tuple(Pure(epsilon) for epsilon in row["epsilons"]))
        ours = guarantee(event, row["delta"]).epsilon
        # Their grid of 1e-4 rounds each loss up.
        assert ours >= row["randomised_response_pld"] - 1e-4 * len(row["epsilons"]), row
        assert ours <= sum(row["epsilons"]), row
        assert ours <= 1.08 * row["randomised_response_pld"], row


def test_zcdp_is_never_looser_than_a_grid():
    for row in golden("dp_accounting", "zcdp"):
        ours = conversions.zcdp_epsilon(row["rho"], row["delta"])
        assert 0.95 * row["rdp"] <= ours <= row["rdp"] * (1 + 1e-12), row


@given(st.floats(1e-10, 1e4), st.floats(1e-14, 0.5))
@settings(deadline=None)
def test_zcdp_delta_inverts_zcdp_epsilon(rho, delta):
    epsilon = conversions.zcdp_epsilon(rho, delta)
    back = conversions.zcdp_delta(rho, epsilon)
    if epsilon > 0:
        assert back == pytest.approx(delta, rel=1e-6)
    else:
        assert back <= delta * (1 + 1e-9)


@given(st.floats(1e-10, 1e4), st.floats(1e-14, 0.5), st.floats(1 + 1e-6, 1e6))
@settings(deadline=None)
def test_no_order_beats_the_zcdp_optimum(rho, delta, order):
    at_order = conversions.rdp_epsilon(order * rho, order, delta)
    assert conversions.zcdp_epsilon(rho, delta) <= at_order * (1 + 1e-12) + 1e-300


@pytest.mark.parametrize("delta", [1e-12, 1e-7, 1e-3, 0.3])
def test_pure_epsilon_is_never_below_the_truth(delta):
    """Against 50 digits: where 1 - delta rounds, .00136... at 1e-7 was 2e-15 too low."""
    for epsilon in (0.0013620787496685621, *np.geomspace(1e-5, 40, 400)):
        with localcontext(prec=50):
            at, of = Decimal(float(epsilon)), Decimal(delta)
            left = 1 - of * (1 + (-at).exp())
            truth = max(Decimal(0), at + left.ln()) if left > 0 else Decimal(0)
            excess = Decimal(conversions.pure_epsilon(float(epsilon), delta)) - truth
        assert 0 <= excess <= Decimal("1e-13") * (at - left.ln() if left > 0 else 1)


@given(st.floats(1e-6, 50), st.floats(1e-12, 0.4))
@settings(deadline=None)
def test_pure_epsilon_is_exact_for_randomized_response(epsilon, delta):
    found = conversions.pure_epsilon(epsilon, delta)
    yes, no = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    hockey_stick = yes - math.exp(found) * no
    assert hockey_stick <= delta + 1e-15
    if found > 0:
        assert hockey_stick == pytest.approx(delta, rel=1e-9, abs=1e-13 * (1 + epsilon))


def test_ends_of_the_ranges():
    assert conversions.zcdp_epsilon(0, 1e-6) == 0
    assert conversions.zcdp_epsilon(math.inf, 1e-6) == math.inf
    assert conversions.zcdp_delta(0, 1.0) == 0
    assert conversions.zcdp_delta(1e3, 0.0) == 1
    assert conversions.gaussian_epsilon(math.inf, 1e-6) == math.inf
    assert conversions.gaussian_epsilon(1e-12, 1e-6) == 0
    assert conversions.pure_epsilon(1e-9, 0.5) == 0
    assert conversions.pure_rdp(0.7, math.inf) == 0.7
    assert conversions.sampled_gaussian_rdp(0, 1, 3) == 0
    assert conversions.sampled_gaussian_rdp(1, 2, 3) == 3 / 8
    assert conversions.sampled_gaussian_rdp(0.1, 2, 1e6) == 1e6 / 8
    # An order this near an integer has no fractional series in floats.
    near = conversions.sampled_gaussian_rdp(0.1, 2, math.nextafter(3, 4))
    assert near == pytest.approx(conversions.sampled_gaussian_rdp(0.1, 2, 3), rel=1e-12)


@pytest.mark.parametrize("x", [*np.linspace(0, 30, 601), *np.geomspace(1e-12, 1e8, 200)])
def test_the_scaled_complementary_error_function_has_nearly_all_digits(x):
    """Also around 25, where the series begins."""
    assert conversions.erfcx(float(x)) == pytest.approx(special.erfcx(x), rel=2e-15)


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.3, 2.0, 12.0])
def test_few_and_many_gaussian_deltas_are_alike(mu, monkeypatch):
    """Few are computed one by one, many by SciPy."""
    epsilons = np.linspace(0, 8 * mu + mu * mu, 300)
    few = conversions.gaussian_deltas(mu, epsilons)
    monkeypatch.setattr(conversions, "FEW", 0)
    many = conversions.gaussian_deltas(mu, epsilons)
    # Digits are lost in the difference of two terms: by mu, the share of it that they differ by.
    np.testing.assert_allclose(few, many, rtol=1e-13 * max(1, 100 / mu), atol=1e-300)
    one_by_one = [conversions.gaussian_delta(mu, float(epsilon)) for epsilon in epsilons]
    assert one_by_one == few.tolist()


def test_a_curve_at_zero_is_covered_by_next_to_no_noise():
    """A chance that pays for all of delta leaves nothing for a Gaussian to cover."""
    mu = conversions.covering_mu(np.linspace(0.0, 0.01, 1500), 0.01 / 1499, np.zeros(1501), 40.0)
    assert 0 < mu < 1e-3


def test_gaussian_noise_and_random_places_are_priced_without_scipy(monkeypatch):
    """It takes .3 CPU seconds to import, a quarter of a plan."""
    monkeypatch.setitem(sys.modules, "scipy.special", None)  # an import of it fails
    places = RandomAllocation(Disjoint((BoundedRange(0.40017, 48),), 3), 20)
    for event in (Gaussian(2.0017), places):
        assert 0 < guarantee(event, 1e-6).epsilon < math.inf
        assert 0 < risk(event).advantage < 1
    # Many values are SciPy's.
    with pytest.raises(ImportError):
        gaussian_deltas(0.5, np.linspace(0, 1, FEW + 1))


def test_dp_sgd_reference_run():
    event = SampledGaussian(0.01, 1.0, 1000)
    assert conversions.best_epsilon(partial(loss_at, event), 1e-5) == pytest.approx(2.101, abs=1e-3)
    assert guarantee(event, 1e-5).epsilon == pytest.approx(1.828, abs=1e-3)
    reference = [row for row in golden("opacus", "sampled_gaussian") if row["steps"] == 889]
    upper = {row["delta"]: row["prv_upper"] for row in reference}
    assert 2.13 <= upper[1e-7] <= 2.17
    assert 1.89 <= upper[1e-6] <= 1.92
    pld = golden("dp_accounting", "sampled_gaussian")[0]
    assert pld["pld_high"] == pytest.approx(1.828, abs=1e-3)


def test_gaussian_agrees_with_the_privacy_loss_distribution():
    for row in golden("dp_accounting", "gaussian"):
        ours = guarantee(Gaussian(row["noise_multiplier"], row["count"]), row["delta"]).epsilon
        assert row["pld_low"] <= ours <= row["pld_high"] * (1 + 1e-6), row
        assert ours < row["rdp"]


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 3.0, 8.0, 50.0, 500.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_search_over_orders_is_within_one_percent_of_the_optimum(epsilon, delta):
    low, high = 1e-12, 1e4
    for _ in range(200):
        rho = math.sqrt(low * high)
        low, high = (rho, high) if conversions.zcdp_epsilon(rho, delta) < epsilon else (low, rho)
    best = conversions.zcdp_epsilon(rho, delta)
    found = conversions.best_epsilon(partial(loss_at, ZCDP(rho)), delta)
    assert best * (1 - 1e-12) <= found <= 1.01 * best
