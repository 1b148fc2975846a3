"""The table's sampler: bit by bit what its docstring says, and its law the discrete Gaussian's."""

import dataclasses
import inspect
import math
import secrets
import tracemalloc
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import chi2, ks_2samp, kstest

from privsyn.dp import events, table_gaussian
from privsyn.dp.accountant import guarantee, loss_at
from privsyn.dp.conversions import LATTICE_SLACK
from privsyn.dp.mechanisms import CLIP_STEPS, TABLE_ABOVE, SampledGaussian
from privsyn.dp.noise import OpenDPNoise
from privsyn.dp.table_gaussian import PRECISION, acceptance, sample, table
from tests.noise import NoNoise, SeededNoise

FINE, ODD, LARGE = 2.0**20, 1234567.89, 1.01 * 2**40
LOW = PRECISION - 64
DRAWS = 2_000_000


def drawn(sigma, count=DRAWS, seed=1):
    return sample(table(sigma), count, np.random.default_rng(seed).bytes)


def p_value(counts, expected):
    assert expected.min() > 20
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), len(expected) - 1))


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [FINE, ODD, LARGE, 2.0**57])
def test_probabilities_sum_to_one_and_are_right_to_the_last_bit(sigma):
    """Against q^(i^2) by multiplications alone, at 150 digits, q = exp(-w^2 / 2 sigma^2)."""
    found = table(sigma)
    assert found.edges[0] == 0
    assert found.edges[-1] == 2**PRECISION
    masses = [above - below for below, above in pairwise(found.edges)]
    assert sum(masses) == 2**PRECISION
    assert min(masses) >= 0
    cells, width = len(masses) // 2, 2**found.bits
    assert len(masses) % 2 == 0
    assert 64 <= sigma / width < 128
    assert (cells - 1) * width < 20 * Fraction(sigma) <= cells * width
    assert found.high.tolist() == [edge >> LOW for edge in found.edges[1:-1]]
    with localcontext() as context:
        context.prec = 150
        ratio = Fraction(width) ** 2 / (2 * Fraction(sigma) ** 2)
        q = (-Decimal(ratio.numerator) / Decimal(ratio.denominator)).exp()
        # q^((i+1)^2) = q^(i^2) q^(2i+1)
        odd = accumulate([q * q] * (cells - 2), lambda power, two: power * two, initial=q)
        half = list(accumulate(odd, lambda weight, power: weight * power, initial=Decimal(1)))
        weights = [*reversed(half), *half]
        total = sum(weights)
        for mass, weight in zip(masses, weights, strict=True):
            assert abs(mass - weight / total * 2**PRECISION) < Decimal("1.0001")


def test_tables_are_made_once():
    assert table(FINE) is table(FINE)
    with pytest.raises(ValueError, match="read-only"):
        table(FINE).high[0] = 1


@pytest.mark.parametrize(
    "sigma", [2.0**20 - 1, 0.0, -(2.0**30), 2.0**57 * 1.001, math.inf, math.nan]
)
def test_a_deviation_out_of_range_is_refused(sigma):
    for draw in (table, lambda sigma: OpenDPNoise().fine_gaussian(np.zeros(1, np.int64), sigma)):
        with pytest.raises(ValueError, match=r"within \[2\^20, 2\^57\]"):
            draw(sigma)


# --- the algorithm, bit by bit --------------------------------------------------------------------


class Script:
    """Bytes that were written down; every one must be asked for, in these portions."""

    def __init__(self, *portions):
        self.portions: Iterator[bytes] = iter(portions)

    def __call__(self, count):
        portion = next(self.portions)
        assert len(portion) == count
        return portion

    def used_up(self):
        return next(self.portions, None) is None


def attempts(*rows):
    """Upper word of the cell, offset, 53 bits: of several attempts at once."""
    bits = table(ODD).bits
    high, offset, uniform = zip(*rows, strict=True)
    words = [*high, *(o << (64 - bits) for o in offset), *(u << 11 for u in uniform)]
    return b"".join(word.to_bytes(8, "little") for word in words)


def inside(cell):
    """An upper word that no edge has, within a cell counted from 0 up and from -1 down."""
    edges = table(ODD).edges
    place = cell + (len(edges) - 1) // 2
    word = (edges[place] >> LOW) + 1
    assert word < edges[place + 1] >> LOW
    return word


