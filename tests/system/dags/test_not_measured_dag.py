"""A release that cannot be measured, by Airflow itself: published, measured by a later run."""

from __future__ import annotations

import json
import shutil

import pytest

from privsyn.models.references import BUILTIN
from tests.system.dags.conftest import make_project
from tests.system.dags.templates import keep_dag

pytestmark = [pytest.mark.airflow, pytest.mark.slow]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    made = make_project(tmp_path_factory.mktemp("project"))
    keep_dag(made.root, "invisible_ink")
    shutil.copytree(BUILTIN, made.root / "model")
    return made


@pytest.fixture(scope="module")
def runs(project):
    """The model goes away when evaluate begins; it is back; nothing has changed; another release,
    with an audit that blocks, and the model goes away again."""
    model = [f"models.language={project.root / 'model'}"]
    blocks = [*model, "evaluate.audit=block", "privacy.draw=1", "privacy.epsilon=4"]
    return project.run(
        "run_dag.py",
        json.dumps(
            [
                {"set": model, "away": "model"},
                {"set": model, "back": "model"},
                {"set": model},
                {"set": blocks, "away": "model"},
            ]
        ),
    )


def plan(run):
    return run["xcoms"]["plan/return_value"]


def states(run):
    return {task: state for task, (state, _) in run["tasks"].items()}


def test_what_could_not_be_measured_is_published_and_announced(project, runs):
    first = runs[0]
    assert first["state"] == "success"
    others = {state for task, state in states(first).items() if task != "evaluate"}
    assert states(first)["evaluate"] == "failed"
    assert others == {"success"}
    assert first["assets"]
    assert "not measured: ModelError at " in (project.root / "output.txt").read_text()


def test_a_later_run_measures_it_and_one_after_that_does_not(runs):
    first, second, third = runs[:3]
    name = plan(first)["release_id"]
    assert plan(second)["release_id"] == plan(third)["release_id"] == name
    assert states(second)["evaluate"] == states(third)["evaluate"] == "success"
    assert first["measured"][name] < second["measured"][name] == third["measured"][name]


def test_an_audit_that_blocks_lets_nothing_through_that_was_not_measured(project, runs):
    blocked = runs[3]
    assert blocked["state"] == "failed"
    assert states(blocked)["evaluate"] == "failed"
    assert states(blocked)["publish"] == "upstream_failed"
    assert blocked["assets"] == []
    assert not (project.root / "releases" / f"{plan(blocked)['release_id']}.dvc").exists()
