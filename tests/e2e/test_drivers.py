"""One config, three drivers: command line, DVC and Airflow make one release at one cost."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from small_project import DRIVERS, environment

from operators.project import dag_id
from privsyn import certificate
from privsyn.methods.base import Trained, load_method

pytestmark = [pytest.mark.airflow, pytest.mark.slow]


def ledger(driven, name):
    return driven[name].project.context().ledger


def release_of(driven, name):
    project = driven[name].project
    (entry,) = ledger(driven, name).entries()
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
    besides = {"private_evolution": {"exhibits"}, "dp_lora": {"model"}}
    own = besides.get(driven[name].method, set())
    assert own <= {path.name for path in folder.iterdir()} | {"exhibits"}
    assert {path.name for path in folder.iterdir()} - own == {
        "synthetic.jsonl",
        "certificate.json",
        "validation.json",
        "validation.html",
        "quality.json",
    }
    assert all(check.passed for check in certificate.verify(folder, ledger(driven, name)))
    shown = json.loads((folder / "certificate.json").read_text())
    assert shown["plan"]["release_id"] == entry.release_id
    assert not list((folder.parents[1] / ".privsyn" / "scratch").glob("*"))


@pytest.mark.parametrize("name", DRIVERS)
def test_afterwards_dvc_has_nothing_to_do_and_the_version_is_published(driven, name):
    _, folder = release_of(driven, name)
    assert folder.with_suffix(".dvc").is_file()
    status = subprocess.run(
        [sys.executable, "-m", "dvc", "status"],
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
        (parent,) = [
            run
            for run in runs
            if "mlflow.parentRunId" not in run.data.tags
            and run.data.tags["privsyn.release_id"] == entry.release_id
        ]
        nested = {
            run.info.run_name
            for run in runs
            if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id
        }
        method = load_method(driven[name].method)
        trained = isinstance(method, Trained)
        whole = method.whole and not trained
        drawn = {"generate-0"} if whole else {"generate-0", "generate-1"}
        assert {"partition", "certify"} | drawn <= nested
        assert whole == ("generate-1" not in nested)
        assert trained == ("train" in nested)
        assert {"validate", "evaluate", "publish"} <= nested
        assert parent.data.tags["privsyn.release_id"] == entry.release_id
        assert parent.data.tags["privsyn.ledger_entry"] == str(entry.number)
        assert parent.data.tags["privsyn.dvc_revision"]
        assert float(parent.data.params["epsilon"]) == pytest.approx(entry.epsilon)
        artifacts = {item.path for item in client.list_artifacts(parent.info.run_id)}
        assert {"certificate.json", "validation.html", "validation.json"} <= artifacts
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
