"""InvisibleInk on the toy model: plan, output, replay, one bucket at a time."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.data.records import Bucket, Cell, Private
from privsyn.dp.accountant import guarantee
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.calibration import calibrate_rho
from privsyn.errors import ConfigError
from privsyn.methods.base import PricingFacts, silent
from privsyn.methods.invisible_ink.method import InvisibleInk, expanded_support
from privsyn.methods.invisible_ink.settings import InvisibleInkSettings
from privsyn.methods.shared.prompts import (
    MIN_TOKENS,
    RECORDS,
    Prompt,
    cut_at_next_record,
    released_text,
)
from privsyn.models.protocols import PromptTemplate
from privsyn.models.settings import PerformanceConfig
from tests.fakes import FakeLogitModel, run_over
from tests.noise import Dies, NoNoise, SeededNoise

METHOD = InvisibleInk()
EIGHT = Guarantee(8, 1e-6)
PROMPT = Prompt(private="Like {reference}:", public="Like:")


def config(**settings):
    defaults = {"batch_size": 4, "max_tokens": 12, "texts_per_label": 6, "prompt": PROMPT}
    defaults |= {"whole_sentences": False}
    return InvisibleInkSettings(**(defaults | settings))


def buckets(cfg, labels=("x", "y")):
    words = ("visit was late", "my bill", "please help", "the visit is ready")
    return [
        Bucket(cell, Private([words[(cell.index + i) % 4] for i in range(cell.index % 6)]))
        for cell in METHOD.cells(cfg, labels)
    ]


def plan(cfg, target=EIGHT, adjacency=Adjacency.REPLACE_NULL, most=1):
    facts = PricingFacts(adjacency, PrivacyUnit("user", most), ("x", "y"))
    return METHOD.calibrate(cfg, target, facts)


def run(tmp_path, cfg, data=None, noise=None, *, model=None, name="journal", rows_per_pass=64,
        progress=silent, reading=silent, expected_records=0.0, target=EIGHT):  # fmt: skip
    return [*run_over(
        tmp_path / name, METHOD, cfg, plan(cfg, target), buckets(cfg) if data is None else data,
        {"language": model or FakeLogitModel()}, noise or SeededNoise(1), progress=progress,
        performance=PerformanceConfig(rows_per_pass=rows_per_pass), reading=reading,
        expected_records=expected_records,
    )]  # fmt: skip


def test_derived_clip_bound_follows_the_formula():
    """The paper's setting: B=8, T=64, tau=1.1 at (10, 1e-5)."""
    cfg = config(batch_size=8, max_tokens=64, temperature=1.1)
    planned = plan(cfg, Guarantee(10, 1e-5), Adjacency.ADD_REMOVE)
    bound = planned.derived["clip_bound"]
    assert planned.event.events[0].count == 64
    assert planned.event.events[0].range == pytest.approx(2 * bound / (8 * 1.1), rel=1e-12)
    paper = 8 * 1.1 * math.sqrt(2 * calibrate_rho(Guarantee(10, 1e-5)) / 64)
    assert 1.06 * paper < bound < 1.08 * paper  # what exact composition buys
    reported = guarantee(planned.event, 1e-5).epsilon
    assert reported <= 10
    assert reported == pytest.approx(10, abs=1e-4)


@given(
    epsilon=st.floats(0.01, 500),
    exponent=st.floats(-12, -1),
    batch=st.integers(1, 2048),
    tokens=st.integers(1, 2000),
    temperature=st.floats(0.05, 10),
    adjacency=st.sampled_from(list(Adjacency)),
    most=st.integers(1, 50),
)
@settings(deadline=None, max_examples=10)  # a plan of thousands of tokens takes seconds
def test_reported_epsilon_never_exceeds_the_target(
    epsilon, exponent, batch, tokens, temperature, adjacency, most
):
    cfg = config(batch_size=batch, max_tokens=tokens, temperature=temperature)
    target = Guarantee(epsilon, 10**exponent)
    planned = plan(cfg, target, adjacency, most)
    assert guarantee(planned.event, target.delta).epsilon <= epsilon


