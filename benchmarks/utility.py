"""What synthetic texts are worth: classifiers trained on them, tested on real ones.

    python benchmarks/utility.py --judge FOLDER [--document "a news item"] [--coded]

FOLDER holds release.jsonl, train.jsonl and test.jsonl, public.jsonl where there are candidates of
the public model, and examples.jsonl where there are invented texts: a text and a label a line. The
table has every ruler and every rival of privsyn/evaluation/judge.py. ``--coded`` names the labels
by numbers, which mean nothing to a model.

    python benchmarks/utility.py TRAIN.jsonl.gz TEST.jsonl.gz [--epsilon 10] [--batch 8]
        [--guidance 4] [--temperature .8] [--texts 800] [--model tiny] [--public-only]

Runs InvisibleInk in memory, without ledger or certificate: a seeded partition of public benchmark
data, never a release. ``--public-only`` draws from the public prompt, with no reference at all;
``--real N`` trains on N real texts instead.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privsyn.data.journal import Journal
from privsyn.data.records import Bucket, Private
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.noise import NoiseSource, OpenDPNoise
from privsyn.evaluation.classifiers import Interval, downstream
from privsyn.evaluation.embeddings import EmbeddedOnce
from privsyn.evaluation.judge import (
    ENCODER,
    GAIN,
    RELEASE,
    RIVALS,
    VOTER,
    Case,
    Scores,
    judge,
    likeness,
)
from privsyn.methods.base import Backends, Draw, Mechanism, PricingFacts
from privsyn.methods.invisible_ink.method import InvisibleInk
from privsyn.methods.invisible_ink.settings import InvisibleInkConfig
from privsyn.models.loading import (
    load_embedder,
    load_language_model,
    load_measuring_encoder,
)
from privsyn.models.model_identity import describe
from privsyn.models.settings import ModelsConfig, PerformanceConfig


def read(path: Path, column: str = "label") -> list[tuple[str, str]]:
    """(text, label) of every line."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [(record["text"], str(record[column])) for record in records]


