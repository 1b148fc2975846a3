"""Private evolution round by round: what each population is worth, how far it is from real data.

    python benchmarks/evolution.py digits [--epsilon 10 1e6] [--set lookahead=0] [--plot FILE.png]
    python benchmarks/evolution.py TRAIN.jsonl.gz TEST.jsonl.gz [--records 2000]

In memory, without ledger or certificate. ``digits`` are scikit-learn's scans, half of them private.
Accuracy is that of a classifier trained on the population and tested on real test records; the
distance is Frechet's between the vectors of the population and of the test records, by the embedder
that casts the votes. Both read private records of a public benchmark.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from utility import read

from privsyn.data.images import to_content
from privsyn.data.journal import Journal
from privsyn.data.records import Bucket, Private
from privsyn.data.sample import write_digits
from privsyn.dp.accountant import format_epsilon
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.noise import OpenDPNoise
from privsyn.evaluation.classifiers import downstream
from privsyn.evaluation.images import downstream_images, frechet_distance
from privsyn.methods.base import Backends, Draw, PricingFacts
from privsyn.methods.private_evolution.method import PrivateEvolution, modality
from privsyn.methods.private_evolution.settings import PrivateEvolutionConfig
from privsyn.models.loading import describe_role, load_role
from privsyn.models.settings import ModelsConfig, PerformanceConfig

Pairs = list[tuple[Any, str]]


def digits(folder: Path) -> tuple[Pairs, Pairs]:
    """Scans and labels: a private half, and a half to test on."""
    write_digits(folder / "digits.npz")
    with np.load(folder / "digits.npz") as arrays:
        pairs = list(zip(arrays["image"], arrays["label"].astype(str).tolist(), strict=True))
    random.Random(0).shuffle(pairs)
    return pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]


def accuracy(train: Pairs, test: Pairs, images: bool) -> float:
    """Of a classifier trained on one side and tested on the other."""
    sides = [list(side) for pairs in (train, test) for side in zip(*pairs, strict=True)]
    metrics = (downstream_images if images else downstream)(*sides)
    return next(metric.value for metric in metrics if metric.name == "downstream.accuracy")


def evolve(
    cfg: PrivateEvolutionConfig, epsilon: float, train: Pairs, models: Backends, folder: Path
) -> list[Pairs]:
    """The populations, the first included."""
    method, labels = PrivateEvolution(), sorted({label for _, label in train})
    plan = method.calibrate(
        cfg,
        Guarantee(epsilon, 1e-5),
        PricingFacts(Adjacency.REPLACE_NULL, PrivacyUnit(), tuple(labels)),
    )
    written = to_content if cfg.modality == "image" else str
    buckets = [
        Bucket(cell, Private([written(one) for one, label in train if label == cell.label]))
        for cell in method.cells(cfg, labels)
    ]
    kind = modality(cfg, models)
    Journal.create(folder / "journal", {})
    with Journal.open(folder / "journal", {}) as journal:
        for _ in method.run(
            cfg, plan, buckets, Draw(models, OpenDPNoise(), journal, PerformanceConfig())
        ):
            pass
        return [
            [
                (sample.pixels if cfg.modality == "image" else sample, label)
                for place, label in enumerate(labels)
                for sample in kind.unpack(journal.public_file(f"population/{t}/{place}", bytes))
            ]
            for t in range(1, cfg.rounds + 2)
        ]


def plot(path: Path, curves: dict[str, list[dict[str, float]]]) -> None:
    """Accuracy and distance by round, a line per epsilon."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    for axes, name in zip(figure.subplots(1, 2), ("accuracy", "distance"), strict=True):
        for label, rows in curves.items():
            axes.plot([row[name] for row in rows], marker="o", label=label)
        axes.set(xlabel="round", title=name)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Print one JSON object per population."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", help="digits, or TRAIN and TEST")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[10.0])
    parser.add_argument("--records", type=int, default=2000, help="private texts used")
    parser.add_argument("--set", nargs="*", action="extend", default=[], metavar="k=v")
    parser.add_argument("--models", nargs="*", action="extend", default=[], metavar="k=v")
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    images = arguments.data == ["digits"]
    given = {
        key: yaml.safe_load(value) for key, _, value in (s.partition("=") for s in arguments.set)
    }
    named = {
        key: yaml.safe_load(value) for key, _, value in (s.partition("=") for s in arguments.models)
    }
    models, performance, method = ModelsConfig(**named), PerformanceConfig(), PrivateEvolution()
    cfg = PrivateEvolutionConfig(modality="image" if images else "text", **given)
    cfg = method.resolve(cfg, {role: describe_role(models, role) for role in method.roles(cfg)})
    loaded = Backends({role: load_role(models, role, performance) for role in method.roles(cfg)})
    embedder = loaded.image_embedder if images else loaded.embedder
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if images:
            train, test = digits(folder)
        else:
            train, test = (read(Path(path)) for path in arguments.data)
            train = random.Random(0).sample(train, min(arguments.records, len(train)))
            test = random.Random(0).sample(test, min(3000, len(test)))
        print(json.dumps({"real": round(accuracy(train, test, images), 4), "records": len(train)}))
        real = embedder.embed([one for one, _ in test[:1000]])
        curves: dict[str, list[dict[str, float]]] = {}
        for epsilon in arguments.epsilon:
            own = folder / str(epsilon)
            own.mkdir()
            start = time.perf_counter()
            populations = evolve(cfg, epsilon, train, loaded, own)
            seconds = round(time.perf_counter() - start)
            rows = curves[f"epsilon {format_epsilon(epsilon, 3)}"] = []
            for round_, pairs in enumerate(populations):
                vectors = embedder.embed([one for one, _ in pairs])
                rows.append(
                    {
                        "accuracy": round(accuracy(pairs, test, images), 4),
                        "distance": round(frechet_distance(vectors, real), 4),
                    }
                )
                print(json.dumps({"epsilon": epsilon, "round": round_, **rows[-1]}), flush=True)
            print(json.dumps({"epsilon": epsilon, "seconds": seconds}), flush=True)
            for one, label in random.Random(1).sample(populations[-1], arguments.samples):
                print(f"({label}) {one}")
    if arguments.plot:
        plot(arguments.plot, curves)


if __name__ == "__main__":
    main()
