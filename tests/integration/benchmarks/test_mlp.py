"""The 3-layer network over vectors, with and without Deep CORAL."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

with pytest.MonkeyPatch.context() as patch:  # as where a benchmark is started
    patch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
    import mlp
    from mlp import classify, downstream_mlp, train

NAMES = ("Billing", "Symptoms", "Results")


def side(count, seed, shift=0.0, stretch=1.0):
    """Unit vectors around one center a label; ``shift`` and ``stretch`` move one direction."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(0).normal(size=(3, 24))
    numbers = rng.integers(0, 3, count)
    points = centers[numbers] + 0.7 * rng.normal(size=(count, 24))
    points[:, 0] = points[:, 0] * stretch + shift
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points.astype(np.float32), [NAMES[i] for i in numbers]


def values(ours, theirs):
    metrics = downstream_mlp(*ours, *theirs, "test")
    assert {metric.cls for metric in metrics} <= {"internal"}
    return {metric.name: metric.value for metric in metrics}


def test_useful_vectors_teach_the_labels():
    found = values(side(300, 1), side(400, 2))
    assert set(found) == {"mlp.accuracy", "mlp_coral.accuracy", "mlp.records"}
    assert found["mlp.records"] == 400 - 150
    assert min(found["mlp.accuracy"], found["mlp_coral.accuracy"]) > 0.95
    assert found == values(side(300, 1), side(400, 2))


def test_no_label_that_is_tested_on_reaches_the_training(monkeypatch):
    """The training sees no real label at all, and no vector of the tested part."""
    seen = []
    tested = []

    def watched_train(*given):
        seen.append(given)
        return train(*given)

    def watched_classify(net, given):
        tested.append(given)
        return classify(net, given)

    monkeypatch.setattr(mlp, "train", watched_train)
    monkeypatch.setattr(mlp, "classify", watched_classify)
    ours, (vectors, labels) = side(80, 1), side(200, 2)
    first = values(ours, (vectors, labels))
    assert [given[2] is None for given in seen] == [True, False]
    target = {row.tobytes() for row in seen[1][2]}
    assert len(target) == 40
    assert all(len(part) == 160 for part in tested)
    assert not target & {row.tobytes() for part in tested for row in part}
    assert target <= {row.tobytes() for row in vectors}
    for given in seen:
        assert np.array_equal(given[0], ours[0])
    others = [*labels[1:], labels[0]]
    second = values(ours, (vectors, others))
    assert np.array_equal(seen[3][2], seen[1][2])  # the split does not look at labels either
    assert second["mlp.accuracy"] < first["mlp.accuracy"]
