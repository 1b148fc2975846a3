"""privsyn distill: a model of a release's texts, charged nothing, provably of its parent."""

from __future__ import annotations

import json
import logging
import shutil

import pytest
import torch

from privsyn.cli import stage as commands
from privsyn.data.artifacts import sha256_file
from privsyn.data.records import Record
from privsyn.errors import ConfigError, DataError, LeaseHeld, ValidationFailed
from privsyn.methods.base import Backends
from privsyn.models.model_identity import read_template
from privsyn.models.references import BUILTIN
from privsyn.models.training import causal_lm as models
from privsyn.release import certificate
from privsyn.report import verification
from privsyn.stages.report import report
from privsyn.stages.run import draw_and_settle, run
from privsyn.students import release as stage
from privsyn.students.evaluate import evaluate_student
from privsyn.students.parent import open_parent
from privsyn.students.release import (
    distill,
    make_student,
    plan_student,
    read_plan,
    validate_student,
)
from tests.integration.e2e.small_project import CANARY, METHODS, build_project, rows, stand_ins
from tests.integration.e2e.test_stages import Runs

NAME = "private_evolution"
MEASURES = "privsyn.students.evaluate"


def save_tiny(folder, seed=1):
    """A random model of one layer with the embedded model's tokenizer and prompt."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=8192, tie_word_embeddings=True, **shape, **heads)
    )
    template, _ = read_template(BUILTIN, "builtin")
    models.save(model, models.read_tokenizer(BUILTIN), template, folder)
    return folder


def settings(tiny):
    return {"init": str(tiny), "epochs": 2, "batch_size": 4, "max_tokens": 8, "seed": 3}


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A release of texts, and a published student of it made by the command line."""
    root = tmp_path_factory.mktemp("distill")
    tiny = save_tiny(root / "tiny")
    project = build_project(
        root / "project", methods={NAME: METHODS[NAME], "distill": settings(tiny)}
    )
    project.write([row | {"text": f"{row['text']} {CANARY}"} for row in rows(48, 20)])
    with pytest.MonkeyPatch.context() as patch:
        toys = Backends(stand_ins())
        patch.setattr("privsyn.stages.run.load_models", lambda ctx, plan: toys)
        ctx = project.context("evaluate.by=words")
        parent = project.root / "releases" / run(ctx, NAME, published=False).id
    spent = ctx.ledger.accounts.balance("letters").spent
    printed = project.cli("distill", parent.name, "-S", "methods.distill.epochs=3").stdout
    (folder,) = project.root.glob("releases/*.student-????????")
    return project, parent, folder, spent, printed


def test_a_student_costs_nothing_and_is_of_its_parent(taught):
    project, parent, folder, spent, printed = taught
    ctx = project.context()
    assert ctx.ledger.accounts.balance("letters").spent == spent
    _, sealed = certificate.read(folder)
    assert sealed["parents"] == [certificate.read(parent)[1]]
    assert sealed["class"] == "dp-release"
    made = sealed["derived"]["distill"]
    assert made["settings"]["epochs"] == 3
    assert made["settings"]["init"] == "tiny"
    assert made["student"]["texts"] == certificate.read(parent)[1]["artifact"]["rows"]
    checks = verification.verify(folder, ctx.ledger)
    assert all(check.passed is not False for check in checks)
    assert {"ledger offspring", "model is unchanged"} <= {check.name for check in checks}
    assert "per person" in project.cli("verify", str(folder)).stdout
    assert folder.with_name(f"{folder.name}.dvc").is_file()
    said = " ".join(printed.split())
    for fact in (folder.name, "parameters", f"{made['student']['parameters']:,}", "privsyn verify"):
        assert fact in said
    assert ctx.open_account().spec.name == "letters"  # a student is no forgotten release


def test_a_student_is_a_language_model_and_says_what_was_checked(taught):
    *_, folder, _, _ = taught
    model = models.read_model(folder / "model")
    report = json.loads((folder / "validation.json").read_text())
    assert report["success"] is True
    assert {"model loads", "weights are finite", "model predicts"} <= {
        check["title"] for check in report["expectations"]
    }
    assert folder.name in (folder / "report.html").read_text()
    quality = json.loads((folder / "quality.json").read_text())
    assert quality["student.parameters"] == sum(p.numel() for p in model.parameters())


def test_nothing_private_and_no_path_is_in_what_is_published(taught):
    project, _, folder, *_ = taught
    for file in folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert CANARY.encode() not in content
            assert str(project.root.parent).encode() not in content


def test_a_student_that_exists_is_returned_as_it_is(taught):
    project, parent, folder, *_ = taught
    before = sha256_file(folder / "certificate.json")
    ctx = project.context("methods.distill.epochs=3")
    rows_before = ctx.ledger.verify().rows
    assert distill(ctx, parent.name, published=False) == folder
    assert sha256_file(folder / "certificate.json") == before
    assert ctx.ledger.verify().rows == rows_before
    other = plan_student(project.context(), open_parent(ctx, parent.name).plan)
    assert other.id != folder.name  # 2 epochs


