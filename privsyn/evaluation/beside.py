"""The headline of an evaluation: what a release teaches, beside what would have come without it.

Three baselines: the commonest label, the public model alone, as many real records. Texts without
labels: nearness.py. Every number here reads held-out real records and is internal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from privsyn.evaluation import nearness
from privsyn.evaluation.classify import downstream
from privsyn.evaluation.metrics import Metric
from privsyn.evaluation.vectors import Comparison, Labelled, compare, held_apart

Texts = Sequence[tuple[str, str]]
"""Text and label."""

T = TypeVar("T")

FEWEST = 20


def labelled(texts: Sequence[str], labels: Sequence[str | None], most: int) -> Texts:
    """The texts that have a label, evenly spaced where they are more than ``most``."""
    pairs = [(text, label) for text, label in zip(texts, labels, strict=True) if label is not None]
    return spaced(pairs, most)


def spaced(items: Sequence[T], most: int) -> list[T]:
    """All, or ``most`` of them, evenly spaced."""
    rows = np.linspace(0, len(items) - 1, min(len(items), most)).astype(int)
    return [items[row] for row in rows]


def headline(
    synthetic: Texts,
    real: Texts,
    public: Sequence[Texts],
    embed: Callable[[Sequence[str]], NDArray[np.float32]],
    called: str,
) -> list[Metric]:
    """Classifiers over sentence vectors and over words, each beside its baselines.

    Of the held-out records some are a training set of their own (held_apart); all classifiers are
    tested on the rest.

    Args:
        synthetic: The release.
        real: Held-out real records.
        public: What the public model wrote alone, as many texts a draw; the mean over draws stands
            beside the release. Empty where it cannot write here.
        embed: Vectors of texts, shape (texts, width).
        called: The embedder's name, for the notes.

    Returns:
        ``vectors.*`` and the baselines of ``downstream.*``. Empty where one side has fewer than 20
        labelled texts.
    """
    if min(len(synthetic), len(real)) < FEWEST:
        return []
    known, tested = held_apart(real, len(synthetic))
    sets: dict[str, Sequence[Texts]] = {"synthetic": [synthetic], "real": [known]}
    if public:
        sets["public"] = public

    def vectors(own: Texts) -> Labelled:
        return Labelled.of(embed([text for text, _ in own]), [label for _, label in own])

    train = {name: [vectors(own) for own in draws] for name, draws in sets.items()}
    test = vectors(tested)
    chance = max(Counter(label for _, label in tested).values()) / len(tested)
    found = compare(train, test)
    return [
        *_by_vectors(found, chance, len(tested), len(known), called, len(public)),
        *_by_words(sets, tested),
    ]


def verdict(metrics: Mapping[str, float]) -> str | None:
    """What the headline says, in words; None where it was not measured."""
    if "nearness.cosine" in metrics:
        return nearness.words(metrics)
    if "vectors.accuracy" not in metrics:
        return None
    low, high = metrics["vectors.accuracy_low"], metrics["vectors.accuracy_high"]
    said = (
        f"accuracy {metrics['vectors.accuracy']:.3f} [{low:.3f}, {high:.3f}] by sentence vectors"
        f" on {metrics['vectors.records']:.0f} held-out real records; commonest label "
        f"{metrics['vectors.chance']:.3f}, "
    )
    if "vectors.gain" in metrics:
        said += f"public model alone {metrics['vectors.public']:.3f}, "
    said += f"{metrics['vectors.real_records']:.0f} real records {metrics['vectors.real']:.3f}"
    if "vectors.gain" not in metrics:
        return said
    said += f"; {nearness.over_public(metrics, 'vectors')}"
    if metrics["vectors.gain_low"] > 0 and low <= metrics["vectors.chance"]:
        said += (
            ", but NOT shown to be more than the commonest label: by this measure the release is "
            "not worth its epsilon"
        )
    return said


def _by_vectors(
    found: Comparison, chance: float, tested: int, real: int, called: str, draws: int
) -> list[Metric]:
    what = f"logistic regression over vectors of {called}"
    spread = "95% bootstrap interval over training texts and test records"
    own = found.value["synthetic"]
    numbers = {
        "accuracy": (own.value, f"accuracy of {what}, trained on the synthetic texts"),
        "accuracy_low": (own.low, f"its {spread}, lower end"),
        "accuracy_high": (own.high, f"its {spread}, upper end"),
        "real": (
            found.value["real"].value,
            f"the same, trained on {real} other held-out real records",
        ),
        "chance": (chance, "accuracy of the commonest label"),
        "records": (float(tested), "held-out real records tested on"),
        "real_records": (float(real), "held-out real records trained on, for comparison"),
    }
    if "public" in found.value:
        gain = found.gain["public"]
        numbers |= {
            "public": (
                found.value["public"].value,
                "the same, trained on what the public model writes alone; mean of "
                f"{draws} draw(s) of as many texts",
            ),
            "gain": (gain.value, "accuracy over that of the public model alone"),
            "gain_low": (gain.low, f"its {spread}, lower end"),
            "gain_high": (gain.high, f"its {spread}, upper end"),
        }
    return [
        Metric(f"vectors.{name}", float(value), "internal", note)
        for name, (value, note) in numbers.items()
    ]


def _by_words(sets: Mapping[str, Sequence[Texts]], tested: Texts) -> list[Metric]:
    """Accuracy by TF-IDF of the baselines."""
    texts, labels = [text for text, _ in tested], [label for _, label in tested]
    notes = {
        "real": "accuracy by TF-IDF, trained on as many other held-out real records",
        "public": "accuracy by TF-IDF, trained on what the public model writes alone",
    }
    found = []
    for name, draws in sets.items():
        if name in notes:
            scores = [
                downstream([text for text, _ in own], [label for _, label in own], texts, labels)
                for own in draws
            ]
            value = fmean(m.value for s in scores for m in s if m.name == "downstream.accuracy")
            found.append(Metric(f"downstream.{name}", value, "internal", notes[name]))
    return found
