"""How often intervals and bounds of the internal report hold, by simulation.

    python benchmarks/coverage.py [--tables others ...] [--runs 200]

The audit's bound: mechanisms whose epsilon is known, attacked at their best, against
``evaluation.audit``. The accuracy interval: classes that are normal, classifiers as
``evaluation.judge.fits`` trains them; the mean accuracy is to be covered, over fresh
training sets of the size, on fresh records. The interval by words: a classifier that is right with
a known probability. MAUVE: histograms over clusters whose shares are known, as ``_interval`` of
``evaluation.embeddings`` has them; and vectors of two mixtures of normals, clustered anew each time
as the report does. What is to be covered is both the number itself and its mean over samples of
that size, as such numbers are biased: a sample is further from a sample than law from law. What a
language model says of texts (next token, perplexity): texts whose tokens hang together, by known
laws. The accuracy that is paid for: people whose records are answered right with a known
probability, by OpenDP's noise. The nearness of texts without labels: records on matters that are
normal. All other seeds are fixed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from privsyn.dp.accuracy import NoisyAccuracy
from privsyn.dp.adjacency import Adjacency
from privsyn.dp.noise import OpenDPNoise
from privsyn.evaluation.audit import CONFIDENCE, Guesses
from privsyn.evaluation.classifiers import REPLICATES, Interval, split_holdout
from privsyn.evaluation.embeddings import _interval as mauve_interval
from privsyn.evaluation.embeddings import area, compare_embeddings
from privsyn.evaluation.judge import NEARNESS, Case, fits, judge
from privsyn.evaluation.judge import intervals as judged
from privsyn.evaluation.language_model import _interval as token_interval
from privsyn.evaluation.language_model import perplexity_gap
from privsyn.evaluation.metrics import wilson

UNITS = 500
WIDTH, FEW, CLASSES = 16, 4, 3
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


Labeled = tuple[NDArray[np.float32], NDArray[np.str_]]
"""Vectors and the label of each."""


def scored(
    own: Labeled, test: Labeled, replicates: int = REPLICATES, other: Labeled | None = None
) -> dict[str, Interval]:
    """A release, and beside it the public model alone."""
    sets = {"release": [(*own, test[0])]} | ({"public": [(*other, test[0])]} if other else {})
    return judged(fits(sets, test[1], replicates), replicates)


def sample(rng: np.random.Generator, size: int, width: int = WIDTH) -> Labeled:
    """Vectors of classes whose means are fixed, as far apart in any number of dimensions."""
    means = np.random.default_rng(0).normal(size=(CLASSES, width)) * (1.4 / np.sqrt(width))
    labels = rng.integers(0, CLASSES, size)
    vectors = (means[labels] + rng.normal(size=(size, width))).astype(np.float32)
    return vectors, np.array([f"class {label}" for label in labels])


def mean_accuracy(size: int) -> float:
    """What the interval is to cover."""
    rng = np.random.default_rng(2)
    test = sample(rng, 5_000)
    values: NDArray[np.float64] = np.array(
        [scored(sample(rng, size), test, 0)["release"].value for _ in range(60)]
    )
    return float(values.mean())


def intervals(size: int, tested: int, runs: int) -> tuple[float, float]:
    """Share of intervals that hold the mean accuracy, and their median width."""
    rng, truth = np.random.default_rng(3), mean_accuracy(size)
    found = [scored(sample(rng, size), sample(rng, tested))["release"] for _ in range(runs)]
    held = np.mean([own.low <= truth <= own.high for own in found])
    return float(held), float(np.median([own.high - own.low for own in found]))


def gains(size: int, tested: int, mixed: float, runs: int) -> tuple[float, float, float, float]:
    """The interval of a gain over a set some of whose labels are dealt out anew.

    Both sets have ``size`` texts, as a release and what the public model writes alone have; few
    dimensions, since a row is 12,000 classifiers.

    Args:
        size: Texts of each set.
        tested: Held-out records.
        mixed: Share of the other set's labels that is dealt out anew; at 0 nothing is gained.
        runs: Simulations.

    Returns:
        The mean gain, the share of intervals that hold it, the share that lie above 0 whole, which
        is what the report grades by, and their median width.
    """

    def both(rng: np.random.Generator) -> tuple[Labeled, Labeled]:
        own, (vectors, labels) = sample(rng, size, FEW), sample(rng, size, FEW)
        wrong = rng.random(size) < mixed
        return own, (vectors, np.where(wrong, rng.permutation(labels), labels))

    def gain(rng: np.random.Generator, test: Labeled, replicates: int = REPLICATES) -> Interval:
        own, other = both(rng)
        return scored(own, test, replicates, other)["gain"]

    rng, often = np.random.default_rng(9), np.random.default_rng(10)
    test = sample(often, 5_000, FEW)
    points = [gain(often, test, 0).value for _ in range(60)]
    truth = float(np.mean(points)) if mixed else 0.0
    found = [gain(rng, sample(rng, tested, FEW)) for _ in range(runs)]
    held = np.mean([one.low <= truth <= one.high for one in found])
    above = np.mean([one.low > 0 for one in found])
    width = np.median([one.high - one.low for one in found])
    return truth, float(held), float(above), float(width)


Law = Callable[[int, np.random.Generator], tuple[float, float, float]]
"""Of samples of a size: a number and its interval."""


def by_words(records: int, right: float, runs: int) -> tuple[float, float]:
    """Share of intervals that hold the accuracy of the classifier, and their median width."""
    rng = np.random.default_rng(4)
    found = np.array([wilson(int(rng.binomial(records, right)), records) for _ in range(runs)])
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


def mauve_of_vectors(shift: float) -> Law:
    """Vectors of eight topics each, moved by so much; clusters are found anew every time."""
    means = np.random.default_rng(11).normal(size=(8, WIDTH)) * 1.5
    moves = np.random.default_rng(12).normal(size=(8, WIDTH)) * shift

    def drawn(size: int, rng: np.random.Generator) -> tuple[float, float, float]:
        vectors = [
            (centers[rng.integers(0, 8, size)] + rng.normal(size=(size, WIDTH))).astype(np.float32)
            for centers in (means, means + moves)
        ]
        found = compare_embeddings(vectors[0], vectors[1], "normals")
        value, low, high = (metric.value for metric in found)
        return value, low, high

    return drawn


def next_token(size: int, rng: np.random.Generator) -> tuple[float, float, float]:
    """Texts of 5 to 63 tokens, each with an accuracy of its own."""
    lengths = rng.integers(5, 64, size)
    hits = rng.binomial(lengths, rng.beta(3, 7, size))
    low, high = token_interval(hits.tolist(), lengths.tolist())
    return float(hits.sum() / lengths.sum()), low, high


def perplexity(size: int, rng: np.random.Generator) -> tuple[float, float, float]:
    """Synthetic texts are .3 nats a token less surprising; each text has a level of its own."""

    def read(pairs: Sequence[tuple[str, str]]) -> list[tuple[float, int]]:
        level = 3.2 if pairs[0][1] == "synthetic" else 3.5
        tokens = rng.integers(5, 64, len(pairs))
        nats = tokens * (level + 0.4 * rng.normal(size=len(pairs)))
        return [(-float(own), int(of)) for own, of in zip(nats, tokens, strict=True)]

    found = perplexity_gap(["synthetic"] * size, ["real"] * size, read, size)
    gap, low, high = (metric.value for metric in found[2:])
    return gap, low, high


def paid(units: int, right: float, epsilon: float, runs: int) -> tuple[float, float, float]:
    """Share of intervals that hold the probability, and the share among those tested; width."""
    rng, noise = np.random.default_rng(13), OpenDPNoise()
    mechanism = NoisyAccuracy(epsilon, Adjacency.ADD_REMOVE)
    held, tested, widths = 0, 0, []
    for _ in range(runs):
        answers = rng.random(units) < right
        ours, wrong = mechanism.draw([[bool(answer)] for answer in answers], noise)
        read = mechanism.read(int(ours), int(wrong))
        held += read.low <= right <= read.high
        tested += read.noise_low <= answers.mean() <= read.noise_high
        widths.append(read.high - read.low)
    return held / runs, tested / runs, float(np.median(widths))


def held(law: Law, size: int, runs: int, truth: float | None) -> tuple[str, float, float, str]:
    """Shares of intervals that hold the number of endless samples and the mean of such samples.

    Returns:
        Both, the median width, and by how much the mean exceeds the number of endless samples,
        which is ``-`` where it is not known.
    """
    found = np.array([law(size, np.random.default_rng([8, run])) for run in range(runs)])
    mean = float(found[:, 0].mean())

    def share(it: float) -> float:
        return float(((found[:, 1] <= it) & (it <= found[:, 2])).mean())

    of, beyond = ("-", "-") if truth is None else (f"{share(truth):.3f}", f"{mean - truth:+.3f}")
    return of, share(mean), float(np.median(found[:, 2] - found[:, 1])), beyond


def endless(law: Law) -> float:
    """The number of a sample so large that it is nearly that of the laws."""
    return law(20_000, np.random.default_rng(7))[0]


def bounds(runs: int) -> Iterator[tuple[object, ...]]:
    """The audit's bound."""
    yield "mechanism", "epsilon, delta", f"bound holds (asked {CONFIDENCE:.0%})", "median bound"
    for name, attack, epsilon, delta in (
        ("randomized response, 1/2 in", randomized_response(1, 0.5), 1, 0.0),
        ("randomized response, 1/2 in", randomized_response(4, 0.5), 4, 0.0),
        ("randomized response, 9/10 in", randomized_response(1, 0.9), 1, 0.0),
        ("randomized response, 9/10 in", randomized_response(4, 0.9), 4, 0.0),
        ("one answer about all", one_answer(1), 1, 0.0),
        ("randomized response, some told outright", outright(1, 1e-2), 1, 1e-2),
    ):
        yield name, f"{epsilon:g}, {delta:g}", *bound(attack, epsilon, delta, runs)