def test_evaluation_is_internal(taught):
    project, _, folder, *_ = taught
    ctx = project.context("methods.distill.epochs=3")
    seen = []
    ctx.progress = lambda name, done, total, things: seen.append((name, total))
    ctx.tracker = Runs()
    internal = evaluate_student(ctx, folder.name)
    assert internal == project.root / ".privsyn" / "internal" / folder.name
    found = json.loads((internal / "evaluation.json").read_text())["metrics"]
    assert {metric["class"] for metric in found} == {"internal"}
    values = {metric["name"]: metric["value"] for metric in found}
    for name in ("student", "public"):
        assert 0 <= values[f"{name}.next_token_accuracy"] <= 1
        assert values[f"{name}.tokens"] == values["student.tokens"] > 0
    assert ctx.tracker.metrics == {"internal/evaluate": set(values)}
    assert values["student.next_token_accuracy_low"] <= values["student.next_token_accuracy"]
    assert 0 < values["student.commonest_token"] < 1
    assert {total for _, total in seen} == {2}
    _, sealed = certificate.read(folder)
    assert "next_token" not in json.dumps(sealed)


def test_what_is_shown_of_an_evaluation_is_the_same_however_many_texts_there_are(
    taught, monkeypatch, caplog
):
    """Progress is logged by Airflow, where more people read it than may see internal numbers."""
    project, _, folder, *_ = taught
    one = Record("a", "visit", "held out words of a visit")
    caplog.set_level(logging.INFO)
    shown = []
    for count in (0, 300, 301):
        ctx = project.context("methods.distill.epochs=3")
        seen = []
        ctx.progress = lambda *said, seen=seen: seen.append(said)
        monkeypatch.setattr(f"{MEASURES}.held_out", lambda *_, count=count: [one] * count)
        caplog.clear()
        evaluate_student(ctx, folder.name)
        shown.append((seen, [record.getMessage() for record in caplog.records]))
    assert shown[0] == shown[1] == shown[2]
    assert shown[0][0] == [("evaluate", done, 2, "measurements") for done in range(2)]


def test_the_internal_report_of_its_parent_shows_it_and_the_outward_one_does_not(taught):
    project, parent, folder, *_ = taught
    ctx = project.context("methods.distill.epochs=3")
    inside = project.root / ".privsyn" / "internal" / parent.name / "report.json"
    internal = evaluate_student(ctx, folder.name)
    found = json.loads((internal / "evaluation.json").read_text())["metrics"]
    values = {metric["name"]: metric["value"] for metric in found}
    section = next(s for s in json.loads(inside.read_text())["sections"] if s["key"] == "students")
    assert section["class"] == "internal"
    (bars,) = (block for block in section["blocks"] if block["kind"] == "bars")
    assert folder.name in bars["of"]
    assert {bar["name"]: bar["value"] for bar in bars["items"]} == {
        "this release": values["student.next_token_accuracy"],
        "commonest token": values["student.commonest_token"],
        "public model alone": values["public.next_token_accuracy"],
    }
    assert bars["items"][0]["low"] == values["student.next_token_accuracy_low"]
    assert CANARY not in inside.read_text()
    assert "student" not in json.loads((parent / "report.json").read_text())["sections"][0]
    for name in ("report.json", "report.html"):
        assert folder.name not in (parent / name).read_text()
    (internal / "evaluation.json").write_text('{"metrics": [{"name": "x"')  # killed while writing
    page, _ = report(ctx, open_parent(ctx, parent.name).plan)
    assert f"{folder.name} was not measured" in page.read_text()
    evaluate_student(ctx, folder.name)


def test_a_student_of_dp_lora_reads_its_teachers_prompt(taught):
    project, parent, *_ = taught
    ctx = project.context("methods.distill.init=random")
    written = open_parent(ctx, parent.name).plan.model_copy(
        update={"method": "dp_lora", "settings": {"prompt": "<|start|>Text:"}}
    )
    planned = plan_student(ctx, written)
    assert set(planned.models) == {"base"}
    assert stage._template(ctx, planned).public == "<|start|>Topic: {label}\nText:"
    assert stage._template(ctx, plan_student(project.context(), written)) is None  # one of its own


def test_what_cannot_be_is_said(taught, monkeypatch):
    project, parent, folder, *_ = taught
    ctx = project.context()
    with pytest.raises(DataError, match="is not here"):
        distill(ctx, f"{NAME}-0000000000000000")
    with pytest.raises(ConfigError, match="itself made from a release"):
        distill(ctx, folder.name)
    with pytest.raises(DataError, match="is not a student"):
        evaluate_student(ctx, parent.name)
    with pytest.raises(ConfigError, match="is not a directory"):
        distill(project.context("methods.distill.init=nowhere"), parent.name)
    plan = open_parent(ctx, parent.name).plan
    pictures = plan.dataset.model_copy(update={"images": {"size": 8, "mode": "L"}})
    with pytest.raises(ConfigError, match="holds images"):
        plan_student(ctx, plan.model_copy(update={"dataset": pictures}))
    one = stage.read_rows(parent / "synthetic.jsonl")[:1]
    monkeypatch.setattr(stage, "read_rows", lambda file: one)
    with pytest.raises(DataError, match="at least 2"):
        distill(ctx, parent.name)
    with stage.lock_student(ctx, plan_student(ctx, plan).id), pytest.raises(LeaseHeld):
        distill(ctx, parent.name)


