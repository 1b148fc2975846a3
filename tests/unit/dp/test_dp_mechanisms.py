"""Mechanisms and noise sources: price and scale come from one object, and draws are checked."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privsyn.dp import events, noise
from privsyn.dp.accountant import guarantee, rho
from privsyn.dp.clipping import LATTICE, grid_bound
from privsyn.dp.mechanisms import FINE_SIGMA, DiscreteGaussian, ExponentialMechanism, Laplace
from privsyn.dp.noise import NoiseSource, OpenDPNoise
from tests.noise import SeededNoise

SOURCES: list[NoiseSource] = [OpenDPNoise(), SeededNoise(7)]
RARE = 1e-9
"""Chance of an honest source to fail an assertion; a seeded one fails always or never."""


def test_price_of_a_token_by_hand():
    """Clip 10, 255 prompts, temperature 2, as in private prediction: rho .019223 per 100 tokens."""
    token = ExponentialMechanism(grid_bound(10.0), scale=2.0 * 255 * LATTICE)
    assert token.event.range == pytest.approx(2 * 10 / (2 * 255), rel=1e-6)
    assert 100 * rho(token.event) == pytest.approx(0.019223, abs=5e-7)
    thrice = ExponentialMechanism(3 * grid_bound(10.0), scale=2.0 * 255 * LATTICE)
    assert rho(thrice.event) == pytest.approx(9 * rho(token.event), rel=1e-15)


@given(st.integers(0, 2**61), st.floats(1e-3, 1e18))
@settings(deadline=None)
def test_prices_are_rounded_up(sensitivity, scale):
    ratio = Fraction(sensitivity) / Fraction(scale)
    draw = ExponentialMechanism(sensitivity, scale).event
    assert Fraction(draw.range) >= 2 * ratio
    assert Fraction(rho(draw)) >= ratio**2 / 2
    assert Fraction(Laplace(sensitivity, scale).event.epsilon) >= ratio
    if sensitivity:
        event = DiscreteGaussian(float(sensitivity), scale).event
        if isinstance(event, events.ZCDP):
            assert scale < FINE_SIGMA
            assert (
                Fraction(event.rho) >= Fraction(float(sensitivity)) ** 2 / Fraction(scale) ** 2 / 2
            )
        else:
            assert scale >= FINE_SIGMA
            assert Fraction(event.noise_multiplier) * Fraction(float(sensitivity)) <= Fraction(
                scale
            )


def test_a_coarse_lattice_is_charged_as_zcdp():
    """On the unit lattice the continuous curve would claim less than the truth."""
    coarse = DiscreteGaussian(sensitivity=1.0, sigma=1.0).event
    fine = DiscreteGaussian(sensitivity=2.0**20, sigma=2.0**20).event
    assert coarse == events.ZCDP(0.5)
    assert fine == events.DiscreteGaussian(1.0)
    assert guarantee(coarse, 1e-5).epsilon > guarantee(fine, 1e-5).epsilon


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_scales_out_of_range_are_refused(bad):
    for make in (
        lambda: ExponentialMechanism(1, bad),
        lambda: Laplace(1, bad),
        lambda: DiscreteGaussian(1.0, bad),
        lambda: DiscreteGaussian(bad, 1.0),
    ):
        with pytest.raises(ValueError, match="finite number above 0"):
            make()


@pytest.mark.parametrize("bad", [-1, 1.0, True, 2**62])
def test_sensitivities_are_lattice_steps(bad):
    for kind in (ExponentialMechanism, Laplace):
        with pytest.raises(ValueError, match="sensitivity="):
            kind(bad, 1.0)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.kind)
def test_draws_need_int64(source):
    for values in (np.zeros(3), np.zeros(3, np.int32), [0, 1], np.zeros(3, np.uint64)):
        for mechanism in (
            ExponentialMechanism(1, 1.0),
            Laplace(1, 1.0),
            DiscreteGaussian(1.0, 1.0),
        ):
            with pytest.raises(TypeError, match="int64"):
                mechanism.draw(values, source)
    for shape in ((0,), (2, 2), ()):
        with pytest.raises(ValueError, match="one non-empty row"):
            ExponentialMechanism(1, 1.0).draw(np.zeros(shape, np.int64), source)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.kind)
def test_a_clear_winner_wins(source):
    scores = np.array([-(2**40), 0, -(2**40)], np.int64)
    mechanism = ExponentialMechanism(LATTICE, scale=float(LATTICE))
    assert {mechanism.draw(scores, source) for _ in range(20)} == {1}
    strided = np.zeros(6, np.int64)
    strided[2] = 2**40
    assert mechanism.draw(strided[::2], source) == 1


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.kind)
def test_additive_noise_has_its_scale(source):
    """Each line fails an honest source with probability RARE at most, by the law named in it.

    Sums of |x| / b of Laplace noise are Gamma, of (x / s)^2 of Gaussian noise chi-square, signs
    binomial; the lattice moves these by 1e-4 of themselves at scale 50, under a hundredth of their
    standard deviation.
    """
    count = 4000
    center = np.full(count, 1_000_000, np.int64)
    laplace = Laplace(1, 50.0).draw(center, source) - center
    gaussian = DiscreteGaussian(1.0, 50.0).draw(center, source) - center
    assert laplace.dtype == gaussian.dtype == np.int64
    sums = float(np.abs(laplace).sum()) / 50
    assert RARE / 2 < stats.gamma(count).cdf(sums) < 1 - RARE / 2
    squares = float((gaussian.astype(float) ** 2).sum()) / 50**2
    assert RARE / 2 < stats.chi2(count).cdf(squares) < 1 - RARE / 2
    for values in (laplace, gaussian):
        signs = values[values != 0] > 0
        assert stats.binomtest(int(signs.sum()), len(signs), 0.5).pvalue > RARE
    # Heavier tails than a Gaussian's tell the two apart: beyond 4 scales e^-4 and 6.3e-5.
    for values, share in ((laplace, math.exp(-4)), (gaussian, math.erfc(4 / math.sqrt(2)))):
        beyond = int((np.abs(values) > 4 * 50).sum())
        assert stats.binomtest(beyond, count, share).pvalue > RARE
        assert (beyond > 20) == (values is laplace)  # binomial: 5e-14, and 1e-25


def test_a_seed_repeats_and_opendp_does_not():
    zeros = np.zeros(8, np.int64)
    mechanism = DiscreteGaussian(2.0**20, 2.0**20)
    once, again = (mechanism.draw(zeros, SeededNoise(3)) for _ in range(2))
    np.testing.assert_array_equal(once, again)
    once, again = (mechanism.draw(zeros, OpenDPNoise()) for _ in range(2))
    assert not np.array_equal(once, again)


def test_sources_are_told_apart():
    assert OpenDPNoise().kind == "opendp"
    assert SeededNoise(0).kind == "seeded"
    assert not vars(OpenDPNoise())  # no state to store, fork or replay


def test_the_price_is_opendps_own_map():
    dp = noise._opendp()
    integers = dp.vector_domain(dp.atom_domain(T="i64"))
    for sensitivity, scale in ((grid_bound(0.7), 3.3 * LATTICE), (1, 2.0), (2**30, 7.0)):
        selection = dp.m.make_noisy_max(
            integers,
            dp.linf_distance(T="i64", monotonic=False),
            dp.zero_concentrated_divergence(),
            scale=scale,
        )
        price = rho(ExponentialMechanism(sensitivity, scale).event)
        assert selection.map(sensitivity) == pytest.approx(price, rel=1e-12)
        laplace = dp.m.make_laplace(integers, dp.l1_distance(T="i64"), scale=scale)
        price = Laplace(sensitivity, scale).event.epsilon
        assert laplace.map(sensitivity) == pytest.approx(price, rel=1e-12)
        gaussian = dp.m.make_gaussian(integers, dp.l2_distance(T="f64"), scale=scale)
        by_hand = (sensitivity / scale) ** 2 / 2
        assert gaussian.map(float(sensitivity)) == pytest.approx(by_hand, rel=1e-12)


def test_a_library_that_prices_higher_is_refused(monkeypatch):
    real = noise._opendp()

    class Dearer:
        """OpenDP whose distance counts every change twice."""

        def __getattr__(self, name):
            return getattr(real, name)

        class m:
            @staticmethod
            def make_noisy_max(*space, scale):
                return real.m.make_noisy_max(*space, scale=scale / 2)

    monkeypatch.setattr(noise, "_opendp", Dearer)
    with pytest.raises(RuntimeError, match="opendp prices noisy max at rho="):
        noise._noisy_max.__wrapped__(1.5, 1)
