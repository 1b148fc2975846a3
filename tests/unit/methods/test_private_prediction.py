"""Private prediction on the toy model: plan, loop, replay, public tokens, one bucket at a time."""

import math
from dataclasses import replace
from unittest.mock import ANY

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privsyn.data.records import Bucket, Private
from privsyn.dp.accountant import guarantee, rho
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.clipping import LATTICE, probability_grid
from privsyn.dp.events import ZCDP
from privsyn.dp.mechanisms import AboveThreshold
from privsyn.dp.noise import OpenDPNoise
from privsyn.errors import ConfigError
from privsyn.methods.base import PricingFacts, silent
from privsyn.methods.private_prediction import method
from privsyn.methods.private_prediction.method import PrivatePrediction, distance_of
from privsyn.methods.private_prediction.settings import (
    PrivatePredictionConfig,
    PrivatePredictionSettings,
)
from privsyn.methods.shared.prompts import RECORDS, Prompt, default_prompt
from privsyn.models.language.prompts import CHAT
from privsyn.models.model_identity import ModelIdentity
from privsyn.models.protocols import PromptTemplate
from privsyn.models.settings import PerformanceConfig
from tests.fakes import FakeLogitModel, journal_at, run_over
from tests.noise import Constant, Dies, NoNoise, SeededNoise

METHOD = PrivatePrediction()
PROMPT = Prompt(private="Like {reference}:", public="Like:")
LABELS = ("x", "y")
AMPLE, RECORD = Guarantee(500, 1e-6), PrivacyUnit()


def config(**settings):
    defaults = {
        "batch_size": 4, "buckets_per_label": 2, "private_tokens": 12, "max_tokens": 6,
        "prompt": PROMPT, "whole_sentences": False,
    }  # fmt: skip
    return PrivatePredictionSettings(**(defaults | settings))


def buckets(cfg):
    words = ("visit was late", "my bill", "please help", "the visit is ready")
    return [
        Bucket(cell, Private([words[(cell.index + i) % 4] for i in range(2 + cell.index)]))
        for cell in METHOD.cells(cfg, LABELS)
    ]


def plan(cfg, target=AMPLE, adjacency=Adjacency.REPLACE_NULL, unit=RECORD):
    return METHOD.calibrate(cfg, target, PricingFacts(adjacency, unit, tuple(LABELS)))


def run(tmp_path, cfg, data=None, noise=None, *, model=None, name="journal", rows_per_pass=64,
        progress=silent, reading=silent):  # fmt: skip
    return [*run_over(
        tmp_path / name, METHOD, cfg, plan(cfg), buckets(cfg) if data is None else data,
        {"language": model or FakeLogitModel()}, noise or SeededNoise(1), progress=progress,
        performance=PerformanceConfig(rows_per_pass=rows_per_pass), reading=reading,
    )]  # fmt: skip


def entries(tmp_path, name="journal"):
    with journal_at(tmp_path / name) as journal:
        return dict(journal._values)


# --- the plan -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threshold", "noise", "expected_rho", "epsilon", "exact"),
    [(None, 0.2, 0.019223, 0.8811, 0.8168), (0.5, 0.2, 0.096117, 2.0963, 1.932)],
)
def test_reproduces_the_closed_forms(threshold, noise, expected_rho, epsilon, exact):
    cfg = config(
        batch_size=255, clip_bound=10, temperature=2, private_tokens=100,
        svt_threshold=threshold, svt_noise=noise,
    )  # fmt: skip
    event = plan(cfg, adjacency=Adjacency.ADD_REMOVE).event
    assert rho(event) == pytest.approx(expected_rho, abs=5e-7)
    as_paid_by_zcdp = guarantee(ZCDP(rho(event)), 1e-6).epsilon
    assert as_paid_by_zcdp == pytest.approx(epsilon, abs=5e-5)
    assert exact * (1 - 1e-3) < guarantee(event, 1e-6).epsilon <= exact


