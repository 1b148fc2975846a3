"""How often intervals and bounds of the internal report hold, by simulation.

    python benchmarks/coverage.py [--runs 200] [--bounds 5000]

The audit's bound: mechanisms whose epsilon is known, attacked at their best, against
``evaluation.one_run``. The accuracy interval: classes that are normal, classifiers as
``evaluation.vectors.compare`` trains them; what is to be covered is the mean accuracy over fresh
training sets of the size, on fresh records. The interval by words: a classifier that is right with
a known probability. MAUVE: histograms over clusters whose shares are known, as ``_interval`` of
``evaluation.embeddings`` has them. Distances between fields of records: two laws of numbers and of
values. What is to be covered is both the number itself and its mean over samples of that size, as
such numbers are biased: a sample is further from a sample than law from law. All seeds are fixed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from privsyn.evaluation.classify import _interval as words_interval
from privsyn.evaluation.embeddings import _interval as mauve_interval
from privsyn.evaluation.embeddings import area
from privsyn.evaluation.one_run import CONFIDENCE, Guesses
from privsyn.evaluation.structured import compare_fields
from privsyn.evaluation.vectors import Labelled, compare

UNITS = 500
WIDTH, CLASSES = 16, 3
CLUSTERS = 10

Attack = Callable[[np.random.Generator], Guesses]


def randomized_response(epsilon: float, prior: float) -> Attack:
    """Every coin through randomized response of its own: pure epsilon, and no more."""

    def attack(rng: np.random.Generator) -> Guesses:
        inside = rng.random(UNITS) < prior
        told = inside ^ (rng.random(UNITS) < expit(-epsilon))
        return Guesses(UNITS, int(told.sum()), int(inside[told].sum()), prior)

    return attack


def one_answer(epsilon: float) -> Attack:
    """One answer about all: which half of the units has more inside (exponential mechanism)."""
    half = np.arange(UNITS) < UNITS // 2

    def attack(rng: np.random.Generator) -> Guesses:
        inside = rng.random(UNITS) < 0.5
        ahead = int(inside[half].sum()) - int(inside[~half].sum())
        told = half if rng.random() < expit(epsilon * ahead) else ~half
        return Guesses(UNITS, UNITS // 2, int(inside[told].sum()))

    return attack


def outright(epsilon: float, delta: float) -> Attack:
    """Randomized response, and with probability delta a coin is told outright and for sure."""

    def attack(rng: np.random.Generator) -> Guesses:
        inside = rng.random(UNITS) < 0.5
        told = inside ^ (rng.random(UNITS) < expit(-epsilon))
        sure = rng.random(UNITS) < delta
        named = np.where(sure, inside, told)
        return Guesses(UNITS, int(named.sum()), int(inside[named].sum()))

    return attack


def bound(attack: Attack, epsilon: float, delta: float, runs: int) -> tuple[float, float]:
    """Share of runs whose bound is at most epsilon, and the median bound."""
    rng = np.random.default_rng(1)
    found = np.array([attack(rng).least_epsilon(delta) for _ in range(runs)])
    return float((found <= epsilon).mean()), float(np.median(found))


def sample(rng: np.random.Generator, size: int) -> Labelled:
    """Vectors of classes whose means are fixed."""
    means = np.random.default_rng(0).normal(size=(CLASSES, WIDTH)) * 0.35
    labels = rng.integers(0, CLASSES, size)
    vectors = (means[labels] + rng.normal(size=(size, WIDTH))).astype(np.float32)
    return Labelled(vectors, np.array([f"class {label}" for label in labels]))


def mean_accuracy(size: int) -> float:
    """What the interval is to cover."""
    rng = np.random.default_rng(2)
    test = sample(rng, 5_000)
    values: NDArray[np.float64] = np.array(
        [
            compare({"own": sample(rng, size)}, test, replicates=0).accuracy["own"].value
            for _ in range(60)
        ]
    )
    return float(values.mean())


def intervals(size: int, tested: int, runs: int) -> tuple[float, float]:
    """Share of intervals that hold the mean accuracy, and their median width."""
    rng, truth = np.random.default_rng(3), mean_accuracy(size)
    found = [
        compare({"own": sample(rng, size)}, sample(rng, tested)).accuracy["own"]
        for _ in range(runs)
    ]
    held = np.mean([own.low <= truth <= own.high for own in found])
    return float(held), float(np.median([own.high - own.low for own in found]))


Law = Callable[[int, np.random.Generator], tuple[float, float, float]]
"""Of samples of a size: a number and its interval."""


def by_words(records: int, right: float, runs: int) -> tuple[float, float]:
    """Share of intervals that hold the accuracy of the classifier, and their median width."""
    rng = np.random.default_rng(4)
    found = np.array(
        [words_interval(int(rng.binomial(records, right)), records) for _ in range(runs)]
    )
    held = (found[:, 0] <= right) & (right <= found[:, 1])
    return float(held.mean()), float(np.median(found[:, 1] - found[:, 0]))


def mauve(moved: float) -> Law:
    """Two texts' clusters: shares that differ by so much of their mass."""
    first = np.random.default_rng(5).dirichlet(np.ones(CLUSTERS))
    second = (1 - moved) * first + moved * np.random.default_rng(6).dirichlet(np.ones(CLUSTERS))

    def drawn(size: int, rng: np.random.Generator) -> tuple[float, float, float]:
        ours, theirs = rng.multinomial(size, first), rng.multinomial(size, second)
        value = area(ours, theirs)
        return value, *mauve_interval(value, ours, theirs)

    return drawn


