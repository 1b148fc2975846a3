"""Phrase sequences by noise: what they are worth, how far their scores are off.

    python benchmarks/keyphrases.py TRAIN.jsonl.gz TEST.jsonl.gz [--epsilon 6 11 15] [--set k=v]
        [--noise laplace gaussian]

Keyphrase seeding without a language model, in memory, without ledger or certificate. For each
combination: accuracy of TF-IDF and logistic regression, trained on the phrase sequences, tested on
the real test records; and the mean absolute error of the released scores against the exact kernel
density, relative to the mean exact score, over the sequences that were drawn. The error is known
only because the private records of a benchmark are public.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import yaml
from numpy.typing import NDArray
from utility import read

from privsyn.data.journal import Journal
from privsyn.data.records import Bucket, Private
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.noise import OpenDPNoise
from privsyn.evaluation.classifiers import downstream
from privsyn.methods.base import Backends, Draw, PricingFacts
from privsyn.methods.keyphrase_seeding import method as keyphrase_seeding
from privsyn.methods.keyphrase_seeding.dp_kde import exact_sums, scores_of
from privsyn.methods.keyphrase_seeding.method import KeyphraseSeeding
from privsyn.methods.keyphrase_seeding.settings import KeyphraseSeedingConfig
from privsyn.models.loading import load_embedder
from privsyn.models.settings import ModelsConfig, PerformanceConfig


class Remembered:
    """An embedder that embeds every phrase once over all runs."""

    def __init__(self, embedder: Any) -> None:
        self._embedder = embedder
        self.revision, self.width = embedder.revision, embedder.width
        self._known: dict[str, NDArray[np.float32]] = {}

    def embed(self, texts: Any, /) -> NDArray[np.float32]:
        """See protocols.Embedder."""
        new = [text for text in texts if text not in self._known]
        self._known.update(zip(new, self._embedder.embed(new), strict=True))
        return np.stack([self._known[text] for text in texts])


def exact_scores(
    bandwidth: float, vectors: NDArray[np.float32], private: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Sums of the kernel itself over the private phrases, for every phrase."""
    like = vectors.astype(np.float64) @ vectors[private].T.astype(np.float64)
    return np.asarray(np.exp(-(2 - 2 * like) / bandwidth**2).sum(axis=1))


@contextmanager
def watched(seen: dict[str, Any]) -> Iterator[None]:
    """Note what the last run released and what it was made from."""
    noisy, sequences = keyphrase_seeding._noisy, keyphrase_seeding.draw_sequences

    def note_sums(cfg: Any, angles: Any, vocabulary: Any, texts: Any, *rest: Any) -> Any:
        most = cfg.phrases_per_document
        found = [number for text in texts for number in vocabulary.first(text, most)]
        seen.setdefault("private", []).append(np.array(found, np.int64))
        seen["terms"] = vocabulary.terms
        return noisy(cfg, angles, vocabulary, texts, *rest)

    def note_drawn(cfg: Any, angles: Any, sums: Any, *rest: Any) -> Any:
        found = sequences(cfg, angles, sums, *rest)
        seen.update(angles=angles, sums=sums, drawn=found)
        return found

    with (
        patch.object(keyphrase_seeding, "_noisy", note_sums),
        patch.object(keyphrase_seeding, "draw_sequences", note_drawn),
    ):
        yield


def errors(
    cfg: KeyphraseSeedingConfig, vectors: NDArray[np.float32], seen: dict[str, Any]
) -> dict[str, float]:
    """Mean absolute error of scores, all of it and without the noise."""
    rng, found = np.random.default_rng(0), []
    for label, private in enumerate(seen["private"]):
        if not len(private):
            continue
        rows = seen["drawn"][label].phrases
        asked = rows[rng.choice(len(rows), min(40, len(rows)), replace=False), 0]
        exact = exact_scores(cfg.bandwidth, vectors, private)[asked]
        clean = exact_sums(seen["angles"], [[phrase] for phrase in private], 1)
        found.append(
            [
                np.abs(scores_of(seen["angles"], sums)[asked] - exact).mean() / exact.mean()
                for sums in (seen["sums"][label], clean)
            ]
        )
    total, features = np.mean(found, axis=0)
    return {"error": float(total), "error_without_noise": float(features)}


def main() -> None:
    """Print one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[6.0, 11.0, 15.0])
    parser.add_argument("--noise", nargs="+", default=["laplace", "gaussian"])
    parser.add_argument("--label-column", default="label")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--samples", type=int, default=0)
    arguments = parser.parse_args()
    train = read(arguments.train, arguments.label_column)
    test = read(arguments.test, arguments.label_column)
    labels = sorted({label for _, label in train})
    held: dict[str, list[str]] = {label: [] for label in labels}
    for text, label in train:
        held[label].append(text)
    own = {
        key: yaml.safe_load(value) for key, _, value in (s.partition("=") for s in arguments.set)
    }
    method, models, performance = (
        KeyphraseSeeding(),
        ModelsConfig(language="tiny"),
        PerformanceConfig(),
    )
    embedder = Remembered(load_embedder(models, performance))
    for epsilon in arguments.epsilon:
        for noise in arguments.noise:
            given = {"use_llm": False, "noise": noise} | own
            cfg = method.resolve(KeyphraseSeedingConfig(**given), {})
            unit, adjacency = PrivacyUnit(), Adjacency.REPLACE_NULL
            plan = method.calibrate(
                cfg, Guarantee(epsilon, 1e-6), PricingFacts(adjacency, unit, tuple(labels))
            )
            cells = method.cells(cfg, labels)
            buckets = [Bucket(cell, Private(held[str(cell.label)])) for cell in cells]
            seen: dict[str, Any] = {}
            start = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder, watched(seen):
                path = Path(folder) / "journal"
                Journal.create(path, {})
                with Journal.open(path, {}) as journal:
                    samples = list(
                        method.run(
                            cfg,
                            plan,
                            buckets,
                            Draw(
                                Backends({"embedder": embedder}),
                                OpenDPNoise(),
                                journal,
                                performance,
                            ),
                        )
                    )
            seconds = time.perf_counter() - start
            metrics = downstream(
                [str(sample.content) for sample in samples],
                [sample.cell.label for sample in samples],
                [text for text, _ in test],
                [label for _, label in test],
            )
            accuracy = next(m.value for m in metrics if m.name == "downstream.accuracy")
            vectors = keyphrase_seeding._normalize(embedder.embed(seen["terms"]))
            result = {
                "epsilon": epsilon, "noise": noise, **own,
                "accuracy": round(accuracy, 4),
                **{k: round(v, 4) for k, v in errors(cfg, vectors, seen).items()},
                "score_deviation": round(plan.derived["score_deviation"], 1),
                "seconds": round(seconds, 1),
            }  # fmt: skip
            print(json.dumps(result), flush=True)
            rng = np.random.default_rng(0)
            for number in sorted(rng.permutation(len(samples))[: arguments.samples]):
                print(f"({samples[number].cell.label}) {samples[number].content}")


if __name__ == "__main__":
    main()
