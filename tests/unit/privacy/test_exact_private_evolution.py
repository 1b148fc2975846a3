"""Private evolution: exact cost of its noise, exact moves of its votes."""

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.data.records import Bucket, Cell, Private
from privsyn.dp import histograms, mechanisms
from privsyn.dp.accountant import guarantee
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.events import DiscreteGaussian
from privsyn.dp.histograms import LATTICE
from privsyn.methods.base import PricingFacts, Sample
from privsyn.methods.private_evolution import mechanism as mechanism_of_votes
from privsyn.methods.private_evolution import method as private_evolution
from privsyn.methods.private_evolution.method import PrivateEvolution
from privsyn.methods.private_evolution.settings import PrivateEvolutionConfig
from privsyn.methods.private_evolution.votes import Grid, Voters, exact_sums
from tests.fakes import drawing
from tests.noise import Constant, NullJournal

SIGMAS = (0.5, 0.7, 1.0, 2 * math.sqrt(2), 10 * math.sqrt(2))


def delta_on_lattice(shift, sigma, rounds, epsilon):
    """The same for a sigma of very many steps, where the sum is a discrete Gaussian itself.

    By Poisson summation it is up to a relative e^(-pi^2 sigma^2); see the test below. Summed over
    the outcomes whose loss exceeds epsilon, in pieces.
    """
    spread = math.sqrt(rounds) * sigma
    first = math.ceil((2 * sigma**2 * epsilon - rounds * shift**2) / (2 * shift))
    last = math.ceil(12 * spread)
    total, piece = 0.0, 1 << 22
    for start in range(max(first, -last), last + 1, piece):
        x = np.arange(start, min(start + piece, last + 1), dtype=np.float64)
        loss = (2 * x * shift + rounds * shift**2) / (2 * sigma**2)
        mass = np.exp(-(x**2) / (2 * spread**2))
        total += float((mass * -np.expm1(np.minimum(epsilon - loss, 0.0))).sum())
    # Of this sigma the masses add up to sqrt(2 pi) sigma, by the same summation.
    return total / (math.sqrt(2 * math.pi) * spread)


METHOD = PrivateEvolution()
DELTA = 1e-5
RECORD = PrivacyUnit()
# --- the noise: exact T-fold discrete privacy loss ------------------------------------------------


def pmf(sigma, width=12):
    """Discrete Gaussian on the integers, cut at so many deviations."""
    reach = math.ceil(width * sigma)
    mass = np.exp(-(np.arange(-reach, reach + 1, dtype=np.float64) ** 2) / (2 * sigma**2))
    return mass / mass.sum()


def convolved(sigma, rounds):
    """Exact law of the sum of ``rounds`` such variables, by convolution."""
    one = pmf(sigma)
    total = np.ones(1)
    for _ in range(rounds):
        total = np.convolve(total, one)
    return total


def delta_of_sum(law, shift, variance, rounds, epsilon):
    """Delta at epsilon of T rounds in which one bin moves by ``shift``.

    A round's loss is (2 x shift + shift^2) / (2 sigma^2), linear in the noise x: the total loss is
    a function of the sum of the noise.
    """
    reach = len(law) // 2
    loss = (2 * np.arange(-reach, reach + 1) * shift + rounds * shift**2) / (2 * variance)
    return float((law * -np.expm1(np.minimum(epsilon - loss, 0.0))).sum())


def claimed(sigma, rounds, delta=DELTA):
    cfg = PrivateEvolutionConfig(noise_multiplier=sigma, rounds=rounds)
    planned = METHOD.calibrate(
        cfg, Guarantee(1e6, delta), PricingFacts(Adjacency.ADD_REMOVE, RECORD, ())
    )
    return guarantee(planned.event, delta).epsilon


@pytest.mark.parametrize("rounds", [1, 2, 4])
@pytest.mark.parametrize("sigma", [0.5, 1.0, 2 * math.sqrt(2)])
def test_convolution_agrees_with_the_claim_as_the_lattice_gets_finer(sigma, rounds):
    """Without the lemma: T-fold convolution at 2^3 to 2^7 steps a vote comes down to delta."""
    epsilon = claimed(sigma, rounds)
    found = [
        delta_of_sum(convolved(steps * sigma, rounds), steps, (steps * sigma) ** 2, rounds, epsilon)
        for steps in (8, 32, 128)
    ]
    gaps = [abs(delta / DELTA - 1) for delta in found]
    assert gaps[0] > gaps[1] > gaps[2] or gaps[0] < 1e-3
    assert gaps[2] < 2e-3


