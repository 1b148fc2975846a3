"""Words and labels of two corpora: against hand numbers and another implementation."""

from __future__ import annotations

from collections import Counter

import pytest
from scipy.spatial.distance import jensenshannon

from privsyn.evaluation.language_model import compare_labels, compare_words, divergence


def named(metrics):
    return {metric.name: metric.value for metric in metrics}


@pytest.mark.parametrize(
    ("first", "second"), [("aab", "abb"), ("abc", "cde"), ("a" * 9 + "b", "b"), ("abcd", "abcd")]
)
def test_the_divergence_is_scipys(first, second):
    letters = sorted({*first, *second})
    p, q = ([Counter(part)[one] for one in letters] for part in (first, second))
    expected = jensenshannon(p, q, base=2) ** 2
    assert divergence(Counter(first), Counter(second)) == pytest.approx(expected, abs=1e-12)


def test_equal_corpora_are_alike_and_disjoint_ones_are_not():
    real = [f"the bill is {word}" for word in ("late", "wrong") for _ in range(20)]
    alike = named(compare_words(real[::2], real))
    assert alike["words_divergence"] == pytest.approx(0, abs=1e-12)
    assert alike["words_covered"] == 1
    apart = named(compare_words([f"zz{i}" for i in range(40)], real))
    assert apart["words_divergence"] == apart["pairs_divergence"] == 1
    assert apart["words_covered"] == 0
    assert {metric.cls for metric in compare_words(real, real)} == {"internal"}


def test_few_texts_are_not_compared():
    assert compare_words(["a"] * 9, ["b"] * 40) == compare_words(["a"] * 40, ["b"] * 19) == []
    assert compare_words(["..."] * 40, [""] * 40) != []


def test_labels_are_compared_by_share():
    (apart,) = compare_labels(["a", "a", "b", None], ["a", "b", "b", "b", "c", "c"])
    assert apart.value == pytest.approx((4 / 6 - 1 / 6 + abs(1 / 3 - 1 / 2) + 1 / 3) / 2)
    assert compare_labels([None], ["a"]) == compare_labels(["a"], []) == []
