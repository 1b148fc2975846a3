"""InvisibleInk on the toy model: plan, output, replay, one bucket at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privsyn.backends.fake import FakeLogitModel
from privsyn.backends.protocols import PromptTemplate
from privsyn.config import PerformanceConfig
from privsyn.data.journal import Journal
from privsyn.data.records import Bucket, Cell, Private
from privsyn.dp.accountant import Guarantee, guarantee
from privsyn.dp.adjacency import Adjacency, PrivacyUnit
from privsyn.dp.noise import SeededNoise
from privsyn.errors import ConfigError
from privsyn.methods.base import Backends, Sample
from privsyn.methods.invisible_ink import (
    InvisibleInk,
    InvisibleInkConfig,
    PromptConfig,
    expanded_support,
)

METHOD = InvisibleInk()
PERFORMANCE = PerformanceConfig()
PROMPT = PromptConfig(private="Like {reference}:", public="Like:")


class Argmax:
    """Takes the best score: the mechanism replaced by a constant of its input."""

    kind = "seeded"

    def noisy_max(self, scores, scale, sensitivity):
        return int(np.argmax(scores))


def config(**settings) -> InvisibleInkConfig:
    defaults = {"batch_size": 4, "max_tokens": 12, "texts_per_label": 6, "prompt": PROMPT}
    return InvisibleInkConfig(**(defaults | settings))


def buckets(cfg: InvisibleInkConfig, labels: Sequence[str] = ("x", "y")) -> list[Bucket]:
    words = ("visit was late", "my bill", "please help", "the visit is ready")
    return [
        Bucket(cell, Private([words[(cell.index + i) % 4] for i in range(cell.index % 6)]))
        for cell in METHOD.cells(cfg, labels)
    ]


def run(tmp_path, cfg, data, noise, performance=PERFORMANCE, model=None, name="journal"):
    plan = METHOD.plan(cfg, Guarantee(8, 1e-6), Adjacency.REPLACE_NULL, PrivacyUnit(), ("x", "y"))
    Journal.create(tmp_path / name, {"release": "r"})
    with Journal.open(tmp_path / name, {"release": "r"}) as journal:
        return list(
            METHOD.run(
                cfg,
                plan,
                Adjacency.REPLACE_NULL,
                PrivacyUnit(),
                data,
                Backends({"language": model or FakeLogitModel()}),
                noise,
                journal,
                performance,
            )
        )


def test_derived_clip_bound_follows_the_formula():
    """The paper's setting: B=8, T=64, tau=1.1 at (10, 1e-5)."""
    cfg = config(batch_size=8, max_tokens=64, temperature=1.1)
    plan = METHOD.plan(cfg, Guarantee(10, 1e-5), Adjacency.ADD_REMOVE, PrivacyUnit(), ())
    bound = plan.derived["clip_bound"]
    rho = 64 * (bound / (8 * 1.1)) ** 2 / 2
    assert plan.event.events[0].rho * 64 == pytest.approx(rho, rel=1e-9)
    assert bound == pytest.approx(8 * 1.1 * math.sqrt(2 * rho / 64), abs=1e-6)
    reported = guarantee(plan.event, 1e-5).epsilon
    assert reported <= 10
    assert reported == pytest.approx(10, abs=1e-6)


@given(
    epsilon=st.floats(0.01, 500),
    exponent=st.floats(-12, -1),
    batch=st.integers(1, 2048),
    tokens=st.integers(1, 2000),
    temperature=st.floats(0.05, 10),
    adjacency=st.sampled_from(list(Adjacency)),
    most=st.integers(1, 50),
)
def test_reported_epsilon_never_exceeds_the_target(
    epsilon, exponent, batch, tokens, temperature, adjacency, most
):
    cfg = config(batch_size=batch, max_tokens=tokens, temperature=temperature)
    target = Guarantee(epsilon, 10**exponent)
    plan = METHOD.plan(cfg, target, adjacency, PrivacyUnit("user", most), ())
    assert guarantee(plan.event, target.delta).epsilon <= epsilon


def test_an_epsilon_below_the_grid_is_refused():
    cfg = config(batch_size=1, max_tokens=100_000, temperature=1e-6)
    with pytest.raises(ConfigError, match="below the grid"):
        METHOD.plan(cfg, Guarantee(1e-4, 1e-9), Adjacency.ADD_REMOVE, PrivacyUnit(), ())


def test_writes_one_text_per_cell_whatever_the_buckets_hold(tmp_path):
    cfg = config()
    samples = run(tmp_path, cfg, buckets(cfg), SeededNoise(1))
    assert [sample.cell.index for sample in samples] == list(range(12))
    assert [sample.cell.label for sample in samples] == ["x"] * 6 + ["y"] * 6
    assert all(isinstance(sample, Sample) for sample in samples)
    assert len({sample.content for sample in samples}) > 1