def test_first_and_last_value_of_cells():
    last = 2 ** table(ODD).bits - 1
    places = [(cell, offset) for cell in (-300, -1, 0, 1, 299) for offset in (0, 1, last)]
    script = Script(attempts(*((inside(cell), offset, 0) for cell, offset in places)))
    found = sample(table(ODD), len(places), script)
    assert found.tolist() == [cell * (last + 1) + offset for cell, offset in places]
    assert found[1 * 3 + 2] == -1  # the last of cell -1
    assert script.used_up()


@pytest.mark.parametrize("cell", [-400, -1, 1, 7, 400])
def test_equal_upper_words_are_told_apart_by_the_lower_ones(cell):
    edges, width = table(ODD).edges, 2 ** table(ODD).bits
    edge = edges[cell + (len(edges) - 1) // 2]
    high, low = edge >> LOW, edge & (2**LOW - 1)
    assert 0 < low < 2**LOW - 1
    rows = attempts((inside(3), 5, 0), (high, 5, 0), (high, 5, 0), (high, 5, 0))
    lows = (low, low - 1, low + 1)
    script = Script(rows, *(value.to_bytes(LOW // 8, "little") for value in lows))
    found = sample(table(ODD), 4, script)
    assert found.tolist() == [width * i + 5 for i in (3, cell, cell - 1, cell)]
    assert script.used_up()


def test_half_of_the_table_is_below_zero():
    rows = attempts((2**63 - 1, 0, 0), (2**63, 0, 0), (2**63, 0, 0), (2**63 + 1, 0, 0))
    lows = (bytes(LOW // 8), bytes([255]) * (LOW // 8))
    width = 2 ** table(ODD).bits
    assert sample(table(ODD), 4, Script(rows, *lows)).tolist() == [-width, 0, 0, 0]


def test_the_ends_of_the_table_are_reached():
    """Beyond 9 deviations all edges have the same upper word."""
    found, edges = table(ODD), table(ODD).edges
    cells, width = (len(edges) - 1) // 2, 2**found.bits
    top = 2**64 - 1
    rows = attempts((0, 0, 0), (0, 0, 0), (top, width - 1, 0), (top, width - 1, 0))
    far = next(i for i in range(cells) if edges[i] > 2**20)  # some 18 deviations out
    ones = 2**LOW - 1
    lows = (0, edges[far], ones, edges[-far - 1] & ones)
    script = Script(rows, *(value.to_bytes(LOW // 8, "little") for value in lows))
    x = sample(found, 4, script)
    # The first cells' probability is rounded to 0: the first edge above 0 ends the first one left.
    first = next(i for i in range(cells) if edges[i + 1] > 0)
    assert x.tolist() == [
        (first - cells) * width,
        (far - cells) * width,
        cells * width - 1,
        (cells - far + 1) * width - 1,
    ]
    assert -20 * ODD < x[0] < -18 * ODD
    assert abs(x).max() <= cells * width
    assert script.used_up()


@pytest.mark.parametrize("cell", [-120, -1, 0, 120])
def test_rejected_from_exactly_the_threshold_on_and_drawn_again(cell):
    found, width = table(ODD), 2 ** table(ODD).bits
    offset = width // 3
    x = cell * width + offset
    near = (cell + 1 if cell < 0 else cell) * width
    chance = acceptance(found, np.array([x]))[0]
    truth = math.exp(-float(Fraction(x**2 - near**2) / (2 * Fraction(ODD) ** 2)))
    assert chance == pytest.approx(truth, rel=4e-16)
    threshold = Fraction(float(chance)) * 2**53
    assert threshold.denominator == 1  # so that the comparison is exact
    row = inside(cell), offset
    script = Script(
        attempts((*row, int(threshold)), (*row, int(threshold) - 1), (*row, 2**53 - 1)),
        attempts((inside(5), 6, 0), (*row, int(threshold))),
        attempts((inside(-5), 7, 0)),
    )
    assert sample(found, 3, script).tolist() == [x, 5 * width + 6, -5 * width + 7]
    assert script.used_up()


def test_entropy_is_the_operating_systems():
    assert inspect.signature(sample).parameters["random_bytes"].default is secrets.token_bytes
    noise = OpenDPNoise()
    zeros = np.zeros(9, np.int64)
    assert not np.array_equal(noise.fine_gaussian(zeros, FINE), noise.fine_gaussian(zeros, FINE))
    assert not vars(noise)


# --- [B13] ----------------------------------------------------------------------------------------


def exact_acceptance(sigma, bits, x):
    cell = x >> bits
    near = (cell + (cell < 0)) << bits
    exponent = Fraction(near**2 - x**2) / (2 * Fraction(sigma) ** 2)
    return (Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()


@pytest.mark.parametrize("sigma", [FINE, ODD, LARGE, 2.0**57])
def test_acceptance_is_within_its_bound(sigma):
    found = table(sigma)
    reach = (len(found.edges) - 1) // 2 << found.bits
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [
            rng.integers(-reach, reach, 3000),
            (rng.normal(size=3000) * sigma).astype(np.int64),
            np.array([-reach, -reach + 1, reach - 1, reach - 2, -1, 0, 1]),
            np.array([-1, 0, 1]) + 2**found.bits,
            np.array([-1, 0, 1]) - 2**found.bits,
        ]
    )
    chances = acceptance(found, x)
    assert chances.min() >= 0.73
    assert chances.max() == 1
    with localcontext() as context:
        context.prec = 50
        for value, chance in zip(x.tolist(), chances.tolist(), strict=True):
            exact = exact_acceptance(sigma, found.bits, value)
            assert abs(Decimal(chance) / exact - 1) < Decimal(2) ** -50


def test_exp_is_as_good_as_assumed_and_a_function_of_its_argument():
    t = np.random.default_rng(1).uniform(0, 0.313, 20_001)
    found = np.exp(-t)
    with localcontext() as context:
        context.prec = 40
        off = max(abs((-Decimal(a)).exp() - Decimal(b)) for a, b in zip(t, found, strict=True))
    assert off < 4 * Decimal(2) ** -53
    order = np.random.default_rng(2).permutation(len(t))
    np.testing.assert_array_equal(np.exp(-t[order]), found[order])
    for start in (1, 2, 3, 5, 20_000):
        for length in (1, 2, 3, 7, 9):
            np.testing.assert_array_equal(
                np.exp(-t[start : start + length]), found[start : start + length]
            )


def law(found, sigma):
    """Probabilities of every lattice point: as they are drawn, and those of the Gaussian."""
    cells = (len(found.edges) - 1) // 2
    x = np.arange(-cells << found.bits, cells << found.bits)
    masses = [above - below for below, above in pairwise(found.edges)]
    chances = acceptance(found, x).tolist()
    own = [Decimal(masses[i >> found.bits]) * Decimal(c) for i, c in enumerate(chances)]
    exact = Fraction(sigma)
    scale = 1 / (2 * exact**2)
    top, bottom = Decimal(scale.numerator), Decimal(scale.denominator)
    gaussian = [(-Decimal(int(v) ** 2) * top / bottom).exp() for v in x]
    return [[v / total for v in part] for part in (own, gaussian) for total in [sum(part)]]


def test_the_whole_law_on_a_small_lattice():
    """Every point of 20 deviations either side: the log ratio spans at most 2 c, c = 2^-50."""
    sigma = 300.7
    found = table_gaussian._build(sigma)
    with localcontext() as context:
        context.prec = 60
        own, gaussian = law(found, sigma)
        near = [p / q for p, q in zip(own, gaussian, strict=True) if q > Decimal("1e-50")]
        assert len(near) > 2 * 14 * sigma
        assert (max(near) / min(near)).ln() < 2 * Decimal(2) ** -50
        assert sum(abs(p - q) for p, q in zip(own, gaussian, strict=True)) < Decimal(2) ** -50
        broken, _ = law(dataclasses.replace(found, steepness=0.0), sigma)
        rest = [p / q for p, q in zip(broken, gaussian, strict=True) if q > Decimal("1e-50")]
        assert (max(rest) / min(rest)).ln() > Decimal("0.1")


def test_what_is_set_aside_covers_lattice_and_table():
    """The figures of [B12] and [B13], from theirs."""
    d, steps, s = 2.0**28, 2**16, 2.0**36
    n, c, log_share = d * steps, 2.0**-50, 160
    u = 2.0**-53
    most = 20 / 64 + 2.0**-13
    assert 4.001 * u * most + 4 * u / math.exp(-most) < 6.8 * u < c
    lattice = steps * ((2.0**17 * s) ** 2 / (24 * s**4) + d / (7 * s**2))
    own = n * c**2 / 2 + c * math.sqrt(2 * n * log_share)
    assert 6.6e-8 < own < 6.7e-8
    left = LATTICE_SLACK - 2 * (lattice + own)
    assert left > 7e-8
    apart = n * 2.0**-243 + 2 * math.exp(-log_share)
    assert apart < 2.0**-198
    cells = len(table(math.nextafter(2.0**57, 0)).edges) - 1  # the most cells there are
    assert cells == 5120
    assert cells * (2.0**-256 + 2.0**-319) / 0.73 + 4 * 2.0**-286 < 2.0**-243
    assert math.erfc(20 / math.sqrt(2)) < 2.0**-286
    share = -math.expm1(-left / 2)  # of delta, by the Renyi curve at order 1
    assert (1 + math.exp(48)) * apart < share * 2.0**-100
    assert (1 + math.exp(48)) * apart < (1e-6 - lattice - own) * 2.0**-100


def test_slack_is_in_the_price_at_every_order():
    event = SampledGaussian(0.01, 2.0, 1, "table").event
    one, ten = (loss_at(dataclasses.replace(event, steps=steps), 2.0) for steps in (1, 10))
    assert (10 * one - ten) / 9 == pytest.approx(1.5 * LATTICE_SLACK, rel=1e-6)
    assert loss_at(event, math.inf) == math.inf


# --- the law, by draws ----------------------------------------------------------------------------

# Draws of a seeded generator where no other source is named: an assertion fails always or never.


def folded(found, sigma, x):
    """Chi-square over 8 bands of |x| times 8 places in a cell, seen from its edge nearest 0."""
    cells = (len(found.edges) - 1) // 2
    eighths = np.arange(-8 * cells, 8 * cells + 1)
    edges = (eighths * 2.0 ** (found.bits - 3) - 0.5) / sigma
    mass = np.where(edges[1:] <= 0, np.diff(ndtr(edges)), -np.diff(ndtr(-edges)))
    out = np.where(eighths < 0, -1 - eighths, eighths)[:-1]
    bands = ndtri(0.5 + np.arange(1, 8) / 16) * sigma / 2.0 ** (found.bits - 3)
    label = np.searchsorted(bands, out) * 8 + out % 8
    expected = np.bincount(label, weights=mass, minlength=64) * len(x)
    counts = np.bincount(label[(x >> (found.bits - 3)) + 8 * cells], minlength=64)
    return p_value(counts, expected)


@pytest.mark.parametrize("sigma", [FINE, ODD, LARGE])
def test_draws_are_gaussian(sigma):
    x = drawn(sigma)
    assert folded(table(sigma), sigma, x) > 1e-3
    bins = 200
    edges = np.ceil(ndtri(np.arange(1, bins) / bins) * sigma)
    bounds = np.concatenate([[-np.inf], edges - 0.5, [np.inf]]) / sigma
    counts = np.bincount(np.searchsorted(edges, x, side="right"), minlength=bins)
    assert p_value(counts, np.diff(ndtr(bounds)) * len(x)) > 1e-3
    assert kstest(x[:300_000] / sigma, "norm").pvalue > 1e-3
    z = x / sigma
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((z**power).mean() - moment) < 4 * math.sqrt(variance / len(z)), power
    for far in (3.0, 4.0, 4.5):
        for side in (z, -z):
            expected = len(z) * ndtr(-far)
            assert abs((side > far).sum() - expected) < 4 * math.sqrt(expected), far
    assert abs(z).max() < 6.5


@pytest.mark.parametrize("sigma", [FINE, ODD, LARGE])
def test_low_bits_are_uniform(sigma):
    x = drawn(sigma, seed=2)
    for modulus in (2, 3, 256):
        counts = np.bincount(x % modulus, minlength=modulus)
        assert p_value(counts, np.full(modulus, len(x) / modulus)) > 1e-3, modulus


def test_neighbors_are_independent():
    x = drawn(ODD, seed=3)
    for lag in (1, 2, table_gaussian._TOGETHER):
        one, other = x[:-lag], x[lag:]
        for change in (np.sign, lambda v: v, lambda v: v.astype(float) ** 2, lambda v: v % 1024):
            correlation = np.corrcoef(change(one), change(other))[0, 1]
            assert abs(correlation) < 4 / math.sqrt(len(one)), lag
        joint = np.bincount((one % 8) * 8 + other % 8, minlength=64)
        assert p_value(joint, np.full(64, len(one) / 64)) > 1e-3


# --- in the noise source and the mechanism --------------------------------------------------------


def test_values_are_kept_and_held_to_where_sums_fit():
    most, ends = 2**62, np.iinfo(np.int64)
    values = np.array([ends.min, -most, -1, 0, 1, most, ends.max] * 100, np.int64)
    noisy = OpenDPNoise().fine_gaussian(values, 2.0**57)
    held = [int(v) for v in np.clip(values, -most, most)]
    off = [abs(int(a) - b) for a, b in zip(noisy, held, strict=True)]
    assert 2**56 < max(off) <= 20 * 2**57 + 2**51
    assert max(off) + most < 2**63
    strided = np.zeros(200_000, np.int64)  # long enough to be cut
    strided[::2] = np.arange(100_000) << 40
    noisy = OpenDPNoise().fine_gaussian(strided[::2], FINE)
    np.testing.assert_array_equal((noisy + 2**39) >> 40, np.arange(100_000))
    assert len(OpenDPNoise().fine_gaussian(values[:0], FINE)) == 0


def test_memory_is_that_of_the_numbers():
    count = 5_000_000
    values = np.zeros(count, np.int64)
    table(FINE)
    tracemalloc.start()
    try:
        sample(table(FINE), count)
        alone = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        OpenDPNoise().fine_gaussian(values, FINE)
        added = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert alone < 8 * count + 2**23
    assert added < 2 * 8 * count + 2**27


def test_the_mechanism_asks_the_sampler_it_names():
    told = NoNoise()
    sigma = 1.5 * CLIP_STEPS * 2**16
    total = np.array([CLIP_STEPS, -1], np.int64)
    for mechanism in (SampledGaussian(0.1, 1.5, 3), SampledGaussian(0.1, 1.5, 3, "table")):
        assert mechanism.event == events.SampledGaussian(0.1, 1.5, 3)
        np.testing.assert_array_equal(mechanism.draw(total, told), [1, -1 / CLIP_STEPS])
    assert [(asked.draw, asked.scale) for asked in told.drawn] == [
        ("gaussian", sigma),
        ("fine_gaussian", sigma),
    ]


@pytest.mark.parametrize("source", [OpenDPNoise(), SeededNoise(5)], ids=lambda source: source.kind)
def test_the_mechanism_has_its_scale(source):
    noisy = SampledGaussian(0.1, 0.7, 3, "table").draw(np.zeros(50_000, np.int64), source)
    # Normal laws: 9.5 standard deviations (2e-21) and 6.5 (8e-11).
    assert noisy.std() == pytest.approx(0.7, rel=0.03)
    assert abs(noisy.mean()) < 6.5 * 0.7 / math.sqrt(50_000)


def test_without_sampling_or_beyond_int64_the_table_is_refused():
    """At rate 1 the price is the Gaussian's own, with nothing set aside."""
    for sampler in ("opendp", "table"):
        priced = SampledGaussian(0.999, 8.0, 3, sampler).event
        assert loss_at(priced, 2.0) >= 3 * 0.9 / 64
    assert guarantee(SampledGaussian(1.0, 8.0, 3).event, 1e-6).epsilon > 0
    for rate, noise in ((1.0, 8.0), (0.1, 2.0**17 * 1.01)):
        SampledGaussian(rate, noise, 3)
        with pytest.raises(ValueError, match="sampler='table' needs"):
            SampledGaussian(rate, noise, 3, "table")
    with pytest.raises(ValueError, match="sampler='quick' must be one of"):
        SampledGaussian(0.1, 8.0, 3, "quick")


@pytest.mark.parametrize(
    ("rate", "noise", "numbers", "asked"),
    [
        (0.1, 0.7, TABLE_ABOVE, "gaussian"),
        (0.1, 0.7, TABLE_ABOVE + 1, "fine_gaussian"),
        (1.0, 0.7, TABLE_ABOVE + 1, "gaussian"),
        (0.1, 2.0**17 * 1.01, TABLE_ABOVE + 1, "gaussian"),
    ],
)
def test_long_vectors_take_the_table_where_it_holds(rate, noise, numbers, asked):
    """Nothing is set aside without sampling, and the table ends where int64 does."""
    source = NoNoise()
    SampledGaussian(rate, noise, 3, "auto").draw(np.zeros(numbers, np.int64), source)
    assert [one.draw for one in source.drawn] == [asked]


def test_draws_are_like_opendps():
    """Two samples, both of the operating system's entropy.

    Each line fails with probability 1e-9, by the limits of the Kolmogorov-Smirnov statistic and of
    chi-square on 2,000 expected counts a cell at least.
    """
    zeros = np.zeros(1_000_000, np.int64)
    ours = OpenDPNoise().fine_gaussian(zeros, ODD)
    theirs = OpenDPNoise().gaussian(zeros[:100_000], ODD)
    assert ks_2samp(ours, theirs).pvalue > 1e-9
    cuts = np.ceil(ndtri(np.arange(1, 50) / 50) * ODD)
    shares = [np.bincount(np.searchsorted(cuts, x, "right"), minlength=50) for x in (ours, theirs)]
    pooled = sum(shares) / (len(ours) + len(theirs))
    statistic = sum(((n - n.sum() * pooled) ** 2 / (n.sum() * pooled)).sum() for n in shares)
    assert chi2.sf(statistic, 49) > 1e-9
