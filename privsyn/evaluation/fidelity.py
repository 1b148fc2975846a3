"""How the synthetic texts look: variety among them, and their lengths against real ones."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from privsyn.evaluation.metrics import Metric

WORD = re.compile(r"\w+")


def fidelity(texts: Sequence[str]) -> list[Metric]:
    """Metrics of the synthetic texts alone: ``dp-release``. What has nothing to count is left out.

    Distinct-n falls with the size of a corpus: compare files of like size only.
    """
    words = [WORD.findall(text.lower()) for text in texts]
    count, repeats = len(texts), len(texts) - len(set(texts))
    blank = sum(not text.strip() for text in texts)
    ratios = [
        ("words_mean", sum(map(len, words)), count, "words per text"),
        ("distinct_1", *_distinct(words, 1), "different words per word"),
        ("distinct_2", *_distinct(words, 2), "different word pairs per word pair"),
        ("duplicate_share", repeats, count, "share of texts that repeat an earlier one"),
        ("empty_share", blank, count, "share of texts without a visible character"),
    ]
    different = len({word for text in words for word in text})
    counts = [("texts", count, "synthetic texts"), ("vocabulary", different, "different words")]
    return [Metric(name, float(value), "dp-release", note) for name, value, note in counts] + [
        Metric(name, part / whole, "dp-release", note)
        for name, part, whole, note in ratios
        if whole
    ]


def compare_lengths(synthetic: Sequence[str], real: Sequence[str]) -> list[Metric]:
    """Distance between the lengths of synthetic and held-out real texts: ``internal``.

    Empty where one side has no texts.
    """
    if not synthetic or not real:
        return []
    from scipy.stats import wasserstein_distance

    ours, theirs = ([len(text.split()) for text in texts] for texts in (synthetic, real))
    return [
        Metric(
            "length_wasserstein",
            float(wasserstein_distance(ours, theirs)),
            "internal",
            "1-Wasserstein distance of text lengths to held-out real texts, in words",
        ),
        Metric(
            "length_ks",
            _furthest(ours, theirs),
            "internal",
            "Kolmogorov-Smirnov distance of text lengths to held-out real texts, 0 to 1",
        ),
        Metric(
            "length_shift",
            float(np.median(ours) - np.median(theirs)),
            "internal",
            "median length of synthetic texts less that of held-out real texts, in words",
        ),
    ]


def _furthest(ours: Sequence[int], theirs: Sequence[int]) -> float:
    """Largest distance of the distribution functions of two samples, one number a side or more."""
    places = np.union1d(ours, theirs)
    first, second = (
        np.searchsorted(np.sort(side), places, side="right") / len(side) for side in (ours, theirs)
    )
    return float(np.abs(first - second).max())


def _distinct(texts: Sequence[Sequence[str]], n: int) -> tuple[int, int]:
    """Different n-grams, and n-grams."""
    grams = [tuple(words[i : i + n]) for words in texts for i in range(len(words) - n + 1)]
    return len(set(grams)), len(grams)