@given(
    epsilon=st.floats(0.05, 300),
    exponent=st.floats(-12, -1),
    batch=st.integers(1, 2048),
    bound=st.floats(0.1, 50),
    temperature=st.floats(0.1, 10),
    noise=st.floats(0.01, 2),
    threshold=st.sampled_from([None, 0.3]),
    adjacency=st.sampled_from(list(Adjacency)),
    most=st.integers(1, 20),
)
@settings(deadline=None, max_examples=20)  # a plan of thousands of tokens takes seconds
def test_r_is_the_most_the_target_buys(
    epsilon, exponent, batch, bound, temperature, noise, threshold, adjacency, most
):
    cfg = config(
        batch_size=batch, clip_bound=bound, temperature=temperature, svt_noise=noise,
        svt_threshold=threshold, private_tokens=None,
    )  # fmt: skip
    target, unit = Guarantee(epsilon, 10**exponent), PrivacyUnit("user", most)
    try:
        planned = plan(cfg, target, adjacency, unit)
    except ConfigError:
        one = cfg.model_copy(update={"private_tokens": 1})
        cost = plan(one, Guarantee(1e9, 0.5), adjacency, unit).event
        assert guarantee(cost, target.delta).epsilon > epsilon * (1 - 1e-3)
        return
    assert guarantee(planned.event, target.delta).epsilon <= epsilon
    r = int(planned.derived["private_tokens"])
    assert r <= cfg.max_texts * cfg.max_tokens
    if r == cfg.max_texts * cfg.max_tokens:
        return
    more = cfg.model_copy(update={"private_tokens": r + 1})
    beyond = plan(more, target, adjacency, unit).event
    assert guarantee(beyond, target.delta).epsilon > epsilon * (1 - 1e-3)


@pytest.mark.parametrize(
    ("adjacency", "records", "factor"),
    [
        (Adjacency.ADD_REMOVE, 1, 1),
        (Adjacency.REPLACE_NULL, 1, 1),
        (Adjacency.REPLACE_ONE, 1, 4),
        (Adjacency.ADD_REMOVE, 3, 9),
        (Adjacency.REPLACE_ONE, 2, 16),
    ],
)
def test_adjacency_and_unit_scale_both_sensitivities(adjacency, records, factor):
    base = plan(config(), adjacency=Adjacency.ADD_REMOVE).event
    scaled = plan(config(), adjacency=adjacency, unit=PrivacyUnit("user", records)).event
    assert rho(scaled) == pytest.approx(factor * rho(base), rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "tau", "whole"), [(200, 0.4, True), (8, None, True), (0.5, None, False)]
)
@pytest.mark.parametrize("threshold", [None, 0.3])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_an_open_temperature_is_the_lowest_that_the_target_buys(
    epsilon, tau, whole, threshold, adjacency
):
    factor = 2 if adjacency is Adjacency.REPLACE_ONE else 1
    cfg = config(
        temperature=None, private_tokens=None, max_texts=5, batch_size=128 * factor, clip_bound=9,
        svt_threshold=threshold, svt_noise=0.6,
    )  # fmt: skip
    target = Guarantee(epsilon, 1e-6)
    found = plan(cfg, target, adjacency)
    solved = found.derived["temperature"]
    assert 0.4 <= solved <= 0.7
    assert tau is None or solved == tau
    assert (found.derived["private_tokens"] == 30) == whole
    cost = guarantee(found.event, target.delta).epsilon
    assert cost <= epsilon
    assert solved == 0.4 or cost >= epsilon * (1 - 1e-6)
    # the event is that of the temperature that is said, and of what draws
    said = plan(cfg.model_copy(update={"temperature": solved}), target, adjacency)
    assert (said.event, said.token) == (found.event, found.token)
    assert "temperature" not in said.derived
    facts = PricingFacts(adjacency, RECORD, tuple(LABELS))
    assert METHOD.rebuild(cfg, target, facts, found.derived) == replace(found, warnings=ANY)


def test_refuses_what_buys_no_token_and_names_the_culprit():
    with pytest.raises(ConfigError, match=r"its comparison rho=\d"):
        plan(config(private_tokens=None, svt_noise=0.001), Guarantee(1, 1e-6))
    with pytest.raises(ConfigError, match=r"clip_bound=10, batch_size=1,"):
        plan(config(private_tokens=None, batch_size=1, svt_threshold=None), Guarantee(1, 1e-6))
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        config(private_tokens=0)


