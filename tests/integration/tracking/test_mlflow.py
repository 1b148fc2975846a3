"""Lineage in the real MLflow, on a SQLite store."""

from __future__ import annotations

import logging
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from privsyn.errors import ConfigError, TrackingUnavailable
from privsyn.files import file_lock
from privsyn.tracking import MlflowTracker
from tests.integration.vault.s3_server import free_port
from tests.preloaded import python

CANARY = "CANARY-73190-heliotrope"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One database for the module: making its tables takes seconds."""
    folder = tmp_path_factory.mktemp("mlflow")
    MlflowTracker(f"sqlite:///{folder / 'mlflow.db'}", "first").check()
    return folder


@pytest.fixture
def tracker(store, request):
    return open_tracker(store, request.node.name)


def open_tracker(store, experiment):
    return MlflowTracker(f"sqlite:///{store / 'mlflow.db'}", experiment, store / "mlartifacts")


def runs(tracker):
    found = tracker._client.search_runs([tracker._experiment_id])
    return sorted(found, key=lambda run: run.info.run_name)


def get(tracker, run_id):
    return tracker._client.get_run(run_id)


def test_one_run_per_release_with_nested_stages(tracker):
    parent = tracker.release_run("ink-1")
    for stage in ("plan", "generate"):
        with tracker.stage_run("ink-1", stage):
            pass
    tracker.finish(parent)
    generate, release, plan = runs(tracker)
    assert release.info.run_id == parent
    for run, stage in ((generate, "generate"), (plan, "plan")):
        assert run.data.tags["mlflow.parentRunId"] == parent
        assert run.data.tags["privsyn.stage"] == stage
        assert run.data.tags["privsyn.class"] == "internal"
        assert run.info.status == "FINISHED"
    assert release.info.status == "FINISHED"


def test_a_retry_in_another_process_continues_the_same_runs(store):
    first = open_tracker(store, "retry")
    run_id = first.start_stage("ink-1", "generate")
    first.log_metrics(run_id, {"rows": 10})
    with pytest.raises(RuntimeError), first.stage_run("ink-1", "generate"):
        raise RuntimeError("out of memory")
    assert get(first, run_id).info.status == "FAILED"
    again = open_tracker(store, "retry")
    with again.stage_run("ink-1", "generate") as same:
        assert get(again, same).info.status == "RUNNING"
        again.log_metrics(same, {"rows": 20})
    assert same == run_id
    assert get(again, same).info.status == "FINISHED"
    assert get(again, same).data.metrics["rows"] == 20
    assert len(runs(again)) == 2


def test_the_dataset_is_an_opaque_version(tracker):
    with pytest.raises(ConfigError, match="quote"):
        tracker.release_run("it's")
    run_id = tracker.release_run("ink-1")
    for _ in range(2):
        tracker.log_dataset(run_id, "portal", "2026-11")
    tracker.log_dataset(run_id, "portal-ink", "0" * 32 + ".dir", context="synthetic")
    tracker.log_dataset(run_id, "long", "v" * 64)
    link = f"http://127.0.0.1:5000/#/experiments/{tracker._experiment_id}/runs/{run_id}"
    assert tracker.link(run_id) == link
    inputs = get(tracker, run_id).inputs.dataset_inputs
    seen = {item.dataset.name: (item.dataset.digest, item.tags[0].value) for item in inputs}
    assert len(inputs) == 3
    assert seen["portal"] == ("2026-11", "private")
    assert seen["portal-ink"] == ("0" * 32 + ".dir", "synthetic")
    assert len(seen["long"][0]) == 36


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED")]
)
def test_an_error_leaves_its_class_and_none_of_its_text(store, error, status):
    tracker = open_tracker(store, f"errors-{status}")
    with pytest.raises(error), tracker.stage_run("ink-1", "partition") as run_id:
        raise error(f"cannot parse {CANARY}")
    run = get(tracker, run_id)
    assert (run.info.status, run.data.tags["privsyn.error"]) == (status, error.__name__)
    for path in store.rglob("*"):
        assert CANARY not in path.name
        assert path.is_dir() or CANARY.encode() not in path.read_bytes()


RACER = """
import sys
from pathlib import Path
from privsyn.tracking import MlflowTracker
tracker = MlflowTracker(f"sqlite:///{sys.argv[1]}/mlflow.db", "race")
for stage in ("reserve", "generate"):
    with tracker.stage_run("ink-1", stage) as run_id:
        tracker.log_params(run_id, {"epsilon": 1.0})
        tracker.log_metrics(run_id, {f"rows-{sys.argv[2]}": 1.0})
