"""The stages over the toy model: idempotence, budget, loss, quarantine, neighboring data."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shutil
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from privsyn import layout
from privsyn.display.releases import outcome
from privsyn.dp.accountant import guarantee, rho
from privsyn.dp.events import dump
from privsyn.dp.noise import OpenDPNoise
from privsyn.errors import (
    BudgetError,
    BudgetExceeded,
    ConfigError,
    DataError,
    LeaseHeld,
    ModelError,
    ReleaseLost,
    ValidationFailed,
    VerificationError,
)
from privsyn.ledger.leases import Leases
from privsyn.methods.base import Backends
from privsyn.methods.invisible_ink.method import InvisibleInk
from privsyn.models.references import BUILTIN
from privsyn.release import certificate
from privsyn.release.plan import Plan, release_id
from privsyn.release.workdir import Workdir
from privsyn.report import verification
from privsyn.stages import certify as certify_stage
from privsyn.stages.audit import held_out
from privsyn.stages.certify import certify
from privsyn.stages.draw import generate
from privsyn.stages.evaluate import evaluate, log_line
from privsyn.stages.folder import export
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan, preview, report
from privsyn.stages.publish import publish
from privsyn.stages.reserve import reserve, settle
from privsyn.stages.run import run
from privsyn.stages.validate import copy_reports, validate
from privsyn.students.parent import open_parent
from privsyn.tracking import MlflowTracker
from tests.fakes import FakeTextModel
from tests.integration.e2e.neighbors import assert_alike, published_by_neighbors
from tests.integration.e2e.small_project import (
    CANARY,
    begin_release,
    breaking,
    finish,
    measured_by,
    reseal,
    reserve_release,
    times,
)
from tests.noise import Constant, SeededNoise


class Runs(MlflowTracker):
    """Keeps the names of the metrics and files of every run."""

    def __init__(self):
        super().__init__("")
        self.metrics, self.files = defaultdict(set), defaultdict(set)

    def release_run(self, release_id):
        return "public"

    def start_stage(self, release_id, stage):
        return f"internal/{stage}"

    def log_metrics(self, run_id, metrics, step=0):
        self.metrics[run_id].update(metrics)

    def log_artifact(self, run_id, path, folder=""):
        self.files[run_id].add((path.name, path.read_bytes()))


def release(ctx, backends):
    planned = reserve_release(ctx)
    return planned, finish(ctx, planned, backends)


def test_a_release_is_whole_certified_and_settled(make_project, fake):
    ctx = make_project().context()
    planned, folder = release(ctx, fake)
    rows = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == ["Billing"] * 3 + ["Symptoms"] * 3
    assert [row["id"] for row in rows] == [f"{planned.id}-{i:06d}" for i in range(6)]
    checks = verification.verify(folder, ctx.ledger)
    not_passed = [(check.name, check.passed) for check in checks if not check.passed]
    assert not_passed == [("report", None)], "it is not validated yet"
    assert settle(ctx, planned) == "COMMITTED"
    assert not ctx.workspace.scratch(planned.id).exists()
    assert ctx.ledger.verify().entries == 1
    account = certificate.read(folder)[1]["account"]
    assert account["share"] == ctx.ledger.accounts.balance(account["name"]).share > 0
    assert ctx.workspace.state.stat().st_mode & 0o077 == 0


TIME = re.compile(r"\d{2}:\d{2}:\d{2}")
"""A time of a day, wherever it stands."""


def released(ctx, planned, backends):
    """Draw, certify and validate a reserved release; the bytes and times of its folder."""
    finish(ctx, planned, backends)
    folder = validate(ctx, planned)
    at = {path.relative_to(folder): path.stat().st_mtime_ns for path in folder.rglob("*")}
    files = {path: (folder / path).read_bytes() for path in at if (folder / path).is_file()}
    return files, at | {Path(): folder.stat().st_mtime_ns}


def test_a_release_tells_the_day_its_cost_was_set_aside_and_no_time(make_project, fake):
    """How long a release takes depends on the records."""
    project = make_project()
    ctx = project.context()
    start, passed = ctx.clock(), count()
    ctx.clock = lambda: start + timedelta(seconds=next(passed))
    planned = reserve_release(ctx)
    base = project.copy(project.root.parent / "slow")
    files, at = released(ctx, planned, fake)
    _, sealed = certificate.read(ctx.workspace.release(planned.id))
    assert sealed["reserved_on"] == "2026-11-20"
    assert len(set(at.values())) == 1
    assert str(datetime.fromtimestamp(at[Path()] / 1e9, UTC)).startswith("2026-11-20")
    assert not [path for path, raw in files.items() if TIME.search(raw.decode("latin-1"))]
    copies = (export(ctx, planned), ctx.workspace.reports(planned.method))
    copy_reports(ctx, planned.method, ctx.workspace.release(planned.id))
    assert [len(times(copy)) for copy in copies] == [1, 1]
    days = {str(datetime.fromtimestamp(one / 1e9, UTC))[:10] for one in times(*copies)}
    assert days == {"2026-11-20"}

    slow = base.context()
    slow.clock = lambda: start + timedelta(days=3, hours=next(passed))
    slow.noise = ctx.noise = Constant  # the same draws
    other = base.copy(base.root.parent / "slower").context()
    other.noise, other.clock = Constant, lambda: start + timedelta(days=1)
    assert released(slow, planned, fake) == released(other, planned, fake)


def test_who_finishes_first_shows_on_no_certificate(make_project, fake):
    """Neither in the balance nor in numbers of rows: of releases that are reserved, either order
    of finishing gives the same bytes."""
    project = make_project(account={"period": {"days": 30, "epsilon": 20.0}})
    ctx = project.context()
    plans = []
    for draw in (0, 1):
        one = project.context(f"privacy.draw={draw}")
        plans.append((one, plan(one, "invisible_ink", open_account=True)))
        reserve(*plans[-1])
    found = []
    start = project.context().clock()
    for order in ((0, 1), (1, 0)):
        there = project.copy(project.root.parent / f"{order[0]} first")
        made = {}
        for number in order:
            ctx = there.context(f"privacy.draw={number}")
            ctx.noise = Constant
            ctx.clock = itertools.repeat(start + timedelta(days=number)).__next__
            made[number] = released(ctx, plans[number][1], fake)
        found.append(made)
    assert found[0] == found[1]


def test_the_same_config_is_the_same_release_at_no_cost(make_project, fake):
    project = make_project()
    first, folder = release(project.context(), fake)
    spent = project.context().ledger.accounts.balance("letters").spent
    bytes_before = (folder / "certificate.json").read_bytes()
    settle(project.context(), first)

    ctx = project.context()
    ctx.noise = lambda: pytest.fail("drew again")
    again, folder_again = release(ctx, None)
    assert (again.id, folder_again) == (first.id, folder)
    assert (folder / "certificate.json").read_bytes() == bytes_before
    assert ctx.ledger.accounts.balance("letters").spent == spent


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ("dataset.version=v2", False),
        ("privacy.draw=1", False),
        ("privacy.epsilon=7.9", False),
        ("methods.invisible_ink.top_k=50", False),
        ("methods.invisible_ink.prompt={private: 'Hm {reference} so', public: 'Hm so'}", False),
        ("models.dtype=bfloat16", False),
        ("dataset.max_records_per_unit=1", False),
        ("dataset.holdout=0.3", False),
        ("performance.shards=1", True),
        ("performance.rows_per_pass=4", True),
    ],
)
def test_what_shapes_the_output_alone_changes_the_release_id(make_project, change, same):
    project = make_project()
    one = plan(project.context(), "invisible_ink", open_account=True)
    assert (plan(project.context(change), "invisible_ink").id == one.id) is same


def test_a_model_is_what_its_folder_holds_and_not_what_it_is_called(make_project):
    ctx = make_project().context()
    used = plan(ctx, "invisible_ink", open_account=True).model_dump(mode="json")
    used["models"]["language"] = {"source": "one", "revision": "sha256:aa", "dtype": "float32"}
    one = release_id(used)
    used["models"]["language"]["source"] = "another"
    assert release_id(used) == one
    used["models"]["language"]["revision"] = "sha256:bb"
    assert release_id(used) != one
    used["models"]["language"]["revision"] = "0" * 40  # a commit means what its repository holds
    another = release_id(used)
    used["models"]["language"]["source"] = "one"
    assert release_id(used) != another


def test_new_draws_are_charged_until_the_account_is_empty(make_project, fake):
    project = make_project()
    for number in range(6):
        ctx = project.context(f"privacy.draw={number}")
        planned = plan(ctx, "invisible_ink", open_account=True)
        if not preview(ctx, planned).fits:
            break
        release(ctx, fake)
    else:
        pytest.fail("the cap never held")
    with pytest.raises(BudgetExceeded) as refused:
        reserve(ctx, planned)
    assert refused.value.exit_code == 3
    assert report(planned, preview(ctx, planned))["account"]["fits"] is False


def test_a_seeded_source_taints_the_certificate(make_project, fake):
    ctx = make_project().context()
    ctx.noise = lambda: SeededNoise(1)
    _, folder = release(ctx, fake)
    _, sealed = certificate.read(folder)
    assert (sealed["class"], sealed["noise"]) == ("not-private", "seeded")


@pytest.mark.parametrize("error", [RuntimeError, ModelError])
def test_an_exception_of_ours_after_a_draw_loses_the_release(make_project, error):
    """One that says what is wrong, too: it may do so by what was drawn, which is not drawn anew."""

    ctx = make_project().context()
    planned = begin_release(ctx)
    with pytest.raises(ReleaseLost) as lost:
        generate(ctx, planned, 0, breaking(error("the text was: CANARY")))
    assert "CANARY" not in str(lost.value)
    assert error.__name__ in str(lost.value)
    assert ctx.ledger.releases.get(planned.id).state == "LOST"
    assert ctx.ledger.accounts.balance("letters").spent > 0
    with pytest.raises(ReleaseLost, match=r"privacy\.draw=1"):
        reserve(ctx, planned)
    assert settle(ctx, planned) == "LOST"


def test_a_failure_from_outside_is_resumed_at_no_cost(make_project, fake):
    class Dies(OpenDPNoise):
        left = 7

        def noisy_max(self, *args):
            Dies.left -= 1
            if Dies.left == 0:
                raise MemoryError
            return super().noisy_max(*args)

    project = make_project()
    ctx = project.context()
    ctx.noise = Dies
    planned = begin_release(ctx)
    with pytest.raises(MemoryError):
        generate(ctx, planned, 0, fake)
    assert settle(ctx, planned) == "BEGUN"
    spent = ctx.ledger.accounts.balance("letters").spent
    kept = (ctx.workspace.scratch(planned.id) / "journal-00000").read_bytes()

    resumed = project.context("performance.shards=1")
    again = reserve_release(resumed)
    for shard in range(partition(resumed, again)):
        generate(resumed, again, shard, fake)
    assert again.id == planned.id
    assert project.context().ledger.accounts.balance("letters").spent == spent
    assert (ctx.workspace.scratch(planned.id) / "journal-00000").read_bytes().startswith(kept)
    folder = certify(resumed, again)
    assert len((folder / "synthetic.jsonl").read_text().splitlines()) == 6


def test_a_release_is_certified_by_one_process_at_a_time(make_project, fake, monkeypatch):
    """Else the second takes the folder away that the first is building."""
    project = make_project()
    ctx, merged, refused = project.context(), certify_stage._merge, []

    def at_once(*arguments):
        monkeypatch.setattr(certify_stage, "_merge", merged)
        with pytest.raises(LeaseHeld) as held:
            certify(project.context(), planned)
        refused.append(held.value.retryable)
        return merged(*arguments)

    monkeypatch.setattr(certify_stage, "_merge", at_once)
    planned = reserve_release(ctx)
    folder = finish(ctx, planned, fake)
    assert refused == [True]
    checks = verification.verify(folder, ctx.ledger)
    assert all(check.passed is not False for check in checks)


@pytest.mark.parametrize(
    ("late", "kind", "call"),
    [
        ("partition", Workdir, "begin"),
        ("generate", Workdir, "resume"),
        ("generate", Leases, "acquire"),
        ("certify", Leases, "acquire"),
    ],
)
def test_a_stage_of_a_release_that_another_run_finishes_meanwhile_finds_it(
    make_project, fake, monkeypatch, late, kind, call
):
    """It has looked, and before it goes on the other run commits and wipes what it looked at."""
    project = make_project()
    ctx, real = project.context(), getattr(kind, call)
    planned = reserve_release(ctx)
    parts = partition(ctx, planned)
    for shard in range(parts):
        generate(ctx, planned, shard, fake)
    if late == "generate":  # not drawn yet, as far as it sees
        monkeypatch.setattr(Workdir, "is_finished", lambda *_: False)

    def overtaken(*arguments):
        monkeypatch.setattr(kind, call, real)
        certify(project.context(), planned)
        return real(*arguments)

    monkeypatch.setattr(kind, call, overtaken)
    stages = {
        "partition": lambda: partition(ctx, planned) == 0,
        "generate": lambda: generate(ctx, planned, 0, fake) is None,
        "certify": lambda: certify(ctx, planned) == ctx.workspace.release(planned.id),
    }
    assert stages[late]()
    assert settle(ctx, planned) == "COMMITTED"
    assert ctx.workspace.scratches() == []


def test_what_runs_before_the_release_is_finished_names_its_state(make_project):
    """As where a task of Airflow is marked as successful: those after it do not wait for it."""
    ctx = make_project().context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    with pytest.raises(BudgetError, match="is not in the ledger"):
        validate(ctx, planned)
    reserve(ctx, planned)
    for stage in (validate, publish):
        with pytest.raises(DataError, match="is RESERVED: it is not finished, and has no folder"):
            stage(ctx, planned)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda project: project.data.unlink(), "private.jsonl"),
        (lambda project: project.data.write_text(""), "private.jsonl"),
        (lambda project: project.write([{"text": "a", "label": "Billing"}]), "unit"),
        (lambda project: project.data.write_bytes(b"\xff\xfe\n\n"), "private.jsonl"),
    ],
)
def test_a_bad_input_file_reserves_nothing(make_project, damage, message):
    project = make_project()
    damage(project)
    ctx = project.context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    with pytest.raises(DataError, match=message) as caught:
        reserve(ctx, planned)
    assert caught.value.exit_code == 2
    assert ctx.ledger.releases.find(planned.id) is None
    assert ctx.ledger.accounts.balance("letters").spent == 0


def test_a_plan_of_other_settings_is_refused(make_project):
    project = make_project()
    planned = plan(project.context(), "invisible_ink", open_account=True)
    with pytest.raises(ConfigError, match="other settings"):
        reserve(project.context("methods.invisible_ink.top_k=7"), planned)


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {"prompt": "Say {label}: {reference}"}},
        {"dataset": {"labels": ("Billing",)}},
        {"dataset": {"document": "secret note"}},
        {"models": {"language": {"revision": "other"}}},
        {"draw": 1},
    ],
    ids=str,
)
def test_a_plan_that_is_edited_after_it_is_paid_is_not_drawn(make_project, fake, change):
    """Its event is what was charged, but what is drawn would not be what the name says."""
    ctx = make_project().context()
    planned = begin_release(ctx)
    ctx.noise = lambda: pytest.fail("drew")
    said = planned.model_dump(mode="json")
    for name, value in change.items():
        said[name] = merged(said[name], value) if isinstance(value, dict) else value
    with pytest.raises(VerificationError, match="was edited"):
        generate(ctx, Plan.model_validate(said), 0, fake)
    assert ctx.ledger.releases.get(planned.id).state == "BEGUN"


def merged(held, change):
    for name, value in change.items():
        held[name] = merged(held[name], value) if isinstance(value, dict) else value
    return held


def test_a_failed_suite_keeps_the_artifact_in_quarantine(make_project, fake):
    project = make_project()
    logged = Runs()
    strict = ("validation.max_chars=1", "validation.min_share=1.0")
    ctx = project.context(*strict, tracker=logged)
    ctx.as_filed = True
    planned, folder = release(ctx, fake)
    logged.files.clear()
    (folder / layout.SIGNATURE).write_text("{}")
    for _ in range(2):  # a second look leaves it as closed as the first
        with pytest.raises(ValidationFailed) as failed:
            validate(ctx, planned)
    assert failed.value.exit_code == 5
    assert "characters" in failed.value.message  # in words, not the name of a check alone
    assert "cost nothing" in failed.value.hint
    quarantine = ctx.workspace.quarantine(planned.id)
    assert not folder.exists()
    assert (quarantine / "report.html").is_file()
    assert not (quarantine / layout.SIGNATURE).exists()
    assert quarantine.parent.stat().st_mode & 0o777 == 0o700
    for path in (quarantine, *quarantine.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path
    assert not logged.files, "what failed went to MLflow"
    assert not ctx.workspace.reports(planned.method).exists(), "what failed went to DVC's folder"
    assert ctx.ledger.releases.get(planned.id).state == "COMMITTED"
    # A mended suite lets the same artifact out, at no cost.
    mended = project.context(tracker=logged)
    assert validate(mended, planned) == folder
    assert not quarantine.exists()
    attached = {name for files in logged.files.values() for name, _ in files}
    assert attached == {"report.html", "report.json", "validation.json"}
    assert folder.stat().st_mode & 0o777 == 0o755
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o644}


def test_no_invented_address_or_number_is_in_the_released_file(make_project, fake):
    """The suite would refuse the release otherwise: whatever the model writes here is one."""
    words = ("", "ann.o'neil+x@example.org", "MRN-123456", "555-1234")
    ctx = make_project(dataset={"examples": []}).context()
    model = replace(fake.models["language"], vocabulary=words)
    _, folder = release(ctx, Backends({"language": model}))
    texts = [
        json.loads(line)["text"] for line in (folder / "synthetic.jsonl").read_text().splitlines()
    ]
    placeholders = {"[email]", "[record number]", "[phone]"}
    spoken = " ".join(texts)
    assert len(texts) == 6
    assert any(placeholder in spoken for placeholder in placeholders)
    for placeholder in placeholders:
        spoken = spoken.replace(placeholder, "")
    assert not spoken.strip(), "something of an address or a number stayed"


def test_a_log_does_not_tell_whether_a_record_is_held_out(make_project, fake):
    """By 1e-12 of the units none is: what is told is what is told of some, and of the same file."""
    ctx = make_project().context("dataset.holdout=1e-12")
    planned, _ = release(ctx, fake)
    internal = evaluate(ctx, planned)
    assert internal == ctx.workspace.internal(planned.id)
    assert log_line(internal) == f"internal numbers in {internal}"
    assert (internal / "evaluation.json").is_file()
    assert "nothing" not in outcome(ctx, planned)["utility (internal)"]


def test_private_numbers_reach_no_public_run_and_no_log(make_project, fake):
    """A tracker that keeps what it is told: the release's own run has the certificate's facts."""
    ctx = make_project().context()
    ctx.tracker = tracker = Runs()
    planned, folder = release(ctx, fake)
    internal = evaluate(ctx, planned)
    assert internal == ctx.workspace.internal(planned.id)
    assert log_line(internal) == f"internal numbers in {internal}"
    assert "nothing" not in outcome(ctx, planned)["utility (internal)"]
    assert (internal / "evaluation.json").stat().st_mode & 0o077 == 0
    assert not (folder / "evaluation.json").exists()
    validate(ctx, planned)
    listed = json.loads((internal / "evaluation.json").read_text())["metrics"]
    private = {metric["name"] for metric in listed}
    assert {metric["class"] for metric in listed} == {"internal"}
    assert not private & tracker.metrics["public"]
    assert private <= tracker.metrics["internal/evaluate"]
    shown = {(path.name, path.read_bytes()) for path in internal.glob("report.*")}
    assert len(shown) == 2
    assert not shown & tracker.files["public"]
    assert shown <= tracker.files["internal/evaluate"]


class Letters:
    """An embedder: how often each letter occurs."""

    def embed(self, texts):
        return np.array([[t.count(c) for c in "abcdefghij"] for t in texts], np.float32)


def test_what_cannot_be_measured_of_a_record_stops_no_release(make_project, fake, monkeypatch):
    """A record decides neither whether a release is published nor what a log says."""

    def fails(texts, real):
        raise ValueError(CANARY)

    said, project = [], make_project()
    for broken in (False, True):
        if broken:
            monkeypatch.setattr("privsyn.stages.measure.compare_lengths", fails)
        ctx = project.context("dataset.holdout=0.5", f"privacy.draw={int(broken)}")
        heard = []
        ctx = replace(ctx, on_progress=lambda *told, heard=heard: heard.append(told))
        ctx.tracker = MlflowTracker("")
        planned, _ = release(ctx, fake)
        settle(ctx, planned)
        validate(ctx, planned)
        models = Backends({**fake.models, "embedder": Letters(), "text": FakeTextModel()})
        with measured_by(models):
            inside = evaluate(ctx, planned)
        found = json.loads((inside / "evaluation.json").read_text())
        page = (inside / "report.html").read_text()
        assert ("failed" in found) is ("measuring failed" in page) is broken
        assert CANARY not in page + json.dumps(found)
        assert publish(ctx, planned)["release_id"] == planned.id
        said.append([told for told in heard if told[-1] == "measurements"])
    assert found["failed"].keys() == {"words, lengths, labels"}
    told = outcome(ctx, planned)["utility (internal)"]
    assert told.startswith(
        "measuring failed (words, lengths, labels: ValueError in test_stages.py, line"
    )
    assert said[0] == said[1] != []


@pytest.fixture
def lost(make_project, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(BUILTIN, model)
    return make_project(models={"language": str(model)}), model


def goes(model):
    """Hears of the stages of a run, and takes the model away once the release is valid."""
    return lambda stage, _: model.rename(model.with_name("gone")) if stage == "validate" else None


def test_a_paid_release_is_published_though_it_cannot_be_measured(lost):
    """The model is gone once the release is valid; with it back, a later run measures it."""
    project, model = lost
    heard = []
    ctx = project.context()
    planned = run(ctx, "invisible_ink", on_step=goes(model), on_note=heard.append)
    assert (project.root / "releases" / f"{planned.id}.dvc").is_file()
    assert ctx.ledger.releases.get(planned.id).state == "COMMITTED"
    assert heard == [log_line(ctx.workspace.internal(planned.id))]
    assert heard[0].startswith("not measured: ModelError in ")
    assert f"privsyn report --measure {planned.id}" in heard[0]
    assert "measuring failed (the whole evaluation: " in outcome(ctx, planned)["utility (internal)"]
    assert (
        "the whole evaluation: ModelError"
        in (ctx.workspace.internal(planned.id) / "report.html").read_text()
    )
    plan_file = project.root / "planned.json"
    plan_file.write_text(json.dumps(planned.model_dump(mode="json")))
    done = project.cli("stage", "evaluate", "--plan", str(plan_file))
    assert "not measured: ModelError in " in done.stdout, "a stage of DVC ends well, too"
    model.with_name("gone").rename(model)
    spent = ctx.ledger.accounts.balance("letters").spent
    done = project.cli("report", "--measure", planned.id)
    assert "measuring failed" not in done.stdout
    file = ctx.workspace.internal(planned.id) / "evaluation.json"
    assert "failed" not in json.loads(file.read_text())
    assert ctx.ledger.accounts.balance("letters").spent == spent


def test_a_release_is_measured_once_per_settings(make_project):
    """A second run costs nothing, and neither does its evaluation; other settings measure anew."""
    project = make_project()
    ctx = project.context()
    planned = run(ctx, "invisible_ink", published=False)
    file = ctx.workspace.internal(planned.id) / "evaluation.json"
    seen = file.stat().st_mtime_ns
    run(project.context(), "invisible_ink", published=False)
    assert file.stat().st_mtime_ns == seen
    run(project.context("evaluate.by=words"), "invisible_ink", published=False)
    changed = file.stat().st_mtime_ns
    assert changed != seen
    evaluate(project.context("evaluate.by=words"), planned, again=True)
    assert file.stat().st_mtime_ns != changed


def test_progress_of_an_evaluation_is_the_same_without_a_held_out_record(
    make_project, fake, monkeypatch
):
    project = make_project()
    ctx = project.context("dataset.holdout=0.5")
    planned, _ = release(ctx, fake)
    validate(ctx, planned)
    models = Backends({**fake.models, "embedder": Letters()})
    with measured_by(models):
        evaluate(ctx, planned)  # from here on what the public model wrote is on file
    told = []
    for real in (held_out(ctx, planned), []):
        heard = []
        watched = replace(ctx, on_progress=lambda *said, heard=heard: heard.append(said))
        watched.tracker = MlflowTracker("")
        monkeypatch.setattr("privsyn.stages.evaluate.held_out", lambda *_, real=real: real)
        with measured_by(models):
            evaluate(watched, planned, again=True)
        told.append(heard)
    assert told[0] == told[1]
    assert told[0]


def test_neighboring_data_gives_the_same_bytes_when_the_mechanism_is_a_constant(make_project, fake):
    """Plan, certificate, validation and artifact: nothing else of the data comes through."""
    assert_alike(
        published_by_neighbors(
            make_project(), "invisible_ink", Constant, lambda ctx: release(ctx, fake)
        )
    )


@pytest.mark.parametrize("name", ["synthetic.jsonl", "certificate.json"])
def test_one_changed_byte_fails_verification(make_project, fake, name):
    ctx = make_project().context()
    planned, folder = release(ctx, fake)
    open_parent(ctx, planned.id)
    file = folder / name
    original = file.read_bytes()
    for at in range(0, len(original), max(1, len(original) // 40)):
        changed = bytearray(original)
        changed[at] ^= 1
        file.write_bytes(changed)
        with pytest.raises(VerificationError) as caught:
            verification.raise_on_failure(folder, verification.verify(folder, None))
        assert caught.value.exit_code == 4
        with pytest.raises(VerificationError):
            open_parent(ctx, planned.id)


def test_a_resealed_lie_is_found_by_recomputing_or_by_the_ledger(make_project, fake):
    ctx = make_project().context()
    _, folder = release(ctx, fake)
    _, sealed = certificate.read(folder)

    def forged(place, change):
        body = json.loads(json.dumps(sealed))
        *path, last = place.split(".")
        held = body
        for step in path:
            held = held[int(step) if step.isdigit() else step]
        held[last] = change(held.get(last)) if callable(change) else change
        reseal(folder, body)
        checks = verification.verify(folder, ctx.ledger)
        return {check.name for check in checks if check.passed is False}

    def solved(said):
        """A tenth of the clip bound, and all that follows from it."""
        planned = Plan.model_validate(said | {"warnings": (), "shards": 1})
        derived = planned.derived | {"clip_bound": planned.derived["clip_bound"] / 10}
        made = planned.model_copy(update={"derived": derived}).mechanism()
        cost = guarantee(made.event, planned.target_delta).epsilon
        other = {"derived": dict(made.derived), "event": dump(made.event)}
        return said | other | {"epsilon": cost, "rho": rho(made.event)}

    assert forged("created", "2020-01-01T00:00:00+00:00") == {"ledger digests"}
    less = forged("risk.found_at_1_permille", lambda risk: risk * 0.99)
    assert less == {"risk", "ledger digests"}
    assert {"release id", "event"} <= forged("plan.max_records_per_unit", 1)
    for place, change, check in (
        ("plan.event.events.0.range", lambda value: value / 2, "event"),
        ("plan", solved, "event"),
        ("plan.epsilon", 0.5, "guarantee"),
        ("plan.delta", lambda delta: delta / 10, "guarantee"),
        ("plan.rho", 0.0, "derived facts"),
        ("plan.mu", 0.1, "derived facts"),
        ("plan.invariants", ["count"], "derived facts"),
        ("artifact.rows", lambda rows: rows + 1, "derived facts"),
        ("noise", "seeded", "class"),
        ("risk", {}, "risk"),
        ("risk", {"advantage": "none"}, "risk"),
        ("risk_together", sealed["risk"], "risk"),
    ):
        assert check in forged(place, change), place


def test_a_certificate_that_was_written_by_hand_is_one_line(make_project, fake):
    ctx = make_project().context()
    _, folder = release(ctx, fake)
    file = folder / "certificate.json"
    _, sealed = certificate.read(folder)
    whole = file.read_text().rstrip().removesuffix("}")
    written = {
        f"nested {depth}": whole + ', "more": ' + "[" * depth + "]" * depth + "}"
        for depth in (400, 2_000, 100_000)
    }
    for field in ("exhibits", "artifact", "plan", "parents", "model", "derived"):
        for value in (["a"], "a", 7, None, {"a": 7}, {"a": {"b": []}}):
            written[f"{field}={value}"] = json.dumps(sealed | {field: value})
    for what, text in written.items():
        file.write_text(text)
        with pytest.raises(VerificationError) as caught:
            verification.raise_on_failure(folder, verification.verify(folder, None))
        assert len(str(caught.value).splitlines()) == 1, what
        assert set(ctx.workspace.known_releases("letters")) <= {folder.name}


def test_a_count_of_private_records_on_the_certificate_is_always_seen(
    make_project, fake, monkeypatch
):
    """The check above must not depend on the account's random key."""
    run = InvisibleInk.run

    def counting(self, cfg, mechanism, buckets, draw):
        samples = run(self, cfg, mechanism, buckets, draw)
        for sample, bucket in zip(samples, buckets, strict=True):
            counts = {"references": len(bucket.contents.reveal())}
            yield dataclasses.replace(sample, counts=counts)

    monkeypatch.setattr(InvisibleInk, "run", counting)
    found = published_by_neighbors(
        make_project(), "invisible_ink", Constant, lambda ctx: release(ctx, fake)
    )
    differing = {name for name, published in found.items() if published != found["base"]}
    seen = {"removed", "unit removed", "added", "label unknown", "nulled"}
    assert seen <= differing <= seen | {"label moved"}


def test_an_audit_that_blocks_holds_back_what_cannot_be_measured(lost):
    project, model = lost
    ctx = project.context("evaluate.audit=block")
    with pytest.raises(ValidationFailed, match="was not audited here"):
        run(ctx, "invisible_ink", on_step=goes(model))
    assert not list((project.root / "releases").glob("*.dvc"))
