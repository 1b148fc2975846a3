"""What classifiers are trained and tested on, and the downstream one, by scikit-learn itself."""

import random

import numpy as np
import pytest

from privsyn.evaluation import classifiers
from privsyn.evaluation.classifiers import downstream, labeled_texts, split_holdout
from privsyn.evaluation.metrics import wilson


def test_labeled_texts_are_evenly_spaced():
    assert labeled_texts(["x", "y", "z"], ["a", None, "b"], 9) == [("x", "a"), ("z", "b")]
    assert len(labeled_texts(["x"] * 99, ["a"] * 99, 7)) == 7


@pytest.mark.parametrize(("count", "known"), [(60, 20), (10, 10), (0, 0)])
def test_at_most_half_of_the_held_out_records_are_a_baseline(count, known):
    real = list(range(40))
    first, other = split_holdout(real, count)
    assert (len(first), sorted(first + other)) == (known, real)


@pytest.mark.parametrize(("value", "least"), [(1.0, 0), (0.0, 0), (1.0, -1), (-1.0, -1)])
def test_an_interval_stays_within_what_shares_and_their_differences_can_be(value, least):
    samples = np.array([0.6, 0.8, 1.0])
    found = classifiers.spread(value, samples, least=least)
    assert least <= found.low <= found.value <= found.high <= 1
    assert found.low < found.high


TOPICS = {
    "Billing": "bill amount insurance charge refund payment invoice covered".split(),
    "Symptoms": "cough fever knee pain since night worse tired".split(),
    "Test results": "blood lab value cholesterol result report normal scan".split(),
}
FILLER = "please could you tell me about the and my it is for a to in".split()


def corpus(count, seed):
    rng = random.Random(seed)
    labels: list[str | None] = [rng.choice(list(TOPICS)) for _ in range(count)]
    texts = [
        " ".join(rng.sample(FILLER, 8) + rng.sample(TOPICS[str(label)], 3)) for label in labels
    ]
    return texts, labels


def values(metrics):
    return {metric.name.removeprefix("downstream."): metric.value for metric in metrics}


def test_a_useful_release_teaches_the_labels():
    metrics = downstream(*corpus(150, 1), *corpus(120, 2))
    measured = values(metrics)
    assert measured["accuracy"] > 0.95
    assert measured["macro_f1"] > 0.95
    assert measured["records"] == 120
    assert 1 / 3 <= measured["chance"] < 0.6
    assert {metric.label for metric in metrics if metric.label} == set(TOPICS)
    assert "recall.test_results" in measured
    assert values(downstream(*corpus(150, 1), *corpus(120, 2))) == measured


def test_a_useless_release_teaches_nothing():
    texts, labels = corpus(150, 1)
    shuffled = random.Random(3).sample(labels, len(labels))
    assert values(downstream(texts, shuffled, *corpus(120, 2)))["accuracy"] < 0.7


@pytest.mark.parametrize("texts", [["", " ", "!"], ["a", "b", "\ufffd"], ["\u0130\u0130", "", "a"]])
def test_texts_without_words_answer_the_commonest_label(texts):
    measured = values(downstream(texts, ["A", "B", "B"], ["x y", "z w"], ["A", "B"]))
    assert measured["accuracy"] == 0.5
    assert measured["recall.b"] == 1


def test_a_label_the_release_never_saw_counts_against_it():
    texts, labels = corpus(100, 1)
    kept = [i for i, label in enumerate(labels) if label != "Billing"]
    measured = values(
        downstream([texts[i] for i in kept], [labels[i] for i in kept], *corpus(90, 2))
    )
    assert measured["recall.billing"] == 0
    assert measured["accuracy"] < 0.8


def test_nothing_to_train_or_test_on_gives_no_metrics():
    assert downstream([], [], ["x"], ["A"]) == []
    assert downstream(["x"], ["A"], [], []) == []
    assert downstream(["x"], [None], ["x"], ["A"]) == []
    assert downstream(["x"], ["A"], ["x"], [None]) == []


def test_labels_become_metric_names_no_two_alike():
    labels = ["Sci/Tech", "sci tech", "\u9884\u7ea6", "\u8d26\u5355", "ok"]
    metrics = downstream(["cough"], ["ok"], ["word"] * 5, labels)
    names = [metric.name for metric in metrics if metric.name.startswith("downstream.recall.")]
    assert len(set(names)) == 5
    assert {metric.label for metric in metrics if metric.label} == set(labels)
    assert all(name.replace("downstream.recall.", "").isascii() for name in names)
    assert all(not name.endswith(".") for name in names)


@pytest.mark.parametrize(
    ("hits", "records", "low", "high"),
    [(20, 20, 0.8389, 1.0), (0, 20, 0.0, 0.1611), (81, 263, 0.2553, 0.3662)],
)
def test_the_interval_is_wilson_s(hits, records, low, high):
    """The last as in Newcombe 1998, Table I; none has no width."""
    found = wilson(hits, records)
    assert found == pytest.approx((low, high), abs=5e-5)