"""


def test_two_processes_on_a_new_database_share_the_runs(tmp_path):
    command = [python(), "-c", RACER, str(tmp_path)]
    racers = [subprocess.Popen([*command, str(n)], stderr=subprocess.PIPE) for n in range(2)]
    for racer in racers:
        _, stderr = racer.communicate(timeout=600)
        assert racer.returncode == 0, stderr.decode()
    tracker = open_tracker(tmp_path, "race")
    generate, release, reserve = runs(tracker)
    assert release.data.tags["privsyn.role"] == "release"
    for run in (generate, reserve):
        assert set(run.data.metrics) == {"rows-0", "rows-1"}
        assert run.data.params["epsilon"] == "1.0"


def test_a_store_has_its_name_only_once_it_is_whole(tmp_path, monkeypatch):
    """So a kill at none of MLflow's steps leaves a store that nothing can open."""
    from alembic.runtime.migration import HeadMaintainer

    steps, step = [], HeadMaintainer.update_to_step

    def watched(self, *arguments):
        step(self, *arguments)
        steps.append((tmp_path / "mlflow.db").exists() and (tmp_path / "mlflow.db").stat().st_size)

    monkeypatch.setattr(HeadMaintainer, "update_to_step", watched)
    open_tracker(tmp_path, "x").check()
    assert len(steps) > 30
    assert not any(steps)
    assert (tmp_path / "mlflow.db").stat().st_mode & 0o777 == 0o600


KILLED = """
import os, signal, sys
from alembic.runtime.migration import HeadMaintainer
from privsyn.tracking import MlflowTracker
step, steps = HeadMaintainer.update_to_step, []
def watched(*arguments):
    step(*arguments)
    steps.append(1)
    if len(steps) == 24:
        os.kill(os.getpid(), signal.SIGKILL)
HeadMaintainer.update_to_step = watched
MlflowTracker(f"sqlite:///{sys.argv[1]}/mlflow.db", "first").check()
"""


def test_a_killed_first_run_and_a_full_disk_are_made_good_by_the_next(tmp_path):
    done = subprocess.run([python(), "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    left = {path.name for path in tmp_path.iterdir() if path.stat().st_size}
    assert "mlflow.db.new" in left
    assert "mlflow.db" not in left
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, hard))  # as a full disk answers
    try:
        with pytest.raises(TrackingUnavailable, match="can be written"):
            open_tracker(tmp_path, "first").check()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    open_tracker(tmp_path, "first").check()
    assert {path.name for path in tmp_path.iterdir()} == {"mlflow.db", "mlflow.db.lock"}


def test_an_unreachable_server_is_one_line_without_its_password(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    tracker = MlflowTracker(f"http://ann:s3cret@127.0.0.1:{free_port()}", "x")
    with pytest.raises(TrackingUnavailable, match=r"services\.mlflow") as caught:
        tracker.check()
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.retryable


def test_a_store_that_breaks_in_mid_release_does_not_end_it(store, tmp_path, caplog):
    shutil.copyfile(store / "mlflow.db", tmp_path / "mlflow.db")
    inner = open_tracker(tmp_path, "breaks")
    inner.strict, tracker = False, inner
    parent = tracker.release_run("ink-1")
    with caplog.at_level(logging.WARNING), tracker.stage_run("ink-1", "generate") as run_id:
        inner._client.set_tag(run_id, "seen", "1")
        (tmp_path / "mlflow.db").write_bytes(b"broken" * 4096)
        tracker.log_metrics(run_id, {"rows": 1.0})
        tracker.log_params(run_id, {"epsilon": 1.0})
        tracker.log_artifact(run_id, tmp_path / "missing.json")
        tracker.log_dataset(run_id, "portal", "v1")
    tracker.finish(parent)
    with pytest.raises(ValueError, match="the block's own"), tracker.stage_run("ink-1", "certify"):
        raise ValueError("the block's own")
    assert [record.message[:22] for record in caplog.records] == ["lineage is not written"]


def test_awkward_names_and_long_values_are_written(tracker):
    run_id = tracker.release_run("ink-1")
    tracker.log_params(
        run_id, {"methods[ink]:prompt": "x" * 7000} | {f"p{i}": i for i in range(150)}
    )
    tracker.set_tags(run_id, {"privsyn.event": "y" * 9000, "dag": None})
    tracker.log_metrics(run_id, {"accuracy (macro)": 0.5, "perplexity": float("nan")})
    data = get(tracker, run_id).data
    assert len(data.params) == 151
    assert data.params["methods_ink__prompt"].endswith("...")
    assert data.tags["privsyn.event"].endswith("...")
    assert data.metrics["accuracy _macro_"] == 0.5


def test_what_cannot_be_used_is_named_in_one_line(store, tmp_path, monkeypatch):
    from privsyn import tracking as module

    (tmp_path / "mlflow.db").write_text("not a database, but long enough to be read as one" * 40)
    with pytest.raises(TrackingUnavailable, match="not a database"):
        open_tracker(tmp_path, "x").check()
    with pytest.raises(TrackingUnavailable, match="can be written"):
        open_tracker(Path("/proc/privsyn"), "x").check()
    tracker = open_tracker(store, "gone")
    tracker.check()
    tracker._client.delete_experiment(tracker._experiment_id)
    with pytest.raises(ConfigError, match="'gone' was deleted"):
        open_tracker(store, "gone").check()
    monkeypatch.setattr(module, "_LOCK_SECONDS", 0.05)
    lock = store / "mlflow.db.lock"
    with file_lock(lock, timeout=5), pytest.raises(TrackingUnavailable, match=str(lock)):
        open_tracker(store, "first").check()