def field(kind: str, moved: float) -> Law:
    """Records of one field: normal numbers a shift apart, or one of two values, more often."""
    described = {"type": "number"} if kind == "number" else {"enum": ["a", "b"]}
    schema = {"properties": {"it": described}}

    def records(size: int, moved: float, rng: np.random.Generator) -> list[str]:
        values = (
            (rng.normal(size=size) + moved).tolist()
            if kind == "number"
            else np.where(rng.random(size) < 0.3 + moved, "a", "b").tolist()
        )
        return [json.dumps({"it": value}) for value in values]

    def drawn(size: int, rng: np.random.Generator) -> tuple[float, float, float]:
        metrics = compare_fields(records(size, moved, rng), records(2 * size, 0, rng), schema)
        found = {metric.name.rpartition(".")[2]: metric.value for metric in metrics}
        return found["apart"], found["apart_low"], found["apart_high"]

    return drawn


def held(law: Law, size: int, runs: int) -> tuple[float, float, float, float]:
    """Shares of intervals that hold the number of endless samples and the mean of such samples.

    Returns:
        Both, the median width, and by how much the mean exceeds the number of endless samples.
    """
    truth = law(20_000, np.random.default_rng(7))[0]
    found = np.array([law(size, np.random.default_rng([8, run])) for run in range(runs)])
    mean = found[:, 0].mean()
    shares = [((found[:, 1] <= it) & (it <= found[:, 2])).mean() for it in (truth, mean)]
    return *map(float, shares), float(np.median(found[:, 2] - found[:, 1])), float(mean - truth)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--bounds", type=int, default=5_000)
    asked = parser.parse_args()
    print(f"| mechanism | epsilon, delta | bound holds (asked {CONFIDENCE:.0%}) | median bound |")
    print("|---|---|---|---|")
    for name, attack, epsilon, delta in (
        ("randomized response, 1/2 in", randomized_response(1, 0.5), 1, 0.0),
        ("randomized response, 1/2 in", randomized_response(4, 0.5), 4, 0.0),
        ("randomized response, 9/10 in", randomized_response(1, 0.9), 1, 0.0),
        ("randomized response, 9/10 in", randomized_response(4, 0.9), 4, 0.0),
        ("one answer about all", one_answer(1), 1, 0.0),
        ("randomized response, some told outright", outright(1, 1e-2), 1, 1e-2),
    ):
        kept, median = bound(attack, epsilon, delta, asked.bounds)
        print(f"| {name} | {epsilon:g}, {delta:g} | {kept:.3f} | {median:.2f} |", flush=True)
    print("\n| trained on | tested on | interval holds the mean (asked 95%) | median width |")
    print("|---|---|---|---|")
    for size, tested in ((60, 200), (200, 100)):
        held_by, width = intervals(size, tested, asked.runs)
        print(f"| {size} | {tested} | {held_by:.3f} | {width:.3f} |", flush=True)
    print("\n| accuracy by words | tested on | interval holds it (asked 95%) | median width |")
    print("|---|---|---|---|")
    for right, tested in ((0.6, 50), (0.6, 500), (0.95, 50), (0.95, 500)):
        share, width = by_words(tested, right, 10 * asked.runs)
        print(f"| {right} | {tested} | {share:.3f} | {width:.3f} |", flush=True)
    print("\n| number | a side | holds it | holds the mean | median width | mean beyond it |")
    print("|---|---|---|---|---|---|")
    for name, law in (
        ("MAUVE, little moved", mauve(0.2)),
        ("MAUVE, half moved", mauve(0.5)),
        ("field, numbers shifted by .5", field("number", 0.5)),
        ("field, numbers alike", field("number", 0.0)),
        ("field, values 20 points apart", field("value", 0.2)),
    ):
        for size in (60, 300):
            of, mean, width, beyond = held(law, size, asked.runs)
            said = f"| {name} | {size} | {of:.3f} | {mean:.3f} | {width:.3f} | {beyond:+.3f} |"
            print(said, flush=True)


if __name__ == "__main__":
    main()