def test_a_replaced_record_moves_two_bins_and_pays_for_both():
    """Two bins move by one vote each: the loss is that of one bin moved by sqrt 2."""
    sigma, rounds = 1.5, 3
    cfg = PrivateEvolutionConfig(noise_multiplier=sigma, rounds=rounds)
    planned = METHOD.calibrate(
        cfg, Guarantee(1e6, DELTA), PricingFacts(Adjacency.REPLACE_ONE, RECORD, ())
    )
    epsilon = guarantee(planned.event, DELTA).epsilon
    noise = planned.derived["noise_votes"] * 64  # the sum over both bins and all rounds
    law = convolved(noise, 2 * rounds)
    found = delta_of_sum(law, 64, noise**2, 2 * rounds, epsilon)
    assert found == pytest.approx(DELTA, rel=2e-3)


# --- the votes: every neighbor of tiny data sets -------------------------------------------------

VALUES = (-9.0, -2.1, 0.0, 0.4, 3.0, 1e6, math.nan)
CANDIDATES = (-2.0, 0.0, 0.0, 1.0)
LABELS = ("x", "y")


class Line:
    """A deterministic VariationAPI over numbers: the i-th variation of z is z + i degree."""

    revision = "line-1"

    def __init__(self):
        self.step = 0

    def random(self, count, label):
        return [CANDIDATES[i % len(CANDIDATES)] for i in range(count)]

    def vary(self, samples, label, degree):
        self.step += 1
        return [value + degree * (self.step % 3) for value in samples]


class Identity:
    """An Embedder of numbers; two dimensions, so that lengths count."""

    revision, width = "identity-1", 2

    def embed(self, samples):
        return np.array([[value, 0.5] for value in samples], np.float32)


class Numbers:
    """A modality whose records are numbers."""

    def __init__(self):
        self.api, self.embedder = Line(), Identity()

    def with_steps(self, steps):
        return self

    def read(self, content):
        return float(content)

    def pack(self, samples):
        return json.dumps(list(samples)).encode()

    def unpack(self, data):
        return json.loads(data)

    def content(self, sample):
        return repr(sample)

    def sheet(self, population):
        return None


recorder = partial(Constant, gaussian=lambda place: place * LATTICE)
"""The same answer on neighbors: what comes after a draw must not hide what moves it."""


def asked(data, adjacency, unit=RECORD, *, k=0, rounds=2, sigma=1.0, expansion=1, means=0.0):
    """What the mechanism is given: clean histograms and scale of the noise, in draw order.

    Args:
        data: (label, value) of every record that is its own unit, (label, value, unit) of others.
    """
    cfg = PrivateEvolutionConfig(
        rounds=rounds, noise_multiplier=sigma, lookahead=k, population=4, threshold=0.0,
        degrees=(0.5,), expansion=expansion, mean_share=means,
    )  # fmt: skip
    planned = METHOD.calibrate(
        cfg, Guarantee(1e6, DELTA), PricingFacts(adjacency, unit, tuple(LABELS))
    )
    owned = [(*record[:2], *(record[2:] or (f"of {i}",))) for i, record in enumerate(data)]
    buckets = [
        Bucket(
            cell,
            Private([repr(value) for label, value, _ in owned if label == cell.label]),
            Private([name for label, _, name in owned if label == cell.label]),
        )
        for cell in METHOD.cells(cfg, LABELS)
    ]
    noise = recorder()
    mechanism = METHOD.rebuild(
        cfg.model_copy(update={"threshold": 0.0}),
        Guarantee(1e6, DELTA),
        PricingFacts(adjacency, unit, tuple(LABELS)),
        {"noise_multiplier": sigma},
    )
    draw = drawing({}, noise, NullJournal())
    made = private_evolution._Evolution(
        cfg, mechanism, Numbers(), buckets, draw, np.random.default_rng(5)
    ).run()
    rows = sum(isinstance(part, Sample) for part in made)
    assert rows == planned.rows[0]
    *before, votes = getattr(planned.event, "events", [planned.event])
    assert len(noise.drawn) == len(before) + votes.count
    return [(one.values, one.scale) for one in noise.drawn]


def worst(pairs, adjacency, unit=RECORD, **options):
    """Largest L2 move of a histogram between neighbors over what its noise was scaled for."""
    ratios = []
    for one, other in pairs:
        for (a, sigma), (b, same) in zip(
            asked(one, adjacency, unit, **options),
            asked(other, adjacency, unit, **options),
            strict=True,
        ):
            assert sigma == same
            squared = sum((int(x) - int(y)) ** 2 for x, y in zip(a, b, strict=True))
            ratios.append(Fraction(squared) / Fraction(sigma) ** 2)
    return math.sqrt(max(ratios))


