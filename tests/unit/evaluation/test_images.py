"""Metrics of images against what is known: closed forms, identical and foreign samples."""

import numpy as np
import pytest

from privsyn.data.profile import ImageRow
from privsyn.evaluation.images import (
    compare_images,
    downstream_beside,
    downstream_images,
    frechet_distance,
    image_fidelity,
    precision_recall,
)


class Flat:
    """An embedder: the pixels themselves, numbers 0 to 255."""

    revision, width = "flat", 16

    def embed(self, samples):
        return np.stack([one.ravel() for one in samples]).astype(np.float32)


def images(count, low, high, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(low, high, (4, 4), np.uint8) for _ in range(count)]


@pytest.mark.parametrize(("count", "width"), [(200, 8), (12, 40), (41, 40)])
def test_frechet_distance_against_the_matrix_root(count, width):
    from scipy.linalg import sqrtm

    rng = np.random.default_rng(2)
    mix = rng.standard_normal((width, width))
    first, second = rng.standard_normal((count, width)), rng.standard_normal((count, width)) @ mix
    one, two = np.cov(first.T), np.cov(second.T)
    # A symmetric root: that of a product of singular matrices is not computed stably.
    root = np.real(sqrtm(one + 1e-12 * np.eye(width)))
    inner = np.linalg.eigvalsh(root @ two @ root).clip(0)
    gap = ((first.mean(0) - second.mean(0)) ** 2).sum()
    expected = gap + np.trace(one + two) - 2 * np.sqrt(inner).sum()
    assert frechet_distance(first, second) == pytest.approx(expected, rel=1e-4)


def test_precision_and_recall_against_a_plain_loop():
    rng = np.random.default_rng(4)
    real, fake = rng.standard_normal((50, 2)), rng.standard_normal((40, 2)) * 0.6 + 0.5

    def covered(points, sample, k=3):
        hits = 0
        radii = [sorted(np.linalg.norm(sample - one, axis=1))[k] for one in sample]
        for point in points:
            gaps = np.linalg.norm(sample - point, axis=1)
            hits += any(gap <= radius for gap, radius in zip(gaps, radii, strict=True))
        return hits / len(points)

    assert precision_recall(fake, real) == (covered(fake, real), covered(real, fake))


def test_comparison_says_how_many_images_and_which_embedder():
    metrics = compare_images(images(30, 0, 250), images(25, 0, 250, 1), Flat(), 24, "fake")
    assert [metric.name for metric in metrics] == ["fid", "precision", "recall"]
    for metric in metrics:
        assert metric.cls == "internal"
        assert "24 a side, 16 features of fake" in metric.note


def test_other_real_images_stand_beside_where_there_are_enough():
    """Real images against real ones: nearly nothing, whatever order they lie in."""
    real = [*images(20, 0, 100, 1), *images(20, 150, 250, 2)]
    turns = [real[i // 2 + 20 * (i % 2)] for i in range(40)]
    for order in (real, turns):
        found = compare_images(images(20, 0, 100), order, Flat(), 20, "fake")
        value = {metric.name: metric.value for metric in found}
        assert {"fid_real", "precision_real", "recall_real"} < set(value)
        assert value["fid_real"] < value["fid"] / 3
    assert len(compare_images(images(20, 0, 100), real[1:], Flat(), 20, "fake")) == 3


def test_a_classifier_of_real_images_stands_beside_that_of_the_release():
    def pair(count, seed):
        both = [*images(count, 0, 100, seed), *images(count, 120, 250, seed + 1)]
        return both, ["d"] * count + ["b"] * count

    synthetic, labels = pair(15, 1)
    real, truth = pair(30, 3)
    value = {m.name: m.value for m in downstream_beside(synthetic, labels[::-1], real, truth)}
    assert (value["downstream.accuracy"], value["downstream.real"]) == (0.0, 1.0)
    assert value["downstream.records"] == 30
    assert 24 <= value["downstream.real_records"] <= 30, "at most 15 of each of the two labels"
    few = downstream_beside(synthetic, labels, *pair(19, 5))
    assert "downstream.real" not in {metric.name for metric in few}
    assert next(m.value for m in few if m.name == "downstream.records") == 38


def test_real_images_are_drawn_by_label_as_the_release_is():
    """Real images are mostly of one label, and the release is even: so are those beside it."""
    synthetic = [*images(10, 0, 100, 1), *images(10, 120, 250, 2)]
    real = [*images(180, 0, 100, 3), *images(60, 120, 250, 4)]
    sides = (synthetic, ["d"] * 10 + ["b"] * 10), (real, ["d"] * 180 + ["b"] * 60)
    value = {m.name: m.value for m in downstream_beside(*sides[0], *sides[1])}
    assert value["downstream.real_records"] == 20
    assert value["downstream.records"] == 160


def test_too_few_images_load_no_embedder():
    assert compare_images(images(19, 0, 9), images(50, 0, 9), Flat(), 100, "fake") == []


def test_a_classifier_learns_what_the_images_show():
    dark, bright = images(30, 0, 100), images(30, 120, 250)
    labels = ["d"] * 30 + ["b"] * 30
    test, truth = [*images(10, 0, 100, 7), *images(10, 120, 250, 8)], ["d"] * 10 + ["b"] * 10

    def accuracy(train_labels):
        metrics = downstream_images([*dark, *bright], train_labels, test, truth)
        assert {metric.cls for metric in metrics} == {"internal"}
        return {metric.name: metric.value for metric in metrics}["downstream.accuracy"]

    assert accuracy(labels) == 1.0
    assert accuracy(labels[::-1]) == 0.0
    assert accuracy(["d"] * 60) == 0.5


def test_nothing_to_learn_from_gives_no_metric():
    assert downstream_images([], [], images(3, 0, 9), ["a"] * 3) == []
    assert downstream_images(images(3, 0, 9), [None] * 3, images(3, 0, 9), ["a"] * 3) == []


def row(digest, mean=0.0, spread=0):
    if digest is None:
        return ImageRow(None, None, None, False)
    return ImageRow("i", None, "f", True, True, 4, 4, "L", mean, spread, digest)


def test_fidelity_of_the_images_alone():
    rows = [row("a", 10, 5), row("a", 10, 5), row("b", 40, 8), row(None)]
    metrics = image_fidelity(rows)
    values = {metric.name: metric.value for metric in metrics}
    assert {metric.cls for metric in metrics} == {"dp-release"}
    assert values["images"] == 4
    assert values["duplicate_share"] == pytest.approx(1 / 3)
    assert values["brightness_mean"] == pytest.approx(20)
    assert values["spread_mean"] == pytest.approx(6)
    assert [metric.name for metric in image_fidelity([row(None)])] == ["images"]
