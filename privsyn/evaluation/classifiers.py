"""Accuracy of a classifier trained on synthetic texts, beside one trained on other texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from privsyn.evaluation.metrics import Metric, slugs, wilson

T = TypeVar("T")

REPLICATES = 100
COVERAGE = 0.95
_SEED = 20240615
_STRENGTH = 10.0


@dataclass(frozen=True)
class Interval:
    """A number, and around it what 95 of 100 bootstrap samples spread over."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Labelled:
    """Vectors of shape (texts, width) and the label of each."""

    vectors: NDArray[np.float32]
    labels: NDArray[np.str_]

    @classmethod
    def of(cls, vectors: NDArray[np.float32], labels: Sequence[str | None]) -> Labelled:
        """The rows that have a label."""
        kept = [i for i, label in enumerate(labels) if label is not None]
        return cls(vectors[kept], np.array([str(labels[i]) for i in kept], dtype=np.str_))

    def __len__(self) -> int:
        return len(self.labels)

    def resampled(self, rng: np.random.Generator) -> Labelled:
        """As many rows of every label, drawn with replacement."""
        rows = np.concatenate(
            [
                rng.choice(own, len(own))
                for own in (
                    np.flatnonzero(self.labels == label) for label in np.unique(self.labels)
                )
            ]
        )
        return Labelled(self.vectors[rows], self.labels[rows])


@dataclass(frozen=True)
class Comparison:
    """A number on held-out real records (accuracy, nearness), by the set that it is of.

    Attributes:
        value: By set.
        gain: Of the first set over each of the others, on the same bootstrap samples.
    """

    value: Mapping[str, Interval]
    gain: Mapping[str, Interval]


