"""Write tests/golden: a sealed release of every method, the ledger that vouches, their project.

    python tools/write_releases.py

Run it where the schema of plans, certificates or the ledger changes: after the first release never,
since then what is there must go on to verify, and the project to plan the same ids and to finish
the release that it has begun. The records are invented here, the models are those that ship, the
noise is the operating system's.
"""

from __future__ import annotations

import json
import platform
import shutil
import sqlite3
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from privsyn.stages.base import open_context
from privsyn.stages.draw import generate
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve
from privsyn.stages.run import draw
from privsyn.tracking import MlflowTracker

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
BEGUN = ("privacy.epsilon=1.0", "privacy.draw=1")
"""Settings of the release that is left half drawn."""
LABELS = ("Billing", "Symptoms")
WORDS = ("visit", "bill", "late", "help", "ready", "please", "was", "the")
METHODS: dict[str, dict[str, Any]] = {
    "invisible_ink": {
        "batch_size": 4,
        "max_tokens": 6,
        "texts_per_label": 8,
    },
    "private_prediction": {
        "batch_size": 8,
        "buckets_per_label": 1,
        "clip_bound": 1.0,
        "private_tokens": 12,
        "svt_threshold": 0.3,
        "svt_noise": 2.0,
        "max_tokens": 4,
        "top_k": 50,
    },
    "private_evolution": {
        "modality": "text",
        "rounds": 2,
        "population": 12,
        "text": {"max_tokens": 4},
    },
    "keyphrase_seeding": {
        "vocabulary_size": 20,
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
PARAMS = {
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
        "epsilon": 30.0,
        "delta": 1e-6,
    },
    "privacy": {"epsilon": 4.5, "delta": 1e-6},
    "pipeline": list(METHODS),
    "methods": METHODS,
    "models": {"language": "tiny"},
    "performance": {"shards": 2, "rows_per_pass": 16},
}


def main() -> None:
    """Draw the releases in a folder of their own and put them in place."""
    platform.node = lambda: "clinic"  # the ledger's rows name the machine
    folder = Path(tempfile.gettempdir()) / "clinic"
    folder.mkdir()
    try:
        releases, dump = _drawn(folder)
        target, project = GOLDEN / "releases", GOLDEN / "project"
        for place in (target, project):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
        for release in releases:
            shutil.copytree(release, target / release.name, ignore=shutil.ignore_patterns(".*"))
        (target / "ledger.sql").write_text(dump, encoding="utf-8")
        for name in ("params.yaml", "private.jsonl"):
            shutil.copy(folder / name, project)
        shutil.copytree(folder / ".privsyn" / "scratch", project / "scratch")
    finally:
        shutil.rmtree(folder)


def _drawn(folder: Path) -> tuple[list[Path], str]:
    (folder / "params.yaml").write_text(yaml.safe_dump(PARAMS), encoding="utf-8")
    records = (
        {
            "unit": f"u{i % 20}",
            "label": LABELS[(i // 3) % 2],
            "text": " ".join(WORDS[(i * (k + 3) + k) % len(WORDS)] for k in range(6)),
        }
        for i in range(48)
    )
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "private.jsonl").write_text(lines, encoding="utf-8")
    ctx = open_context(folder / "params.yaml")
    ctx.clock = lambda: datetime(2026, 11, 20, 12, tzinfo=UTC)
    ctx.__dict__["tracker"] = MlflowTracker("")
    releases = []
    for method in METHODS:
        planned = plan(ctx, method, open_account=True)
        draw(ctx, planned)
        releases.append(ctx.workspace.release(planned.id))
        print(planned.id, flush=True)
    half = open_context(folder / "params.yaml", BEGUN)
    half.clock, half.__dict__["tracker"] = ctx.clock, MlflowTracker("")
    planned = plan(half, "invisible_ink")
    reserve(half, planned)
    partition(half, planned)
    generate(half, planned, 0)  # of two shards
    with sqlite3.connect(ctx.workspace.state / "ledger.db") as database:
        dump = "\n".join(database.iterdump()) + "\n"
    database.close()
    return releases, dump


if __name__ == "__main__":
    main()