def test_resumes_in_the_middle_with_the_same_prefix(tmp_path):
    cfg = config()

    with pytest.raises(MemoryError):
        run(tmp_path, cfg, buckets(cfg), Dies(1, 40))
    lines = (tmp_path / "journal").read_bytes().splitlines()
    kept = len(lines) - 1
    assert kept == 39

    counted = Dies(2)
    samples = run(tmp_path, cfg, buckets(cfg), counted)
    assert len(samples) == 12
    assert (tmp_path / "journal").read_bytes().splitlines()[: kept + 1] == lines
    total = len((tmp_path / "journal").read_bytes().splitlines()) - 1
    assert counted.calls == total - kept


def test_performance_settings_change_no_output(tmp_path):
    cfg = config()
    outputs = [
        run(tmp_path, cfg, noise=NoNoise(), rows_per_pass=n, name=str(n)) for n in (1, 5, 16)
    ]
    assert outputs[0] == outputs[1] == outputs[2]


def test_references_are_told_of_by_group_before_a_token(tmp_path):
    """Two texts at a time; whatever a bucket holds, nothing or five references."""
    cfg, heard = config(), []
    data = buckets(cfg)
    run(
        tmp_path, cfg, data, rows_per_pass=2,
        progress=lambda done, total: heard.append("token"),
        reading=lambda *counts: heard.append(counts),
    )  # fmt: skip
    reading = [one for one in heard if one != "token"]
    groups = -(-len(data) // 2)
    told = [(before, before + 1) for before in range(groups)]
    assert reading == [(done, groups, "the references") for both in told for done in both]
    assert heard[heard.index(reading[1]) + 1] == "token"


def test_references_pull_the_text(tmp_path):
    """With a generous budget the private words win over the public ones."""
    cfg = config(batch_size=4, temperature=0.5, max_tokens=8, texts_per_label=1)
    data = [Bucket(Cell(0, None, 0), Private(["bill"] * 8))]
    (sample,) = run(tmp_path, cfg, data, SeededNoise(3), target=Guarantee(500, 1e-6))
    assert sample.content.split().count("bill") >= len(sample.content.split()) / 2


def test_support_is_the_public_top_k_and_its_margin():
    logits = np.array([3.0, 2.0, 1.9, 0.0, -np.inf, np.nan], np.float32)
    assert expanded_support(logits, 2, 0.0).tolist() == [0, 1]
    assert expanded_support(logits, 2, 0.06).tolist() == [0, 1, 2]
    assert expanded_support(logits, 2, 10.0).tolist() == [0, 1, 2, 3]
    assert expanded_support(logits, 99, 0.0).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("private", "public", "message"),
    [
        ("no place", "x", "exactly once"),
        ("{reference} {reference}", "x", "exactly once"),
        ("{reference}", "{reference}", "must not contain"),
    ],
)
def test_prompts_that_would_leak_are_refused(private, public, message):
    with pytest.raises(ValueError, match=message):
        Prompt(private=private, public=public)


def test_the_template_reaches_the_model(tmp_path):
    seen = []

    class Watched(FakeLogitModel):
        def private_rows(self, template, labels, references, *lengths, declared):
            seen.append((template, len(references), *lengths, declared))
            return super().private_rows(template, labels, references, *lengths, declared=declared)

    cfg = config()
    run(tmp_path, cfg, buckets(cfg), SeededNoise(1), model=Watched())
    assert seen[0][0] == PromptTemplate(PROMPT.private, PROMPT.public)
    assert seen[0][2:] == (12, 12, {"x", "y"})


# --- where a text ends ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("private", "chat", "endings"),
    [
        ("L: {label}\nText: {reference}\n\nL: {label}\nText:", False, ("\n\n", "\nL:")),
        ("Text: {reference}\nText:", False, ("\nText:",)),
        ("{reference}\n###\n{label}:", False, ("\n###",)),
        ("Like {reference}:", False, ()),
        ("<|start|>Text: {reference}<|end|>Text:", False, ()),
        ("Like this:\n{reference}\n\nGo on.", True, ()),
    ],
)
def test_the_prompt_says_where_a_text_runs_into_the_next(private, chat, endings):
    prompt = Prompt(private=private, public="x", chat=chat)
    assert prompt.endings == endings
    assert prompt.model_copy(update={"stops": ("STOP",)}).endings == ("STOP",)


