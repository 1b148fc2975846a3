"""Releases with a model: the one a release was drawn from, and one made from a release."""

import json
import os
import shutil
import stat
from contextlib import contextmanager

import pytest

from privsyn import layout
from privsyn.data.artifacts import sha256_file, write_json_atomic
from privsyn.errors import DataError, TrackingUnavailable
from privsyn.methods.base import Backends
from privsyn.publishing import DvcPublisher
from privsyn.release import certificate
from privsyn.release.workdir import MODEL
from privsyn.report import verification
from privsyn.stages.certify import certify
from privsyn.stages.draw import generate
from privsyn.stages.folder import export, seal, write_model
from privsyn.stages.partition import partition
from privsyn.stages.publish import publish, record, restore
from privsyn.stages.reserve import reserve, settle
from privsyn.stages.validate import validate
from privsyn.students.cleanup import sync
from privsyn.tracking import MlflowTracker
from tests.integration.e2e.small_project import (
    build_project,
    failures,
    reseal,
    reserve_release,
    stand_in,
)

FILES = {"adapter_config.json": b"{}", "adapter_model.safetensors": bytes(range(256)) * 40}


def release(ctx, files=FILES):
    """A release whose scratch holds a model, as the stage train leaves it."""
    planned = reserve_release(ctx)
    return planned, finish(ctx, planned, files)


def finish(ctx, planned, files=FILES):
    shards = partition(ctx, planned)
    folder = ctx.workspace.scratch(planned.id) / MODEL
    for name, content in files.items():
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    for shard in range(shards):
        generate(ctx, planned, shard, Backends({"language": stand_in()}))
    return certify(ctx, planned)


def student(ctx, planned, files=FILES):
    parent = ctx.workspace.release(planned.id)
    folder = parent.with_name(f"{planned.id}.student-1")
    building = parent.with_name(f".{folder.name}.new")
    artifact = write_model(building, files)
    _, sealed = certificate.read(parent)
    derived = certificate.derive(
        sealed, artifact, name=folder.name, how={"student": 1}, root=ctx.workspace.root
    )
    seal(building, derived, folder)
    ctx.ledger.releases.derive(planned.id, artifact.sha256, certificate.digest(derived))
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    project = build_project(tmp_path_factory.mktemp("models") / "project")
    ctx = project.context()
    planned, folder = release(ctx)
    return ctx, planned, {"release": folder, "student": student(ctx, planned)}


def contents(folder):
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_the_model_is_copied_certified_and_exported(finished):
    ctx, planned, folders = finished
    folder = folders["release"]
    _, sealed = certificate.read(folder)
    assert sealed["model"] == {name: sha256_file(folder / "model" / name) for name in FILES}
    assert {name: (folder / "model" / name).read_bytes() for name in FILES} == FILES
    for name in FILES:
        assert stat.S_IMODE((folder / "model" / name).stat().st_mode) == 0o644
    assert failures(folder, ctx.ledger) == {}
    assert "model is unchanged" in {check.name for check in verification.verify(folder, None)}
    assert {"peft", "opacus", "diffusers", "faiss-cpu", "openai"} <= sealed["software"].keys()
    target = export(ctx, planned)
    assert contents(target) == contents(folder)
    assert failures(target, ctx.ledger) == {}


def test_what_a_killed_run_was_writing_stays_behind(make_project):
    ctx = make_project().context()
    planned, folder = release(ctx, {"adapter.bin": b"whole", ".adapter.bin.1a2b.tmp": b"hal"})
    assert [file.name for file in (folder / "model").iterdir()] == ["adapter.bin"]
    assert failures(folder, ctx.ledger) == {}
    assert settle(ctx, planned) == "COMMITTED"
    assert not (ctx.workspace.scratch(planned.id) / MODEL).exists()


def test_a_student_names_its_files_and_its_parent(finished):
    ctx, planned, folders = finished
    folder = folders["student"]
    rows = [json.loads(line) for line in (folder / "model.jsonl").read_text().splitlines()]
    assert [row["file"] for row in rows] == [f"model/{name}" for name in sorted(FILES)]
    assert all(sha256_file(folder / row["file"]) == row["sha256"] for row in rows)
    _, sealed = certificate.read(folder)
    assert sealed["artifact"]["media_type"] == layout.MODEL_ROWS
    assert sealed["artifact"]["rows"] == 2
    assert sealed["artifact"]["synthetic"] is False
    _, records = record(folder, folder.parents[1] / "records", ctx.config.deployment, ctx.ledger)
    assert sorted(file.name for file in records) == ["checklist.md", "deployment.yaml"]
    assert "Machine learning model" in records[0].read_text()
    assert certificate.origin(sealed)["plan"]["release_id"] == planned.id
    checks = verification.verify(folder, ctx.ledger)
    assert all(check.passed is not False for check in checks), checks
    assert {"model is unchanged", "parent", "ledger offspring"} <= {c.name for c in checks}
    for name in FILES:
        assert stat.S_IMODE((folder / "model" / name).stat().st_mode) == 0o644


