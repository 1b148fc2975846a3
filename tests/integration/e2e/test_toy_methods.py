"""A second method that trains and a sixth that draws go by all three drivers, known nowhere.

What one has to touch for each beside the class itself:

- ``privsyn/methods/registry.py``: its line in ``METHODS``; here toys/sitecustomize.py.
- ``params.yaml``: its section under ``methods:``, its name under ``pipeline:``; ``schedule:`` if it
  has one. ``dvc.yaml`` follows the pipeline.
- ``dags/<name>.py``: two lines.

No stage, no operator, no command and nothing derived from a release is touched for either: what
they ask of a method is its traits, ``DrawsSamples`` or ``TrainsModel`` with ``makes_students``.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from privsyn.methods.registry import METHODS
from privsyn.report import verification
from tests import preloaded
from tests.integration.e2e.small_project import CANARY, RUN_DAG, build_project, environment, rows
from tests.integration.e2e.test_trained_method import WORDS
from tests.system.dags.templates import copy_airflow, copy_mlflow, keep_dag

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

TOYS = Path(__file__).with_name("toys")
SETTINGS = {
    "toy_trainer": {"words": "words.txt"},
    "toy_drawer": {"texts_per_label": 3},
}
DAG = """\
\"\"\"The DAG of a toy.\"\"\"

from privsyn.airflow.factory import method_dags

globals().update(method_dags("{method}"))
"""
MODEL = {"toy_trainer": {"model"}, "toy_drawer": set()}


DRIVEN = [("toy_trainer", "airflow"), ("toy_trainer", "dvc"), ("toy_drawer", "cli")]


def begin(method, root):
    made = build_project(
        root / "project",
        methods={method: SETTINGS[method]},
        evaluate={"by": "words"},
        performance={"shards": 2},
    )
    made.write([row | {"text": f"{row['text']} {CANARY}"} for row in rows(48, 20)])
    (made.root / "words.txt").write_bytes(WORDS)
    (made.root / "dags" / f"{method}.py").write_text(DAG.format(method=method))
    python(made, "-m", "privsyn", "stage", "plan", "--method", method)
    shutil.rmtree(made.root / "plans")
    copy_mlflow(made.root)
    return made


def python(project, *command):
    there = environment(project)
    path = [str(TOYS), there["PYTHONPATH"]]
    done = subprocess.run(
        [preloaded.python(), *command],
        cwd=project.root,
        capture_output=True,
        text=True,
        check=False,
        env=there | {"PYTHONPATH": os.pathsep.join(path)},
    )
    assert not done.returncode, f"{command}: {done.stdout[-2000:]} {done.stderr[-3000:]}"
    return done.stdout + done.stderr


def drive(project, method, driver):
    if driver == "cli":
        return [python(project, "-m", "privsyn", "run", "--method", method)]
    if driver == "airflow":
        copy_airflow(project.root)
        keep_dag(project.root, method)
        order = json.dumps([{"method": method}])
        return [python(project, str(RUN_DAG), str(project.root), order)]
    plan = f"plans/{method}.json"
    stages = ["preflight", "generate", "validate", "evaluate", "publish"]
    made = python(project, "-m", "privsyn", "stage", "plan", "--method", method, "--out", plan)
    ran = [python(project, "-m", "privsyn", "stage", stage, "--plan", plan) for stage in stages]
    return [made, *ran]


@pytest.mark.parametrize(("method", "driver"), DRIVEN)
def test_it_makes_a_release_that_verifies_and_says_nothing_private(
    method, driver, tmp_path, monkeypatch
):
    toy = "test_trained_method:ToyTrainer" if MODEL[method] else "toy_drawer:ToyDrawer"
    monkeypatch.setitem(METHODS, method, f"tests.integration.e2e.{toy}")
    project = begin(method, tmp_path)
    printed = drive(project, method, driver)
    ctx = project.context()
    (entry,) = ctx.ledger.releases.all()
    assert (entry.state, entry.method) == ("COMMITTED", method)
    folder = project.root / "releases" / entry.release_id
    assert {path.name for path in folder.iterdir()} == MODEL[method] | {
        "synthetic.jsonl", "certificate.json", "validation.json", "report.html", "report.json",
        "quality.json",
    }  # fmt: skip
    assert all(check.passed is not False for check in verification.verify(folder, ctx.ledger))
    assert folder.with_name(f"{folder.name}.dvc").is_file()
    assert CANARY not in "".join(printed)
    assert all(CANARY.encode() not in path.read_bytes() for path in folder.rglob("*.*"))
    if driver != "airflow":
        return
    (answer,) = json.loads((project.root / "answer.json").read_text())
    assert answer["state"] == "success"
    tasks = {name.partition("[")[0] for name in answer["tasks"]}
    assert ("train" in tasks) == bool(MODEL[method])
    # A model of no language is no teacher: no student follows it.
    assert not tasks & {"distill", "evaluate_student", "publish_student"}
    assert {name for name in answer["tasks"] if name.startswith("generate")} == {
        "generate[0]", "generate[1]",
    }  # fmt: skip
    ((asset, told),) = answer["assets"]
    assert asset == f"privsyn://letters/{method}"
    assert told["release_id"] == entry.release_id
