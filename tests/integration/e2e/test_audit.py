"""The disclosure audit of a release: internal, and what it holds back stays back."""

from __future__ import annotations

import json
import stat
from types import SimpleNamespace

import pytest
import yaml
from pydantic import ValidationError

import privsyn
from privsyn.errors import ConfigError, ValidationFailed
from privsyn.evaluation.audit import AuditResult
from privsyn.evaluation.settings import EvaluateConfig
from privsyn.export import export
from privsyn.methods.base import Backends
from privsyn.stages import audit as stage
from privsyn.stages.evaluate import evaluate
from privsyn.stages.publish import publish
from privsyn.stages.reserve import settle
from privsyn.stages.validate import validate
from privsyn.students.more import more
from privsyn.students.parent import publish_folder
from privsyn.students.release import make_student, plan_student
from tests.integration.e2e.small_project import (
    CANARY,
    build_project,
    finish,
    reserve_release,
    rows,
    stand_ins,
)

QUIET = ("evaluate.by=words",)


def settled(root, **changes):
    """A release that nobody has validated yet, and its plan."""
    project = build_project(root, **({"dataset": {"holdout": 0.4}} | changes))
    project.write([row | {"text": f"{row['text']} {CANARY}"} for row in rows(150, 75)])
    ctx = project.context(*QUIET)
    planned = reserve_release(ctx)
    finish(ctx, planned, Backends(stand_ins()))
    settle(ctx, planned)
    return project, planned


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return settled(tmp_path_factory.mktemp("audit") / "project")


@pytest.fixture
def released(drawn, tmp_path):
    """That release, validated, for one test to change."""
    project, planned = drawn[0].copy(tmp_path / "project"), drawn[1]
    validate(project.context(*QUIET), planned)
    return project, planned


@pytest.fixture
def waiting(released):
    """The same in a project whose audit blocks from here on: validated, and not audited."""
    project, planned = released
    params = yaml.safe_load(project.params.read_text())
    params["evaluate"] = {"audit": "block", "by": "words"}
    project.params.write_text(yaml.safe_dump(params))
    ctx = project.context()
    assert validate(ctx, planned) == ctx.workspace.quarantine(planned.id)
    return project, ctx, planned


def leaks(monkeypatch, found):
    """From here on every audit finds this."""
    monkeypatch.setattr(stage, "audit", lambda *_: found)


LEAK = AuditResult(training=90, held_out=60, p_value=1e-9, epsilon=21.5, exceeds=True)


def test_an_audit_is_made_of_all_units_and_stays_inside(released):
    project, planned = released
    ctx = project.context(*QUIET)
    folder = evaluate(ctx, planned)
    file = folder / "evaluation.json"
    found = json.loads(file.read_text())["audit"]
    assert found["unavailable"] is None
    assert found["training"] + found["held_out"] == 75
    assert min(found["training"], found["held_out"]) >= 20
    assert {test["name"] for test in found["tests"]} == {
        "rare_ngrams", "identifiers", "near_duplicates",
    }  # fmt: skip
    assert file.stat().st_mode & 0o077 == 0
    assert CANARY not in file.read_text()
    titles = [
        part["title"] for part in json.loads((folder / "report.json").read_text())["sections"]
    ]
    assert "Does it reveal who is in the data?" in titles
    outside = ctx.workspace.release(planned.id)
    for path in outside.rglob("*"):
        assert path.is_dir() or b"who is in it" not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"dataset": {"holdout": 0.02}}, "fewer than 20 units"),
        ({"dataset": {"holdout": 0.0, "test_path": "private.jsonl"}}, "test_path"),
    ],
)
def test_without_a_hold_out_to_compare_with_it_says_why_and_reports_alone(tmp_path, changes, why):
    project, planned = settled(tmp_path / "project", **changes)
    ctx = project.context(*QUIET)
    validate(ctx, planned)
    folder = evaluate(ctx, planned)
    found = json.loads((folder / "evaluation.json").read_text())["audit"]
    assert why in found["unavailable"]
    assert why in (folder / "report.html").read_text()
    assert publish(ctx, planned)["release_id"] == planned.id


