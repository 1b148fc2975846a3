"""One config, three drivers: command line, DVC and Airflow make one release at one cost.

And a word planted in every private record is found nowhere after a whole run, by any driver.
"""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest

from privsyn.airflow.project import dag_id, teaches
from privsyn.methods.registry import load_method
from privsyn.release.signature import public_key
from privsyn.release.workdir import COLUMNS, part_name
from privsyn.report import verification
from tests import preloaded
from tests.integration.e2e.small_project import CANARY, DRIVERS, environment

pytestmark = [pytest.mark.airflow, pytest.mark.slow]


def ledger(driven, name):
    return driven[name].project.context().ledger


def key_of(driven, name):
    """Public key of what signed the releases: it lies outside of all projects."""
    return driven[name].project.root.parent / "keys" / "signing.pub.pem"


def release_of(driven, name):
    project = driven[name].project
    (entry,) = ledger(driven, name).releases.all()
    return entry, project.root / "releases" / entry.release_id


def test_release_ids_costs_and_ledger_rows_are_equal(driven):
    rows = []
    for name in DRIVERS:
        entry, folder = release_of(driven, name)
        row = entry.as_dict()
        rows.append(
            {key: row[key] for key in ("number", "release_id", "account", "method", "state")}
            | {key: row[key] for key in ("event", "loss", "epsilon", "delta")}
        )
        assert entry.state == "COMMITTED"
        assert folder.is_dir()
    assert rows[0] == rows[1] == rows[2]


@pytest.mark.parametrize("name", DRIVERS)
def test_each_release_is_whole_and_verifies(driven, name):
    entry, folder = release_of(driven, name)
    further = {"model"} if driven[name].method == "dp_lora" else {"exhibits"}
    assert {path.name for path in folder.iterdir()} == further | {
        "synthetic.jsonl", "certificate.json", "validation.json", "report.html", "report.json",
        "quality.json", "signature.dsse.json",
    }  # fmt: skip
    checks = verification.verify(folder, ledger(driven, name), public_key(key_of(driven, name)))
    assert [check for check in checks if not check.passed] == []
    assert "signature" in {check.name for check in checks}
    shown = json.loads((folder / "certificate.json").read_text())
    assert shown["plan"]["release_id"] == entry.release_id
    assert not list((folder.parents[1] / ".privsyn" / "scratch").glob("*"))


@pytest.mark.parametrize("name", DRIVERS)
def test_declared_columns_come_back_beside_every_text(driven, name):
    entry, folder = release_of(driven, name)
    columns = driven[name].project.context().config.dataset.columns
    released = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
    assert all(set(columns) | {"id", "label", "text"} == row.keys() for row in released)
    if columns:
        assert {row["channel"] for row in released} <= {"web", "phone", "other", None}
        parts = ledger(driven, name).leases.parts(entry.release_id)
        assert parts[part_name(COLUMNS)] >= 1


@pytest.mark.parametrize("name", DRIVERS)
def test_afterwards_dvc_has_nothing_to_do_and_the_version_is_published(driven, name):
    _, folder = release_of(driven, name)
    assert folder.with_suffix(".dvc").is_file()
    method, stages = driven[name].method, ("plan", "generate", "validate", "evaluate")
    # A student is a pipeline of its own, which the command line was not asked for.
    own = [f"{stage}@{method}" for stage in stages] if teaches(method) else []
    status = subprocess.run(
        [preloaded.python(), "-m", "dvc", "status", *own],
        cwd=driven[name].project.root,
        capture_output=True,
        text=True,
        check=True,
        env=environment(driven[name].project),
    )
    assert "up to date" in status.stdout


