"""Releases with columns: the sample's messages with invented ones, and films with their own.

    python benchmarks/columns.py STATE [--films wikimovies_json.train.jsonl.gz]
        [--methods keyphrase_seeding ...] [--epsilon 3 1] [--model tiny]
    python benchmarks/tables.py columns                          # what was measured

tools/local/sample.py invents age, channel and month of the messages. Of a film the year, the number
of named actors and the second genre are on file; its text is the summary, its label the first
genre. A finished run is a row of --results, and is left out the next time; a killed one resumes
where it was.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from side_by_side import measure

from privsyn.data.artifacts import atomic_file
from privsyn.data.sample import LABELS
from tools.local.sample import COLUMNS, PAIRS, write_messages

RESULTS = Path(__file__).with_suffix(".jsonl")
METHODS = ("private_evolution", "keyphrase_seeding", "dp_lora")
GENRES = ["Drama", "Comedy", "Western", "Action", "Crime", "Horror"]
SETS: Mapping[str, Mapping[str, Any]] = {
    "messages": {
        "dataset": {
            "document": "a message from a patient to a clinic",
            "labels": list(LABELS),
            "unit": "patient_id",
            "columns": COLUMNS,
        },
        "account": {"unit": "patient", "public_size": 1500},
        "columns": {"pairs": PAIRS},
    },
    "films": {
        "dataset": {
            "document": "a summary of a film",
            "labels": GENRES,
            "unit": "id",
            "columns": {
                "actors": {"range": [0, 19], "bins": 5},
                "second": {"values": [*GENRES, "Romance", "Adventure", "Thriller", "Musical"]},
                "year": {"range": [1900, 2029], "bins": 13},
            },
        },
        "account": {"unit": "film", "public_size": 15_000},
        "columns": {"pairs": [["actors", "year"]]},
    },
}


def films(source: Path) -> Iterator[dict[str, object]]:
    """The films of the six genres, from lines whose text is a record in JSON."""
    with gzip.open(source, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            film = json.loads(record["text"])
            if record["label"] in GENRES:
                yield {
                    "id": record["id"],
                    "text": film["extract"],
                    "label": record["label"],
                    "year": film["year"],
                    "actors": len(film["cast"]),
                    "second": next(iter(film["genres"][1:]), None),
                }


def _write(path: Path, records: Sequence[Mapping[str, object]]) -> None:
    with atomic_file(path, mode=0o600) as stream:
        for record in records:
            stream.write((json.dumps(record) + "\n").encode())


def project(state: Path, name: str, model: str, source: Path | None) -> Path:
    """The folder of one set, with its records and its params.yaml."""
    folder = state / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "records.jsonl"
    if not path.exists() and source is None:
        write_messages(path)
    elif not path.exists() and source is not None:
        _write(path, list(films(source)))
    own = SETS[name]
    params = {
        "dataset": {
            "name": name, "path": str(path), "label": "label", "holdout": 0.2, **own["dataset"],
        },
        "account": {
            "name": name, "adjacency": "add_remove", "epsilon": 1000.0, "delta": 1e-3,
            **own["account"],
        },
        "privacy": {"epsilon": 3.0, "delta": 1e-6},
        "columns": own["columns"],
        "models": {"language": model},
        "methods": {method: {"settings": "small"} for method in METHODS},
        "validation": {"min_share": 0.0},
        "performance": {"shards": 1},
        "evaluate": {"by": "words"},
    }  # fmt: skip
    (folder / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    return folder


def row(run: Mapping[str, str], found: Mapping[str, Any]) -> dict[str, str]:
    """A row of the table: each figure beside what it is compared with."""

    def of(*names: str) -> str:
        values = (found["metrics"].get(f"columns.{name}") for name in names)
        return " / ".join("-" if v is None else f"{v:.3f}".replace("0.", ".", 1) for v in values)

    beside = ("", "_sampling", "_independent", "_public")
    by = ("columns", "text", "both", "independent", "real", "chance")
    return {
        **run,
        "texts": str(found["texts"]),
        "columns apart: release / sampling / public rows": of(
            *(f"apart{end}" for end in ("", "_sampling", "_public"))
        ),
        "pairs apart: release / sampling / independent / public rows": of(
            *(f"pairs_apart{end}" for end in beside)
        ),
        "label by columns / text / both / both with independent columns / as learned from real / "
        "commonest": of(*(f"label.{name}" for name in by)),
        "text fits its row: release / real / independent": of("fit", "fit_real", "fit_independent"),
        "CPU s": str(found["cpu"]),
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("state", type=Path)
    parser.add_argument("--films", type=Path)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--epsilon", nargs="+", type=float, default=[3.0, 1.0])
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--texts", type=int, default=40, help="a label")
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    kept = asked.results.read_text().splitlines() if asked.results.exists() else []
    done = [json.loads(line).get("row", {}) for line in kept]
    name = "films" if asked.films else "messages"
    folder = project(asked.state.resolve(), name, asked.model, asked.films)
    counts = dict(
        zip(METHODS, ("population", "sequences_per_label", "texts_per_label"), strict=True)
    )
    for method in asked.methods:
        for epsilon in asked.epsilon:
            run = {
                "set": name, "method": method, "model": asked.model, "epsilon": f"{epsilon:g}",
            }  # fmt: skip
            if any(run.items() <= row.items() for row in done):
                continue
            settings = [
                f"privacy.epsilon={epsilon}",
                f"methods.{method}.{counts[method]}={asked.texts}",
            ]
            line = {"table": "columns", "row": row(run, measure(folder, method, settings))}
            with asked.results.open("a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")
            print(*line["row"].values(), sep="  ", flush=True)
