"""Words and labels of synthetic texts against those of held-out real ones: ``internal``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from privsyn.evaluation.fidelity import WORD
from privsyn.evaluation.metrics import Metric

T = TypeVar("T")

_FEWEST = 20


def compare_words(synthetic: Sequence[str], real: Sequence[str]) -> list[Metric]:
    """How far apart the words of two corpora are, beside two halves of the real one.

    Divergences fall with the number of texts, so as many of each side are compared, evenly spaced;
    what two samples of the real texts of that size have between them is told beside it.

    Returns:
        ``words_divergence``, ``pairs_divergence``, ``words_divergence_real`` (Jensen-Shannon, bits,
        0 to 1) and ``words_covered`` (share of real words that occur among the synthetic ones).
        Empty where a side has fewer than 20 texts.
    """
    count = min(len(synthetic), len(real) // 2)
    if count < _FEWEST // 2:
        return []
    ours, theirs, others = (
        [WORD.findall(text.lower()) for text in part]
        for part in (_spaced(side, count) for side in (synthetic, real[::2], real[1::2]))
    )
    singles, real_singles, other_singles = (
        Counter(word for text in part for word in text) for part in (ours, theirs, others)
    )
    pairs, real_pairs = (
        Counter(pair for text in part for pair in pairwise(text)) for part in (ours, theirs)
    )
    how = f"{count} texts a side, Jensen-Shannon in bits, 0 alike, 1 nothing in common"
    numbers = {
        "words_divergence": (divergence(singles, real_singles), f"words, {how}"),
        "pairs_divergence": (divergence(pairs, real_pairs), f"word pairs, {how}"),
        "words_divergence_real": (
            divergence(real_singles, other_singles),
            f"words of real texts to other real texts, {how}",
        ),
    }
    if total := real_singles.total():
        covered = sum(number for word, number in real_singles.items() if word in singles)
        note = f"share of the words of {count} real texts that occur in as many synthetic ones"
        numbers["words_covered"] = (covered / total, note)
    return [Metric(name, value, "internal", note) for name, (value, note) in numbers.items()]


def compare_labels(synthetic: Sequence[str | None], real: Sequence[str | None]) -> list[Metric]:
    """Total variation distance between the labels of both sides; empty without labels."""
    ours, theirs = (Counter(label for label in part if label) for part in (synthetic, real))
    if not ours or not theirs:
        return []
    apart = sum(
        abs(ours[label] / ours.total() - theirs[label] / theirs.total()) for label in ours | theirs
    )
    note = "total variation distance of labels to held-out real records, 0 to 1"
    return [Metric("labels_apart", apart / 2, "internal", note)]


def divergence(first: Counter[T], second: Counter[T]) -> float:
    """Jensen-Shannon divergence of two counts in bits, 0 to 1; 1 where one is empty.

    Source: Lin 1991, "Divergence measures based on the Shannon entropy", section 4.
    """
    if not first or not second:
        return 0.0 if not first and not second else 1.0
    names = list(first | second)
    p, q = (np.array([part[name] for name in names]) / part.total() for part in (first, second))
    middle = (p + q) / 2

    def to_middle(part: Any) -> float:
        held = part > 0
        return float((part[held] * np.log2(part[held] / middle[held])).sum())

    return min(1.0, max(0.0, (to_middle(p) + to_middle(q)) / 2))


def _spaced(texts: Sequence[str], count: int) -> list[str]:
    return [texts[i] for i in np.linspace(0, len(texts) - 1, count).astype(int)]