@pytest.mark.parametrize(
    ("drawn", "text", "over"),
    [
        (" My bill is late.\n\nTopic: Billing\nText: a", "My bill is late.", True),
        (" Dear all\nTopic: x", "Dear all", True),
        (" One line\nand another", "One line\nand another", False),
        ("", "", False),
    ],
)
def test_a_text_is_cut_where_it_runs_into_the_next(drawn, text, over):
    prompt = Prompt(private=RECORDS.private, public="x")
    assert cut_at_next_record(drawn, prompt) == (text, over)


SENTENCES = ("<end>", "my", "bill", "is", "late.", "please", "help\n\nTopic:")
TALK = [1, 2, 3, 1, 4]
"""Five words, of which the last ends a sentence."""


@pytest.mark.parametrize(
    ("tokens", "whole", "text"),
    [
        ([*TALK, 5, 1], True, "my bill is my late."),
        ([*TALK, 5, 1], False, "my bill is my late. please my"),
        ([*TALK, 5, 0], True, "my bill is my late. please"),  # ended by the model
        ([*TALK, 5, 6], True, "my bill is my late. please help"),  # by the next record
        ([1, 4, 5, 1, 2], True, "my late. please my bill"),  # or it would be too short
        ([1, 2, 3], True, "my bill is"),
        ([0], True, ""),
    ],
)
def test_a_text_that_ran_out_of_tokens_ends_with_its_last_whole_sentence(tokens, whole, text):
    prompt = Prompt(private=RECORDS.private, public="x")
    settings = InvisibleInkSettings(prompt=prompt, whole_sentences=whole)
    assert released_text(tokens, FakeLogitModel(SENTENCES), settings) == text


def test_a_stop_ends_a_text(tmp_path):
    stopping = PROMPT.model_copy(update={"stops": ("visit",)})
    cfg = config(prompt=stopping)
    samples = run(tmp_path, cfg, buckets(cfg), SeededNoise(3))
    assert not any("visit" in sample.content for sample in samples)
    drawn = len((tmp_path / "journal").read_bytes())
    free = config(prompt=PROMPT.model_copy(update={"stops": ()}))
    whole = run(tmp_path, free, buckets(cfg), SeededNoise(3), name="b")
    assert any("visit" in sample.content for sample in whole)
    assert drawn < len((tmp_path / "b").read_bytes())  # nothing is drawn behind a stop


@pytest.mark.parametrize("least", [0, MIN_TOKENS])
def test_no_text_is_shorter_than_the_public_minimum(tmp_path, least):
    """The end is left out of the public support: nothing private is looked at."""
    cfg = config(whole_sentences=bool(least))
    samples = run(tmp_path, cfg, buckets(cfg), SeededNoise(5))
    shortest = min(len(sample.content.split()) for sample in samples)
    assert shortest >= min(least, cfg.max_tokens)
    if not least:
        assert shortest < 3  # the toy model does end early where it may


def test_secret_buckets_are_refused_where_they_have_no_proof():
    """Facts say so themselves: a method must not depend on its caller to ask."""
    for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_NULL):
        assert PricingFacts(adjacency, PrivacyUnit(), ("x",), secret_places=True).secret_places
    with pytest.raises(ValueError, match="replace_one"):
        PricingFacts(Adjacency.REPLACE_ONE, PrivacyUnit(), ("x",), secret_places=True)


def test_an_epsilon_below_the_grid_is_refused():
    cfg = config(batch_size=1, max_tokens=100_000, temperature=1e-6)
    with pytest.raises(ConfigError, match="below the grid"):
        plan(cfg, Guarantee(1e-4, 1e-9), Adjacency.ADD_REMOVE)


@pytest.mark.parametrize(("expected", "together"), [(0, 8), (4, 8), (16, 4), (100, 1), (0.5, 8)])
def test_where_buckets_are_crowded_by_public_estimate_fewer_texts_are_decoded_together(
    tmp_path, expected, together
):
    """64 rows at a time, of 8 texts of a batch_size of 8 or of fewer that hold more."""

    class Watched(FakeLogitModel):
        def public_rows(self, template, labels, max_tokens):
            seen.append(len(labels))
            return super().public_rows(template, labels, max_tokens)

    seen, cfg = [], config(batch_size=8)
    how = {"noise": NoNoise(), "rows_per_pass": 8}
    plain = run(tmp_path, cfg, **how, name="plain")
    assert run(tmp_path, cfg, **how, model=Watched(), expected_records=expected) == plain
    assert max(seen) == together
