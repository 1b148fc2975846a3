"""The exact privacy of keyphrase seeding on tiny vocabularies, and the variants it must catch."""

import itertools
import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from privsyn.data.records import Bucket, Cell, Private
from privsyn.dp.accountant import guarantee, loss_at
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.events import Composed, DiscreteGaussian, Disjoint, Pure
from privsyn.methods.base import PricingFacts
from privsyn.methods.keyphrase_seeding import dp_kde, settings
from privsyn.methods.keyphrase_seeding import method as keyphrase_seeding
from privsyn.methods.keyphrase_seeding.dp_kde import (
    STEPS,
    exact_sums,
    mechanism,
    structures,
    windows,
)
from privsyn.methods.keyphrase_seeding.method import KeyphraseSeeding
from privsyn.methods.keyphrase_seeding.settings import (
    KeyphraseSeedingConfig,
    KeyphraseSeedingSettings,
)
from privsyn.methods.keyphrase_seeding.vocabulary import Vocabulary
from tests.fakes import run_over
from tests.noise import NoNoise

PAIRS = [((2, 1, 0), (1, 0, 0)), ((1, 1, 1), (1, 0, 2)), ((3, 0, 1), (2, 0, 0))]


def choice_of(*of):
    return choosing(*of).choice


def loss(one: Sequence[int], other: Sequence[int], scale: float, **options: bool) -> float:
    p, q = chances(one, scale, 2, **options), chances(other, scale, 2, **options)
    return max(
        abs(math.log(p.get(key, 0.0) or 1e-300) - math.log(q.get(key, 0.0) or 1e-300))
        for key in {*p, *q}
    )


def chances(counts: Sequence[int], scale: float, size: int, seen_only: bool = False) -> dict:
    """Probability of every choice of ``size`` terms under exact discrete Laplace noise."""
    reach = math.ceil(16 * scale)  # beyond it less than 2e-7 of the mass
    steps = np.arange(-reach, reach + 1)
    mass = np.exp(-np.abs(steps) / scale)
    mass /= mass.sum()
    noisy = [count + steps for count in counts]
    weights = [mass] * len(counts)
    if seen_only:
        noisy = [n if count else np.array([0]) for n, count in zip(noisy, counts, strict=True)]
        weights = [w if count else np.ones(1) for w, count in zip(weights, counts, strict=True)]
    grids = np.stack([grid.ravel() for grid in np.meshgrid(*noisy, indexing="ij")])
    chance = np.multiply.reduce([w.ravel() for w in np.meshgrid(*weights, indexing="ij")])
    order = np.argsort(-grids, axis=0, kind="stable")[:size]
    found: dict[tuple[int, ...], float] = {}
    for choice in product(range(len(counts)), repeat=size):
        hit = (order == np.array(choice)[:, None]).all(axis=0)
        if hit.any():
            found[choice] = float(chance[hit].sum())
    return found


METHOD = KeyphraseSeeding()
RECORD = PrivacyUnit()
TERMS = ("a", "b", "c")
DOCUMENTS = [" ".join(d) for n in range(4) for d in product(TERMS, repeat=n)]
"""Every document of at most three words."""


def neighbors(adjacency, records=1):
    units = list(product(DOCUMENTS, repeat=records))
    for one in units:
        for other in units if adjacency is Adjacency.REPLACE_ONE else [("",) * records]:
            yield one, other


# --- the choice of terms --------------------------------------------------------------------------


def config(**settings):
    defaults = {
        "vocabulary_digest": "0" * 64, "use_llm": False,
        "noise": "laplace", "vocabulary_size": 2, "evidence": False,
        "phrases_per_document": 2, "features": 8, "sequence_length": 3, "sequences_per_label": 2,
    }  # fmt: skip
    return KeyphraseSeedingSettings(**(defaults | settings))


def histogram(cfg, texts, mechanism):
    counts = NoNoise()
    keyphrase_seeding._chosen(cfg, mechanism, Vocabulary(TERMS), [list(texts)], 2, counts)
    [(_, values, scale)] = counts.drawn
    assert scale == (mechanism.choice.scale if cfg.noise == "laplace" else mechanism.choice.sigma)
    return values