def test_mlflow_holds_one_run_with_its_stages_nested(driven):
    from mlflow import MlflowClient

    for name in DRIVERS:
        entry, _ = release_of(driven, name)
        state = driven[name].project.root / ".privsyn"
        client = MlflowClient(f"sqlite:///{state / 'mlflow.db'}")
        experiment = client.get_experiment_by_name("privsyn")
        runs = client.search_runs([experiment.experiment_id])
        tops = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
        (parent,) = [run for run in tops if run.info.run_name == entry.release_id]
        students = [run for run in tops if run is not parent]
        assert bool(students) == (teaches(driven[name].method) and name != "cli")
        assert {run.data.tags["privsyn.parent"] for run in students} <= {entry.release_id}
        nested = {
            run.info.run_name
            for run in runs
            if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id
        }
        trained = teaches(driven[name].method)
        # One process writes a trained model's texts at once; mapped tasks write shards of them.
        once = load_method(driven[name].method).whole and not (trained and name == "airflow")
        drawn = {"generate-0"} if once else {"generate-0", "generate-1"}
        assert {"partition", "certify"} | drawn | ({"train"} if trained else set()) <= nested
        assert once == ("generate-1" not in nested)
        assert {"validate", "evaluate", "publish"} <= nested
        assert parent.data.tags["privsyn.release_id"] == entry.release_id
        assert parent.data.tags["privsyn.ledger_entry"] == str(entry.number)
        assert parent.data.tags["privsyn.dvc_revision"]
        assert float(parent.data.params["epsilon"]) == pytest.approx(entry.epsilon)
        artifacts = {item.path for item in client.list_artifacts(parent.info.run_id)}
        assert {"certificate.json", "report.html", "report.json", "validation.json"} <= artifacts
        # Numbers from real records stay out of the release's own run.
        assert not [key for key in parent.data.metrics if key.startswith("downstream")]
    tags = {tag: value for tag, value in parent.data.tags.items() if tag.startswith("privsyn.")}
    assert tags["privsyn.dag_id"] == dag_id(driven[name].method)
    assert tags["privsyn.run_id"]


def test_a_finished_release_is_a_finished_run(driven):
    from mlflow import MlflowClient

    for name in DRIVERS:
        state = driven[name].project.root / ".privsyn"
        client = MlflowClient(f"sqlite:///{state / 'mlflow.db'}")
        experiment = client.get_experiment_by_name("privsyn")
        runs = client.search_runs([experiment.experiment_id])
        assert {run.info.status for run in runs} == {"FINISHED"}


def files(root: Path):
    """All a run leaves: logs, databases, caches, artifacts; not the private file itself."""
    for path in root.rglob("*"):
        if path.is_file() and path.name != "private.jsonl":
            yield path


@pytest.mark.parametrize("name", DRIVERS)
def test_no_file_and_no_name_of_a_file_holds_the_canary(driven, name):
    root = driven[name].project.root
    looked = 0
    for path in files(root):
        looked += 1
        content = path.read_bytes()
        for form in (CANARY, CANARY.replace("-", " "), CANARY.upper()):
            assert form.encode() not in content, path
            assert form.encode("utf-16-le") not in content, path
        assert CANARY not in str(path)
    assert looked > 30
    assert CANARY not in driven[name].printed
    assert (" TRACE: " in driven[name].printed) == (name == "dvc"), "DVC said less than it can"
    assert CANARY in (root / "private.jsonl").read_text(), "the canary was not planted"


@pytest.mark.parametrize("name", DRIVERS)
def test_no_driver_keeps_or_prints_the_signing_key(driven, name):
    """No file of a project, of Airflow's home or of MLflow holds a form of it."""
    root = driven[name].project.root
    private = key_of(driven, name).with_name("signing.pem")
    body = b"".join(private.read_bytes().splitlines()[1:-1])
    raw = base64.b64decode(body)[-32:]
    forms = [b"PRIVATE KEY", body, body[-40:], raw, raw.hex().encode(), base64.b64encode(raw)]
    printed = driven[name].printed.encode()
    for content in (printed, *(path.read_bytes() for path in files(root))):
        assert not any(form in content for form in forms)


@pytest.mark.parametrize("name", DRIVERS)
def test_the_embedder_of_the_evaluation_was_reached(driven, name):
    """Else what it does with real texts was not searched."""
    entry, _ = release_of(driven, name)
    file = driven[name].project.root / ".privsyn/internal" / entry.release_id / "evaluation.json"
    names = {metric["name"] for metric in json.loads(file.read_text())["metrics"]}
    assert "mauve" in names


def test_the_search_would_find_it(driven, tmp_path):
    """The check is not blind: a leak into a SQLite file is seen."""
    import sqlite3

    leak = sqlite3.connect(tmp_path / "leak.db")
    leak.execute("create table xcom (value text)")
    leak.execute("insert into xcom values (?)", (f"the text was {CANARY}",))
    leak.commit()
    leak.close()
    assert any(CANARY.encode() in path.read_bytes() for path in files(tmp_path))
