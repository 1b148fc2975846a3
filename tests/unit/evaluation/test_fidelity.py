"""Variety and length distance against hand-worked numbers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.evaluation.embeddings import compare_lengths, fidelity


def values(metrics):
    return {metric.name: metric.value for metric in metrics}


def test_variety_by_hand():
    texts = ["The cat, the dog", "the CAT sat", "the CAT sat", " \n"]
    assert values(fidelity(texts)) == {
        "texts": 4,
        "vocabulary": 4,  # the cat dog sat
        "words_mean": 10 / 4,
        "distinct_1": 4 / 10,  # the cat dog sat
        "distinct_2": 4 / 7,  # the-cat cat-the the-dog cat-sat
        "duplicate_share": 1 / 4,
        "empty_share": 1 / 4,
    }


def test_what_has_nothing_to_count_is_left_out():
    assert values(fidelity([])) == {"texts": 0, "vocabulary": 0}
    assert set(values(fidelity(["", "one"]))) == {
        "texts", "vocabulary", "words_mean", "distinct_1", "duplicate_share", "empty_share",
    }  # fmt: skip


def test_length_distance_by_hand():
    synthetic, real = ["a", "a b", "a b c"], ["a b c", "a b c d", "a b c d e"]
    assert values(compare_lengths(synthetic, real)) == pytest.approx(
        {"length_wasserstein": 2.0, "length_ks": 2 / 3, "length_shift": -2.0}
    )
    same = {"length_wasserstein": 0, "length_ks": 0, "length_shift": 0}
    assert values(compare_lengths(real, real)) == same


def test_length_distance_needs_both_sides():
    assert compare_lengths([], ["a"]) == []
    assert compare_lengths(["a"], []) == []


@settings(deadline=None)
@given(st.lists(st.text(max_size=40), max_size=12))
def test_shares_lie_between_zero_and_one(texts):
    measured = values(fidelity(texts))
    for name in ("distinct_1", "distinct_2", "duplicate_share", "empty_share"):
        assert 0 <= measured.get(name, 0) <= 1