def choosing(cfg, adjacency, records, epsilon):
    """The mechanism, whose noise on the histogram of terms a run draws and is charged for."""
    facts = PricingFacts(adjacency, PrivacyUnit("user", records))
    target = Guarantee(epsilon / cfg.vocabulary_share, 1e-6)
    one = METHOD.rebuild(cfg, target, facts, {"noise_multiplier": 1.0})
    if cfg.noise == "gaussian":
        return one
    multiplier = one.choice.event.epsilon / epsilon * (1 + 1e-12)
    return METHOD.rebuild(cfg, target, facts, {"noise_multiplier": multiplier})


def worst_choice(cfg, adjacency, records=1):
    """Largest move of the histogram, L1 or L2, over the sensitivity that is charged."""
    mechanism = choosing(cfg, adjacency, records, 1.0)
    known = {text: histogram(cfg, [text], mechanism) for text in DOCUMENTS}
    order = 1 if cfg.noise == "laplace" else 2
    moves = [
        np.linalg.norm(sum(known[t] for t in one) - sum(known[t] for t in other), order)
        for one, other in neighbors(adjacency, records)
    ]
    return max(moves) / mechanism.choice.sensitivity


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_histogram_moves_by_its_sensitivity(adjacency, most, noise):
    found = worst_choice(config(phrases_per_document=most, noise=noise), adjacency)
    assert found <= 1
    if adjacency.moves * most <= 3:  # of three terms two documents cannot hold six others
        assert found == (1 if noise == "laplace" else pytest.approx(1, rel=1e-12))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_records_of_a_unit_add_up(noise):
    found = worst_choice(config(noise=noise), Adjacency.REPLACE_NULL, records=2)
    assert found <= 1
    assert found == (1 if noise == "laplace" else pytest.approx(1, rel=1e-12))


def test_counts_and_noise_are_in_the_same_steps():
    """Gaussian noise in records on counts in steps of its lattice would be next to nothing."""
    cfg = config(noise="gaussian")
    mechanism = choosing(cfg, Adjacency.ADD_REMOVE, 1, 1.0)
    [step] = set(histogram(cfg, [max(DOCUMENTS, key=len)], mechanism).tolist()) - {0}
    assert step == mechanism.steps
    assert mechanism.choice.sensitivity >= step * math.sqrt(cfg.phrases_per_document)


def test_every_public_term_is_noised():
    counts = NoNoise()
    public = Vocabulary([f"t{i}" for i in range(500)])
    mechanism = choosing(config(), Adjacency.ADD_REMOVE, 1, 1.0)
    keyphrase_seeding._chosen(config(), mechanism, public, [["t3"], []], 2, counts)
    [(_, values, _)] = counts.drawn
    assert values.shape == (500,)
    assert values.sum() == values[3] == 1


def test_the_noise_alone_decides_among_terms_that_no_document_holds():
    """Noise that grows along the vocabulary: a term is chosen by it, seen or not."""

    class Ramp:
        kind = "seeded"

        def laplace(self, values, scale):
            return values + 1000 * np.arange(len(values))[::-1] % 7000

    public = Vocabulary([f"t{i}" for i in range(12)])
    mechanism = choosing(config(), Adjacency.ADD_REMOVE, 1, 1.0)
    for documents in ([], [["t3"]], [["t0", "t11"], ["t5"]]):
        values = np.zeros(12, np.int64)
        for text in itertools.chain(*documents):
            values[int(text[1:])] += 1
        expected = sorted(range(12), key=lambda i: (-Ramp().laplace(values, 1.0)[i], i))[:7]
        chosen = keyphrase_seeding._chosen(config(), mechanism, public, documents, 7, Ramp())
        assert chosen.tolist() == expected
        assert set(chosen.tolist()) - set(np.flatnonzero(values).tolist())