def test_an_audit_that_could_not_be_made_lets_nothing_through_where_it_blocks(
    released, monkeypatch
):
    project, planned = released
    ctx = project.context(*QUIET, "evaluate.audit=block")

    def fails(*_):
        raise ZeroDivisionError(CANARY)

    few = AuditResult("fewer than 20 units on one side", 3, 2)
    for attempt in (lambda *_: few, lambda *_: LEAK, fails):  # all are said alike
        monkeypatch.setattr(stage, "audit", attempt)
        with pytest.raises(ValidationFailed) as blocked:
            evaluate(ctx, planned)
        assert "held back by its disclosure audit" in str(blocked.value)
        assert "20 units" not in f"{blocked.value} {blocked.value.hint}"
        assert "fail" not in f"{blocked.value} {blocked.value.hint}"
        assert not ctx.workspace.release(planned.id).exists()
        with pytest.raises(ValidationFailed, match="held back"):
            publish(ctx, planned)
    evaluation = ctx.workspace.internal(planned.id) / "evaluation.json"
    written = json.loads(evaluation.read_text())
    assert "it failed (ZeroDivisionError in test_audit.py, line" in written["audit"]["unavailable"]
    assert CANARY not in evaluation.read_text()
    for damaged in ({}, {"exceeds": False}, {"unavailable": None}, {"exceeds": 0}):
        evaluation.write_text(json.dumps(written | {"audit": damaged}))
        with pytest.raises(ValidationFailed, match="held back"):
            publish(ctx, planned)
    passed = {"release_id": "another", "audit": {"unavailable": None, "exceeds": False}}
    evaluation.write_text(json.dumps(written | passed))
    with pytest.raises(ValidationFailed, match="was not audited here"):
        publish(ctx, planned)


def test_blocking_needs_units_that_are_held_out_by_the_coin(tmp_path):
    held = {"dataset": {"holdout": 0.0, "test_path": "private.jsonl"}}
    project = build_project(tmp_path / "project", **held)
    with pytest.raises(ConfigError, match=r"audit=block needs dataset\.holdout above 0"):
        project.context("evaluate.audit=block")


def hand_outs(project, ctx, planned, target):
    opened = privsyn.Project.open(project.root)
    release = opened.open_release(planned.id)
    return {
        "frame": release.frame,
        "by its folder": privsyn.Release.open(release.folder).frame,
        "export": lambda: release.export("csv", target),
        "export of its folder": lambda: export(release.folder, "csv", target.with_name("folder")),
        "more": lambda: more(ctx, planned.id, 1),
        "publish": lambda: publish(ctx, planned),
        "student": lambda: make_student(ctx, plan_student(ctx, planned)),
    }


def test_nothing_is_handed_out_between_validation_and_an_audit_that_blocks(
    waiting, tmp_path, monkeypatch
):
    project, ctx, planned = waiting
    assert stat.S_IMODE(ctx.workspace.quarantine(planned.id).stat().st_mode) == 0o700
    assert privsyn.Project.open(project.root).releases() == []
    for name, call in hand_outs(project, ctx, planned, tmp_path / "out").items():
        with pytest.raises(ValidationFailed, match=r"quarantine|not audited here"):
            raise AssertionError(f"{name}: {call()}")
    done = project.cli("export", planned.id, "--to", "csv", check=False)
    assert (done.returncode, "in quarantine" in done.stderr) == (5, True)
    assert not (project.root / "exports").exists()

    leaks(monkeypatch, AuditResult(training=90, held_out=60))
    evaluate(ctx, planned)
    assert ctx.workspace.release(planned.id).is_dir()
    calls = hand_outs(project, ctx, planned, tmp_path / "out")
    del calls["more"], calls["student"]  # this method makes none, and that one takes long
    for call in calls.values():
        call()
    project.cli("export", planned.id, "--to", "csv")


@pytest.mark.airflow
def test_the_tasks_of_a_dag_hold_what_their_audit_has_not_let_through(waiting):
    from privsyn.airflow.publish import PublishOperator, ValidateOperator

    project, ctx, planned = waiting
    shared = {"params_path": str(project.params), "plan": planned.model_dump(mode="json")}
    run = {"ti": SimpleNamespace(dag_id="d", run_id="r")}
    ValidateOperator(task_id="validate", **shared).run_stage(ctx, run)
    assert not ctx.workspace.release(planned.id).exists()
    with pytest.raises(ValidationFailed, match="was not audited here"):
        PublishOperator(task_id="publish", **shared).run_stage(ctx, run)


def test_a_project_that_begins_to_block_hands_out_what_it_published_and_no_more(released, tmp_path):
    project, planned = released
    folder = project.root / "releases" / planned.id
    blocked = privsyn.Project.open(project.root, **{"evaluate.audit": "block"})
    release = blocked.open_release(planned.id)
    for call in (release.frame, lambda: release.export("csv", tmp_path / "out")):
        with pytest.raises(ValidationFailed, match="was not audited here"):
            call()
    assert len(privsyn.Project.open(project.root).open_release(planned.id).frame()) > 0
    folder.with_name(f"{planned.id}.dvc").write_text("outs: []\n")
    assert len(release.frame()) > 0


