"""The experiment of a paper: one release and its numbers, beside the row that is expected.

    python benchmarks/papers/run.py invisible_ink STATE [-S models.dtype=float32]
    python benchmarks/papers/run.py invisible_ink STATE --small

A folder beside this file has the configuration of each paper (params.yaml) and, in README.md, where
its data are from and the paper's row. STATE gets a copy of params.yaml, and there the data belong.
``--small`` is the same chain in minutes on models and data that ship: its row says that the
configuration works, not what the method is worth. Every run is charged in a ledger of its own.
private_evolution/images.py runs the experiments on images.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privsyn.data.sample import LABELS, write_sample
from privsyn.stages.base import open_context
from privsyn.stages.evaluate import evaluate
from privsyn.stages.plan import plan
from privsyn.stages.run import draw_and_settle

HERE = Path(__file__).parent
MESSAGES = (
    "dataset.path=records.jsonl",
    "dataset.document=a message from a patient to a clinic",
    "dataset.label=label",
    f"dataset.labels={json.dumps(LABELS)}",
    "dataset.unit=patient_id",
    "dataset.holdout=0.2",
    "account.public_size=370",
    "models.language=tiny",
    "models.dtype=float32",
    "models.server=null",
    "evaluate.audit=off",
)
SMALL: Mapping[str, Sequence[str]] = {
    "private_prediction": (
        *MESSAGES,
        # The tiny model has no chat template.
        "methods.private_prediction.prompt=null",
        "methods.private_prediction.batch_size=60",
        "methods.private_prediction.buckets_per_label=1",
        "methods.private_prediction.svt_noise=0.5",
        "methods.private_prediction.max_texts=2",
        "methods.private_prediction.max_tokens=8",
        "methods.private_prediction.private_tokens=16",
    ),
    "invisible_ink": (
        *MESSAGES,
        "methods.invisible_ink.prompt=null",
        "methods.invisible_ink.texts_per_label=2",
        "methods.invisible_ink.max_tokens=8",
    ),
    "keyphrase_seeding": (
        *MESSAGES,
        "methods.keyphrase_seeding.vocabulary_size=100",
        "methods.keyphrase_seeding.features=200",
        "methods.keyphrase_seeding.sequence_length=4",
        "methods.keyphrase_seeding.sequences_per_label=2",
        "methods.keyphrase_seeding.max_tokens=8",
    ),
    "dp_lora": (
        *MESSAGES,
        "methods.dp_lora.sampling_rate=0.05",
        "methods.dp_lora.expected_batch=28",
        "methods.dp_lora.steps=3",
        "methods.dp_lora.rank=2",
        "methods.dp_lora.max_tokens=12",
        "methods.dp_lora.texts_per_label=2",
    ),
}
"""Of a small run, on top of the paper's params.yaml."""


def measure(paper: str, state: Path, settings: Sequence[str]) -> dict[str, Any]:
    """One release of a paper's configuration, and what is measured on held-out records.

    Args:
        paper: Its folder here, which has the name of its method.
        state: Folder of the run, with the data.
        settings: On top of its params.yaml, as -S.
    """
    state.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / paper / "params.yaml", state / "params.yaml")
    ctx = open_context(state / "params.yaml", settings)
    planned = plan(ctx, paper, open_account=True)
    draw_and_settle(ctx, planned)
    report = evaluate(ctx, planned)
    metrics = (
        [] if report is None else json.loads((report / "evaluation.json").read_text())["metrics"]
    )
    return {
        "paper": paper,
        "epsilon": planned.epsilon,
        "delta": planned.delta,
        "release": planned.id,
        "metrics": {metric["name"]: metric["value"] for metric in metrics},
    }


def prepare_small(paper: str, state: Path) -> Sequence[str]:
    """Write the data of a small run, and return its settings."""
    state.mkdir(parents=True, exist_ok=True)
    write_sample(state / "records.jsonl", rows=400)
    return SMALL[paper]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the row of a run as JSON, and the paper's page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paper", choices=SMALL)
    parser.add_argument("state", type=Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("-S", action="append", default=[], dest="settings", metavar="a.b.c=value")
    asked = parser.parse_args(arguments)
    small = prepare_small(asked.paper, asked.state) if asked.small else ()
    row = measure(asked.paper, asked.state, (*small, *asked.settings))
    print(json.dumps(row, indent=2))
    print((HERE / asked.paper / "README.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
