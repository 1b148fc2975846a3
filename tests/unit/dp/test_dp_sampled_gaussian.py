"""The sampled Gaussian: event, scale, exactness, who is sampled, what the lattice costs."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr

from privsyn.dp import events, noise
from privsyn.dp.accountant import (
    epsilon_at,
    guarantee,
    loss_at,
    loss_distribution_epsilon,
    renyi_epsilon,
)
from privsyn.dp.conversions import LATTICE_SLACK, sampled_gaussian_rdp
from privsyn.dp.mechanisms import CLIP_STEPS, SampledGaussian
from privsyn.dp.noise import NoiseSource, OpenDPNoise
from tests.noise import NoNoise, SeededNoise

SOURCES: list[NoiseSource] = [OpenDPNoise(), SeededNoise(7)]
BY_KIND = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.kind)
RARE = 1e-9
"""Chance of an honest source to fail an assertion: exact laws, two-sided. A seeded one fails always
or never."""
FINE = CLIP_STEPS * 2**16


def test_the_event_names_what_is_drawn():
    mechanism = SampledGaussian(0.01, 1.5, 40)
    assert mechanism.event == events.SampledGaussian(0.01, 1.5, 40)
    source = NoNoise()
    mechanism.draw(np.zeros(3, np.int64), source)
    assert [asked.scale for asked in source.drawn] == [1.5 * FINE]


@BY_KIND
@pytest.mark.parametrize("sigma", [0.0625, 1.1])
def test_noise_is_normal_of_sigma_clip_norms(source, sigma):
    count = 200_000
    center = np.full(count, 3 * CLIP_STEPS, np.int64)
    found = SampledGaussian(0.5, sigma, 1).draw(center, source) - 3.0
    assert found.shape == (count,)
    assert stats.kstest(found / sigma, "norm").pvalue > RARE
    squares = float(((found / sigma) ** 2).sum())
    assert RARE / 2 < stats.chi2(count).cdf(squares) < 1 - RARE / 2
    # A scale that is off by a fiftieth would be seen: 12.3 standard deviations of the chi-square,
    # 6.1 of which the bound above takes. An honest source passes for it with chance 3e-10.
    for wrong in (0.98, 1.02):
        assert not RARE / 2 < stats.chi2(count).cdf(squares / wrong**2) < 1 - RARE / 2


@given(
    st.lists(st.integers(-(2**46), 2**46) | st.integers(-(2**20), 2**20), min_size=1, max_size=20)
)
def test_without_noise_the_sum_comes_back_exactly(total):
    source = NoNoise()
    values = np.array(total, np.int64)
    found = SampledGaussian(0.5, 1.0, 1).draw(values, source)
    np.testing.assert_array_equal(found, values / CLIP_STEPS)
    assert source.drawn[0].values.dtype == np.int64


def test_sums_beyond_any_sum_are_held_where_nothing_overflows():
    """Holding is 1-Lipschitz in every number, so it keeps the L2 sensitivity."""
    rng = np.random.default_rng(0)
    ends = np.array([np.iinfo(np.int64).min, -(2**46) - 1, 2**46 + 1, np.iinfo(np.int64).max])
    mechanism = SampledGaussian(0.5, 1.0, 1)
    found = mechanism.draw(ends, NoNoise())
    np.testing.assert_array_equal(found, np.array([-1, -1, 1, 1]) * 2.0**22)
    for scale in (2**20, 2**46, 2**50):
        one = rng.integers(-scale, scale, 1000)
        moved = rng.integers(-(2**18), 2**18, 1000)
        other = one + moved
        found, near = (mechanism.draw(values, NoNoise()) for values in (one, other))
        assert np.linalg.norm(found - near) <= np.linalg.norm(moved / CLIP_STEPS) * (1 + 1e-12)
    large = mechanism.draw(np.full(1000, np.iinfo(np.int64).max), OpenDPNoise())
    assert abs(large - 2.0**22).max() < 10  # no wrap to the other end


@BY_KIND
def test_draws_need_int64(source):
    for values in (np.zeros(3), np.zeros(3, np.int32), [0, 1], np.zeros(3, np.uint64)):
        with pytest.raises(TypeError, match="int64"):
            SampledGaussian(0.5, 1.0, 1).draw(values, source)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rate": 0.0}, "rate=0.0 must be above 0"),
        ({"rate": 1.0000001}, "at most 1"),
        ({"rate": math.nan}, "rate=nan"),
        ({"noise_multiplier": 0.0}, "finite number above 0"),
        ({"noise_multiplier": math.inf}, "finite number above 0"),
        ({"noise_multiplier": 0.0624}, "is below 0.0625"),
        ({"steps": 0}, "steps=0"),
        ({"steps": 2**16 + 1}, "steps=65537"),
        ({"steps": 10.0}, "whole number"),
        ({"steps": True}, "whole number"),
    ],
)
def test_what_the_proof_does_not_cover_is_refused(wrong, said):
    good = {"rate": 0.5, "noise_multiplier": 0.0625, "steps": 2**16}
    assert SampledGaussian(**good).event.steps == 2**16
    with pytest.raises(ValueError, match=said):
        SampledGaussian(**(good | wrong))


def test_more_numbers_than_the_proof_covers_are_refused():
    million = np.lib.stride_tricks.as_strided(np.zeros(1, np.int64), (2**28 + 1,), (0,))
    with pytest.raises(ValueError, match="268435457 numbers"):
        SampledGaussian(0.5, 1.0, 1).draw(million, NoNoise())


# --- Poisson sampling -----------------------------------------------------------------------------


@BY_KIND
@pytest.mark.parametrize("rate", [0.5, 0.07, 1e-3, 1 - 1e-3])
def test_each_unit_is_sampled_at_the_rate_by_itself(source, rate):
    units, times = 40, 5000
    mechanism = SampledGaussian(rate, 1.0, times)
    drawn = np.array([mechanism.sample(units, source) for _ in range(times)])
    assert drawn.dtype == np.bool_
    assert drawn.shape == (times, units)
    assert stats.binomtest(int(drawn.sum()), drawn.size, rate).pvalue > RARE
    for own in drawn.sum(0):
        assert stats.binomtest(int(own), times, rate).pvalue > RARE
    # Sizes of samples vary as those of independent units: a fixed size would not.
    sizes = stats.binom(units, rate)
    for most in {0, *(int(sizes.ppf(q)) for q in (0.1, 0.5, 0.9))}:
        found = int((drawn.sum(1) <= most).sum())
        assert stats.binomtest(found, times, sizes.cdf(most)).pvalue > RARE
    # Two units are together in a sample as often as independent ones; so is one in two samples that
    # follow each other (every other pair of samples: these are independent).
    together = (drawn.T.astype(float) @ drawn)[np.triu_indices(units, 1)]
    pairs = stats.binom(times, rate**2)
    assert min(pairs.cdf(together).min(), pairs.sf(together - 1).min()) > RARE / 2 / len(together)
    again = int((drawn[:-1:2] & drawn[1::2]).sum())
    assert stats.binomtest(again, times // 2 * units, rate**2).pvalue > RARE


@BY_KIND
def test_certain_tiny_and_empty_samples(source):
    assert SampledGaussian(1.0, 1.0, 1).sample(10_000, source).all()
    assert not SampledGaussian(1e-30, 1.0, 1).sample(10_000, source).any()
    for rate in (0.3, 1.0):
        none = SampledGaussian(rate, 1.0, 1).sample(0, source)
        assert none.shape == (0,)
        assert none.dtype == np.bool_


@pytest.mark.parametrize("rate", [0.3, 1e-5])  # the second has more than 64 bits
def test_the_rate_is_rounded_down_and_never_up(monkeypatch, rate):
    """At the threshold's own 64 bits: a unit is in the sample below it, and not at it."""
    threshold = math.floor(rate * 2**64)
    for bits, expected in ((threshold - 1, True), (threshold, False), (2**64 - 1, False)):
        token = bits.to_bytes(8, "little")
        monkeypatch.setattr(noise.secrets, "token_bytes", lambda n, token=token: token * (n // 8))
        assert OpenDPNoise().sample(3, rate).tolist() == [expected] * 3
    nearly = 1 - 2.0**-53
    monkeypatch.setattr(noise.secrets, "token_bytes", lambda n: b"\xff" * n)
    assert not OpenDPNoise().sample(3, nearly).any()


def test_a_seed_repeats_and_opendp_does_not():
    mechanism = SampledGaussian(0.5, 1.0, 1)
    once, again = (mechanism.sample(200, SeededNoise(3)) for _ in range(2))
    np.testing.assert_array_equal(once, again)
    once, again = (mechanism.sample(200, OpenDPNoise()) for _ in range(2))
    assert (once != again).any()


# --- long vectors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, noise._TOGETHER, noise._TOGETHER + 1, 100_003])
def test_vectors_cut_among_threads_keep_length_order_and_distribution(size):
    """Each number stands far apart from the next, so that its place shows in the noisy one."""
    values = np.arange(size, dtype=np.int64) << 40
    noisy = OpenDPNoise().gaussian(values, 2.0**30)
    assert noisy.dtype == np.int64
    assert noisy.shape == (size,)
    found = (noisy - values) / 2.0**30
    assert not size or abs(found).max() < 8
    if size > 1000:
        assert stats.kstest(found, "norm").pvalue > RARE
        assert len(np.unique(noisy - values)) > 0.999 * size  # no two parts share their noise
        parts = np.array_split(found, -(-size // noise._TOGETHER))
        for one, other in pairwise(parts):
            n = min(len(one), len(other))
            assert abs(one[:n] @ other[:n]) / math.sqrt(n) < 7


def test_a_strided_vector_is_drawn_around_in_its_own_order():
    values = np.zeros(200_000, np.int64)
    values[::2] = np.arange(100_000) << 40
    noisy = OpenDPNoise().gaussian(values[::2], 2.0**20)
    np.testing.assert_array_equal((noisy + 2**39) >> 40, np.arange(100_000))


# --- what it costs --------------------------------------------------------------------------------


def test_the_guarantee_of_the_event_is_that_of_its_loss_distribution():
    """Abadi et al.'s setting and Yu et al.'s; the Renyi curve alone says 2.101 in the first."""
    event = SampledGaussian(0.01, 1.0, 1000).event
    assert renyi_epsilon(event, 1e-5) == pytest.approx(2.101, abs=2e-3)
    assert 1.828 <= guarantee(event, 1e-5).epsilon <= 1.90
    paper = SampledGaussian(2048 / 182034, 1.1, 889).event
    assert 2.12 <= guarantee(paper, 1e-7).epsilon <= 2.17
    assert 1.88 <= guarantee(paper, 1e-6).epsilon <= 1.93
    for one, delta in ((event, 1e-5), (paper, 1e-7)):
        assert guarantee(one, delta).epsilon == loss_distribution_epsilon(one, delta)
        both = events.Composed((one, events.DiscreteGaussian(20.0)))
        assert guarantee(one, delta).epsilon < guarantee(both, delta).epsilon
        assert guarantee(both, delta).epsilon < renyi_epsilon(both, delta)


def test_a_full_sample_costs_the_gaussian_and_no_sample_nothing():
    full = SampledGaussian(1.0, 10.0, 4).event
    assert guarantee(full, 1e-6) == guarantee(events.DiscreteGaussian(10.0, 4), 1e-6)
    assert epsilon_at(events.SampledGaussian(0.0, 1.0, 9), 1e-6) == 0


@pytest.mark.parametrize("order", [1.001, 1.5, 2.0, 9.0, 300.0])
def test_the_lattice_is_paid_for_once(order):
    """[B12]: h (2a - 1) / (a - 1) at order a, where 2 h is set aside, for all steps together."""
    for steps in (1, 2**16):
        event = SampledGaussian(0.01, 2.0, steps).event
        extra = loss_at(event, order) - steps * sampled_gaussian_rdp(0.01, 2.0, order)
        owed = LATTICE_SLACK / 2 * (2 * order - 1) / (order - 1)
        assert extra == pytest.approx(owed, rel=1e-6, abs=4e-16 * loss_at(event, order))


def log_ratio(s, k):
    """log D/R at whole numbers k: the discrete Gaussian over the rounded continuous one."""
    around = np.arange(-math.ceil(40 * s) - 5, math.ceil(40 * s) + 6)
    log_sum = math.log(np.exp(-(around**2) / (2 * s**2)).sum())
    upper = np.abs(k) + 0.5  # in the upper tail, turned to the lower one, where ndtr keeps digits
    mass = ndtr(-(upper - 1) / s) - ndtr(-upper / s)
    return -(k**2) / (2 * s**2) - log_sum - np.log(mass)


@pytest.mark.parametrize("s", [1.0, 1.3, 2.0, 5.0, 20.0])
@pytest.mark.parametrize("numbers", [1, 2, 3])
def test_the_lattice_costs_no_more_than_stated(s, numbers):
    """[B12]: |log D/R| <= |k|^2 / 24 s^4 + d / 7 s^2, at every vector of whole numbers near by."""
    k = np.arange(-math.ceil(8 * s), math.ceil(8 * s) + 1)
    if numbers > 1:
        k = k[:: max(1, len(k) // 40)]
    own = log_ratio(s, k)
    vectors = np.array(list(product(range(len(k)), repeat=numbers)))
    found = abs(own[vectors].sum(1))
    bound = (k[vectors] ** 2).sum(1) / (24 * s**4) + numbers / (7 * s**2)
    assert (found <= bound).all()
    assert found.max() > bound.max() / 10  # not idle: the bound is of the right order


def test_what_is_set_aside_covers_the_bound():
    """The greatest d, the least s and the most steps, with |k| up to 2^17 s."""
    d, s, steps = 2.0**28, 2.0**36, 2**16
    h = steps * ((2.0**17 * s) ** 2 / (24 * s**4) + d / (7 * s**2))
    assert 2 * h < 2.0**-25 < LATTICE_SLACK
    # |k|^2 / s^2 is chi-square in d: beyond 2^34 the tail is below exp(-2^31).
    t = 2.0**34 / d
    assert d / 2 * (1 - t + math.log(t)) < -(2.0**31)