def test_a_budget_that_pays_for_no_whole_text_is_refused_unless_the_chance_is_taken():
    poor = {"private_tokens": None, "batch_size": 20, "max_tokens": 400, "temperature": 2.0}
    for svt, step in ((0.5, "set svt_threshold=null"), (None, "raise batch_size")):
        short = plan(config(**poor, svt_threshold=svt), Guarantee(1, 1e-6))
        assert short.derived["texts_at_worst"] == 0
        assert "no text may come out. Lower max_tokens" in short.refusal
        assert step in short.refusal
        r = short.private_tokens
        for taken in ({"private_tokens": r}, {"max_tokens": r}):
            cfg = config(**poor | taken, svt_threshold=svt)
            assert not plan(cfg, Guarantee(1, 1e-6)).refusal


def test_says_how_many_texts_that_buys_at_worst():
    assert plan(config(private_tokens=13)).derived["texts_at_worst"] == 2 * 4
    short = plan(config(private_tokens=5))
    assert short.derived["texts_at_worst"] == 0
    assert "may yield no text" in short.warnings[0]
    assert any("batch_size=4 is small" in warning for warning in short.warnings)
    assert plan(config()).rows == (0, 4 * 1000)


def test_pays_for_no_more_tokens_than_texts_can_hold(tmp_path):
    few = config(private_tokens=None, max_texts=3, svt_threshold=None, clip_bound=1)
    planned = plan(few)
    assert planned.derived["private_tokens"] == 3 * 6
    assert guarantee(planned.event, AMPLE.delta).epsilon < AMPLE.epsilon / 2
    assert len(run(tmp_path, few)) == 4 * 3  # and all of them come
    cfg = few.model_copy(update={"max_texts": 1000})
    assert plan(cfg).derived["private_tokens"] > 3 * 6


# --- the loop -------------------------------------------------------------------------------------


def test_uses_r_private_tokens_per_bucket_at_most(tmp_path):
    cfg = config(private_tokens=9, svt_threshold=0.1, svt_noise=0.05)
    run(tmp_path, cfg)
    found = entries(tmp_path)
    for cell in range(4):
        drawn = [v for k, v in found.items() if k.startswith(f"{cell}/") and "threshold" not in k]
        thresholds = [k for k in found if k.startswith(f"{cell}/threshold/")]
        private = sum(value >= 0 for value in drawn)
        assert private == 9
        assert drawn[-1] >= 0  # nothing after the r-th private token
        assert len(thresholds) == 9


def test_without_comparisons_every_token_is_private(tmp_path):
    cfg = config(svt_threshold=None, private_tokens=10)
    run(tmp_path, cfg)
    found = entries(tmp_path)
    assert not any("threshold" in key for key in found)
    assert all(value >= 0 for value in found.values())
    assert len(found) == 4 * 10


def test_a_loop_that_never_crosses_ends_at_its_bounds(tmp_path):
    cfg = config(svt_threshold=2.0, private_tokens=3)
    samples = run(tmp_path, cfg, noise=NoNoise(), name="tokens")
    found = entries(tmp_path, "tokens")
    assert all(value < 0 for key, value in found.items() if "threshold" not in key)
    assert sum("threshold" not in key for key in found) == 4 * 30
    assert samples
    few = run(tmp_path, cfg.model_copy(update={"max_texts": 2}), noise=NoNoise(), name="texts")
    assert len(few) == 8


def test_references_are_told_of_by_bucket_before_a_token(tmp_path):
    cfg, heard = config(svt_threshold=None), []
    tell = lambda *counts: heard.append(counts)  # noqa: E731
    run(tmp_path, cfg, noise=Constant(choice=1), progress=tell, reading=tell)
    count, reading = len(buckets(cfg)), [one for one in heard if len(one) == 3]
    assert reading == [(n + k, count, "the references") for n in range(count) for k in range(2)]
    assert heard[:2] == reading[:2]


