"""A small project with the shipped DAGs, and a way to run them in a process of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import preloaded
from tests.system.dags.templates import copy_airflow, copy_mlflow

ROOT = Path(__file__).parents[3]
CANARY = "purple-walrus-4711"
LABELS = ("Billing", "Symptoms")


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


def make_project(root: Path) -> DagProject:
    """A release of four short texts by the embedded model."""
    params = {
        "dataset": {
            "name": "letters",
            "path": "private.jsonl",
            "label": "label",
            "labels": list(LABELS),
            "unit": "unit",
            "holdout": 0.25,
        },
        "account": {
            "name": "letters",
            "unit": "person",
            "adjacency": "add_remove",
            "epsilon": 20.0,
            "delta": 1e-6,
        },
        "privacy": {"epsilon": 8.0, "delta": 1e-6},
        "columns": {"share": 0.25},
        "methods": {
            "invisible_ink": {
                "batch_size": 4,
                "max_tokens": 24,
                "texts_per_label": 2,
            }
        },
        "pipeline": ["invisible_ink"],
        "models": {"language": "tiny"},
        "evaluate": {"enabled": True},
        "validation": {"min_share": 0.0},
        "performance": {"shards": 2, "threads": 1},
        "schedule": {"invisible_ink": {"cron": "@weekly", "retries": 1}},
    }
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    rows = [
        {"unit": f"u{i % 20}", "label": LABELS[i % 2], "text": f"{CANARY} note {i} about a visit"}
        for i in range(48)
    ]
    (root / "private.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.copy(ROOT / "dvc.yaml", root)
    shutil.copytree(ROOT / ".dvc", root / ".dvc", ignore=shutil.ignore_patterns("cache", "tmp"))
    shutil.copy(ROOT / ".dvcignore", root)
    shutil.copytree(ROOT / "dags", root / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    return DagProject(root)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> DagProject:
    """One project for the tests of a file."""
    return make_project(tmp_path_factory.mktemp("project"))
