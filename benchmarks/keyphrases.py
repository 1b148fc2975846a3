"""Phrase sequences by noise and ensemble: what they are worth, how far their scores are off.

    python benchmarks/keyphrases.py TRAIN.jsonl.gz TEST.jsonl.gz [--epsilon 6 11 15] [--set k=v]
        [--noise laplace gaussian] [--ensemble independent linear logarithmic]
        [--parts 1+5 5+10] [--draws 3] [--sequences]

Keyphrase seeding without a language model, in memory, without ledger or certificate. For each
combination: accuracy of TF-IDF and logistic regression, trained on the phrase sequences, tested on
the real test records; and the mean absolute error of the released scores against the exact kernel
density, relative to the mean exact score, over the sequences that were drawn. The error is known
only because the private records of a benchmark are public.

``--parts`` has the epsilons of terms and estimates apart. ``--sequences`` is the ablation "no LLM"
of Nagesh et al. 2025, Appendix C.2.2: test records become sequences of the chosen terms, too, and
mlp.py's networks read the mean of their phrases' vectors; ``real`` is the same of real records, as
many a label.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import yaml
from mlp import downstream_mlp
from numpy.typing import NDArray
from utility import read

from privsyn.data.journal import Journal
from privsyn.data.records import Bucket, Private
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.noise import OpenDPNoise
from privsyn.evaluation.classifiers import downstream
from privsyn.methods.base import Backends, Draw, PricingFacts
from privsyn.methods.keyphrase_seeding import method as keyphrase_seeding
from privsyn.methods.keyphrase_seeding.dp_kde import Scorer, Structure, exact_sums, windows
from privsyn.methods.keyphrase_seeding.method import KeyphraseSeeding
from privsyn.methods.keyphrase_seeding.settings import KeyphraseSeedingConfig
from privsyn.methods.keyphrase_seeding.vocabulary import Vocabulary
from privsyn.models.loading import load_embedder
from privsyn.models.settings import ModelsConfig, PerformanceConfig

Pairs = Sequence[tuple[str, str]]
"""Texts with their labels."""


class Remembered:
    """An embedder that embeds every phrase once over all runs."""

    def __init__(self, embedder: Any) -> None:
        self._embedder = embedder
        self.revision, self.width = embedder.revision, embedder.width
        self._known: dict[str, NDArray[np.float32]] = {}

    def embed(self, texts: Any, /) -> NDArray[np.float32]:
        """See protocols.Embedder."""
        new = [text for text in texts if text not in self._known]
        if new:
            self._known.update(zip(new, self._embedder.embed(new), strict=True))
        return np.stack([self._known[text] for text in texts])


def exact_scores(
    shape: Structure,
    vectors: NDArray[np.float32],
    private: NDArray[np.int64],
    asked: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Sums of the kernel itself over the private sequences, for begun sequences padded by zeros."""
    like = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    blocks, known = asked.shape[1], shape.blocks
    out = np.empty(len(asked))
    for row, sequence in enumerate(asked):
        inner = sum(like[sequence[b], private[:, b]] for b in range(blocks))
        out[row] = np.exp(-(known + blocks - 2 * inner) / shape.bandwidth**2).sum()
    return out


@contextmanager
def watched(seen: dict[str, Any]) -> Iterator[None]:
    """Note what the last run released and what it was made from."""
    noisy, sequences = keyphrase_seeding._noisy, keyphrase_seeding.draw_sequences
    choose = keyphrase_seeding._chosen

    def note_terms(cfg: Any, plan: Any, public: Any, *rest: Any) -> Any:
        chosen = choose(cfg, plan, public, *rest)
        seen["vocabulary"] = public.subset(chosen[chosen >= 0])
        return chosen

    def note_sums(cfg: Any, shape: Structure, angles: Any, phrases: Any, *rest: Any) -> Any:
        made = windows(phrases, shape.blocks, cfg.phrases_per_document)
        seen.setdefault("private", []).append((shape, made))
        return noisy(cfg, shape, angles, phrases, *rest)

    def note_drawn(cfg: Any, shapes: Any, vectors: Any, sums: Any, *rest: Any) -> Any:
        found = sequences(cfg, shapes, vectors, sums, *rest)
        seen.update(vectors=vectors, sums=sums, drawn=found)
        return found

    with (
        patch.object(keyphrase_seeding, "_chosen", note_terms),
        patch.object(keyphrase_seeding, "_noisy", note_sums),
        patch.object(keyphrase_seeding, "draw_sequences", note_drawn),
    ):
        yield


def errors(cfg: KeyphraseSeedingConfig, labels: int, seen: dict[str, Any]) -> dict[str, float]:
    """Mean absolute error of scores over the last structure, all of it and without the noise."""
    rng, found = np.random.default_rng(0), []
    for place, (shape, private) in enumerate(seen["private"]):
        label = place % labels
        if shape.number != max(s.number for s, _ in seen["private"]) or not len(private):
            continue
        angles, rows = shape.angles(seen["vectors"]), seen["drawn"][label].phrases
        step = 1 if cfg.ensemble == "independent" else cfg.sequence_length
        picked = rng.choice(len(rows), min(40, len(rows)), replace=False)
        asked = rows[picked][:, :step]
        exact = exact_scores(shape, seen["vectors"], private, asked)
        every = np.arange(len(asked))
        given = Scorer(angles, step - 1)
        noisy = given.scores(seen["sums"][label, shape.number], asked[:, :-1])
        clean = given.scores(exact_sums(angles, private), asked[:, :-1])
        scale = exact.mean()
        found.append(
            [
                np.abs(noisy[every, asked[:, -1]] - exact).mean() / scale,
                np.abs(clean[every, asked[:, -1]] - exact).mean() / scale,
            ]
        )
    total, features = np.mean(found, axis=0)
    return {"error": float(total), "error_without_noise": float(features)}


