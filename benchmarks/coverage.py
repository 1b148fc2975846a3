"""How often intervals and bounds of the internal report hold, by simulation.

    python benchmarks/coverage.py [--runs 200] [--bounds 5000]

The audit's bound: mechanisms whose epsilon is known, attacked at their best, against
``evaluation.one_run``. The accuracy interval: classes that are normal, classifiers as
``evaluation.vectors.compare`` trains them; what is to be covered is the mean accuracy over fresh
training sets of the size, on fresh records. All seeds are fixed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from privsyn.evaluation.one_run import CONFIDENCE, Guesses
from privsyn.evaluation.vectors import Labelled, compare

UNITS = 500
WIDTH, CLASSES = 16, 3

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


def main() -> None:
    """Print both tables."""
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
        held, median = bound(attack, epsilon, delta, asked.bounds)
        print(f"| {name} | {epsilon:g}, {delta:g} | {held:.3f} | {median:.2f} |", flush=True)
    print("\n| trained on | tested on | interval holds the mean (asked 95%) | median width |")
    print("|---|---|---|---|")
    for size, tested in ((60, 200), (200, 100)):
        held, width = intervals(size, tested, asked.runs)
        print(f"| {size} | {tested} | {held:.3f} | {width:.3f} |", flush=True)


if __name__ == "__main__":
    main()