def test_an_unfinished_text_is_dropped(tmp_path):
    endless = FakeLogitModel(("<end>", "a", "b"), script=lambda *_: (-1e9, 1.0, 0.0))
    cfg = config(svt_threshold=None, private_tokens=8, max_tokens=6)
    texts = [sample.content for sample in run(tmp_path, cfg, model=endless)]
    assert [len(text.split()) for text in texts] == [6] * 4


def test_predictable_tokens_are_public(tmp_path):
    """References that say what the public prompt says cost nothing; others do."""
    same = FakeLogitModel(("<end>", "a", "b"), script=lambda *_: (-3.0, 5.0, 0.0))
    cfg = config(batch_size=3, buckets_per_label=1, private_tokens=2)
    cells = METHOD.cells(cfg, LABELS)
    data = [Bucket(cell, Private(["a"] * 3)) for cell in cells]
    samples = run(tmp_path, cfg, data, NoNoise(), model=same, name="same")
    assert all(s.counts["public_tokens"] == s.counts["tokens"] > 0 for s in samples)
    assert all(v < 0 for k, v in entries(tmp_path, "same").items() if "threshold" not in k)

    def apart(label, reference, tokens):
        return (-3.0, 0.0, 5.0) if reference else (-3.0, 5.0, 0.0)

    other = FakeLogitModel(("<end>", "a", "b"), script=apart)
    run(tmp_path, cfg, data, NoNoise(), model=other, name="other")
    assert all(v >= 0 for k, v in entries(tmp_path, "other").items() if "threshold" not in k)


def test_the_public_vocabulary_bounds_what_is_drawn(tmp_path):
    def script(label, reference, tokens):
        return np.array([-9, 3, 2, 1, 0], np.float32) + (
            np.array([0, 0, 0, 9, 9], np.float32) if reference else 0
        )

    model = FakeLogitModel(("<end>", "a", "b", "c", "d"), script=script)
    cfg = config(top_k=2, temperature=9.0, svt_threshold=None)
    words = {w for s in run(tmp_path, cfg, model=model) for w in s.content.split()}
    assert words == {"a", "b"}


@pytest.mark.parametrize("death", [5, 17, 40])
def test_resumes_in_the_middle_with_the_same_prefix_and_threshold(tmp_path, death):
    with pytest.raises(MemoryError):
        run(tmp_path, config(), noise=Dies(1, death))
    kept = entries(tmp_path)
    samples = run(tmp_path, config(), noise=SeededNoise(2))
    after = entries(tmp_path)
    assert samples
    assert {key: after[key] for key in kept} == kept
    assert len([k for k in after if k.startswith("0/threshold/")]) <= 12


def test_overfull_and_empty_buckets_run_and_passes_change_nothing(tmp_path):
    cfg = config(batch_size=2, buckets_per_label=1)
    cells = METHOD.cells(cfg, LABELS)
    data = [Bucket(cells[0], Private(["my bill is late"] * 23)), Bucket(cells[1], Private([]))]
    whole = run(tmp_path, cfg, data, NoNoise(), name="whole")
    parts = run(tmp_path, cfg, data, NoNoise(), name="parts", rows_per_pass=3)
    assert whole == parts
    assert {sample.cell.index for sample in whole} == {0, 1}


# --- its parts ------------------------------------------------------------------------------------


@given(
    st.lists(
        st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=5, max_size=5),
        min_size=1,
        max_size=6,
    )
)
def test_a_probability_row_never_sums_to_more_than_one(rows):
    counts = probability_grid(np.array(rows))
    assert counts.dtype == np.int64
    assert (counts >= 0).all()
    assert (counts.sum(axis=1) <= LATTICE).all()
    assert (counts.sum(axis=1) >= LATTICE - 5).all()
    alone = np.stack([probability_grid(np.array(row)) for row in rows])
    np.testing.assert_array_equal(counts, alone)


LOGITS = st.lists(st.floats(-40, 40), min_size=4, max_size=4)


