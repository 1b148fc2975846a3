"""Train on synthetic, test on held-out real: what a classifier learns from the release.

Every number here reads real records and is internal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from privsyn.evaluation.metrics import Metric, slugs, wilson

MAX_FEATURES = 50_000

TAKEN_FOR = "share of its records taken for "
"""In the note of a confusion, before the other label."""


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
        ``downstream.accuracy`` and its interval, ``downstream.macro_f1`` (mean over the labels that
        occur among the held-out records), ``downstream.majority`` (accuracy of always answering the
        commonest of these), ``downstream.records`` and one ``downstream.recall.<label>`` each; all
        internal.
        Empty where one side has no labelled text.
    """
    train = _labelled(synthetic_texts, synthetic_labels)
    test = _labelled(real_texts, real_labels)
    if not train or not test:
        return []
    texts, truth = [text for text, _ in test], [label for _, label in test]
    if not any(_has_word(text) for text, _ in train):
        commonest = Counter(label for _, label in train).most_common(1)[0][0]
        return score([commonest], truth, lambda: [])
    return score([label for _, label in train], truth, lambda: _predict(train, texts))


def text_classifier(train: Sequence[tuple[str, str]]) -> Callable[[str], str]:
    """The classifier of ``downstream``, trained on texts and labels, as a function of one text.

    privacy: it is asked one text at a time, so that an answer does not depend on other texts.
    """
    if (always := _only_answer(train)) is not None:
        return lambda text: always
    model = _fitted(train)

    def answer(text: str) -> str:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(limits=1):
            return str(model.predict([text])[0])

    return answer


def _has_word(text: str) -> bool:
    """Whether the vectorizer finds a word: it looks for them in lower case, which may split one."""
    return re.search(r"\b\w\w+\b", text.lower()) is not None


def _only_answer(train: Sequence[tuple[str, str]]) -> str | None:
    """The commonest label where there is nothing to tell labels apart by; else None."""
    names = Counter(label for _, label in train)
    if len(names) > 1 and any(_has_word(text) for text, _ in train):
        return None
    return names.most_common(1)[0][0] if names else ""


def score(
    trained: Sequence[str], truth: Sequence[str], predict: Callable[[], Sequence[str]]
) -> list[Metric]:
    """The metrics of ``downstream`` for any classifier.

    Args:
        trained: Labels of the synthetic records; where all are one, that is the answer.
        truth: Labels of the held-out records, at least one.
        predict: The answers for them; called where there is more than one label to choose from.
    """
    labels = set(trained)
    predicted = [*labels] * len(truth) if len(labels) == 1 else predict()
    support, answered = Counter(truth), Counter(predicted)
    hits = Counter(label for label, answer in zip(truth, predicted, strict=True) if label == answer)
    names = sorted(support)
    low, high = wilson(hits.total(), len(truth))
    f1 = [2 * hits[label] / (support[label] + answered[label]) for label in names]
    return [
        _metric("accuracy", hits.total() / len(truth), "accuracy on held-out real records"),
        _metric("accuracy_low", low, "lower end of its 95% interval over test records (Wilson)"),
        _metric("accuracy_high", high, "upper end"),
        _metric("macro_f1", sum(f1) / len(f1), "mean F1 over labels on held-out real records"),
        _metric("majority", max(support.values()) / len(truth), "accuracy of the commonest label"),
        _metric("records", len(truth), "held-out real records tested on"),
        *(
            _metric(
                f"recall.{name}", hits[label] / support[label], "share of its records found", label
            )
            for name, label in zip(slugs(names), names, strict=True)
        ),
        *_confused(truth, predicted, names, support),
    ]


def _confused(
    truth: Sequence[str], predicted: Sequence[str], names: Sequence[str], support: Counter[str]
) -> list[Metric]:
    """For each label of which some records were missed, what they were taken for most often."""
    found = []
    for slug, label in zip(slugs(names), names, strict=True):
        taken = Counter(
            answer for own, answer in zip(truth, predicted, strict=True) if own == label != answer
        )
        if taken:
            other, count = min(taken.items(), key=lambda item: (-item[1], item[0]))
            share = count / support[label]
            found.append(_metric(f"confused.{slug}", share, f"{TAKEN_FOR}{other}", label))
    return found


def _metric(name: str, value: float, note: str, label: str | None = None) -> Metric:
    return Metric(f"downstream.{name}", float(value), "internal", note, label)


def _labelled(texts: Sequence[str], labels: Sequence[str | None]) -> list[tuple[str, str]]:
    pairs = zip(texts, labels, strict=True)
    return [(text, label) for text, label in pairs if label is not None]


def _predict(train: Sequence[tuple[str, str]], texts: Sequence[str]) -> list[str]:
    from threadpoolctl import threadpool_limits

    model = _fitted(train)
    with threadpool_limits(limits=1):
        return [str(label) for label in model.predict(list(texts))]


def _fitted(train: Sequence[tuple[str, str]]) -> Any:
    from threadpoolctl import threadpool_limits

    model = _model()
    with threadpool_limits(limits=1):  # the matrices are sparse: more threads only wait
        return model.fit([text for text, _ in train], [label for _, label in train])


def _model() -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, max_features=MAX_FEATURES),
        LogisticRegression(C=10.0, max_iter=2000),
    )