def as_sequences(pairs: Pairs, vocabulary: Vocabulary, length: int) -> Pairs:
    """Texts as lists of the first ``length`` terms that are in them, as phrases are released."""
    return [
        (", ".join(vocabulary.terms[n] for n in vocabulary.first(text, length)), label)
        for text, label in pairs
    ]


def worth(embedder: Remembered, synthetic: Pairs, real: Pairs) -> dict[str, float]:
    """Accuracy on real sequences, by words and by vectors with and without Deep CORAL."""
    sides: list[Any] = []
    for pairs in (synthetic, real):
        mean = np.stack([embedder.embed(text.split(", ")).mean(axis=0) for text, _ in pairs])
        sides += [mean / np.linalg.norm(mean, axis=1, keepdims=True), [x for _, x in pairs]]
    texts = [[text for text, _ in pairs] for pairs in (synthetic, real)]
    metrics = [
        *downstream(texts[0], sides[1], texts[1], sides[3]),
        *downstream_mlp(*sides, called="phrases"),
    ]
    names = ("downstream.accuracy", "mlp.accuracy", "mlp_coral.accuracy")
    return {m.name.removesuffix(".accuracy"): round(m.value, 4) for m in metrics if m.name in names}


def main() -> None:
    """Print one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[6.0, 11.0, 15.0])
    parser.add_argument("--noise", nargs="+", default=["laplace", "gaussian"])
    parser.add_argument("--ensemble", nargs="+", default=["independent", "linear", "logarithmic"])
    parser.add_argument("--label-column", default="label")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--parts", nargs="+", default=[], metavar="TERMS+ESTIMATES")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--sequences", action="store_true")
    arguments = parser.parse_args()
    train = read(arguments.train, arguments.label_column)
    labels = sorted({label for _, label in train})
    test = [pair for pair in read(arguments.test, arguments.label_column) if pair[1] in labels]
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
    plans: dict[Any, Any] = {}
    budgets: list[tuple[float, dict[str, float]]] = [(e, {}) for e in arguments.epsilon]
    if arguments.parts:
        parts = [tuple(map(float, part.split("+"))) for part in arguments.parts]
        budgets = [
            (terms + rest, {"vocabulary_share": terms / (terms + rest)}) for terms, rest in parts
        ]
    for draw, (epsilon, share), noise, ensemble in product(
        range(arguments.draws), budgets, arguments.noise, arguments.ensemble
    ):
        given = {"use_llm": False, "noise": noise, "ensemble": ensemble} | own | share
        cfg = method.resolve(KeyphraseSeedingConfig(**given), {})
        facts = PricingFacts(Adjacency.REPLACE_NULL, PrivacyUnit(), tuple(labels))
        if (place := (epsilon, *share.values(), noise, ensemble)) not in plans:
            plans[place] = method.calibrate(cfg, Guarantee(epsilon, 1e-6), facts)
        plan = plans[place]
        cells = method.cells(cfg, labels)
        buckets = [Bucket(cell, Private(held[str(cell.label)])) for cell in cells]
        seen: dict[str, Any] = {}
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder, watched(seen):
            path = Path(folder) / "journal"
            Journal.create(path, {})
            with Journal.open(path, {}) as journal:
                noise_source = OpenDPNoise()
                models_of = Backends({"embedder": embedder})
                samples = list(
                    method.run(
                        cfg, plan, buckets, Draw(models_of, noise_source, journal, performance)
                    )
                )
        seconds = time.perf_counter() - start
        written = [(str(sample.content), str(sample.cell.label)) for sample in samples]
        if arguments.sequences:
            chosen, length = seen["vocabulary"], cfg.sequence_length
            tested = as_sequences(test, chosen, length)
            scores: dict[str, Any] = worth(embedder, written, tested)
            if not draw:
                most = [(t, x) for x in labels for t in held[x][: cfg.sequences_per_label]]
                scores["real"] = worth(embedder, as_sequences(most, chosen, length), tested)
        else:
            metrics = downstream(*zip(*written, strict=True), *zip(*test, strict=True))
            found = next(m.value for m in metrics if m.name == "downstream.accuracy")
            scores = {"accuracy": round(found, 4)}
        result = {
            "epsilon": epsilon, "noise": noise, "ensemble": ensemble, **own, **share, "draw": draw,
            **scores,
            **{k: round(v, 4) for k, v in errors(cfg, len(labels), seen).items()},
            "score_deviation": round(plan.derived["score_deviation"], 1),
            "seconds": round(seconds, 1),
        }  # fmt: skip
        print(json.dumps(result), flush=True)
        rng = np.random.default_rng(0)
        for number in sorted(rng.permutation(len(samples))[: arguments.samples]):
            print(f"({samples[number].cell.label}) {samples[number].content}")


if __name__ == "__main__":
    main()