@given(st.lists(LOGITS, max_size=6), LOGITS, LOGITS, st.floats(0.5, 300))
def test_a_record_moves_a_distance_by_at_most_its_own_prediction(rows, public, added, records):
    public, added = np.array(public), probability_grid(np.array(added))
    total = sum((probability_grid(np.array(row)) for row in rows), np.zeros(4, np.int64))
    before = distance_of(total, public, records)
    assert abs(distance_of(total + added, public, records) - before) <= LATTICE


def test_compared_with_as_many_as_it_holds_a_record_would_move_it_by_two():
    """The broken variant: no floor, at a price that is not paid."""
    public, other = np.array([60.0, 0.0]), np.array([0, LATTICE])
    moved = distance_of(5 * other, public, 5) - distance_of(4 * other, public, 4)
    assert moved > 1.99 * LATTICE
    assert distance_of(5 * other, public, 4) - distance_of(4 * other, public, 4) <= LATTICE


def test_a_run_compares_with_the_public_number_of_records(tmp_path, monkeypatch):
    compared = []

    def watched(probabilities, public, records):
        compared.append(records)
        return distance_of(probabilities, public, records)

    monkeypatch.setattr(method, "distance_of", watched)
    cfg = config(batch_size=7)
    held = {len(bucket.contents.reveal()) for bucket in buckets(cfg)}
    run(tmp_path, cfg)
    assert set(compared) == {7} != held


def test_equal_predictions_are_apart_by_what_a_bucket_holds_less_than_expected():
    public = np.array([1.0, 0.0, 2.0])
    held = 60 * probability_grid(public)
    assert distance_of(held, public, 128) / (128 * LATTICE) == pytest.approx(0.531, abs=1e-3)
    assert distance_of(held, public, 60) == 0


def test_progress_with_comparisons_counts_what_is_drawn(tmp_path):
    """All tokens public: the bucket ends by its tokens, and progress says how near that is."""
    cfg = config(svt_threshold=2.0, private_tokens=3)
    told = []
    run(tmp_path, cfg, noise=NoNoise(), progress=lambda done, total: told.append((done, total)))
    assert {total for _, total in told} == {4 * 30}
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert max(done for done, _ in told[: len(told) // 4]) >= 29


def test_comparisons_follow_the_laplace_law():
    above, noise = AboveThreshold(1000, 4000.0), OpenDPNoise()
    thresholds = np.array([above.threshold(50_000, noise) for _ in range(1500)])
    # The sum of |x| / b is Gamma, the count binomial; the lattice moves them by 1e-4 of themselves.
    # An honest source fails either with probability 1e-9.
    sums = float(np.abs(thresholds - 50_000).sum()) / 4000
    assert 5e-10 < stats.gamma(1500).cdf(sums) < 1 - 5e-10
    reached = sum(above.is_above(50_000, 50_000 + 8000, noise) for _ in range(1500))
    assert stats.binomtest(reached, 1500, 0.5 * math.exp(-1)).pvalue > 1e-9


def test_a_chat_model_continues_a_list_of_records_unless_they_have_a_schema():
    chat = {"language": ModelIdentity("m", "r", CHAT, 1.0)}

    def made(**settings):
        resolved = METHOD.resolve(PrivatePredictionConfig(**settings), chat)
        assert METHOD.resolve(resolved, chat) == resolved
        return resolved.min_tokens, resolved.prompt

    least, prompt = made()
    assert (least, prompt.chat) == (5, False)
    assert prompt.private == RECORDS.private.replace("{document}", "a text")
    schema = {"type": "object", "required": ["title"]}
    least, prompt = made(json_schema=schema)
    assert (least, prompt.chat, prompt.stops) == (0, True, ("\n```",))
    assert '"title"' in prompt.public
    own = ModelIdentity("m", "r", PromptTemplate("<|start|>{reference}", "<|start|>"), 1.0)
    assert default_prompt(own, schema).public == "<|start|>"


def test_a_schema_that_is_none_is_refused():
    with pytest.raises(ValueError, match="not a JSON schema"):
        config(json_schema={"type": "objekt"})
    with pytest.raises(ValueError, match=r"put the definition under \$defs"):
        config(json_schema={"properties": {"a": {"$ref": "https://example.org/s.json"}}})
