"""Compare synthetic with real texts in the space of a sentence embedder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from privsyn.data.words import word_count, words, worth
from privsyn.evaluation.metrics import Metric, metrics_of
from privsyn.models.protocols import Embedder

_MIXTURES = np.linspace(1e-6, 1 - 1e-6, 25)
_REPLICATES = 200
_SEED = 20240615


class EmbeddedOnce:
    """An embedder with a cache. It is loaded on first use and embeds every text once.

    Rows of an embedder do not depend on each other, so a text's vector is the same in any call.

    Args:
        load: Returns the embedder.
    """

    def __init__(self, load: Callable[[], Embedder[str]]) -> None:
        self._load = cache(load)
        self._known: dict[str, NDArray[np.float32]] = {}

    def load(self) -> None:
        """Load the embedder, even if there is no text to embed.

        Raises:
            ModelError: It cannot be loaded.
        """
        self._load()

    def embed(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        """Vectors of the texts, in order, shape (texts, width); at least one text."""
        # Each text is embedded once, however many measures ask for it.
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, self._load().embed(new), strict=True))
        return np.stack([self._known[text] for text in texts])


_SCALE, _PER_CLUSTER = 5.0, 10.0
"""Scale of MAUVE's divergences, and texts a side for each cluster, as in its own code."""


def compare_embeddings(
    ours: NDArray[np.float32], theirs: NDArray[np.float32], called: str
) -> list[Metric]:
    """MAUVE between synthetic and held-out real texts: ``internal``.

    Args:
        ours: Vectors of synthetic texts, shape (texts, width).
        theirs: Of as many held-out real texts; the score depends on their number.
        called: The embedder's name, for the note.
    """
    first, second = cluster_counts(ours, theirs)
    value = area(first, second)
    low, high = _interval(value, first, second)
    numbers = {"mauve": value, "mauve_low": low, "mauve_high": high}
    return metrics_of(numbers, count=len(ours), called=called)


def cluster_counts(
    first: NDArray[np.float32], second: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of vectors of each sample in each cluster.

    Both are quantized together: PCA to 90% of the variance, rows of length 1, k-means with one
    cluster for ten vectors of the smaller sample.

    Source: Pillutla et al. 2021, "MAUVE: Measuring the Gap Between Neural Text and Human Text using
    Divergence Frontiers", section 3 and Appendix A.
    """
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import normalize

    clusters = max(2, round(min(len(first), len(second)) / _PER_CLUSTER))
    # Shape (texts of both sides, width), in one set: both sides share their clusters.
    both = normalize(np.concatenate([first, second]).astype(np.float64))
    if not (both - both[0]).round(9).any():  # one text repeated: one cluster
        return np.array([len(first)]), np.array([len(second)])
    # As in MAUVE's own code: the components that hold 90% of the variance.
    both = normalize(PCA(0.9, svd_solver="full").fit_transform(both))
    # KMeans warns, and warnings are errors, if there are fewer distinct points than clusters.
    clusters = min(clusters, len(np.unique(both.round(9), axis=0)))
    cluster = KMeans(clusters, n_init=5, random_state=0).fit_predict(both)
    ours, theirs = (
        np.bincount(part, minlength=clusters)
        for part in (cluster[: len(first)], cluster[len(first) :])
    )
    return ours, theirs


def area(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """Area under the curve of exp(-5 KL) of two histograms to their mixtures.

    Source: as ``cluster_counts``, section 3, equation 3.
    """
    from scipy.special import rel_entr

    p, q = first / first.sum(), second / second.sum()
    curve = [
        (np.exp(-_SCALE * rel_entr(q, mixed).sum()), np.exp(-_SCALE * rel_entr(p, mixed).sum()))
        for mixed in (weight * p + (1 - weight) * q for weight in _MIXTURES)
    ]
    # Shape (mixtures + 2,) each: the divergence frontier between its two fixed ends.
    x, y = np.array([(0.0, 1.0), *curve[::-1], (1.0, 0.0)]).T
    # Stable sort: equal points stay in the order of the falling curve, so equal histograms give 1.
    across, along = np.argsort(x, kind="stable"), np.argsort(y[::-1], kind="stable")
    areas = np.trapezoid(y[across], x[across]) + np.trapezoid(x[::-1][along], y[::-1][along])
    return float(areas / 2)


def _interval(
    value: float, first: NDArray[np.int64], second: NDArray[np.int64]
) -> tuple[float, float]:
    """The spread of the score over samples drawn anew from both histograms, around its value."""
    rng = np.random.default_rng(_SEED)
    drawn = np.array([area(*_again(rng, first, second)) for _ in range(_REPLICATES)])
    # Resamples are further apart than the samples, so they are biased: use their spread only.
    low, high = np.clip(value + np.quantile(drawn - drawn.mean(), [0.025, 0.975]), 0, 1)
    return float(low), float(high)


def _again(
    rng: np.random.Generator, *samples: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """As many vectors drawn from each histogram."""
    first, second = (rng.multinomial(part.sum(), part / part.sum()) for part in samples)
    return first, second


def fidelity(texts: Sequence[str]) -> list[Metric]:
    """Metrics of the synthetic texts alone: ``dp-release``. Ratios over zero are left out.

    Distinct-n falls with corpus size: compare files of similar size only.
    """
    tokens = [words(text.lower()) for text in texts]
    count, repeats = len(texts), len(texts) - len(set(texts))
    blank = sum(not text.strip() for text in texts)
    ratios = {
        "words_mean": (sum(map(worth, tokens)), count),
        "distinct_1": _distinct(tokens, 1),
        "distinct_2": _distinct(tokens, 2),
        "duplicate_share": (repeats, count),
        "empty_share": (blank, count),
    }
    numbers: dict[str, float] = {
        "texts": count,
        "vocabulary": len({word for text in tokens for word in text}),
    }
    numbers |= {name: part / whole for name, (part, whole) in ratios.items() if whole}
    return metrics_of(numbers, "dp-release", things="texts")


def compare_lengths(synthetic: Sequence[str], real: Sequence[str]) -> list[Metric]:
    """Distance between the lengths of synthetic and held-out real texts: ``internal``.

    Empty if one side has no texts.
    """
    if not synthetic or not real:
        return []
    from scipy.stats import ks_2samp, wasserstein_distance

    ours, theirs = ([word_count(text) for text in texts] for texts in (synthetic, real))
    numbers = {
        "length_wasserstein": wasserstein_distance(ours, theirs),
        "length_ks": ks_2samp(ours, theirs, method="asymp").statistic,
        "length_shift": np.median(ours) - np.median(theirs),
    }
    return metrics_of(numbers)


def _distinct(texts: Sequence[Sequence[str]], n: int) -> tuple[int, int]:
    """Different n-grams, and n-grams."""
    grams = [tuple(words[i : i + n]) for words in texts for i in range(len(words) - n + 1)]
    return len(set(grams)), len(grams)