def accuracies(runs: int) -> Iterator[tuple[object, ...]]:
    """Accuracy by sentence vectors."""
    yield "by vectors", "trained on", "tested on", "holds the mean (asked 95%)", "median width"
    for size, tested in ((60, 200), (200, 100)):
        yield "accuracy", size, tested, *intervals(size, tested, runs)


def gained(runs: int) -> Iterator[tuple[object, ...]]:
    """Gain over the public model alone."""
    yield "labels mixed", "trained on", "tested on", "gain", "holds it", "above 0", "median width"
    for mixed in (0.0, 0.3):
        for size, tested in ((60, 200), (200, 100)):
            yield f"{mixed:g}", size, tested, *gains(size, tested, mixed, runs)


def words(runs: int) -> Iterator[tuple[object, ...]]:
    """Accuracy by words."""
    yield "accuracy by words", "tested on", "holds it (asked 95%)", "median width"
    for right, tested in ((0.6, 50), (0.6, 500), (0.95, 50), (0.95, 500)):
        yield f"{right:g}", tested, *by_words(tested, right, runs)


def paid_for(runs: int) -> Iterator[tuple[object, ...]]:
    """Accuracy by a mechanism."""
    yield "paid accuracy", "units", "epsilon", "holds it (asked 95%)", "of those tested", "width"
    for right, units, epsilon in ((0.6, 100, 0.1), (0.6, 1000, 0.1), (0.95, 100, 1.0)):
        yield f"{right:g}", units, f"{epsilon:g}", *paid(units, right, epsilon, runs)
    yield "0.95", 1000, "1", *paid(1000, 0.95, 1.0, runs)