def generate(arguments: argparse.Namespace, train: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Synthetic (text, label) by InvisibleInk."""
    labels = sorted({label for _, label in train})
    method, models = InvisibleInk(), ModelsConfig(language=arguments.model)
    performance = PerformanceConfig()
    given = {
        "batch_size": arguments.batch,
        "guidance": arguments.guidance,
        "temperature": arguments.temperature,
        "texts_per_label": arguments.texts // len(labels),
        "max_tokens": arguments.tokens,
        "top_k": arguments.top_k,
    }
    if arguments.prompt:
        private, public = arguments.prompt
        given["prompt"] = {
            "private": private.replace("\\n", "\n"), "public": public.replace("\\n", "\n")
        }  # fmt: skip
    cfg = method.resolve(InvisibleInkConfig(**given), {"language": describe(models)})
    plan = method.calibrate(
        cfg,
        Guarantee(arguments.epsilon, 1e-6),
        PricingFacts(Adjacency.REPLACE_NULL, PrivacyUnit(), tuple(labels)),
    )
    rng = random.Random(arguments.seed)
    held: dict[tuple[str | None, int], list[str]] = {}
    for text, label in train:
        place = (label, rng.randrange(cfg.texts_per_label))
        if not arguments.public_only:
            held.setdefault(place, []).append(text)
    noise = OpenDPNoise()
    return drawn(method, cfg, plan, held, labels, load_language_model(models, performance), noise)


def drawn(
    method: InvisibleInk,
    cfg: InvisibleInkConfig,
    plan: Mechanism,
    held: Mapping[tuple[str | None, int], Sequence[str]],
    labels: Sequence[str],
    model: Any,
    noise: NoiseSource,
) -> list[tuple[str, str]]:
    """(text, label) of a run in memory; ``held`` are the records of each label and bucket."""
    buckets = [
        Bucket(cell, Private(held.get((cell.label, cell.bucket), [])))
        for cell in method.cells(cfg, labels)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        Journal.create(path, {})
        with Journal.open(path, {}) as journal:
            samples = list(
                method.run(
                    cfg,
                    plan,
                    buckets,
                    Draw(Backends({"language": model}), noise, journal, PerformanceConfig()),
                )
            )
    return [(str(sample.content), str(sample.cell.label)) for sample in samples]


class Judge:
    """The rulers of a release, loaded once; each text is embedded once."""

    def __init__(self) -> None:
        performance = PerformanceConfig()
        self._measures = EmbeddedOnce(lambda: load_measuring_encoder(None, performance))
        self._votes = EmbeddedOnce(lambda: load_embedder(ModelsConfig(), performance))

    def __call__(
        self,
        release: Sequence[tuple[str, str]],
        public: Sequence[tuple[str, str]],
        train: Sequence[tuple[str, str]],
        test: Sequence[tuple[str, str]],
        examples: Sequence[tuple[str, str]] = (),
        *,
        names: Mapping[str, str] | None = None,
        document: str | None = None,
    ) -> tuple[Scores, dict[str, Interval]]:
        """Rulers and rivals, and likeness, with 95% intervals; ``table`` prints both.

        Args:
            release: Text and label of what is judged.
            public: Candidates of the public model alone.
            train: Real records that rivals are trained on, in an order that says nothing.
            test: Other real records, which none of them has seen.
            examples: Invented texts.
            names: Words for the labels, where the labels are not words.
            document: What a record is called.
        """
        case = Case(release, test, train, public, examples, names or {}, document)
        encoders = {ENCODER: self._measures.embed, VOTER: self._votes.embed}
        return judge(case, encoders, chooser=self._votes.embed), likeness(case)


def judged(folder: Path, arguments: argparse.Namespace) -> str:
    """The table of a folder of texts."""
    parts = {
        name: [
            (row["text"], str(row["label"]))
            for row in map(json.loads, (folder / f"{name}.jsonl").read_text("utf-8").splitlines())
        ]
        if name in ("release", "train", "test") or (folder / f"{name}.jsonl").exists()
        else []
        for name in ("release", "public", "train", "test", "examples")
    }
    codes = sorted({label for pairs in parts.values() for _, label in pairs})
    names = {label: f"Q{7919 * (place + 3) % 997}" for place, label in enumerate(codes)}
    scores, like = Judge()(
        *parts.values(),
        names=names if arguments.coded else {code: " ".join(code.split("_")) for code in codes},
        document=arguments.document,
    )
    return table(scores, like)


def table(scores: Scores, like: Mapping[str, Interval]) -> str:
    """Rulers and rivals in Markdown, with 95% intervals."""
    lines = [["", *(ruler.words for ruler in scores.rulers)], ["---"] * (len(scores.rulers) + 1)]
    for column in (RELEASE, *(rival.name for rival in RIVALS), GAIN):
        lines.append(
            [column, *(_cell(scores.table.get((one.name, column))) for one in scores.rulers)]
        )
    out = ["| " + " | ".join(cells) + " |" for cells in lines]
    return "\n".join([*out, *(f"{name}: {_cell(value)}" for name, value in like.items())])


def _cell(value: Interval | None) -> str:
    if value is None:
        return "-"
    return f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"


def main() -> None:
    """Print one JSON object, or a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path, nargs="?")
    parser.add_argument("test", type=Path, nargs="?")
    parser.add_argument("--judge", type=Path, metavar="FOLDER")
    parser.add_argument("--document", help="what a record is called")
    parser.add_argument("--coded", action="store_true")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--guidance", type=float, default=4.0)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=100)
    parser.add_argument("--texts", type=int, default=800)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt", nargs=2, metavar=("PRIVATE", "PUBLIC"))
    parser.add_argument("--public-only", action="store_true")
    parser.add_argument("--real", type=int, help="train on so many real texts instead")
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.judge:
        print(judged(arguments.judge, arguments))
        return
    if arguments.train is None or arguments.test is None:
        parser.error("name two files of records, or a folder by --judge")
    train, test = read(arguments.train), read(arguments.test)
    start = time.perf_counter()
    if arguments.real:
        synthetic = random.Random(arguments.seed).sample(train, min(arguments.real, len(train)))
    else:
        synthetic = generate(arguments, train)
    seconds = time.perf_counter() - start
    metrics = downstream(
        [text for text, _ in synthetic],
        [label for _, label in synthetic],
        [text for text, _ in test],
        [label for _, label in test],
    )
    chosen = random.Random(arguments.seed).sample(synthetic, min(arguments.samples, len(synthetic)))
    found = {metric.name: round(metric.value, 4) for metric in metrics if metric.label is None}
    settings = {key: value for key, value in vars(arguments).items() if not isinstance(value, Path)}
    print(json.dumps({"settings": settings, "seconds": round(seconds), **found}))
    for text, label in chosen:
        print(f"({label}) {text}" if not arguments.real else f"({label})")


if __name__ == "__main__":
    main()