@pytest.mark.parametrize("rate", [0.01, 0.2, 0.9])
def test_how_many_are_kept_is_read_off_the_noisy_counts_alone(rate, monkeypatch):
    """Whatever the records are, the same noisy counts choose the same terms."""
    monkeypatch.setattr(keyphrase_seeding, "LEAST_TERMS", 1)
    monkeypatch.setattr(settings, "FALSE_DISCOVERY_RATE", rate)

    class Fixed:
        kind = "seeded"

        def laplace(self, values, scale):
            return np.array([40, 30, 9, 7, 5, 4, 3, 2, 1, 0, -5, -9], np.int64)

    public = Vocabulary([f"t{i}" for i in range(12)])
    cfg = config(evidence=True)
    mechanism = choosing(cfg, Adjacency.ADD_REMOVE, 1, 1.0)
    found = [
        keyphrase_seeding._chosen(cfg, mechanism, public, documents, 10, Fixed()).tolist()
        for documents in ([], [["t3"]], [["t0", "t11"], ["t5"]] * 50)
    ]
    assert found[0] == found[1] == found[2]
    kept = [number for number in found[0] if number >= 0]
    assert kept == list(range(len(kept)))
    assert len(found[0]) == 10
    # Of twelve terms of which none occurs so many are expected to reach the last that is kept.
    scale = mechanism.choice.scale
    noise = 12 * math.exp(-[40, 30, 9, 7, 5, 4, 3, 2, 1, 0][len(kept) - 1] / scale)
    assert noise / (1 + math.exp(-1 / scale)) <= rate * len(kept)


def test_a_count_that_noise_takes_to_the_end_of_int64_is_the_least():
    class Ends:
        kind = "seeded"

        def laplace(self, values, scale):
            ends = np.iinfo(np.int64)
            return np.array([ends.min, 0, ends.max, 5], np.int64)

    public = Vocabulary([f"t{i}" for i in range(4)])
    mechanism = choosing(config(), Adjacency.ADD_REMOVE, 1, 1.0)
    chosen = keyphrase_seeding._chosen(config(), mechanism, public, [], 4, Ends())
    assert chosen.tolist() == [2, 3, 1, 0]


# --- the estimates --------------------------------------------------------------------------------