RECORDS = [(label, value) for label in LABELS for value in VALUES]
BASES = [(), (("x", 0.2),), (("x", 0.0), ("y", 3.0), ("x", math.nan)), (("y", -2.1),) * 3]


def unit_of(*records):
    return tuple((label, value, "the unit") for label, value in records)


def added(records=1):
    for base in BASES:
        for extra in itertools.combinations_with_replacement(RECORDS, records):
            yield base, (*base, *unit_of(*extra))


def replaced(records=1):
    kinds = list(itertools.combinations_with_replacement(RECORDS[::2], records))
    for base in BASES[:2]:
        for gone, come in itertools.product(kinds, kinds):
            yield (*base, *unit_of(*gone)), (*base, *unit_of(*come))


@pytest.mark.parametrize("k", [0, 1, 3])
def test_one_record_more_or_fewer_moves_one_vote(k):
    assert worst(added(), Adjacency.ADD_REMOVE, k=k) == 1
    assert worst(((b, a) for a, b in added()), Adjacency.REPLACE_NULL, k=k) == 1
    far = [(base, (*base, ("x", 1e6))) for base in BASES]
    assert worst(far, Adjacency.ADD_REMOVE, k=k) == 1  # it takes no other's vote along


@pytest.mark.parametrize("k", [0, 2])
def test_one_record_replaced_moves_root_two_also_between_labels(k):
    assert 1 - 1e-12 < worst(replaced(), Adjacency.REPLACE_ONE, k=k) <= 1


THREE = unit_of(*[("x", 0.2)] * 3)
FOUR = unit_of(("x", 0.2), ("x", 0.2), ("y", 0.2), ("y", 0.2))


def test_a_unit_of_three_records_moves_the_root_of_three_votes():
    unit = PrivacyUnit("user", 3)
    some = [*list(added(3))[::7], ((), THREE)]
    assert 1 - 1e-5 < worst(some, Adjacency.ADD_REMOVE, unit) <= 1
    assert worst([((), FOUR)], Adjacency.ADD_REMOVE, PrivacyUnit("user", 4)) <= 1
    two = PrivacyUnit("user", 2)
    same = [unit_of(record, record) for record in (RECORDS[0], RECORDS[-2])]
    some = [*list(replaced(2))[::23], tuple(same)]
    assert 1 - 1e-5 < worst(some, Adjacency.REPLACE_ONE, two) <= 1


def test_votes_in_different_bins_are_left_whole():
    """Three bins, one vote each: what the noise is scaled for to the last digit."""
    unit, apart = PrivacyUnit("user", 3), unit_of(("x", -2.1), ("x", 0.0), ("y", 3.0))
    (votes, sigma), *_ = asked(apart, Adjacency.ADD_REMOVE, unit)
    assert sorted(votes)[-3:] == [LATTICE] * 3
    assert sum(votes) == 3 * LATTICE
    assert sigma == pytest.approx(math.sqrt(3) * LATTICE, rel=1e-15)
    (votes, _), *_ = asked(THREE, Adjacency.ADD_REMOVE, unit)
    assert max(votes) == sum(votes) == 3 * math.isqrt(LATTICE**2 * 3 // 9)


def test_candidates_that_are_ranked_move_as_little():
    assert worst(added(), Adjacency.ADD_REMOVE, expansion=3) == 1
    assert 1 - 1e-12 < worst(replaced(), Adjacency.REPLACE_ONE, expansion=2) <= 1
    unit = PrivacyUnit("user", 3)
    some = [((), THREE), (RECORDS[:2], (*RECORDS[:2], *unit_of(*RECORDS[-3:])))]
    assert 1 - 1e-5 < worst(some, Adjacency.ADD_REMOVE, unit, expansion=3, k=1) <= 1


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), max_size=14),
    st.lists(st.integers(0, 4), max_size=6),
    st.lists(st.integers(0, 4), max_size=6),
)
def test_a_unit_adds_its_own_clipped_votes_to_a_histogram(most, others, gone, come):
    """Whatever others are there, and however many records it has."""

    def steps(*unit):
        pairs = [*others, *(("the unit", place) for place in unit)]
        votes = np.array([place for _, place in pairs], np.int64)
        found = histograms.histogram(votes, [name for name, _ in pairs], 5, most, LATTICE)
        return [int(value) for value in found]

    without, one, other = steps(), steps(*gone), steps(*come)
    moves = [[b - a for a, b in zip(without, with_it, strict=True)] for with_it in (one, other)]
    for move, unit in zip(moves, (gone, come), strict=True):
        counts = [unit.count(place) for place in range(5)]
        norm = sum(count**2 for count in counts)
        weight = LATTICE if norm <= most else math.isqrt(LATTICE**2 * most // norm)
        assert move == [count * weight for count in counts]
        assert min(move) >= 0
        assert sum(value**2 for value in move) <= most * LATTICE**2
    # Of one that replaces another: see [E15].
    assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) <= 2 * most * LATTICE**2


