"""A small project with the shipped DAGs, and a way to run them in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import preloaded
from tests.integration.e2e.small_project import LABELS, ROOT, build_project
from tests.system.dags.templates import copy_airflow, copy_mlflow

CANARY = "purple-walrus-4711"


@dataclass
class DagProject:
    """A project folder, its private file and its DAGs."""

    root: Path

    def run(self, script: str, *arguments: str, params: Path | None = None) -> Any:
        """Run a script beside this file in the project; returns the JSON it leaves.

        ``params`` is a params.yaml or a folder of projects; by default the project's own.
        """
        answer = self.root / "answer.json"
        if script != "parse_dags.py":
            copy_airflow(self.root)
            copy_mlflow(self.root)
        done = subprocess.run(
            [preloaded.python(), str(Path(__file__).with_name(script)), str(self.root), *arguments],
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ
            | {
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
                "AIRFLOW_HOME": str(self.root / "airflow"),
                "PRIVSYN_PARAMS": str(params or self.root / "params.yaml"),
            },
        )
        (self.root / "output.txt").write_text(done.stdout + done.stderr)
        if done.returncode:
            raise AssertionError(f"{script} ended {done.returncode}: {done.stderr[-3000:]}")
        return json.loads(answer.read_text())


def make_project(folder: Path) -> DagProject:
    """A release of four short texts by the embedded model, in a new folder below this one."""
    short = {"batch_size": 4, "max_tokens": 24, "texts_per_label": 2}
    project = build_project(
        folder / "project",
        methods={"invisible_ink": short},
        schedule={"invisible_ink": {"cron": "@weekly", "dag": {"retries": 1}}},
    )
    project.write(
        [
            {"unit": f"u{i % 20}", "label": LABELS[i % 2], "text": f"{CANARY} note {i} of a visit"}
            for i in range(48)
        ]
    )
    return DagProject(project.root)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> DagProject:
    """One project for the tests of a file."""
    return make_project(tmp_path_factory.mktemp("dags"))