def unit_vectors(count, width, seed):
    vectors = np.random.default_rng(seed).standard_normal((count, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def worst_sums(shape, angles, documents, most, adjacency, records=1):
    """Largest L1 and L2 move of the sums over neighbors, over the sensitivities charged."""
    moved = adjacency.moves * records * most
    l1 = mechanism("laplace", shape.features, moved, 1.0).sensitivity
    l2 = mechanism("gaussian", shape.features, moved, 1.0).sensitivity
    parts = [
        sum(exact_sums(angles, windows([d], shape.blocks, most)) for d in unit)
        for unit in product(documents, repeat=records)
    ]
    others = parts if adjacency is Adjacency.REPLACE_ONE else [np.zeros(shape.features, np.int64)]
    moves = [one - other for one in parts for other in others]
    return (
        max(float(np.abs(m).sum()) for m in moves) / l1,
        max(math.sqrt(float((m.astype(np.float64) ** 2).sum())) for m in moves) / l2,
    )


def every_document(terms, length):
    return [
        list(d) for n in range(length + 1) for d in product(range(terms), repeat=n)
        if len(set(d)) == n
    ]  # fmt: skip


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("ensemble", ["independent", "linear", "logarithmic"])
def test_sums_move_by_their_sensitivities(adjacency, ensemble):
    vectors = unit_vectors(4, 3, 1)
    for shape in structures(ensemble, 4, 6, 0.7):
        angles = shape.angles(vectors)
        found = worst_sums(shape, angles, every_document(4, 4), 2, adjacency)
        assert max(found) <= 1
        assert min(found) > 0.3


def test_two_records_of_a_unit_add_up():
    shape = structures("independent", 1, 6, 0.7)[0]
    found = worst_sums(
        shape,
        shape.angles(unit_vectors(3, 3, 1)),
        every_document(3, 3),
        2,
        Adjacency.REPLACE_ONE,
        2,
    )
    assert max(found) <= 1


def adversary(most):
    """A document of ``most`` phrases with one vector, all of whose angles lie near 45 degrees."""
    shape = structures("independent", 1, 6, 0.4)[0]
    candidates = unit_vectors(40_000, 3, 2)
    turns = shape.angles(candidates)[0].astype(np.float64) * 2 * math.pi / dp_kde.TURN
    sizes = (np.abs(np.cos(turns)) + np.abs(np.sin(turns))).sum(axis=1)
    best = candidates[np.argmax(sizes)]
    return shape, shape.angles(np.tile(best, (most, 1))), list(range(most))


@pytest.mark.parametrize("most", [1, 3, 10])
def test_an_adversarial_document_comes_within_a_hundredth(most):
    shape, angles, document = adversary(most)
    found = worst_sums(shape, angles, [document], most, Adjacency.ADD_REMOVE)
    assert all(0.99 < move <= 1 for move in found)


def test_replacing_it_by_its_opposite_needs_the_double():
    """All angles turned by half: the sums move by almost twice what one record adds."""
    shape, angles, document = adversary(3)
    both = np.concatenate([angles, angles + np.uint16(dp_kde.TURN // 2)], axis=1)
    opposite = [3 + phrase for phrase in document]
    found = worst_sums(shape, both, [document, opposite], 3, Adjacency.REPLACE_ONE)
    assert all(0.99 < move <= 1 for move in found)


# --- what a run asks for --------------------------------------------------------------------------


class Axes:
    """An embedder of few public phrases; it refuses anything else."""

    revision, width = "axes", 3

    def __init__(self, terms):
        self._terms = list(terms)

    def embed(self, samples, /):
        return unit_vectors(len(self._terms), 3, 5)[[self._terms.index(s) for s in samples]]


def asked(tmp_path, cfg, texts, adjacency, unit=RECORD):
    """Every vector and scale a run hands to the noise, and its plan."""
    file = tmp_path / "v.txt"
    file.write_text("\n".join(TERMS))
    cfg = METHOD.resolve(cfg.model_copy(update={"vocabulary": str(file)}), {})
    labels = [str(i) for i in range(len(texts))]
    plan = METHOD.calibrate(cfg, Guarantee(6.0, 1e-6), PricingFacts(adjacency, unit, tuple(labels)))
    counts, name = NoNoise(), f"journal{len(list(tmp_path.iterdir()))}"
    buckets = [
        Bucket(Cell(i, label, 0), Private(list(own)))
        for i, (label, own) in enumerate(zip(labels, texts, strict=True))
    ]
    list(run_over(tmp_path / name, METHOD, cfg, plan, buckets, {"embedder": Axes(TERMS)}, counts))
    return [(asked.values, asked.scale) for asked in counts.drawn], plan


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_run_draws_what_its_plan_charges(tmp_path, noise, adjacency):
    """Scales and moves of a real run against the events: the choice, and each label's estimates."""
    unit = PrivacyUnit("user", 2)
    cfg = config(noise=noise, ensemble="logarithmic", vocabulary_size=3)
    base = ["a b", "c a", ""]
    longer = [*base, "a b c", "b c a"]
    other = [*base, "c", ""] if adjacency is Adjacency.REPLACE_ONE else base
    one, plan = asked(tmp_path, cfg, [longer, ["c"]], adjacency, unit)
    two, again = asked(tmp_path, cfg, [other, ["c"]], adjacency, unit)
    assert plan == again
    choice, estimates = plan.event.events
    [own] = estimates.events
    charged = [choice, *own.events, *own.events]
    assert len(one) == len(charged) == len(two)
    for (left, scale), (right, same), event in zip(one, two, charged, strict=True):
        assert scale == same
        gap = (left - right).astype(np.float64)
        if isinstance(event, Pure):
            assert np.abs(gap).sum() / scale <= event.epsilon
        else:
            assert np.linalg.norm(gap) / scale <= 1 / event.noise_multiplier
    assert any(
        np.any(left != right) for (left, _), (right, _) in zip(one[1:], two[1:], strict=True)
    )


@pytest.mark.parametrize("ensemble", ["independent", "linear", "logarithmic"])
def test_structures_built_are_the_children_of_the_event(tmp_path, ensemble):
    for length in range(1, 34):
        cfg = config(ensemble=ensemble, sequence_length=length, features=2)
        seen, plan = asked(tmp_path, cfg, [["a b"], ["c"], []], Adjacency.REPLACE_NULL)
        _, estimates = plan.event.events
        [own] = estimates.events
        assert isinstance(estimates, Disjoint)
        assert estimates.cells == 3
        assert len(seen) == 1 + 3 * len(own.events)
        assert len(own.events) == plan.derived["structures"]
        expected = {"independent": 1, "linear": length}
        assert len(own.events) == expected.get(ensemble, max(1, math.ceil(math.log2(length))))


# --- what it costs --------------------------------------------------------------------------------


def priced(**settings):
    target = Guarantee(settings.pop("epsilon", 1000.0), settings.pop("delta", 1e-6))
    cfg = METHOD.resolve(KeyphraseSeedingConfig(use_llm=False, **settings), {})
    return METHOD.calibrate(
        cfg, target, PricingFacts(Adjacency.REPLACE_NULL, RECORD, ("x", "y", "z"))
    ), target


@pytest.mark.parametrize(("voc", "kde", "total"), [(1, 5, 6), (5, 5, 10), (1, 10, 11), (5, 10, 15)])
@pytest.mark.parametrize(
    ("ensemble", "k"), [("independent", 1), ("logarithmic", 4), ("linear", 10)]
)
def test_pure_costs_add_up_as_in_the_paper(voc, kde, total, ensemble, k):
    plan, _ = priced(
        vocabulary_share=voc / total, noise="laplace", ensemble=ensemble, epsilon=total, delta=0.0
    )
    choice, estimates = plan.event.events
    assert choice.epsilon == pytest.approx(voc, rel=1e-9)
    assert [e.epsilon for e in estimates.events[0].events] == pytest.approx([kde / k] * k, rel=1e-9)
    pure = guarantee(plan.event, 0.0).epsilon
    assert pure <= total
    assert pure == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("ensemble", ["independent", "logarithmic"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_whole_composes_within_the_target(noise, ensemble):
    """The choice and the estimates, priced again by a Renyi curve summed by hand."""
    plan, target = priced(noise=noise, ensemble=ensemble, epsilon=6.0)
    cost = guarantee(plan.event, target.delta).epsilon
    assert cost <= 6.0
    assert cost == pytest.approx(6.0, rel=1e-6)
    choice, estimates = plan.event.events
    k = len(estimates.events[0].events)
    one = estimates.events[0].events[0]

    def renyi(order):
        def pure(e):
            high, low = order * e, (1 - order) * e
            return (np.logaddexp(high, low) - np.logaddexp(0, e)) / (order - 1)

        def cost_of(event):
            if isinstance(event, Pure):
                return pure(event.epsilon)
            return order / (2 * event.noise_multiplier**2)

        return cost_of(choice) + k * cost_of(one)

    for order in (1.5, 3.0, 8.0, 40.0):
        assert loss_at(plan.event, order) == pytest.approx(renyi(order), rel=1e-9)
    orders = 1 + np.geomspace(1e-2, 1e4, 4000)
    by_hand = min(
        renyi(a) + math.log1p(-1 / a) - (math.log(1e-6) + math.log(a)) / (a - 1) for a in orders
    )
    assert cost <= by_hand * (1 + 1e-9)
    if noise == "gaussian":
        mu = math.sqrt(1 / choice.noise_multiplier**2 + k / one.noise_multiplier**2)
        exact = brentq(
            lambda e: norm.sf(e / mu - mu / 2) - np.exp(e + norm.logsf(e / mu + mu / 2)) - 1e-6,
            0, 100, xtol=1e-12,
        )  # fmt: skip
        assert exact * (1 - 1e-9) <= cost <= exact * (1 + 2e-3)
        # Each gets its share of the whole zCDP.
        assert 1 / (choice.noise_multiplier * mu) ** 2 == pytest.approx(0.5, rel=1e-6)


def test_records_of_a_unit_and_replacement_double_the_noise():
    cfg = METHOD.resolve(KeyphraseSeedingConfig(use_llm=False), {})
    target = Guarantee(6.0, 1e-6)

    def deviation(adjacency, unit):
        return METHOD.calibrate(cfg, target, PricingFacts(adjacency, unit, ("x",))).derived[
            "score_deviation"
        ]

    base = deviation(Adjacency.ADD_REMOVE, RECORD)
    assert deviation(Adjacency.REPLACE_ONE, RECORD) == pytest.approx(2 * base)
    assert deviation(Adjacency.REPLACE_NULL, PrivacyUnit("user", 3)) == pytest.approx(3 * base)


def test_event_of_a_release_is_this():
    plan, _ = priced(epsilon=6.0, noise="laplace")
    assert isinstance(plan.event.events[0], Pure)
    plan, _ = priced(epsilon=6.0)
    match plan.event:
        case Composed(
            (DiscreteGaussian(count=1), Disjoint((Composed((DiscreteGaussian(count=1),)),), 3))
        ):
            pass
        case other:
            pytest.fail(str(other))
    assert STEPS == 2**24


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_choice_of_terms_is_pure(epsilon):
    """Exact output distributions of the choice over pairs that differ by S = 2."""
    choice = choice_of(config(), Adjacency.ADD_REMOVE, 1, epsilon)
    assert choice.event.epsilon <= epsilon
    for one, other in PAIRS:
        assert loss(one, other, choice.scale) <= epsilon + 1e-4