def test_a_student_that_does_not_load_stays_in_quarantine(taught, monkeypatch):
    project, parent, *_ = taught
    ctx = project.context("methods.distill.epochs=1")
    train = stage.train_student

    def broken(cfg, texts, base, target, **options):
        made = train(cfg, texts, base, target, **options)
        (target / "config.json").write_text("{}")
        return made

    monkeypatch.setattr(stage, "train_student", broken)
    with pytest.raises(ValidationFailed, match="fails its checks"):
        distill(ctx, parent.name)
    planned = plan_student(ctx, open_parent(ctx, parent.name).plan)
    assert (project.root / "quarantine" / planned.id / "report.html").is_file()
    assert not (project.root / "releases" / planned.id).exists()
    assert not (project.root / "releases" / f"{planned.id}.dvc").exists()


def test_the_stages_of_dvc_draw_the_parent_and_make_the_student(taught, monkeypatch, capsys):
    """stage plan, generate, validate and evaluate, with another method in the teacher's place."""
    project, parent, *_ = taught
    monkeypatch.setattr(stage, "teacher_of", lambda config: NAME)
    ctx = project.context()
    planned = stage.plan_with_teacher(ctx)
    assert planned.parent.id == parent.name
    assert read_plan(planned.model_dump_json().encode()) == planned
    assert read_plan(planned.parent.model_dump_json().encode()) == planned.parent
    draw_and_settle(ctx, planned.parent)
    folder = stage.make_and_check(ctx, planned)
    synthetic, reports = (project.root / name / "distill" for name in ("synthetic", "reports"))
    assert {file.name for file in synthetic.iterdir()} == {
        "certificate.json",
        "model",
        "model.jsonl",
    }
    (folder / "validation.json").unlink()
    assert validate_student(ctx, planned, filed=True) == folder
    assert {file.name for file in reports.iterdir()} == {
        "quality.json",
        "report.html",
        "report.json",
        "validation.json",
    }
    monkeypatch.setattr(commands, "context_of", lambda *args, **options: ctx)
    file = project.root / "distill.json"
    commands.stage_plan("distill", file)
    assert read_plan(file.read_bytes()) == planned
    commands.stage_generate(file)
    commands.stage_validate(file)
    commands.stage_evaluate(file)
    printed = capsys.readouterr().out
    assert "valid:" in printed
    assert "internal numbers" in printed
    assert make_student(ctx, planned) == folder


def test_a_student_of_an_adapter_names_its_base(tmp_path):
    """The whole chain: DP-LoRA trains and writes, the student follows its texts."""
    base = save_tiny(tmp_path / "base")
    teacher = {"steps": 2, "expected_batch": 8, "sampling_rate": 0.2, "max_tokens": 8, "rank": 2}
    project = build_project(
        tmp_path / "project",
        methods={"dp_lora": teacher | {"texts_per_label": 3}, "distill": settings(base)},
        models={"language": str(base)},
        performance={"shards": 1},
    )
    ctx = project.context("evaluate.by=nothing", "methods.distill.init=random")
    parent = run(ctx, "dp_lora", published=False)
    folder = distill(ctx, parent.id, published=False)
    _, sealed = certificate.read(folder)
    assert set(sealed["derived"]["distill"]["models"]) == {"base"}
    assert all(check.passed is not False for check in verification.verify(folder, ctx.ledger))


def test_a_student_is_restored_byte_for_byte(taught):
    project, parent, folder, *_ = taught
    before = sha256_file(folder / "model" / "model.safetensors")
    shutil.rmtree(folder)
    with pytest.raises(DataError, match="privsyn restore"):
        distill(project.context("methods.distill.epochs=3"), parent.name)
    project.cli("restore", folder.name)
    assert sha256_file(folder / "model" / "model.safetensors") == before


def test_the_public_model_is_left_out_where_it_is_another_one(taught, tmp_path):
    project, _, folder, *_ = taught
    other = settings(save_tiny(tmp_path / "tiny", seed=2))
    ctx = project.context(*(f"methods.distill.{name}={value}" for name, value in other.items()))
    internal = evaluate_student(ctx, folder.name)
    found = json.loads((internal / "evaluation.json").read_text())["metrics"]
    names = {metric["name"] for metric in found}
    assert "student.next_token_accuracy" in names
    assert not any(name.startswith("public.") for name in names)
