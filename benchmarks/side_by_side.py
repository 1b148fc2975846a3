"""Five methods side by side: one model, the same records, as many texts, the same epsilon.

    python benchmarks/side_by_side.py STATE --data FOLDER [--model smollm2] [--sets sample agnews]
        [--epsilon 1 3 10] [--methods invisible_ink ...] [--set methods.invisible_ink.guidance=3]
    python benchmarks/side_by_side.py STATE --plot PLOT.png --table --texts sample

Every run is a project of its own under STATE, through the same stages as ``privsyn run``: OpenDP's
noise, a ledger, held-out records by keyed hash. A killed run resumes where it was; a finished one
is a line of --results (benchmarks/side_by_side.jsonl, which is in the repository) and is left out,
so that the table grows from machine to machine. CPU time is that of this process from plan to
certificate, of the calls that it took; a resumed run says so. A line says its CPU, its dtype
(float32 where the CPU has no bfloat16 instructions and none is asked for) and its settings. FOLDER
holds NAME.train.jsonl.gz of every other set; ``sample`` is made here. The settings of each method
were fixed before a test record was read; what the public model alone and as many real records give
stands beside each.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from privsyn.data.sample import LABELS, write_sample
from privsyn.evaluation.judge import ENCODER, FREE
from privsyn.models.torch_runtime import CPU, made_for_bfloat16
from privsyn.release.facts import ReleaseFacts
from privsyn.stages.base import open_context
from privsyn.stages.evaluate import evaluate
from privsyn.stages.plan import plan
from privsyn.stages.run import draw as draw_release

RESULTS = Path(__file__).with_suffix(".jsonl")
TEXTS = 20
"""Texts per label."""

SETS: Mapping[str, Mapping[str, Any]] = {
    "sample": {
        "document": "a message from a patient to a clinic",
        "labels": list(LABELS),
        "unit": "patient_id",
    },
    "agnews": {
        "document": "a news item",
        "labels": ["World", "Sports", "Business", "Sci/Tech"],
        "unit": "id",
    },
    "trec": {
        "document": "a question",
        "labels": ["ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"],
        "label_descriptions": {
            "ABBR": "abbreviation", "DESC": "description", "ENTY": "entity", "HUM": "person",
            "LOC": "location", "NUM": "number",
        },
        "unit": "id",
    },
    "banking77": {
        "document": "a question of a bank's customer",
        "labels": [
            "card_arrival", "card_linking", "exchange_rate", "card_payment_fee_charged",
            "lost_or_stolen_phone", "passcode_forgotten", "age_limit", "cash_withdrawal_charge",
            "verify_my_identity", "request_refund",
        ],
        "unit": "id",
    },
}  # fmt: skip
"""Records of other labels than these are left out."""


def codes(labels: Sequence[str]) -> dict[str, str]:
    """A code for each label, which means nothing to a model: what only the records know."""
    return {label: f"Q{7919 * (place + 3) % 997}" for place, label in enumerate(labels)}


CODED = "_coded"
SETS = {
    **SETS,
    **{
        f"{name}{CODED}": {
            key: list(codes(value).values()) if key == "labels" else value
            for key, value in one.items()
            if key != "label_descriptions"
        }
        for name, one in SETS.items()
    },
}
TOKENS = 40
METHODS: Mapping[str, Mapping[str, Any]] = {
    "invisible_ink": {
        "batch_size": 8, "temperature": 0.8, "guidance": 3, "top_k": 100,
        "max_tokens": TOKENS, "texts_per_label": TEXTS,
    },
    "private_prediction": {
        "batch_size": 120, "buckets_per_label": 2, "clip_bound": 6, "temperature": None,
        "top_k": 50, "svt_threshold": None,
        "max_tokens": TOKENS, "max_texts": TEXTS // 2,
    },
    "private_evolution": {
        "modality": "text", "rounds": 1, "population": TEXTS, "expansion": 8, "lookahead": 0,
        "text": {"max_tokens": TOKENS},
    },
    "keyphrase_seeding": {
        "vocabulary_size": 300, "phrases_per_document": 5,
        "features": 4000, "sequence_length": 6, "sequences_per_label": TEXTS,
        "name_labels": True, "max_tokens": TOKENS,
    },
    "dp_lora": {
        "sampling_rate": 0.1, "expected_batch": 120, "steps": 30, "rank": 4,
        "target_modules": ["all-linear"], "learning_rate": 0.001, "max_tokens": TOKENS,
        "texts_per_label": TEXTS,
    },
}  # fmt: skip


COLUMNS = (
    "set", "method", "epsilon", "settings of its own", "texts", "judge", "accuracy", "by words",
    "public alone", "best free", "gain", "as many real", "MAUVE", "CPU s",
)  # fmt: skip
"""Of the table."""


def project(state: Path, data: Path, name: str, epsilon: float, model: str, dtype: str) -> Path:
    """The folder of one set and epsilon, with its records and its params.yaml."""
    folder = state / f"{name}-{epsilon:g}"
    folder.mkdir(parents=True, exist_ok=True)
    records, plain = folder / "records.jsonl", name.removesuffix(CODED)
    if not records.exists():
        if plain == "sample":
            write_sample(records)
        else:
            with gzip.open(data / f"{plain}.train.jsonl.gz", "rt", encoding="utf-8") as lines:
                own = (line for line in lines if json.loads(line)["label"] in SETS[plain]["labels"])
                records.write_text("".join(own), encoding="utf-8")
        if name != plain:
            code = codes(SETS[plain]["labels"])
            rows = [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()]
            coded = [json.dumps(row | {"label": code[row["label"]]}) + "\n" for row in rows]
            records.write_text("".join(coded), encoding="utf-8")
    params = {
        "dataset": {
            "name": name, "path": str(records), "label": "label", "holdout": 0.2, **SETS[name],
        },
        "account": {
            "name": f"{name}-{epsilon:g}", "adjacency": "add_remove",
            "unit": "patient" if plain == "sample" else "record",
            "epsilon": 100.0, "delta": 1e-4,
        },
        "privacy": {"epsilon": epsilon, "delta": 1e-6},
        "models": {"language": model, "dtype": dtype},
        "methods": {name: dict(settings) for name, settings in METHODS.items()},
        "validation": {"min_share": 0.0},
        "performance": {"shards": 1},
    }  # fmt: skip
    (folder / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    return folder


def measure(folder: Path, method: str, settings: Sequence[str]) -> dict[str, Any]:
    """One release and its evaluation."""
    ctx = open_context(folder / "params.yaml", settings)
    start = time.process_time()
    planned = plan(ctx, method, open_account=True)
    begun = ctx.workspace.scratch(planned.id).exists()
    draw_release(ctx, planned)
    seconds = time.process_time() - start
    report = evaluate(ctx, planned)
    if report is None:
        raise SystemExit(f"{folder}: nothing is held out")
    found = json.loads((report / "evaluation.json").read_text(encoding="utf-8"))
    artifact = ctx.workspace.release(planned.id) / "synthetic.jsonl"
    rows = [json.loads(line) for line in artifact.read_text(encoding="utf-8").splitlines()]
    return {
        "cpu": round(seconds),
        "resumed": begun,
        "machine": cpu_name(),
        "dtype": ctx.config.models.dtype,
        "settings": planned.settings,
        "verdict": found.get("verdict"),
        "metrics": {m["name"]: round(m["value"], 4) for m in found["metrics"]},
        "texts": len(rows),
        "drawn": dict(ReleaseFacts.read(artifact.parent).draw_counts),
        "shown": [[row.get("label"), row["text"]] for row in rows[:: max(1, len(rows) // 10)]][:10],
    }


def cpu_name(cpu: Path = CPU) -> str:
    """What the CPU says of itself, and whether it has instructions for bfloat16."""
    said = re.search(r"^model name\s*:\s*(.+)$", cpu.read_text(), re.MULTILINE)
    name = said[1] if said else "a CPU without a name"
    return f"{name}, {'bfloat16' if made_for_bfloat16(cpu) else 'no bfloat16'}"


def draw(results: Path, picture: Path) -> None:
    """Accuracy over epsilon, a panel a set, a line a method, beside the baselines."""
    import matplotlib.pyplot as plt

    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    names = [name for name in SETS if name in {line["run"]["set"] for line in lines}]
    figure, panels = plt.subplots(
        -(-len(names) // 2), min(2, len(names)), figsize=(9, 3.4 * -(-len(names) // 2)),
        squeeze=False, sharex=True, layout="constrained",
    )  # fmt: skip
    for axes in panels.flat[len(names) :]:
        axes.set_visible(False)
    for axes, name in zip(panels.flat, names, strict=False):
        own = [line for line in lines if line["run"]["set"] == name]
        for place, method in enumerate(METHODS):
            points = sorted(
                (
                    line["run"]["epsilon"] * 1.04 ** (place - 2),  # beside each other
                    *(line["metrics"][f"vectors.accuracy{end}"] for end in ("", "_low", "_high")),
                )
                for line in own
                if line["run"]["method"] == method and "vectors.accuracy" in line["metrics"]
            )
            at, value, low, high = zip(*points, strict=True) if points else ((),) * 4
            spread = [
                [v - a for v, a in zip(value, low, strict=True)],
                [b - v for v, b in zip(value, high, strict=True)],
            ]
            axes.errorbar(
                at, value, yerr=spread, marker="o", capsize=3, label=method, color=f"C{place}",
                linestyle="-" if len(set(at)) == len(at) else "none",  # two settings are no line
            )  # fmt: skip
        for baseline, style in (("public", ":"), ("real", "--"), ("chance", "-.")):
            levels = [
                line["metrics"][f"vectors.{baseline}"]
                for line in own
                if f"vectors.{baseline}" in line["metrics"]
            ]
            level = sum(levels) / len(levels) if levels else float("nan")
            axes.axhline(level, linestyle=style, color="gray", label=f"{baseline}, mean")
        axes.set(title=name, xscale="log", xlim=(0.8, 13), ylim=(0, 1))
        axes.set_xticks([1, 3, 10], ["1", "3", "10"])
        axes.minorticks_off()
    figure.supxlabel("epsilon")
    figure.supylabel("accuracy, sentence vectors")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside right center")
    figure.savefig(picture, dpi=110)


def table(results: Path) -> str:
    """What is on file, a line a run, in Markdown."""
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    sets, methods = list(SETS), list(METHODS)
    for line in sorted(
        lines, key=lambda each: (
            sets.index(each["run"]["set"]), methods.index(each["run"]["method"]),
            -each["run"]["epsilon"], each["texts"],
        )
    ):  # fmt: skip
        run, found = line["run"], line["metrics"]

        def number(name: str, sign: str = "", found: Mapping[str, float] = found) -> str:
            return f"{found[name]:{sign}.3f}".replace("0.", ".", 1) if name in found else "-"

        def interval(name: str, sign: str = "", number: Any = number) -> str:
            ends = (number(f"{name}_{end}", sign) for end in ("low", "high"))
            return f"{number(name, sign)} [{', '.join(ends)}]"

        cells = {
            "set": run["set"],
            "method": f"`{run['method']}`",
            "epsilon": f"{run['epsilon']:g}",
            "settings of its own": own_settings(run),
            "texts": str(line["texts"]),
            # Before there was another encoder, MiniLM judged what it may have chosen.
            "judge": "e5" if "words.gain" in found else "MiniLM",
            "accuracy": interval("vectors.accuracy"),
            "by words": number(next(n for n in _WORDS if n in found or n is _WORDS[-1])),
            "best free": best(found),
            "public alone": number("vectors.public"),
            "gain": interval("vectors.gain", "+"),
            "as many real": number("vectors.real"),
            "MAUVE": number("mauve"),
            "CPU s": "-"
            if line["cpu"] is None  # a release by `privsyn run`
            else f"{line['cpu']:,}" + (" after a kill" if line["resumed"] else ""),
        }
        rows.append([cells[column] for column in COLUMNS])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


_WORDS = ("words.accuracy", "downstream.accuracy")


def best(found: Mapping[str, float]) -> str:
    """The best rival that is free, by the encoder that took no part.

    Runs of before the user's examples were rivals have ``candidates``, all public texts, instead.
    """
    rivals = {name: found.get(f"{ENCODER}.{name}", 0.0) for name in (*FREE, "candidates")}
    name = max(rivals, key=rivals.__getitem__)
    if "words.gain" not in found or not rivals[name]:
        return "-"
    return f"{rivals[name]:.3f} {name}".replace("0.", ".", 1)


def own_settings(run: Mapping[str, Any]) -> str:
    """What of a run's settings is said nowhere else in its row, and is not that of METHODS."""
    prefixes = (f"methods.{run['method']}.", "account.")
    usual = METHODS[run["method"]]
    given = [
        each.removeprefix(prefix).partition("=")
        for each in run["set_also"]
        for prefix in prefixes
        if each.startswith(prefix)
    ]
    changed = {key: yaml.safe_load(value) for key, _, value in given}
    own = [f"{key} {value}" for key, value in changed.items() if usual.get(key) != value]
    return ", ".join(own if run.get("model", "smollm2") == "smollm2" else [run["model"], *own])


