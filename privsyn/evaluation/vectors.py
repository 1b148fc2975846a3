"""Classifiers over sentence vectors, side by side: what a release teaches beside what else would.

Every number here reads real records and is internal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

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
