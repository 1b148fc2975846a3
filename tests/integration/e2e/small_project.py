"""Small projects to run the whole chain on, and ways to run them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import numpy as np
import yaml

from privsyn.methods.base import Backends
from privsyn.models.loading import describe_role
from privsyn.models.model_identity import describe
from privsyn.models.settings import ModelsConfig
from privsyn.release import certificate
from privsyn.report import verification
from privsyn.stages.base import open_context
from privsyn.stages.certify import certify
from privsyn.stages.draw import generate
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve
from privsyn.tracking import MlflowTracker
from tests import preloaded
from tests.fakes import FakeLogitModel, FakeTextModel, FakeTrainableModel

ROOT = Path(__file__).parents[3]
RUN_DAG = ROOT / "tests" / "system" / "dags" / "run_dag.py"
DRIVERS = ("cli", "dvc", "airflow")
CANARY = "vermilion-ocelot-90210"
LABELS = ("Billing", "Symptoms")
METHODS: dict[str, dict[str, object]] = {
    "invisible_ink": {"batch_size": 4, "max_tokens": 6, "texts_per_label": 3},
    "private_prediction": {
        "batch_size": 8,
        "buckets_per_label": 1,
        "clip_bound": 1.0,
        "private_tokens": 12,
        "svt_threshold": 0.3,
        "svt_noise": 2.0,
        "max_texts": 5,
        "max_tokens": 4,
        "top_k": 50,
    },
    "private_evolution": {
        "modality": "text",
        "rounds": 2,
        "lookahead": 1,
        "population": 12,
        "expansion": 2,
        "degrees": [0.5],
        "text": {"max_tokens": 4},
    },
    "keyphrase_seeding": {
        "vocabulary_size": 20,
        "phrases_per_document": 3,
        "features": 64,
        "sequence_length": 3,
        "sequences_per_label": 12,
        "max_tokens": 4,
    },
    "dp_lora": {
        "sampling_rate": 0.5,
        "expected_batch": 8,
        "steps": 3,
        "rank": 2,
        "target_modules": ["q_proj"],
        "max_tokens": 6,
        "texts_per_label": 12,
    },
}
STUDENT: dict[str, object] = {"epochs": 1, "max_tokens": 8, "batch_size": 16}
"""Of a teacher's release: DVC and Airflow go on to it."""
EMBEDDED: dict[str, dict[str, object]] = {"invisible_ink": {"texts_per_label": 11, "max_tokens": 3}}
"""Settings on top of these that write as many texts as the embedder of evaluate wants."""
BESIDE: dict[str, dict[str, object]] = {
    "invisible_ink": {
        "age": {"range": [0, 100], "bins": 2},
        "channel": {"values": ["web", "phone"]},
        "visited": {"dates": ["2024-01-01", "2024-12-31"], "by": "year"},
    }
}
"""Columns that the records of a method have beside their texts."""
WORDS = ("visit", "bill", "late", "help", "ready", "please", "was", "the")