def texts(results: Path, name: str, count: int) -> str:
    """Texts of every method on a set, at the largest epsilon on file: evenly spaced, not picked."""
    found: dict[str, Mapping[str, Any]] = {}
    for line in results.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        best = found.get(row["run"]["method"])
        if row["run"]["set"] == name and (
            best is None or row["run"]["epsilon"] > best["run"]["epsilon"]
        ):
            found[row["run"]["method"]] = row
    out = []
    for method in (method for method in METHODS if method in found):
        shown = found[method]["shown"]
        out += [f"**`{method}`**, epsilon {found[method]['run']['epsilon']:g}", ""]
        for label, text in shown[:: max(1, len(shown) // count)][:count]:
            out.append(f"- *{label}*: {' '.join(text.split())}")
        out.append("")
    return "\n".join(out)


def main() -> None:
    """Append one JSON line a run, or draw them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("state", type=Path)
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--model", default="smollm2")
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16"],
        default="bfloat16" if made_for_bfloat16() else "float32",
    )  # fmt: skip
    parser.add_argument("--sets", nargs="+", default=["sample", "agnews"], choices=list(SETS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--epsilon", nargs="+", type=float, default=[10.0, 3.0, 1.0])
    parser.add_argument(
        "--set", nargs="*", action="extend", default=[], help="a.b.c=value, for all runs"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--plot", type=Path, help="draw what is on file, and run nothing")
    parser.add_argument("--table", action="store_true", help="print it, and run nothing")
    parser.add_argument("--texts", metavar="SET", help="print five texts a method, and run nothing")
    arguments = parser.parse_args()
    state, results = arguments.state.resolve(), arguments.results.resolve()
    if arguments.table:
        print(table(results))
    if arguments.plot:
        draw(results, arguments.plot)
    if arguments.texts:
        print(texts(results, arguments.texts, 5))
    if arguments.table or arguments.plot or arguments.texts:
        return
    state.mkdir(parents=True, exist_ok=True)
    kept = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    done = [json.loads(line)["run"] for line in kept]
    for epsilon in arguments.epsilon:
        for name in arguments.sets:
            for method in arguments.methods:
                run = {
                    "set": name, "method": method, "epsilon": epsilon,
                    "model": Path(arguments.model).name, "set_also": arguments.set,
                }  # fmt: skip
                if run in done:
                    continue
                folder = project(
                    state, arguments.data, name, epsilon, arguments.model, arguments.dtype
                )
                line = {"run": run} | measure(folder, method, arguments.set)
                with results.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(line) + "\n")
                print(name, method, epsilon, line["verdict"], f"{line['cpu']} s", flush=True)


if __name__ == "__main__":
    main()