SAME_NOISE = 1 / 3
"""The share with which the sums of vectors have the noise multiplier of a histogram of two."""


def test_the_mean_vectors_move_by_what_their_noise_is_scaled_for():
    """A vector of length one a record; opposite vectors where one record replaces another [E14]."""
    assert 1 - 1e-6 < worst(added(), Adjacency.ADD_REMOVE, means=SAME_NOISE) <= 1 + 1e-12
    assert 1 - 1e-6 < worst(replaced(), Adjacency.REPLACE_ONE, means=SAME_NOISE) <= 1 + 1e-12
    two = PrivacyUnit("user", 2)
    some = list(added(2))[::7]
    assert 1 - 1e-6 < worst(some, Adjacency.ADD_REMOVE, two, means=SAME_NOISE) <= 1 + 1e-12
    assert worst(list(replaced(2))[::23], Adjacency.REPLACE_ONE, two, means=SAME_NOISE) <= 1 + 1e-12


@given(
    st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), max_size=5),
    st.lists(st.floats(width=32), min_size=3, max_size=3),
)
@settings(max_examples=100)
def test_a_vector_has_length_one_at_most_whatever_the_others_are(others, one):
    """Also NaN, infinities, and rows far from all candidates."""
    grid = Grid.around(np.array([[0, 0, 1], [1, 0, 0.5], [-1, 2, 0]], np.float32))

    def sums(*rows):
        vectors = np.array(rows, np.float32).reshape(-1, 3)
        return exact_sums([vectors], [str(i) for i in range(len(rows))], grid, 1, LATTICE)

    assert (sums(*others, one) - sums(*others) == sums(one)).all()
    assert sum(int(step) ** 2 for step in sums(one)) <= LATTICE**2


ROWS = st.lists(st.lists(st.floats(-9, 9, width=32), min_size=3, max_size=3), max_size=5)


@given(st.tuples(ROWS, ROWS), st.tuples(ROWS, ROWS), st.integers(1, 5))
def test_the_rows_of_a_unit_add_a_vector_of_root_m_at_most(others, mine, most):
    """Over both labels together, whoever else is there, and only where they are too long."""
    grid = Grid.around(np.array([[0, 0, 1], [1, 0, 0.5], [-1, 2, 0]], np.float32))

    def sums(*parts):
        vectors = [np.array([*chain(*rows)], np.float32).reshape(-1, 3) for rows in parts]
        units = [
            f"{label} {i}" if not place else "u"
            for label, (rest, *own) in enumerate(parts)
            for place, rows in enumerate((rest, *own))
            for i in range(len(rows))
        ]
        return exact_sums(vectors, units, grid, most, LATTICE).astype(object)

    alone = sums(([], mine[0]), ([], mine[1]))
    moved = sums(*zip(others, mine, strict=True)) - sums(*((rest, []) for rest in others))
    assert (moved == alone).all()
    assert (alone**2).sum() <= most * LATTICE**2
    whole = [exact_sums([np.array([r], np.float32)], ["u"], grid, 1, LATTICE) for r in mine[0]]
    if mine[0] and not mine[1] and (sum(whole).astype(object) ** 2).sum() <= most * LATTICE**2:
        assert (alone[:3] == sum(whole)).all()


def test_a_clipped_unit_keeps_its_direction():
    grid = Grid.around(np.array([[0, 0, 1], [1, 0, 0.5], [-1, 2, 0]], np.float32))
    rows = np.array([[-3, 1, 0.5]] * 4, np.float32)
    whole = exact_sums([rows], ["u"] * 4, grid, 16, LATTICE)
    clipped = exact_sums([rows], ["u"] * 4, grid, 4, LATTICE)
    assert clipped == pytest.approx(whole / 2, abs=1)


# --- votes are functions of their own row, to the last bit ----------------------------------------


