"""The report of a release: written by evaluate, shown by `privsyn report`, internal."""

from __future__ import annotations

import json
import shutil
from functools import partial

import pytest

from privsyn.data.records import Record
from privsyn.errors import ModelError
from privsyn.methods.base import Backends
from privsyn.report import verification
from privsyn.report.outward import outward
from privsyn.stages.base import open_plan
from privsyn.stages.evaluate import evaluate
from privsyn.stages.measure import Failures, beside
from privsyn.stages.plan import plan
from privsyn.stages.report import _levers, report
from privsyn.stages.reserve import settle
from privsyn.stages.validate import validate
from tests.integration.e2e.small_project import (
    CANARY,
    EMBEDDED,
    METHODS,
    begin_release,
    build_project,
    finish,
    measured_by,
    reserve_release,
    rows,
    stand_ins,
)
from tests.unit.report import recomputed
from tests.unit.report.recomputed import NUMBER, forms

INK = {"invisible_ink": METHODS["invisible_ink"] | EMBEDDED["invisible_ink"]}


def released(root, **changes):
    """A project with a release that is validated and measured, its context and its plan."""
    project = build_project(root, methods=INK, **({"dataset": {"holdout": 0.4}} | changes))
    project.write([row | {"text": f"{row['text']} {CANARY}"} for row in rows(120, 60)])
    ctx, backends = project.context(), Backends(stand_ins())
    planned = reserve_release(ctx)
    finish(ctx, planned, backends)
    settle(ctx, planned)
    validate(ctx, planned)
    with measured_by(backends):
        return project, ctx, planned, evaluate(ctx, planned)


def test_evaluate_leaves_a_report_and_the_command_names_both_documents(tmp_path, command):
    project, ctx, planned, folder = released(tmp_path / "project")
    page, numbers = folder / "report.html", folder / "report.json"
    said = json.loads(numbers.read_text())
    assert said["release"]["release_id"] == planned.id
    assert {s["key"] for s in said["sections"] if s["grade"]} == {
        "useful",
        "added",
        "likeness",
        "disclosure",
    }
    assert "reading" in {s["key"] for s in said["sections"]}
    assert (said["schema"], said["class"]) == ("privsyn-report/1", "internal")
    for file in (page, numbers):
        assert file.stat().st_mode & 0o077 == 0
        assert CANARY not in file.read_text()
    assert "Internal report on synthetic data" in page.read_text()
    outward = json.loads((ctx.workspace.release(planned.id) / "report.json").read_text())
    assert {s["class"] for s in outward["sections"]} == {outward["class"]} == {"dp-release"}
    assert CANARY not in (ctx.workspace.release(planned.id) / "report.html").read_text()
    inside = {s["key"]: s for s in said["sections"] if s["class"] == "dp-release"}
    assert inside == {s["key"]: s for s in outward["sections"] if s["key"] != "short"}
    first = page.read_bytes()
    give = partial(command, project.root, "report", planned.id)
    code, out, _ = give()
    assert code == 0
    assert str(page.relative_to(project.root)) in out
    assert f"releases/{planned.id}/report.html" in out
    assert "UNAVAILABLE:" not in out  # what is measured and not graded is not called so
    assert page.read_bytes() == first  # from the same numbers the same page
    assert json.loads(give("--json")[1]) == said


def test_every_number_that_may_leave_follows_from_the_release_folder_alone(tmp_path, command):
    """The folder lies elsewhere, without its project, ledger, settings and real records."""
    project, ctx, planned, _ = released(tmp_path / "project")
    alone = tmp_path / "elsewhere" / planned.id
    shutil.copytree(ctx.workspace.release(planned.id), alone)
    shutil.rmtree(project.root)
    assert outward(alone).to_html() == (alone / "report.html").read_text()
    said = json.dumps(outward(alone).to_json())
    assert json.loads(said) == json.loads((alone / "report.json").read_text())
    assert recomputed.check(alone) > 40
    known = {form for value in recomputed.numbers(alone).values() for form in forms(value)}
    assert recomputed.on_page(alone) <= recomputed.sayable(alone) | known | {
        "10"
    }  # of powers of ten
    shutil.copytree(alone, tmp_path / "received")
    assert command(tmp_path, "verify", "received")[0] == 0
    (tmp_path / "received" / "exhibits").symlink_to(tmp_path)
    assert command(tmp_path, "verify", "received")[0] == 4
    rows = (alone / "synthetic.jsonl").read_text().splitlines()
    (alone / "synthetic.jsonl").write_text("".join(f"{row}\n" for row in rows[:-3]))
    with pytest.raises(AssertionError):  # the search is not blind
        recomputed.check(alone)


