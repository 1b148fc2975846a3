"""The pure parts of a private token, timed: clip, aggregate, select. No limit is asserted.

pytest tests/integration/benchmarks --benchmark-autosave --benchmark-compare
"""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.dp.clipping import (
    LATTICE,
    clip_difference,
    clip_recenter,
    grid_bound,
    probability_grid,
    to_grid,
)
from privsyn.dp.mechanisms import AboveThreshold, ExponentialMechanism
from privsyn.dp.noise import OpenDPNoise
from privsyn.methods.invisible_ink.method import expanded_support

ROWS, COLUMNS, VOCABULARY = 255, 1024, 8192


@pytest.fixture(scope="module")
def logits() -> np.ndarray:
    return np.random.default_rng(0).normal(0, 4, (ROWS, COLUMNS)).astype(np.float32)


def test_clip_by_difference(benchmark, logits: np.ndarray) -> None:
    clipped = benchmark.pedantic(clip_difference, (logits[:8], logits[8], 2.0), rounds=20)
    assert np.abs(clipped).max() <= 2.0


def test_clip_and_recenter(benchmark, logits: np.ndarray) -> None:
    clipped = benchmark.pedantic(clip_recenter, (logits, 10.0), rounds=10)
    assert np.abs(clipped).max() <= 10.0


def test_aggregate(benchmark, logits: np.ndarray) -> None:
    clipped = clip_recenter(logits, 10.0)
    votes = benchmark.pedantic(
        lambda: to_grid(clipped, 10.0).sum(axis=0, dtype=np.int64), rounds=10
    )
    assert np.abs(votes).max() <= ROWS * grid_bound(10.0)


def test_mean_of_softmaxes(benchmark, logits: np.ndarray) -> None:
    summed = benchmark.pedantic(lambda: probability_grid(logits).sum(axis=0), rounds=10)
    assert summed.sum() <= ROWS * LATTICE


def test_support(benchmark) -> None:
    public = np.random.default_rng(1).normal(0, 4, VOCABULARY).astype(np.float32)
    support = benchmark.pedantic(expanded_support, (public, 100, 0.3), rounds=20)
    assert len(support) >= 100


@pytest.mark.parametrize("columns", [256, COLUMNS])
def test_select(benchmark, columns: int) -> None:
    scores = np.random.default_rng(2).integers(-LATTICE, LATTICE, columns)
    token, noise = ExponentialMechanism(LATTICE, 8.0 * LATTICE), OpenDPNoise()
    chosen = benchmark.pedantic(token.draw, (scores, noise), rounds=10)
    assert 0 <= chosen < columns


def test_compare(benchmark) -> None:
    above, noise = AboveThreshold(LATTICE, 50.0 * LATTICE), OpenDPNoise()
    assert benchmark.pedantic(above.is_above, (10**6, 0, noise), rounds=10) in (True, False)