def tally(voters, candidates):
    return np.bincount(voters.nearest(candidates), minlength=len(candidates))


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    width=st.sampled_from([1, 2, 17, 384]),
    rows=st.integers(1, 60),
    others=st.integers(0, 3000),
    candidates=st.integers(1, 70),
    near=st.booleans(),
)
def test_votes_add_up_over_any_split_and_order(seed, width, rows, others, candidates, near):
    rng = np.random.default_rng(seed)
    spread = 1e-4 if near else 1.0  # near: private rows between candidates, on nearly equal terms
    z = rng.normal(size=(candidates, width)).astype(np.float32)
    x = (z[rng.integers(0, candidates, (2, rows))].mean(0)).astype(np.float32)
    x += (spread * rng.normal(size=x.shape)).astype(np.float32)
    crowd = (100 * rng.normal(size=(others, width))).astype(np.float32)
    alone = sum(tally(Voters(row[None]), z) for row in x)
    together = tally(Voters(x), z)
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(tally(Voters(x[rng.permutation(rows)]), z), together)
    among = np.concatenate([crowd[: others // 2], x, crowd[others // 2 :]])
    np.testing.assert_array_equal(tally(Voters(among), z) - tally(Voters(crowd), z), together)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_votes_do_not_depend_on_threads(threads):
    import faiss

    rng = np.random.default_rng(3)
    x, z = (rng.normal(size=(n, 384)).astype(np.float32) for n in (3000, 700))
    z[350:] = z[:350]  # ties throughout
    before = faiss.omp_get_max_threads()
    reference = tally(Voters(x), z)
    try:
        faiss.omp_set_num_threads(threads)
        np.testing.assert_array_equal(tally(Voters(x), z), reference)
    finally:
        faiss.omp_set_num_threads(before)
    assert reference[350:].sum() == 0


def test_a_run_with_real_parts_keeps_to_its_plan():
    """What ``run`` gives the noise is what its plan priced, for every adjacency."""
    for adjacency in Adjacency:
        cfg = PrivateEvolutionConfig(modality="image", rounds=2, lookahead=0, population=3)
        planned = METHOD.calibrate(cfg, Guarantee(3, DELTA), PricingFacts(adjacency, RECORD, ()))
        noise = recorder()

        class Gray:
            revision, width = "gray-1", 2

            def random(self, count, label):
                return [np.full((2, 2), 40 * i, np.uint8) for i in range(count)]

            def vary(self, samples, label, degree):
                return list(samples)

            def embed(self, samples):
                return np.array([[s.mean(), 0] for s in samples], np.float32)

        bucket = Bucket(Cell(0, None, 0), Private([]))
        made = METHOD.run(
            cfg,
            planned,
            [bucket],
            drawing({"image": Gray(), "image_embedder": Gray()}, noise, NullJournal()),
        )
        assert list(made)
        assert len(noise.drawn) == planned.event.count == 2
        for _, _, sigma in noise.drawn:
            moved = math.sqrt(adjacency.moves) * LATTICE
            assert sigma >= planned.event.noise_multiplier * moved * (1 - 1e-15)
            assert (
                replace(planned.event, count=1)
                == mechanism_of_votes._histogram(
                    planned.derived["noise_multiplier"], PricingFacts(adjacency, RECORD)
                ).event
            )


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("rounds", [1, 2, 3, 5, 10, 20])
def test_the_claim_holds_on_the_lattice(sigma, rounds, monkeypatch):
    """On the method's own lattice where the sum is short enough, else on the coarsest allowed."""
    spread = math.sqrt(rounds) * sigma * LATTICE
    steps = LATTICE if spread < 5e6 else math.ceil(mechanisms.FINE_SIGMA / sigma)
    monkeypatch.setattr(histograms, "LATTICE", steps)
    mechanism = mechanism_of_votes._histogram(sigma, PricingFacts(Adjacency.ADD_REMOVE, RECORD))
    assert isinstance(mechanism.event, DiscreteGaussian)
    epsilon = claimed(sigma, rounds)
    found = delta_on_lattice(mechanism.sensitivity, mechanism.sigma, rounds, epsilon)
    assert 0.999 * DELTA <= found <= DELTA


@pytest.mark.parametrize("rounds", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("sigma", [2.0, 3.0, 7.5])
def test_a_sum_of_discrete_gaussians_is_one(sigma, rounds):
    law = convolved(sigma, rounds)
    reach = len(law) // 2
    x = np.arange(-reach, reach + 1)
    one = np.exp(-(x**2) / (2 * rounds * sigma**2))
    np.testing.assert_allclose(law, one / (math.sqrt(2 * math.pi * rounds) * sigma), atol=1e-14)
