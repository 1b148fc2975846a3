"""Everything public is tried before a release begins: what is wrong with it costs nothing."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from privsyn.errors import ModelError, StorageError
from privsyn.methods.base import Backends
from privsyn.models.references import BUILTIN
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.preflight import preflight
from privsyn.stages.reserve import reserve, settle
from privsyn.stages.run import carry_out, draw
from tests.fakes import FakeLogitModel, FakeTextModel, FakeTrainableModel
from tests.integration.e2e.small_project import METHODS, stand_in, stand_ins
from tests.unit.models.completion_server import chat, running, status


def planned_for(ctx, method="invisible_ink"):
    return plan(ctx, method, open_account=True)


def assert_nothing_was_spent(ctx, planned):
    assert ctx.ledger.releases.get(planned.id).state == "RESERVED"
    assert settle(ctx, planned) == "VOID"
    assert ctx.ledger.accounts.balance("letters").spent == 0
    assert not ctx.workspace.scratch(planned.id).exists()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_tries_its_models(make_project, method):
    ctx = make_project(methods={method: METHODS[method]}).context()
    preflight(ctx, planned_for(ctx, method), Backends(stand_ins()))


class NoNumbers(FakeLogitModel):
    def public_rows(self, template, labels, max_tokens):
        rows = super().public_rows(template, labels, max_tokens)
        rows.logits = lambda *_: np.full((len(labels), self.vocab_size), np.nan, np.float32)
        return rows


class NoVectors:
    width = 4

    def __init__(self):
        self.revision = stand_ins()["embedder"].revision

    def embed(self, texts):
        return np.full((len(texts), 4), np.nan, np.float32)


class Silent(FakeTextModel):
    def check(self):
        raise ModelError("no numbers")


class Untrainable(FakeTrainableModel):
    def check(self, training):
        raise ModelError("no numbers")


class Foreign(FakeLogitModel):
    def private_rows(self, *_):
        raise RuntimeError("shapes cannot be multiplied")


def broken(role):
    ours = stand_ins()
    return (
        ours
        | {
            "language": {"language": stand_in(NoNumbers)},
            "foreign": {"language": stand_in(Foreign)},
            "embedder": {"embedder": NoVectors()},
            "text": {"text": Silent(revision=ours["text"].revision)},
            "base": {"base": Untrainable(revision=ours["base"].revision)},
        }[role]
    )


@pytest.mark.parametrize(
    ("method", "role"),
    [
        ("invisible_ink", "language"),
        ("invisible_ink", "foreign"),
        ("private_prediction", "language"),
        ("private_prediction", "foreign"),
        ("private_evolution", "embedder"),
        ("private_evolution", "text"),
        ("keyphrase_seeding", "embedder"),
        ("keyphrase_seeding", "text"),
        ("dp_lora", "base"),
    ],
)
def test_a_model_that_cannot_is_found_before_the_release_begins(
    make_project, monkeypatch, method, role
):
    ctx = make_project(methods={method: METHODS[method]}).context()
    planned = planned_for(ctx, method)
    monkeypatch.setattr("privsyn.stages.run.load_models", lambda *_: Backends(broken(role)))
    with pytest.raises(ModelError) as caught:
        draw(ctx, planned)
    assert len(str(caught.value).splitlines()) == 1
    assert_nothing_was_spent(ctx, planned)


def test_a_judge_that_is_named_and_not_here_costs_nothing(make_project, monkeypatch):
    project = make_project(methods={"invisible_ink": METHODS["invisible_ink"]})
    ctx = project.context("evaluate.encoder=no/such/folder/here", "dataset.holdout=0.3")
    planned = planned_for(ctx, "invisible_ink")
    monkeypatch.setattr("privsyn.stages.run.load_models", lambda *_: Backends(stand_ins()))
    with pytest.raises(ModelError, match=r"evaluate\.encoder=.*no such directory") as caught:
        draw(ctx, planned)
    assert len(str(caught.value).splitlines()) == 1
    assert_nothing_was_spent(ctx, planned)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """The embedded language model with one layer's weights NaN."""
    folder = tmp_path_factory.mktemp("models") / "damaged"
    shutil.copytree(BUILTIN, folder)
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if "norm" in name)
    save_file(
        weights | {name: np.full_like(weights[name], np.nan)},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    return folder


@pytest.mark.parametrize("method", ["invisible_ink", "private_evolution", "dp_lora"])
def test_damaged_weights_are_found_whatever_reads_them(make_project, damaged, method):
    project = make_project(methods={method: METHODS[method]})
    ctx = project.context(f"models.language={damaged}", "evaluate.by=nothing")
    planned = planned_for(ctx, method)
    with pytest.raises(ModelError, match=r"not (finite )?numbers"):
        draw(ctx, planned)
    assert_nothing_was_spent(ctx, planned)


TRAINER = "privsyn.models.training.lora.LoraTrainer"
WRITES = "privsyn.models.training.lora.HFTextModel.continue_rows"


@pytest.mark.parametrize(
    "part",
    [
        f"{TRAINER}.clipped_sum",
        f"{TRAINER}.update",
        f"{TRAINER}.files",
        "peft.PeftModel.from_pretrained",
        WRITES,
    ],
)
def test_training_and_writing_are_tried_before_anything_is_spent(make_project, monkeypatch, part):
    ctx = make_project().context("evaluate.by=nothing")
    planned = planned_for(ctx, "dp_lora")

    def fails(*_, **__):
        raise RuntimeError("shapes cannot be multiplied")

    monkeypatch.setattr(part, fails)
    with pytest.raises(ModelError, match="dp_lora cannot use its models: RuntimeError"):
        draw(ctx, planned)
    assert_nothing_was_spent(ctx, planned)


@pytest.mark.parametrize("schema", [{"enum": []}, {"type": "string", "pattern": "(?<=a)b"}])
def test_a_schema_that_cannot_be_followed_costs_nothing(make_project, schema):
    settings = METHODS["private_prediction"] | {
        "svt_threshold": None,
        "top_k": None,
        "json_schema": schema,
    }
    ctx = make_project(methods={"private_prediction": settings}).context()
    planned = planned_for(ctx, "private_prediction")
    with pytest.raises(ModelError, match="json_schema cannot be followed"):
        draw(ctx, planned)
    assert_nothing_was_spent(ctx, planned)


@pytest.mark.parametrize(
    "place", ["releases", "quarantine", "synthetic", ".privsyn/scratch", ".privsyn/internal"]
)
def test_a_place_that_cannot_be_written_is_found_before(make_project, fake, monkeypatch, place):
    project = make_project()
    ctx = project.context()
    planned = planned_for(ctx)
    (project.root / place).write_text("a file stands where a folder should be")
    monkeypatch.setattr("privsyn.stages.run.load_models", lambda *_: fake)
    with pytest.raises(StorageError, match=f"cannot write .*{place}"):
        draw(ctx, planned)
    assert_nothing_was_spent(ctx, planned)


def test_places_are_left_as_they_were(make_project, fake):
    project = make_project()
    ctx = project.context()
    planned = planned_for(ctx)
    (project.root / "releases").mkdir()
    before = sorted(project.root.rglob("*"))
    preflight(ctx, planned, fake)
    assert sorted(project.root.rglob("*")) == before


def test_a_release_that_has_begun_is_tried_no_more(make_project, fake, monkeypatch):
    ctx = make_project().context()
    planned = planned_for(ctx)
    reserve(ctx, planned)
    partition(ctx, planned)
    monkeypatch.setattr("privsyn.stages.draw.load_models", lambda *_: pytest.fail("loaded"))
    preflight(ctx, planned)
    ctx.ledger.releases.lose(planned.id, "test")
    preflight(ctx, planned)


@pytest.fixture
def server(monkeypatch):
    from privsyn.models.language import openai_http

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    openai_http._used.clear()
    with running() as server:
        yield server


TEXTS = [f"My bill of {day} May has not come, please send it." for day in range(10, 30)]
OURS = {
    "private_evolution": {"text": {"max_tokens": 64}, "population": 4},
    "keyphrase_seeding": {"max_tokens": 64, "candidates": 1},
}


def served(make_project, server, method):
    project = make_project(methods={method: METHODS[method] | OURS[method]})
    where = f"models.server={{url: '{server.url}', model: m}}"
    ctx = project.context(where, "evaluate.by=nothing")
    return ctx, planned_for(ctx, method)


@pytest.mark.parametrize("method", OURS)
@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (lambda n: chat("<think>\nThey want a message", "length"), "still thinking at max_tokens"),
        (lambda n: chat("Okay, the user wants a note", "length"), "still thinking at max_tokens"),
        (lambda n: chat(None, "length"), "used all max_tokens and wrote no text"),
        (lambda n: chat("<think>all of it</think>"), "thoughts and no text"),
        (lambda n: status(400, "context of 8 tokens is too short"), "context of 8 tokens is too"),
    ],
)
def test_a_server_that_gives_no_text_costs_nothing(make_project, server, method, reply, says):
    server.script = lambda number, body: (
        chat("Yes.") if body["messages"][0]["content"] == "Say yes." else reply(number)
    )
    ctx, planned = served(make_project, server, method)
    with pytest.raises(ModelError, match=says) as caught:
        draw(ctx, planned)
    assert caught.value.hint
    if "think" in says:
        assert "enable_thinking: false" in caught.value.hint
    assert_nothing_was_spent(ctx, planned)


@pytest.mark.parametrize("method", OURS)
def test_what_a_thinking_server_thinks_is_not_released(make_project, server, method):
    server.script = lambda number, body: chat(
        f"<think>\nOkay, the user wants a secret.\n\nSo be it.\n</think>\n\n{TEXTS[number % 20]}"
        "<|im_end|>"
    )
    ctx, planned = served(make_project, server, method)
    carry_out(ctx, planned, published=False)
    released = ctx.workspace.release(planned.id) / "synthetic.jsonl"
    texts = [json.loads(line)["text"] for line in released.read_text().splitlines()]
    assert texts
    assert set(texts) <= set(TEXTS)


def test_one_text_for_all_prompts_is_told(make_project, server, caplog):
    server.script = lambda number, body: chat(TEXTS[0])
    ctx, planned = served(make_project, server, "private_evolution")
    preflight(ctx, planned)
    assert "answers 2 prompts with the same text" in caplog.text
    assert TEXTS[0] not in caplog.text