def rows(count, units):
    return [
        {
            "unit": f"u{i % units}",
            "label": LABELS[(i // 3) % 2],
            "text": " ".join(WORDS[(i * (k + 3) + k) % len(WORDS)] for k in range(6)),
        }
        for i in range(count)
    ]


@dataclass
class Project:
    """A project folder with params.yaml, a private file and a DVC repository."""

    root: Path

    @property
    def params(self):
        return self.root / "params.yaml"

    @property
    def data(self):
        return self.root / "private.jsonl"

    def write(self, records):
        self.data.write_text("".join(json.dumps(record) + "\n" for record in records))

    def context(self, *overrides, tracker=None):
        ctx = open_context(self.params, overrides)
        ctx.clock = lambda: datetime(2026, 11, 20, 12, tzinfo=UTC)
        ctx.__dict__["tracker"] = tracker or MlflowTracker("")
        return ctx

    def cli(self, *arguments, check=True):
        done = subprocess.run(
            [preloaded.python(), "-m", "privsyn", *arguments],
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
            env=environment(self),
        )
        if check and done.returncode:
            raise AssertionError(f"{arguments} ended {done.returncode}: {done.stderr[-2000:]}")
        return done

    def copy(self, target):
        """The same project elsewhere, with the same ledger and so the same partition key."""
        shutil.copytree(self.root, target)
        return Project(target)


def build_project(root, **changes):
    """A project whose release takes a moment; ``changes`` go on top of its params.yaml."""
    root.mkdir()
    params = {
        "dataset": {
            "name": "letters",
            "path": "private.jsonl",
            "label": "label",
            "labels": list(LABELS),
            "unit": "unit",
            "max_records_per_unit": 2,
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
        "methods": {"invisible_ink": METHODS["invisible_ink"]},
        "models": {"language": "tiny"},
        "evaluate": {"by": "models"},
        "validation": {"min_share": 0.0},
        "performance": {"shards": 2, "rows_per_pass": 16},
    }
    for key, value in changes.items():
        merged = isinstance(value, dict) and key != "methods"
        params[key] = (params.get(key) or {}) | value if merged else value
    params.setdefault("pipeline", list(params["methods"]))
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    project = Project(root)
    project.write(rows(48, 20))
    shutil.copy(ROOT / "dvc.yaml", root)
    shutil.copytree(ROOT / ".dvc", root / ".dvc", ignore=shutil.ignore_patterns("cache", "tmp"))
    shutil.copy(ROOT / ".dvcignore", root)
    shutil.copytree(ROOT / "dags", root / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    return project


@dataclass
class Driven:
    """One driver's run: its project and all it printed."""

    project: Project
    printed: str
    method: str


def environment(project):
    """What the processes of a project see: first in the path the commands that fork, at once."""
    path = [str(preloaded.folder()), str(Path(sys.executable).parent), os.environ["PATH"]]
    return os.environ | {
        "COLUMNS": "160",
        "PYTHONPATH": str(ROOT),
        "PATH": os.pathsep.join(path),
        "OMP_NUM_THREADS": "1",
        "AIRFLOW_HOME": str(project.root / "airflow"),
        "PRIVSYN_PARAMS": str(project.params),
    }


class WordCounts:
    """An Embedder: how often each of a few words stands in a text."""

    width = len(WORDS)

    def __init__(self):
        self.revision = describe_role(ModelsConfig(), "embedder").revision

    def embed(self, texts):
        return np.array([[text.split().count(word) for word in WORDS] for text in texts], "f4")


def reserve_release(ctx, method="invisible_ink"):
    """The plan of a release whose account is open and whose cost is set aside."""
    planned = plan(ctx, method, open_account=True)
    reserve(ctx, planned)
    return planned


def begin_release(ctx, method="invisible_ink"):
    planned = reserve_release(ctx, method)
    partition(ctx, planned)
    return planned


def finish(ctx, planned, backends):
    for shard in range(partition(ctx, planned)):
        generate(ctx, planned, shard, backends)
    return certify(ctx, planned)


def reseal(folder, sealed):
    sealed["seal"] = certificate.seal_of(sealed)
    (folder / "certificate.json").write_bytes(certificate.canonical(sealed))


def failures(folder, ledger=None):
    """What verify refuses of a folder: each check by name, and what it found."""
    checks = verification.verify(folder, ledger)
    return {check.name: check.detail for check in checks if check.passed is False}


def times(*folders):
    """When folders and all that lies in them were last changed, as copies and archives tell."""
    return {path.stat().st_mtime_ns for folder in folders for path in (folder, *folder.rglob("*"))}


def stand_ins():
    """Toy models in every role of text, under the revisions of the embedded ones."""
    text = FakeTextModel(revision=describe_role(ModelsConfig(language="tiny"), "text").revision)
    base = FakeTrainableModel(
        revision=describe_role(ModelsConfig(language="tiny"), "base").revision
    )
    return {"language": stand_in(), "text": text, "embedder": WordCounts(), "base": base}


def breaking(error):
    class Breaks(FakeLogitModel):
        def decode(self, tokens):
            raise error

    return Backends({"language": stand_in(Breaks)})


def stand_in(kind=FakeLogitModel):
    """The toy model under the revision of the embedded one, which plans name."""
    return kind(revision=describe(ModelsConfig(language="tiny")).revision)


@contextmanager
def measured_by(models):
    loaded = {
        "load_role": lambda _, role, *rest: models.models[role],
        "load_embedder": lambda *_: models.embedder,
        "load_measuring_encoder": lambda *_: models.embedder,
        "load_image_encoder": lambda *_: models.image_embedder,
        "why_no_encoder": lambda *_: None,
    }
    with ExitStack() as patches:
        for name, load in loaded.items():
            patches.enter_context(patch(f"privsyn.stages.measure.{name}", load))
        yield
