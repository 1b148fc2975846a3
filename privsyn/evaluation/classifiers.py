"""A simple classifier of words on held-out real records, and what all judges share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from privsyn.data.words import TOKEN
from privsyn.evaluation.metrics import Metric, evenly_spaced, metrics_of, slugs, wilson

T = TypeVar("T")

REPLICATES = 100
COVERAGE = 0.95
_SEED = 20240615


@dataclass(frozen=True)
class Interval:
    """A number with its 95% bootstrap interval."""

    value: float
    low: float
    high: float


def split_holdout(real: Sequence[T], count: int) -> tuple[list[T], list[T]]:
    """Split held-out records into a baseline and the records to measure by, without reading them.

    The baseline has ``count`` records, at most half, in an order that says nothing of them.
    """
    # A fixed seed: the same release measured twice gets the same numbers.
    order = np.random.default_rng(_SEED).permutation(len(real)).tolist()
    count = min(count, len(real) // 2)
    return [real[i] for i in order[:count]], [real[i] for i in order[count:]]


_MOST_DRAWS = 4


def draws_of(pairs: Sequence[tuple[T, str]], sizes: Mapping[str, int]) -> list[list[tuple[T, str]]]:
    """Disjoint draws with as many of each label, four at most; one of what there is.

    A release has as many of each label as its settings say. Real records in their own proportions
    would teach less of the rare labels, and flatter it.
    """
    groups = {label: [pair for pair in pairs if pair[1] == label] for label in sizes}
    times = min((len(groups[label]) // size for label, size in sizes.items() if size), default=1)
    return [
        [pair for label, size in sizes.items() for pair in groups[label][k * size : (k + 1) * size]]
        for k in range(max(1, min(times, _MOST_DRAWS)))
    ]


def spread(value: float, samples: NDArray[np.float64], least: int) -> Interval:
    """The 95% interval of a value from its bootstrap samples, clipped to [``least``, 1]."""
    if not len(samples):
        return Interval(float(value), float(value), float(value))
    # A resampled training set has fewer distinct texts and does worse, so the samples are biased:
    # use their spread, not their center.
    ends = value + np.quantile(samples - samples.mean(), [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    low, high = np.clip(ends, least, 1)
    return Interval(float(value), float(low), float(high))


MAX_FEATURES = 50_000


def downstream(
    synthetic_texts: Sequence[str],
    synthetic_labels: Sequence[str | None],
    real_texts: Sequence[str],
    real_labels: Sequence[str | None],
) -> list[Metric]:
    """Train TF-IDF (words and word pairs) with logistic regression, test on held-out records.

    Rows without a label are left out. If the synthetic texts have one label, or no word, the
    classifier always answers the most frequent synthetic label.

    Returns:
        ``downstream.accuracy`` and its interval, ``downstream.macro_f1`` (mean over the labels that
        occur among the held-out records), ``downstream.chance`` (accuracy of always answering the
        most frequent of these), ``downstream.records`` and one ``downstream.recall.<label>``; all
        internal.
        Empty where one side has no labeled text.
    """
    train = with_label(synthetic_texts, synthetic_labels)
    test = with_label(real_texts, real_labels)
    if not train or not test:
        return []
    texts, truth = [text for text, _ in test], [label for _, label in test]
    if (always := _only_answer(train)) is not None:
        return score([always], truth, list)
    return score([label for _, label in train], truth, lambda: _fit(train)(texts))


def text_classifier(train: Sequence[tuple[str, str]]) -> Callable[[str], str]:
    """The classifier of ``downstream``, trained on texts and labels, as a function of one text.

    privacy: it classifies one text at a time, so an answer does not depend on other texts.
    """
    if (always := _only_answer(train)) is not None:
        return lambda text: always
    predict = _fit(train)
    return lambda text: predict([text])[0]


def has_word(text: str) -> bool:
    """Whether the vectorizer finds a word. It lowercases first, which may split one."""
    # The vectorizer raises where it finds no word at all.
    return re.search(TOKEN, text.lower()) is not None


def _only_answer(train: Sequence[tuple[str, str]]) -> str | None:
    """The most frequent label if the texts cannot separate labels; else None."""
    names = Counter(label for _, label in train)
    if len(names) > 1 and any(has_word(text) for text, _ in train):
        return None
    return names.most_common(1)[0][0] if names else ""


def score(
    trained: Sequence[str], truth: Sequence[str], predict: Callable[[], Sequence[str]]
) -> list[Metric]:
    """The metrics of ``downstream`` for any classifier.

    Args:
        trained: Labels of the synthetic records; if there is only one, it is the answer.
        truth: Labels of the held-out records, at least one.
        predict: Returns the answers; called only if there is more than one label.
    """
    labels = set(trained)
    # With one label a classifier cannot be fitted: every record gets that label.
    predicted = [*labels] * len(truth) if len(labels) == 1 else predict()
    support, answered = Counter(truth), Counter(predicted)
    hits = Counter(label for label, answer in zip(truth, predicted, strict=True) if label == answer)
    names = sorted(support)
    low, high = wilson(hits.total(), len(truth))
    # F1 = 2 TP / (2 TP + FP + FN): support is TP + FN, answered is TP + FP. Absent labels count 0.
    f1 = [2 * hits[label] / (support[label] + answered[label]) for label in names]
    numbers = {
        "downstream.accuracy": hits.total() / len(truth),
        "downstream.accuracy_low": low,
        "downstream.accuracy_high": high,
        "downstream.macro_f1": sum(f1) / len(f1),
        "downstream.chance": max(support.values()) / len(truth),
        "downstream.records": len(truth),
    }
    recalls = [
        Metric(
            f"downstream.recall.{slug}",
            hits[label] / support[label],
            "internal",
            "share of its records found",
            label,
        )
        for slug, label in zip(slugs(names), names, strict=True)
    ]
    return [*metrics_of(numbers), *recalls]


def with_label(items: Sequence[T], labels: Sequence[str | None]) -> list[tuple[T, str]]:
    """The items that have a label, with it."""
    return [(item, of) for item, of in zip(items, labels, strict=True) if of is not None]


def vectorizer() -> Any:
    """Counts of words and word pairs, weighted: what every classifier of words learns from."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(
        token_pattern=TOKEN, ngram_range=(1, 2), sublinear_tf=True, max_features=MAX_FEATURES
    )


def _fit(train: Sequence[tuple[str, str]]) -> Callable[[Sequence[str]], list[str]]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from threadpoolctl import threadpool_limits

    model = make_pipeline(vectorizer(), LogisticRegression(C=10.0, max_iter=2000))

    def predict(texts: Sequence[str]) -> list[str]:
        with threadpool_limits(limits=1):
            return [str(label) for label in model.predict(list(texts))]

    with threadpool_limits(limits=1):  # the matrices are sparse: more threads only wait
        model.fit([text for text, _ in train], [label for _, label in train])
    return predict


FEWEST_A_SIDE = 10
"""Texts a side below which nothing is measured."""

Texts = Sequence[tuple[str, str]]
"""Text and label."""


FEWEST = 20
"""Labeled texts a side below which no ruler measures anything."""


def labeled_texts(texts: Sequence[str], labels: Sequence[str | None], most: int) -> Texts:
    """The texts that have a label; at most ``most``, evenly spaced."""
    return evenly_spaced(with_label(texts, labels), most)