def test_a_release_that_was_not_measured_has_one_that_says_why(tmp_path):
    _, ctx, planned, folder = released(tmp_path / "project", dataset={"holdout": 0.0})
    assert folder is None
    page, numbers = report(ctx, planned)
    said = json.loads(numbers.read_text())
    assert not any(section["grade"] for section in said["sections"])
    assert "UNAVAILABLE, since no real records are held out" in page.read_text()


def test_an_evaluation_that_was_killed_leaves_the_release_and_says_so(tmp_path):
    _, ctx, planned, folder = released(tmp_path / "project")
    whole = (folder / "evaluation.json").read_bytes()
    for left in (None, whole[: len(whole) // 2]):
        (folder / "evaluation.json").unlink()
        if left is not None:
            (folder / "evaluation.json").write_bytes(left)
        page, _ = report(ctx, planned)
        assert "evaluate did not run or was cut off" in page.read_text()
        (folder / "evaluation.json").write_bytes(whole)
    found = verification.verify(ctx.workspace.release(planned.id), ctx.ledger)
    assert all(check.passed for check in found)


def written(folder, count, labels):
    lines = [
        {"id": str(i), "label": labels[i % len(labels)], "text": f"please call me back {i} times"}
        for i in range(count)
    ]
    (folder / "synthetic.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "synthetic.jsonl"


@pytest.mark.parametrize("held_out", [0, 60])
def test_an_embedder_that_does_not_load_is_said_whether_a_record_is_held_out_or_not(
    make_project, tmp_path, monkeypatch, held_out
):
    def damaged(*_):
        raise ModelError("damaged.")

    monkeypatch.setattr("privsyn.stages.measure.load_embedder", damaged)
    ctx = make_project(methods=INK).context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    real = [Record(str(i), "Billing", f"a bill of {i} euros") for i in range(held_out)]
    with pytest.raises(ModelError, match="damaged"):
        beside(ctx, planned, written(tmp_path, 40, ("Billing",)), real, Failures())


@pytest.mark.parametrize("models", [True, False])
def test_what_is_seen_of_evaluate_does_not_tell_whether_a_record_was_held_out(
    make_project, tmp_path, monkeypatch, models
):
    """Progress and logs leave the machine of a task, by Airflow's log store: one unit in the
    hold-out, whose only record has no label, or none at all, must look alike there."""
    project = make_project(methods=INK)
    loaded = []

    def load(models, role, performance):
        loaded.append(role)
        return stand_ins()[role]

    monkeypatch.setattr("privsyn.stages.measure.load_role", load)
    monkeypatch.setattr(
        "privsyn.stages.measure.load_embedder", lambda *_: Backends(stand_ins()).embedder
    )
    artifact = written(tmp_path, 40, ("Billing", "Symptoms"))

    def seen(real):
        shown = []
        ctx = project.context(f"evaluate.by={'models' if models else 'words'}")
        shutil.rmtree(ctx.workspace.cache / "alone", ignore_errors=True)
        ctx.progress = lambda *counts: shown.append(counts)
        planned = plan(ctx, "invisible_ink", open_account=True)
        loaded.clear()
        metrics = beside(ctx, planned, artifact, real, Failures())
        return bool(metrics), shown, list(loaded)

    labeled = [Record(str(i), "Billing", f"a bill for {i} euros") for i in range(30)]
    none, one, many = seen([]), seen([Record("7", None, "a bill")]), seen(labeled)
    assert (none[0], many[0]) == (False, True)
    assert none[1:] == one[1:] == many[1:]
    named = [counts for counts in none[1] if counts[-1] == "measurements"]
    assert [counts[1:3] for counts in named] == [(done, len(named)) for done in range(len(named))]
    assert len({counts[0] for counts in named}) == len(named) == (4 if models else 1)
    alone = [counts for counts in none[1] if counts[-1] == "texts"]
    assert {counts[2] for counts in alone} == ({80} if models else set())  # two draws of 40
    assert ("language" in none[2]) is models


@pytest.mark.parametrize("units", [10, 17, 40])
def test_advice_names_no_count_that_a_public_setting_would_follow(tmp_path, units):
    changed = METHODS["private_evolution"] | {"population": 4000}
    project = build_project(tmp_path / "project", methods={"private_evolution": changed})
    project.write(rows(units, units))
    ctx = project.context()
    planned = begin_release(ctx, "private_evolution")
    said = _levers(open_plan(ctx, planned))
    assert said.startswith("the number of records (fewer train than the ")
    assert "set these by public numbers alone" in said
    public = f"{planned.mechanism().sized_for.records:.0f} {planned.mechanism().sized_for.settings}"
    assert set(NUMBER.findall(said)) <= set(NUMBER.findall(public))
