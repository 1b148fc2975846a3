"""Speed of keyphrase seeding: matching terms, building and asking estimates, drawing sequences.

    python benchmarks/kps.py [--documents 16000] [--words 300] [--terms 400000] [--width 384]
        [--features 1000] [--phrases 10] [--chosen 1000] [--sequences 1000] [--length 10]

Invented documents and vectors. Each part stands beside the matrix products that dominate the plain
way of doing it, in NumPy alone, as many threads as NumPy takes: the random projection of every
phrase for a build (measured on a part of the rows and scaled up), the products of sequences with
candidates for scores. Prints one JSON object a line. ``ratio`` compares CPU seconds of all
threads, which a busy machine does not change as it does wall time; memory is the process's peak.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from privsyn.data.words import VOCABULARY
from privsyn.methods.keyphrase_seeding.dp_kde import Features, exact_sums, scores_of
from privsyn.methods.keyphrase_seeding.settings import KeyphraseSeedingSettings
from privsyn.methods.keyphrase_seeding.vocabulary import Vocabulary, draw_sequences

PART = 8192
"""Rows of a build's plain products that are measured."""


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """A result and the CPU seconds it took."""
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def say(part: str, seconds: float, plain: float | None = None, **more: Any) -> None:
    """One line of the report."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    row = {"part": part, "cpu_seconds": round(seconds, 2), "peak_gb": round(peak, 2)}
    if plain is not None:
        row |= {"plain_cpu_seconds": round(plain, 2), "ratio": round(seconds / plain, 2)}
    print(json.dumps(row | more), flush=True)


def main() -> None:
    """Print one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in {
        "documents": 16_000, "words": 300, "terms": 400_000, "width": 384, "features": 1000,
        "phrases": 10, "chosen": 1000, "sequences": 1000, "length": 10,
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    a = parser.parse_args()
    rng = np.random.default_rng(1)

    single = [t for t in Vocabulary.parse(VOCABULARY.read_bytes(), "builtin").terms if " " not in t]
    pairs = rng.integers(0, len(single), (a.terms, 2))
    terms = [*single, *(f"{single[i]} {single[j]}" for i, j in pairs)][: a.terms]
    common = np.minimum(rng.zipf(1.2, (a.documents, a.words)), len(single)) - 1
    documents = [" ".join(single[i] for i in row) for row in common]
    vocabulary, reading = timed(lambda: Vocabulary(terms))
    _, building = timed(lambda: vocabulary.find("x"))
    found, matching = timed(lambda: [vocabulary.first(text, 10) for text in documents])
    megabytes = sum(map(len, documents)) / 1e6
    say("read vocabulary", reading, terms=len(vocabulary))
    say("build automaton", building)
    say("match documents", matching, mb_per_second=round(megabytes / matching, 1),
        terms_found=sum(map(len, found)))  # fmt: skip

    vectors = rng.standard_normal((a.chosen, a.width), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    held = [rng.choice(a.chosen, a.phrases, replace=False).tolist() for _ in range(a.documents)]
    features = Features(1.0, a.features)
    angles = features.angles(vectors)
    made, seconds = timed(lambda: exact_sums(features.angles(vectors), held, a.phrases))
    rows, w = vectors[rng.integers(0, a.chosen, PART)], features.frequencies(a.width)
    _, plain = timed(lambda: rows @ w)
    say("build", seconds, plain * a.documents * a.phrases / PART)
    _, seconds = timed(lambda: scores_of(angles, made))
    _, plain = timed(lambda: (vectors @ w, vectors @ w))
    say("score candidates", seconds, plain)

    cfg = KeyphraseSeedingSettings(
        vocabulary_digest="0" * 64, use_llm=False, sequence_length=a.length, features=a.features,
        sequences_per_label=a.sequences, evidence=False,
    )  # fmt: skip
    _, seconds = timed(lambda: draw_sequences(cfg, angles, [made], 0.0))
    left = rng.standard_normal((a.sequences, a.features), np.float32)
    right = rng.standard_normal((a.features, a.chosen), np.float32)
    _, plain = timed(lambda: [left @ right for _ in range(a.length)])
    say("draw sequences", seconds, plain, sequences=a.sequences)


if __name__ == "__main__":
    main()