def test_a_release_beyond_its_claim_is_held_back_until_the_setting_lets_it_out(
    released, monkeypatch
):
    project, planned = released
    ctx = project.context(*QUIET, "evaluate.audit=block")
    workspace = ctx.workspace
    with pytest.raises(ValidationFailed, match="was not audited here"):
        publish(ctx, planned)
    with pytest.raises(ValidationFailed, match="was not audited here"):
        publish_folder(ctx, planned, workspace.release(planned.id))

    leaks(monkeypatch, LEAK)
    with pytest.raises(ValidationFailed, match="held back by its disclosure audit") as blocked:
        evaluate(ctx, planned)
    said = f"{blocked.value} {blocked.value.hint}".replace(planned.id, "")
    assert not any(number in said for number in ("21.5", "1e-9", "90", "60"))
    for _ in range(2):  # run again it stays where it is
        assert not workspace.release(planned.id).exists()
        assert workspace.quarantine(planned.id).stat().st_mode & 0o077 == 0
        with pytest.raises(ValidationFailed, match="held back"):
            publish(ctx, planned)
        with pytest.raises(ValidationFailed, match="held back"):
            publish_folder(ctx, planned, workspace.quarantine(planned.id))
        assert validate(ctx, planned) == workspace.quarantine(planned.id)
        with pytest.raises(ValidationFailed, match="held back"):
            evaluate(ctx, planned)
    assert "privsyn report" in said

    freed = project.context(*QUIET, "evaluate.audit=report")
    assert validate(freed, planned) == workspace.release(planned.id)
    evaluate(freed, planned)
    assert publish(freed, planned)["release_id"] == planned.id


def test_an_audit_that_finds_nothing_any_more_lets_a_release_out(released, monkeypatch):
    project, planned = released
    ctx = project.context(*QUIET, "evaluate.audit=block")
    leaks(monkeypatch, LEAK)
    with pytest.raises(ValidationFailed, match="held back"):
        evaluate(ctx, planned)
    leaks(monkeypatch, AuditResult(training=90, held_out=60))
    evaluate(ctx, planned)
    assert publish(ctx, planned)["release_id"] == planned.id
    page = (ctx.workspace.release(planned.id) / "report.html").read_text()
    assert "no epsilon covers" not in page
    validate(ctx, planned)
    assert "no epsilon covers" in (ctx.workspace.release(planned.id) / "report.html").read_text()


def test_what_is_killed_between_the_audit_and_the_quarantine_is_not_published(
    released, monkeypatch
):
    project, planned = released
    ctx = project.context(*QUIET, "evaluate.audit=block")
    leaks(monkeypatch, LEAK)
    with monkeypatch.context() as killed:

        def kill(*_):  # an error would be noted, and the audit still asked: this is none
            raise KeyboardInterrupt

        killed.setattr("privsyn.stages.evaluate.report", kill)
        with pytest.raises(KeyboardInterrupt):
            evaluate(ctx, planned)
    assert ctx.workspace.release(planned.id).exists()
    with pytest.raises(ValidationFailed, match="held back"):
        publish(ctx, planned)


def test_what_an_audit_has_not_let_through_is_in_no_public_run(released, monkeypatch):
    """Neither before the audit nor after: no report and no signature."""
    project, planned = released
    ctx = project.context(*QUIET, "evaluate.audit=block")
    logged = []
    keep = lambda _, run, file, *__: logged.append(file.name)  # noqa: E731
    monkeypatch.setattr(type(ctx.tracker), "log_artifact", keep)
    validate(ctx, planned)
    assert "validation.json" not in logged
    leaks(monkeypatch, LEAK)
    with pytest.raises(ValidationFailed):
        evaluate(ctx, planned)
    validate(ctx, planned)
    assert "validation.json" not in logged
    leaks(monkeypatch, AuditResult(training=90, held_out=60))
    evaluate(ctx, planned)
    assert "validation.json" in logged


def test_off_is_a_word_in_yaml_too_and_blocking_needs_the_evaluation():
    assert EvaluateConfig.model_validate({"audit": False}).audit == "off"
    with pytest.raises(ValidationError, match="audit=block needs by=words or models"):
        EvaluateConfig(audit="block", by="nothing")


def test_where_it_is_off_no_record_of_the_training_part_is_read(released, monkeypatch):
    project, planned = released
    monkeypatch.setattr(stage, "either_side", lambda *_: 1 / 0)
    folder = evaluate(project.context(*QUIET, "evaluate.audit=off"), planned)
    assert "audit" not in json.loads((folder / "evaluation.json").read_text())
    assert "evaluate.audit" in (folder / "report.html").read_text()