def test_a_finished_journal_replays_without_a_draw_or_a_model_call(tmp_path):
    cfg = config()
    first = run(tmp_path, cfg, buckets(cfg), SeededNoise(1))

    class Silent:
        kind = "seeded"

        def noisy_max(self, *args):
            raise AssertionError("drew again")

    class Unread(FakeLogitModel):
        def private_rows(self, *args, **kwargs):
            raise AssertionError("read the references again")

    assert run(tmp_path, cfg, buckets(cfg), Silent(), model=Unread()) == first


def test_resumes_in_the_middle_with_the_same_prefix(tmp_path):
    cfg = config()

    class Dies(SeededNoise):
        calls = 0

        def noisy_max(self, *args):
            self.calls += 1
            if self.calls == 40:
                raise MemoryError
            return super().noisy_max(*args)

    dying = Dies(1)
    with pytest.raises(MemoryError):
        run(tmp_path, cfg, buckets(cfg), dying)
    lines = (tmp_path / "journal").read_bytes().splitlines()
    kept = len(lines) - 1
    assert kept == 39

    counted = Dies(2)
    counted.calls = 1000
    samples = run(tmp_path, cfg, buckets(cfg), counted)
    assert len(samples) == 12
    assert (tmp_path / "journal").read_bytes().splitlines()[: kept + 1] == lines
    total = len((tmp_path / "journal").read_bytes().splitlines()) - 1
    assert counted.calls - 1000 == total - kept


@pytest.mark.parametrize("change", ["nulled", "doubled", "added", "a hundred times longer"])
def test_one_changed_record_changes_one_bucket_at_most(tmp_path, change):
    cfg = config(guidance=3.0)
    before = buckets(cfg)
    texts = list(before[5].texts.reveal())
    changed = {
        "nulled": texts[1:],
        "doubled": [texts[0], *texts],
        "added": [*texts, "please please help"],
        "a hundred times longer": [" ".join([texts[0]] * 100), *texts[1:]],
    }[change]
    after = [*before[:5], Bucket(before[5].cell, Private(changed)), *before[6:]]
    one = run(tmp_path, cfg, before, Argmax(), name="one")
    two = run(tmp_path, cfg, after, Argmax(), name="two")
    differing = {a.cell.index for a, b in zip(one, two, strict=True) if a != b}
    assert differing <= {before[5].cell.index}


def test_performance_settings_change_no_output(tmp_path):
    cfg = config()
    outputs = [
        run(tmp_path, cfg, buckets(cfg), Argmax(), PerformanceConfig(texts_per_pass=n), name=str(n))
        for n in (1, 5, 16)
    ]
    assert outputs[0] == outputs[1] == outputs[2]


def test_references_pull_the_text(tmp_path):
    """With a generous budget the private words win over the public ones."""
    cfg = config(batch_size=4, temperature=0.5, max_tokens=8, texts_per_label=1)
    cell = Cell(0, None, 0)
    plan = METHOD.plan(cfg, Guarantee(500, 1e-6), Adjacency.REPLACE_NULL, PrivacyUnit(), ())
    Journal.create(tmp_path / "j", {})
    with Journal.open(tmp_path / "j", {}) as journal:
        (sample,) = METHOD.run(
            cfg, plan, Adjacency.REPLACE_NULL, PrivacyUnit(),
            [Bucket(cell, Private(["bill"] * 8))], Backends({"language": FakeLogitModel()}),
            SeededNoise(3), journal, PerformanceConfig(),
        )  # fmt: skip
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
        PromptConfig(private=private, public=public)


def test_small_batches_are_pointed_out():
    plan = METHOD.plan(config(), Guarantee(8, 1e-6), Adjacency.ADD_REMOVE, PrivacyUnit(), ())
    assert "batch_size=4 is below 32" in plan.warnings[0]
    roomy = config(batch_size=32)
    assert not METHOD.plan(
        roomy, Guarantee(8, 1e-6), Adjacency.ADD_REMOVE, PrivacyUnit(), ()
    ).warnings


def test_the_template_reaches_the_model(tmp_path):
    seen = []

    class Watched(FakeLogitModel):
        def private_rows(self, template, labels, references, reference_tokens, max_tokens):
            seen.append((template, len(references), reference_tokens, max_tokens))
            return super().private_rows(template, labels, references, reference_tokens, max_tokens)

    cfg = config(max_reference_tokens=7)
    run(tmp_path, cfg, buckets(cfg), SeededNoise(1), model=Watched())
    assert seen[0][0] == PromptTemplate(PROMPT.private, PROMPT.public)
    assert seen[0][2:] == (7, 12)
