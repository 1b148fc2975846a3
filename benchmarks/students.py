"""What a small language model learns from a DP-LoRA teacher's texts: Yu et al. 2023, Table 1.

    python benchmarks/students.py TRAIN.jsonl.gz TEST.jsonl.gz [--labels] [--epsilon 8 inf]
        [--direct 8] [--real] [--set steps=40 sampling_rate=0.05] [--distill epochs=5]
        [--tested 400] [--sizes 250 750] [--keep FOLDER]
        [--model smollm2 --dtype bfloat16 --document "a medical abstract"]

In memory, without ledger or certificate: records of a public benchmark, never a release. Prints one
JSON object per student: next-token accuracy and cross entropy on real test records of a student
trained on the teacher's texts, by epsilon (inf: without noise; 0: as good as untrained, the public
model alone); with ``--direct`` of the same student trained on the records by DP-SGD; and of one
trained on them without privacy. ``--sizes``: a student for each number of texts, which are drawn
from all of the teacher's at random: Yu et al. 2023, Figure 3.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from utility import read

from privsyn.data.journal import Journal
from privsyn.data.records import Bucket, Private
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.noise import OpenDPNoise
from privsyn.evaluation.language_model import next_token_accuracy
from privsyn.methods.base import Backends, Draw, PricingFacts
from privsyn.methods.dp_lora.method import DPLora
from privsyn.methods.dp_lora.settings import DPLoraConfig
from privsyn.methods.shared.distill import DistillConfig
from privsyn.models.loading import describe_role, load_role
from privsyn.models.references import BUILTIN
from privsyn.models.rows import Subject
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from privsyn.students.train import train_student

Pairs = list[tuple[str | None, str]]
RECORDS = PrivacyUnit()


class Noiseless(OpenDPNoise):
    """Poisson samples without noise on their sums: what a teacher would be without privacy."""

    kind = "none"

    def gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """The values themselves."""
        return values

    fine_gaussian = gaussian


def load_pairs(path: Path, labeled: bool) -> Pairs:
    """Label and text of every line."""
    if labeled:
        return [(label, text) for text, label in read(path)]
    return [(None, text) for text, _ in read(path, column="id")]


def teach(
    cfg: DPLoraConfig, epsilon: float, train: Pairs, models: Backends, folder: Path
) -> tuple[Pairs, dict[str, float]]:
    """Texts of a teacher trained on the records, and what it took; its files go to ``folder``."""
    method = DPLora()
    labels = sorted({label for label, _ in train if label is not None})
    private = math.isfinite(epsilon) and epsilon > 0
    if not private:
        cfg = cfg.model_copy(update={"noise_multiplier": 1.0})
    if epsilon == 0:  # one step that moves nothing: the public model alone
        cfg = cfg.model_copy(update={"steps": 1, "learning_rate": 1e-12})
    plan = method.calibrate(
        cfg,
        Guarantee(epsilon if private else 1e3, 1e-5),
        PricingFacts(Adjacency.REPLACE_NULL, RECORDS, tuple(labels)),
    )
    buckets = [
        Bucket(cell, Private([text for label, text in train if label == cell.label]))
        for cell in method.cells(cfg, labels)
    ]
    folder.mkdir()
    Journal.create(folder / "journal", {})
    start = time.perf_counter()
    with Journal.open(folder / "journal", {}) as journal:
        files = method.train(
            cfg,
            plan,
            buckets,
            Draw(
                models,
                OpenDPNoise() if private else Noiseless(),
                journal,
                PerformanceConfig(),
                report("train"),
            ),
        )
    for name, content in files.items():
        (folder / name).write_bytes(content)
    trained = time.perf_counter()
    drawn = method.write(cfg, RECORDS, labels, models, folder, (0, 1), report("write"))
    texts: Pairs = [(sample.cell.label, str(sample.content)) for sample in drawn]
    return texts, {
        "sigma": plan.derived["noise_multiplier"] if private else 0.0,
        "train_seconds": round(trained - start),
        "write_seconds": round(time.perf_counter() - trained),
    }


def report(what: str) -> Any:
    """Progress to a line of its own now and then."""
    last = [time.perf_counter()]

    def progress(done: int, total: int) -> None:
        if time.perf_counter() - last[0] > 60:
            last[0] = time.perf_counter()
            print(json.dumps({what: done, "of": total}), flush=True)

    return progress


def measure(name: str, folder: Path, test: Pairs, max_tokens: int, **facts: Any) -> None:
    """Print what a model is worth on real records."""
    found = {m.name: m.value for m in next_token_accuracy(folder, test, max_tokens=max_tokens)}
    print(
        json.dumps(
            {
                "student": name,
                "next_token_accuracy": round(found["student.next_token_accuracy"], 4),
                "cross_entropy": round(found["student.cross_entropy"], 4),
                **facts,
            }
        ),
        flush=True,
    )


def main() -> None:
    """Teach, distill, measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--labels", action="store_true", help="records have labels")
    parser.add_argument("--epsilon", type=float, nargs="*", default=[8.0, math.inf])
    parser.add_argument(
        "--direct", type=float, nargs="*", default=[], metavar="EPSILON",
        help="train the student by DP-SGD too",
    )  # fmt: skip
    parser.add_argument("--real", action="store_true", help="and without privacy")
    parser.add_argument("--set", nargs="*", action="extend", default=[], metavar="k=v")
    parser.add_argument("--distill", nargs="*", action="extend", default=[], metavar="k=v")
    parser.add_argument("--sizes", type=int, nargs="*", default=[], help="texts of a student")
    parser.add_argument("--tested", type=int, default=400, help="real test records")
    parser.add_argument("--keep", type=Path, help="folder for the teachers' texts")
    parser.add_argument("--samples", type=int, default=2, help="texts to print")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--document", help="what a record is, with its article")
    arguments = parser.parse_args()

    def settings(items: list[str]) -> dict[str, Any]:
        pairs = (item.partition("=") for item in items)
        return {key: yaml.safe_load(value) for key, _, value in pairs}

    train = load_pairs(arguments.train, arguments.labels)
    test = load_pairs(arguments.test, arguments.labels)
    test = random.Random(0).sample(test, min(arguments.tested, len(test)))
    models = ModelsConfig(language=arguments.model, dtype=arguments.dtype)
    cfg = DPLoraConfig(**settings(arguments.set))
    subject = Subject(arguments.document)
    cfg = DPLora().resolve(cfg, {"base": describe_role(models, "base")}, subject)
    distill = DistillConfig(max_tokens=cfg.max_tokens, **settings(arguments.distill))
    labels = sorted({label for label, _ in train if label is not None})
    template = cfg.template(labels)

    def student(texts: Pairs, target: Path) -> int:
        start = time.perf_counter()
        train_student(
            distill, texts, BUILTIN, target, template=template, on_progress=report("distill")
        )
        return round(time.perf_counter() - start)

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for epsilon in arguments.epsilon:
            base = Backends({"base": load_role(models, "base", PerformanceConfig())})
            texts, facts = teach(cfg, epsilon, train, base, root / f"teacher-{epsilon}")
            print(json.dumps({"epsilon": epsilon, "texts": len(texts), **facts}), flush=True)
            if arguments.keep:
                arguments.keep.mkdir(parents=True, exist_ok=True)
                (arguments.keep / f"texts-{epsilon:g}.json").write_text(json.dumps(texts))
            for label, text in random.Random(1).sample(texts, arguments.samples):
                print(f"({label}) {text}", flush=True)
            for size in arguments.sizes or [len(texts)]:
                target = root / f"student-{epsilon}-{size}"
                part = random.Random(size).sample(texts, size) if arguments.sizes else texts
                seconds = student(part, target)
                name = f"synthetic, epsilon {epsilon:g}"
                measure(name, target, test, cfg.max_tokens, texts=size, seconds=seconds)
        if arguments.real:
            seconds = student(train, root / "real")
            measure("real, no privacy", root / "real", test, cfg.max_tokens, seconds=seconds)
        for epsilon in arguments.direct:
            direct = cfg.model_copy(update={"student": distill.student})
            base = Backends({"base": load_role(models, "base", PerformanceConfig())})
            own = root / f"direct-{epsilon}"
            _, facts = teach(
                direct.model_copy(update={"texts_per_label": 1}), epsilon, train, base, own
            )
            measure(f"real, DP-SGD, epsilon {epsilon:g}", own, test, cfg.max_tokens, **facts)


if __name__ == "__main__":
    main()