def others(runs: int) -> Iterator[tuple[object, ...]]:
    """Every other interval of the report."""
    yield "number", "a side", "holds it", "holds the mean", "median width", "mean beyond it"
    mauves = [mauve(0.2), mauve(0.5)]
    for name, law, sizes, truth in (
        ("MAUVE, little moved", mauves[0], (60, 300), endless(mauves[0])),
        ("MAUVE, half moved", mauves[1], (60, 300), endless(mauves[1])),
        ("MAUVE of vectors, alike", mauve_of_vectors(0.0), (60, 300), 1.0),
        ("MAUVE of vectors, a little apart", mauve_of_vectors(0.3), (60, 300), None),
        ("MAUVE of vectors, apart", mauve_of_vectors(0.8), (60, 300), None),
        ("next token", next_token, (20, 100), 0.3),
        ("perplexity gap", perplexity, (32, 100), -0.3),
    ):
        for size in sizes:
            yield name, size, *held(law, size, runs, truth)


def nearness(runs: int) -> Iterator[Sequence[object]]:
    """The interval of a gain in nearness, of records on twelve matters that are normal.

    The release knows all of them; the public model, with two draws of as many texts, all but some.
    """
    yield "width", "texts", "matters not known", "mean gain", "holds it", "above 0", "median width"
    middles = np.random.default_rng(11).normal(size=(12, 64))

    def written(rng: np.random.Generator, count: int, width: int, known: int) -> list[str]:
        rows = middles[rng.integers(0, known, count), :width]
        rows = rows + rng.normal(0, 0.6, (count, width))
        return [" ".join(f"{number:.4f}" for number in row) for row in rows]

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([[float(n) for n in text.split()] for text in texts], np.float32)

    for width, texts, missing in ((8, 40, 0), (64, 100, 0), (64, 20, 0), (64, 20, 2), (64, 100, 2)):
        found = []
        for seed in range(runs):
            rng = np.random.default_rng(seed)
            alone = written(rng, 2 * texts, width, 12 - missing)
            ours, real = written(rng, texts, width, 12), written(rng, 300, width, 12)
            known, tested = split_holdout(real, texts)
            sides = ([(text, "") for text in part] for part in (ours, tested, known, alone))
            gain = judge(Case(*sides), {NEARNESS: embed})[NEARNESS, "gain"]
            found.append([gain.value, gain.low, gain.high])
        gain, low, high = np.array(found).T
        truth = float(gain.mean()) if missing else 0.0
        held = float(np.mean((low <= truth) & (truth <= high)))
        above, wide = float(np.mean(low > 0)), float(np.median(high - low))
        yield width, texts, missing, truth, held, above, wide


TABLES = {
    "bounds": (bounds, 5_000),
    "accuracies": (accuracies, 60),
    "gains": (gained, 60),
    "nearness": (nearness, 200),
    "words": (words, 2_000),
    "paid": (paid_for, 1_000),
    "others": (others, 200),
}
"""Tables, and simulations a row."""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--runs", type=int, help="simulations a row, in place of each table's own")
    asked = parser.parse_args()
    for name in asked.tables:
        table, runs = TABLES[name]
        for number, row in enumerate(table(asked.runs or runs)):
            said = [f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row]
            print(f"| {' | '.join(said)} |", flush=True)
            if not number:
                print(f"|{'---|' * len(row)}", flush=True)
        print()


if __name__ == "__main__":
    main()