def extra_folder(folder):
    (folder / "checkpoint-1").mkdir()


def linked(folder):
    elsewhere = folder.parent.with_name("elsewhere")
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)


WEIGHTS = "adapter_model.safetensors"
DAMAGE = {
    "changed": lambda folder: (folder / WEIGHTS).write_bytes(b"\1" + FILES[WEIGHTS][1:]),
    "cut": lambda folder: os.truncate(folder / WEIGHTS, 100),
    "missing": lambda folder: (folder / WEIGHTS).unlink(),
    "extra": lambda folder: (folder / "notes.txt").write_bytes(b"x"),
    "hidden": lambda folder: (folder / ".notes").write_bytes(b"x"),
    "extra folder": extra_folder,
    "renamed": lambda folder: (folder / WEIGHTS).rename(folder / "other.safetensors"),
    "gone": shutil.rmtree,
    "linked": linked,
}


@pytest.mark.parametrize("kind", ["release", "student"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_every_change_to_a_model_is_found(finished, tmp_path, kind, damage):
    ctx, _, folders = finished
    copy = tmp_path / "copy"
    shutil.copytree(folders[kind], copy)
    assert failures(copy, ctx.ledger) == {}
    DAMAGE[damage](copy / "model")
    linked = {"nothing else is in the folder"} if damage == "linked" else set()
    assert set(failures(copy, ctx.ledger)) == {"model is unchanged"} | linked


def test_a_changed_list_of_a_students_files_is_found(finished, tmp_path):
    ctx, _, folders = finished
    copy = tmp_path / "copy"
    shutil.copytree(folders["student"], copy)
    lines = (copy / "model.jsonl").read_text().splitlines(keepends=True)
    (copy / "model.jsonl").write_text(lines[0])
    assert set(failures(copy, ctx.ledger)) == {"artifact is unchanged", "model is unchanged"}
    (copy / "model.jsonl").write_text(lines[0] + lines[1] + lines[1])
    assert "twice" in failures(copy)["model is unchanged"]
    row = json.loads(lines[1]) | {"file": f"../release/model/{WEIGHTS}"}
    (copy / "model.jsonl").write_text(lines[0] + json.dumps(row) + "\n")
    assert "named elsewhere" in failures(copy)["model is unchanged"]
    (copy / "model.jsonl").unlink()
    assert failures(copy) == {"artifact is unchanged": "model.jsonl is missing or no plain file"}


def test_a_resealed_model_does_not_pass_the_ledger(finished, tmp_path):
    ctx, _, folders = finished
    copy = tmp_path / "copy"
    shutil.copytree(folders["release"], copy)
    (copy / "model" / WEIGHTS).write_bytes(b"another model")
    _, sealed = certificate.read(copy)
    sealed["model"][WEIGHTS] = sha256_file(copy / "model" / WEIGHTS)
    reseal(copy, sealed)
    assert list(failures(copy, ctx.ledger)) == ["ledger digests"]


class Switched(MlflowTracker):
    """MLflow that can be taken away."""

    down = False

    @contextmanager
    def _guard(self):
        if self.down:
            raise TrackingUnavailable("MLflow is away.")
        with super()._guard():
            yield


@pytest.fixture
def tracker(tmp_path):
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    return Switched(store, "models", tmp_path / "mlartifacts", strict=False)


def lineage_of(tracker, name):
    run = tracker._client.get_run(tracker.release_run(name))
    files = {item.path for item in tracker._client.list_artifacts(run.info.run_id)}
    return run.data.tags, run.data.metrics, files, run.info.status


def test_lineage_lost_in_an_outage_is_written_when_the_stages_run_again(make_project, tracker):
    project = make_project()
    ctx = project.context(tracker=tracker)
    planned = reserve_release(ctx)
    tracker.down = True
    with pytest.raises(TrackingUnavailable):  # nothing is spent yet
        reserve(ctx, planned)
    assert ctx.ledger.releases.get(planned.id).state == "RESERVED"
    finish(ctx, planned)
    reserve(project.context(tracker=tracker), planned)  # as where a task after it is cleared
    validate(ctx, planned)
    settle(ctx, planned)
    tracker.down = tracker.is_down = False
    tags, *_, status = lineage_of(tracker, planned.id)
    assert (tags["privsyn.class"], status) == ("reserved", "RUNNING")
    again = project.context(tracker=tracker)  # of another process: it has not fallen silent
    certify(again, planned)
    validate(again, planned)
    settle(again, planned)
    assert_whole(tracker, ctx, planned)


def test_lineage_sync_writes_the_same_into_another_store(make_project, tracker):
    project = make_project()
    ctx = project.context()
    planned, _ = release(ctx)
    validate(ctx, planned)
    publish(ctx, planned)
    settle(ctx, planned)
    numbers = {"vectors.accuracy": 0.5, "audit.epsilon": 0.25}
    metrics = [{"name": name, "value": value} for name, value in numbers.items()]
    inside = ctx.workspace.internal(planned.id)
    write_json_atomic(inside / layout.EVALUATION, {"metrics": metrics})
    write_json_atomic(inside / layout.INSIDE_NUMBERS, {})
    with pytest.raises(DataError, match="is not here"):
        sync(project.context(tracker=tracker), "invisible_ink-0000000000000000")
    tracker.down = True
    with pytest.raises(TrackingUnavailable):
        sync(project.context(tracker=tracker))
    tracker.down = tracker.is_down = False
    for _ in range(2):
        assert sync(project.context(tracker=tracker)) == [planned.id]
        assert_whole(tracker, ctx, planned)
    run = tracker._client.get_run(tracker.release_run(planned.id))
    assert len(tracker._client.get_metric_history(run.info.run_id, "epsilon")) == 1
    assert run.data.params["method"] == "invisible_ink"
    assert run.data.tags["privsyn.dvc_revision"]
    inputs = {item.dataset.name: item.tags[0].value for item in run.inputs.dataset_inputs}
    assert inputs == {"letters": "private", planned.id: "synthetic"}
    measured = tracker._client.get_run(tracker._oldest(planned.id, "evaluate"))
    assert measured.data.metrics == {"vectors.accuracy": 0.5}
    assert measured.data.tags["privsyn.class"] == "internal"
    files = [item.path for item in tracker._client.list_artifacts(measured.info.run_id)]
    assert (files, measured.info.status) == ([layout.INSIDE_NUMBERS], "FINISHED")


def assert_whole(tracker, ctx, planned):
    _, sealed = certificate.read(ctx.workspace.release(planned.id))
    tags, metrics, files, status = lineage_of(tracker, planned.id)
    assert tags["privsyn.class"] == "dp-release"
    assert tags["privsyn.certificate_sha256"] == certificate.digest(sealed)
    assert tags["privsyn.artifact_sha256"] == sealed["artifact"]["sha256"]
    assert tags["privsyn.validation"] == "passed"
    assert metrics["epsilon"] == planned.epsilon
    assert {f"drawn.{k}": v for k, v in sealed.get("drawn", {}).items()}.items() <= metrics.items()
    assert {"certificate.json", "validation.json"} <= files
    assert status == "FINISHED"


@pytest.mark.parametrize("name", ["../a.bin", "deep/a.bin", ".hidden", "", ".."])
def test_a_model_is_a_folder_of_plain_files(tmp_path, name):
    with pytest.raises(ValueError, match="no name of a file"):
        write_model(tmp_path / "building", {name: b"x"})
    with pytest.raises(ValueError, match="without files"):
        write_model(tmp_path / "building", {})
    assert not list(tmp_path.rglob("*.bin"))


@pytest.mark.slow
def test_models_are_published_and_restored_byte_for_byte(make_project):
    project = make_project()
    ctx = project.context()
    planned, folder = release(ctx)
    validate(ctx, planned)
    publish(ctx, planned)
    # The copy of DVC's stage has no reports, and the ledger knows of some.
    assert failures(ctx.workspace.synthetic(planned.method), ctx.ledger).keys() == {
        "validation reports"
    }
    made = student(ctx, planned)
    (made / "synthetic.jsonl").write_text("")
    with pytest.raises(DataError, match="a release has one"):
        DvcPublisher(project.root).publish(made)
    (made / "synthetic.jsonl").unlink()
    DvcPublisher(project.root).publish(made)
    for one in (folder, made):
        before = contents(one)
        assert f"model/{WEIGHTS}" in before
        shutil.rmtree(one)
        assert restore(ctx, one.name) == one
        assert contents(one) == before
        assert failures(one, ctx.ledger) == {}
