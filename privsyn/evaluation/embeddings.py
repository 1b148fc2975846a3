"""Synthetic against real texts in the space of a sentence embedder."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.backends.protocols import Embedder
from privsyn.evaluation.metrics import Metric

_SCALE = 5.0
_MIXTURES = np.linspace(1e-6, 1 - 1e-6, 25)
_TEXTS_PER_CLUSTER = 10
_FEWEST = 20


def compare_embeddings(
    synthetic: Sequence[str],
    real: Sequence[str],
    load: Callable[[], Embedder[str]],
    most: int,
    called: str,
) -> list[Metric]:
    """MAUVE between synthetic and held-out real texts: ``internal``.

    As many texts of each side, evenly spaced, ``most`` at most: the score moves with their number.
    Empty where a side has fewer than 20.

    Args:
        synthetic: Synthetic texts.
        real: Held-out real texts.
        load: Gives the embedder; not called where there is nothing to embed.
        most: Texts a side.
        called: The embedder's name, for the note.
    """
    count = min(len(synthetic), len(real), most)
    if count < _FEWEST:
        return []
    embedder = load()
    ours, theirs = (
        embedder.embed([texts[i] for i in np.linspace(0, len(texts) - 1, count).astype(int)])
        for texts in (synthetic, real)
    )
    note = f"MAUVE to held-out real texts, {count} a side, vectors of {called}; 1 is alike"
    return [Metric("mauve", mauve(ours, theirs), "internal", note)]


def mauve(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    """Area under the divergence curve of two samples of vectors, 0 to 1.

    Both are quantised together: PCA to 90% of the variance, rows of length 1, k-means with one
    cluster for ten vectors of the smaller sample; then the curve of exp(-5 KL) to their mixtures.

    Source: Pillutla et al. 2021, "MAUVE: Measuring the Gap Between Neural Text and Human Text using
    Divergence Frontiers", section 3 and Appendix A.
    """
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import normalize

    clusters = max(2, round(min(len(first), len(second)) / _TEXTS_PER_CLUSTER))
    both = normalize(np.concatenate([first, second]).astype(np.float64))
    both = normalize(PCA(0.9, svd_solver="full").fit_transform(both))
    found = KMeans(clusters, n_init=5, random_state=0).fit_predict(both)
    p, q = (
        np.bincount(part, minlength=clusters) / len(part)
        for part in (found[: len(first)], found[len(first) :])
    )
    curve = [
        (np.exp(-_SCALE * _divergence(q, mixed)), np.exp(-_SCALE * _divergence(p, mixed)))
        for mixed in (weight * p + (1 - weight) * q for weight in _MIXTURES)
    ]
    x, y = np.array([(0.0, 1.0), *curve[::-1], (1.0, 0.0)]).T
    across, along = np.argsort(x, kind="stable"), np.argsort(y, kind="stable")
    areas = np.trapezoid(y[across], x[across]) + np.trapezoid(x[along], y[along])
    return float(areas / 2)


def _divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """Kullback-Leibler divergence in nats; q is positive where p is."""
    held = p > 0
    return float(np.sum(p[held] * np.log(p[held] / q[held])))