def held_apart(real: Sequence[T], synthetic: int) -> tuple[list[T], list[T]]:
    """Held-out records cut in two, without a look at them: a baseline, and those to measure by.

    The baseline has as many as there are synthetic ones, at most half.
    """
    order = np.random.default_rng(_SEED).permutation(len(real)).tolist()
    count = min(synthetic, len(real) // 2)
    return [real[i] for i in order[:count]], [real[i] for i in order[count:]]


def compare(
    trained_on: Mapping[str, Labelled | Sequence[Labelled]],
    test: Labelled,
    replicates: int = REPLICATES,
) -> Comparison:
    """Train logistic regression on each of several sets, test all on the same real records.

    A bootstrap sample draws anew from every training set (so many of each label) and from the test
    records: the interval holds what another release of the same size would vary by, as well as what
    other test records would.

    Args:
        trained_on: At least one set, each with at least one row; the first is compared with the
            others. Of a sequence of sets, which are draws of the same thing, the mean counts.
        test: Held-out real records, at least one.
        replicates: Bootstrap samples.
    """
    rng = np.random.default_rng(_SEED)
    draws = {
        name: [own] if isinstance(own, Labelled) else list(own) for name, own in trained_on.items()
    }
    points = {
        name: np.mean([_hits(own, test).mean() for own in each]) for name, each in draws.items()
    }
    drawn: dict[str, list[float]] = {name: [] for name in trained_on}
    for _ in range(replicates):
        rows = rng.integers(0, len(test), len(test))
        for name, each in draws.items():
            hits = [_hits(own.resampled(rng), test)[rows].mean() for own in each]
            drawn[name].append(float(np.mean(hits)))
    samples = {name: np.array(values) for name, values in drawn.items()}
    first, *others = trained_on
    return Comparison(
        {name: spread(points[name], samples[name], least=0) for name in trained_on},
        {
            name: spread(points[first] - points[name], samples[first] - samples[name], least=-1)
            for name in others
        },
    )


def spread(value: float, samples: NDArray[np.float64], least: int) -> Interval:
    """A value and the spread of its bootstrap samples around it, from ``least`` to 1 at most."""
    if not len(samples):
        return Interval(float(value), float(value), float(value))
    # A resampled training set holds fewer different texts and does worse: the spread alone counts.
    ends = value + np.quantile(samples - samples.mean(), [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    low, high = np.clip(ends, least, 1)
    return Interval(float(value), float(low), float(high))


def _hits(train: Labelled, test: Labelled) -> NDArray[np.bool_]:
    """Which test records a classifier trained on these rows names rightly."""
    answers: NDArray[Any] = np.unique(train.labels)
    if len(answers) == 1:
        return np.asarray(test.labels == answers[0])
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):  # so few rows: more threads only wait
        model = LogisticRegression(C=_STRENGTH, max_iter=1000)
        model.fit(train.vectors, train.labels)
        return np.asarray(model.predict(test.vectors) == test.labels)


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


FEWEST_A_SIDE = 10
"""Texts a side below which nothing is measured."""

_NEARNESS_SEED = 20240615


def near(
    synthetic: Sequence[str],
    real: Sequence[str],
    public: Sequence[Sequence[str]],
    embed: Callable[[Sequence[str]], NDArray[np.float32]],
    called: str,
) -> list[Metric]:
    """How near real records the nearest texts of a release are.

    Of the held-out records some are a baseline (held_apart); nearness is that of the rest.

    Args:
        synthetic: The release.
        real: Held-out real records.
        public: What the public model wrote alone, as many texts a draw; the mean over draws stands
            beside the release. Empty where it cannot write here.
        embed: Vectors of texts, shape (texts, width).
        called: The embedder's name, for the notes.

    Returns:
        ``nearness.*``; empty where one side has fewer than 10 texts.
    """
    if min(len(synthetic), len(real) // 2) < FEWEST_A_SIDE:
        return []
    known, asked = held_apart(real, len(synthetic))
    sets: dict[str, Sequence[Sequence[str]]] = {"synthetic": [synthetic], "real": [known]}
    if public:
        sets["public"] = public
    of = _unit(embed(asked))
    found = _compared(
        {name: [of @ _unit(embed(own)).T for own in draws] for name, draws in sets.items()}
    )
    return _metrics(found, len(asked), len(known), called, len(public))


def nearness_in_words(metrics: Mapping[str, float]) -> str:
    """What the numbers say; with the public model alone, whether the release is worth its cost."""
    low, high = metrics["nearness.cosine_low"], metrics["nearness.cosine_high"]
    said = (
        f"nearness {metrics['nearness.cosine']:.3f} [{low:.3f}, {high:.3f}], the mean cosine of "
        f"{metrics['nearness.records']:.0f} held-out real records to the nearest text; "
    )
    if "nearness.public" in metrics:
        said += f"public model alone {metrics['nearness.public']:.3f}, "
    said += f"{metrics['nearness.real_records']:.0f} real records {metrics['nearness.real']:.3f}"
    if "nearness.gain" not in metrics:
        return said
    return f"{said}; {over_public(metrics, 'nearness')}"


def over_public(metrics: Mapping[str, float], kind: str) -> str:
    """The gain over the public model alone, and whether it is more than its interval.

    Args:
        metrics: With ``KIND.gain`` and its ends.
        kind: ``vectors`` or ``nearness``.
    """
    gain, low, high = (metrics[f"{kind}.gain{end}"] for end in ("", "_low", "_high"))
    said = f"{gain:+.3f} [{low:+.3f}, {high:+.3f}] over the public model alone"
    if low > 0:
        return said
    return (
        f"{said}, which is NOT more than the interval: by this measure the release is not worth "
        "its epsilon"
    )


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Rows of length 1; a row of zeros stays one."""
    exact = vectors.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    return np.asarray(exact / np.where(lengths > 0, lengths, 1.0))


def _compared(cosines: Mapping[str, Sequence[NDArray[np.float64]]]) -> Comparison:
    """Nearness of each set, and the gain of the first over the others.

    A bootstrap sample draws anew from the texts of every set and from the records.

    Args:
        cosines: Of each draw of a set, shape (records, texts).
    """
    rng = np.random.default_rng(_NEARNESS_SEED)
    points = {
        name: float(np.mean([own.max(axis=1).mean() for own in draws]))
        for name, draws in cosines.items()
    }
    samples: dict[str, list[float]] = {name: [] for name in cosines}
    for _ in range(REPLICATES):
        rows: NDArray[np.int64] | None = None
        for name, draws in cosines.items():
            drawn = []
            for own in draws:
                rows = rng.integers(0, len(own), len(own)) if rows is None else rows
                columns = rng.integers(0, own.shape[1], own.shape[1])
                drawn.append(float(own[:, columns].max(axis=1)[rows].mean()))
            samples[name].append(float(np.mean(drawn)))
    held = {name: np.array(values) for name, values in samples.items()}
    first, *others = cosines
    return Comparison(
        {name: spread(points[name], held[name], least=-1) for name in cosines},
        {
            name: spread(points[first] - points[name], held[first] - held[name], least=-2)
            for name in others
        },
    )


def _metrics(found: Comparison, asked: int, real: int, called: str, draws: int) -> list[Metric]:
    own = found.value["synthetic"]
    interval = "95% bootstrap interval over texts and records"
    numbers = {
        "cosine": (own.value, f"mean cosine of a real record to the nearest text, by {called}"),
        "cosine_low": (own.low, f"its {interval}, lower end"),
        "cosine_high": (own.high, f"its {interval}, upper end"),
        "real": (found.value["real"].value, f"the same of {real} other held-out real records"),
        "records": (float(asked), "held-out real records asked"),
        "real_records": (float(real), "held-out real records beside them, for comparison"),
    }
    if "public" in found.value:
        gain = found.gain["public"]
        numbers |= {
            "public": (
                found.value["public"].value,
                f"the same of what the public model writes alone; mean of {draws} draw(s) of as "
                "many texts",
            ),
            "gain": (gain.value, "nearness over that of the public model alone"),
            "gain_low": (gain.low, f"its {interval}, lower end"),
            "gain_high": (gain.high, f"its {interval}, upper end"),
        }
    return [
        Metric(f"nearness.{name}", float(value), "internal", note)
        for name, (value, note) in numbers.items()
    ]


Texts = Sequence[tuple[str, str]]
"""Text and label."""


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
        return nearness_in_words(metrics)
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
    said += f"; {over_public(metrics, 'vectors')}"
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
