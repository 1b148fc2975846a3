"""Speed of keyphrase seeding: matching terms, building and asking estimates, drawing sequences.

    python benchmarks/kps.py [--documents 16000] [--words 300] [--terms 400000] [--width 384]
        [--features 1000] [--phrases 10] [--chosen 1000] [--sequences 1000] [--length 10]

Invented documents and vectors. Each part stands beside the matrix products that dominate the plain
way of doing it, in NumPy alone, as many threads as NumPy takes: the random projection of every
sequence for a build (measured on a part of the rows and scaled up), the products of begun sequences
with candidates for scores. Prints one JSON object a line. ``ratio`` compares CPU seconds of all
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
from privsyn.methods.keyphrase_seeding.dp_kde import Scorer, exact_sums, structures, windows
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
    for ensemble in ("independent", "logarithmic"):
        shapes = structures(ensemble, a.length, a.features, 1.0)

        def build(shapes: Any = shapes) -> list[Any]:
            made = []
            for shape in shapes:
                angles = shape.angles(vectors)
                made.append(exact_sums(angles, windows(held, shape.blocks, a.phrases)))
            return made

        sums, seconds = timed(build)
        plain = 0.0
        for shape in shapes:
            rows = vectors[rng.integers(0, a.chosen, (PART, shape.blocks))].reshape(PART, -1)
            w = shape.frequencies(a.width).reshape(-1, a.features // 2)
            plain += timed(lambda x=rows, w=w: x @ w)[1] * a.documents * a.phrases / PART
        say(f"build {ensemble}", seconds, plain, structures=len(shapes))
        if ensemble == "independent":
            _, seconds = timed(
                lambda shape=shapes[0], one=sums[0]: Scorer(shape.angles(vectors), 0).scores(
                    one, np.empty((1, 0), np.int64)
                )
            )
            w = shapes[0].frequencies(a.width)[0]
            _, plain = timed(lambda w=w: (vectors @ w, vectors @ w))
            say("score candidates", seconds, plain)

    cfg = KeyphraseSeedingSettings(
        vocabulary_digest="0" * 64, use_llm=False,
        ensemble="logarithmic", sequence_length=a.length, features=a.features,
        sequences_per_label=a.sequences, evidence=False,
    )  # fmt: skip
    released = {(0, number): one for number, one in enumerate(sums)}
    _, seconds = timed(lambda: draw_sequences(cfg, shapes, vectors, released, 1, 0.0))
    left = rng.standard_normal((a.sequences, a.features), np.float32)
    right = rng.standard_normal((a.features, a.chosen), np.float32)

    def products() -> None:
        for shape in shapes:
            for w in shape.frequencies(a.width):
                vectors @ w
        for _ in range(a.length):
            left @ right

    _, plain = timed(products)
    say("draw sequences", seconds, plain, sequences=a.sequences)


if __name__ == "__main__":
    main()
