"""Train on synthetic, test on held-out real: what a classifier learns from the release.

Every number here reads real records and is internal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from privsyn.evaluation.metrics import Metric

MAX_FEATURES = 50_000


def downstream(
    synthetic_texts: Sequence[str],
    synthetic_labels: Sequence[str | None],
    real_texts: Sequence[str],
    real_labels: Sequence[str | None],
) -> list[Metric]:
    """Train TF-IDF (words and word pairs) with logistic regression, test on held-out records.

    Rows without a label are left out. Where the synthetic texts have a single label, or no word,
    the classifier always answers the commonest synthetic label.

    Returns:
        ``downstream.accuracy``, ``downstream.macro_f1`` (mean over the labels that occur among the
        held-out records), ``downstream.majority`` (accuracy of always answering the commonest of
        these), ``downstream.records`` and one ``downstream.recall.<label>`` each; all internal.
        Empty where one side has no labelled text.
    """
    train = _labelled(synthetic_texts, synthetic_labels)
    test = _labelled(real_texts, real_labels)
    if not train or not test:
        return []
    predicted = _predict(train, [text for text, _ in test])
    truth = [label for _, label in test]
    support, answered = Counter(truth), Counter(predicted)
    hits = Counter(label for label, answer in zip(truth, predicted, strict=True) if label == answer)
    labels = sorted(support)
    f1 = [2 * hits[label] / (support[label] + answered[label]) for label in labels]
    return [
        _metric("accuracy", hits.total() / len(test), "accuracy on held-out real records"),
        _metric("macro_f1", sum(f1) / len(f1), "mean F1 over labels on held-out real records"),
        _metric("majority", max(support.values()) / len(test), "accuracy of the commonest label"),
        _metric("records", len(test), "held-out real records tested on"),
        *(
            _metric(
                f"recall.{name}", hits[label] / support[label], "share of its records found", label
            )
            for name, label in zip(_slugs(labels), labels, strict=True)
        ),
    ]


def _metric(name: str, value: float, note: str, label: str | None = None) -> Metric:
    return Metric(f"downstream.{name}", float(value), "internal", note, label)


def _labelled(texts: Sequence[str], labels: Sequence[str | None]) -> list[tuple[str, str]]:
    pairs = zip(texts, labels, strict=True)
    return [(text, label) for text, label in pairs if label is not None]


def _predict(train: Sequence[tuple[str, str]], texts: Sequence[str]) -> list[str]:
    labels = Counter(label for _, label in train)
    if len(labels) == 1 or not any(re.search(r"\b\w\w+\b", text) for text, _ in train):
        return [labels.most_common(1)[0][0]] * len(texts)
    from threadpoolctl import threadpool_limits

    model = _model()
    with threadpool_limits(limits=1):  # the matrices are sparse: more threads only wait
        model.fit([text for text, _ in train], [label for _, label in train])
        return [str(label) for label in model.predict(list(texts))]


def _model() -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, max_features=MAX_FEATURES),
        LogisticRegression(C=10.0, max_iter=2000),
    )


def _slugs(labels: Sequence[str]) -> list[str]:
    """Labels as parts of metric names, which take little punctuation; no two alike."""
    slugs = [re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_") for label in labels]
    times = Counter(slugs)
    return [
        slug if slug and times[slug] == 1 else f"{slug}_{i}".strip("_")
        for i, slug in enumerate(slugs)
    ]
