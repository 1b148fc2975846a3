"""MAUVE on samples whose order is known; variety and lengths against hand-worked numbers."""

import hashlib
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.evaluation.embeddings import (
    area,
    cluster_counts,
    compare_embeddings,
    compare_lengths,
    fidelity,
)


@dataclass
class HashEmbedder:
    """Eight numbers from a text's first word, a little noise from the rest."""

    revision: str = "hash-1"
    width: int = 8
    seen: list[int] = field(default_factory=list)

    def embed(self, texts):
        self.seen.append(len(texts))

        def numbers(text):
            raw = hashlib.blake2b(text.encode(), digest_size=self.width).digest()
            return np.frombuffer(raw, np.uint8).astype(np.float32) - 128

        return np.stack([numbers(text.split()[0]) + numbers(text) / 16 for text in texts])


def sample(words, count):
    rng = np.random.default_rng(len(words))
    return [f"{rng.choice(words.split())} {i}" for i in range(count)]


def test_mauve_falls_from_one_to_nothing_as_the_samples_part():
    rng = np.random.default_rng(0)
    base, same = rng.normal(size=(2, 400, 16)).astype(np.float32)
    shift = np.zeros(16, np.float32)
    values = []
    for distance in (0.0, 1.5, 3.0, 20.0):
        shift[0] = distance
        values.append(area(*cluster_counts(base, same + shift)))
    assert values == sorted(values, reverse=True)
    assert values[0] > 0.9
    assert values[-1] < 0.01
    assert area(*cluster_counts(base, base)) == pytest.approx(1)


def test_two_clusters_by_hand():
    """All of P in one cluster, half of Q in it: the curve can be worked out."""
    p, q = np.array([1.0, 0.0]), np.array([0.5, 0.5])
    lam = np.linspace(1e-6, 1 - 1e-6, 25)[:, None]
    mixed = lam * p + (1 - lam) * q
    of_q = np.exp(-5 * (0.5 * np.log(0.5 / mixed[:, 0]) + 0.5 * np.log(0.5 / mixed[:, 1])))
    of_p = np.exp(5 * np.log(mixed[:, 0]))
    x, y = np.r_[0, of_q[::-1], 1], np.r_[1, of_p[::-1], 0]
    across, along = np.argsort(x, kind="stable"), np.argsort(y, kind="stable")
    expected = (np.trapezoid(y[across], x[across]) + np.trapezoid(x[along], y[along])) / 2

    near = np.random.default_rng(0).normal(0, 1e-3, (20, 4)).astype(np.float32)
    first = near + np.array([1, 0, 0, 0], np.float32)
    second = near + np.repeat(np.eye(4, dtype=np.float32)[:2], 10, axis=0)
    assert area(*cluster_counts(first, second)) == pytest.approx(expected)


def vectors(words, count):
    return HashEmbedder().embed(sample(words, count))


def test_a_score_says_of_how_many_texts_and_of_which_encoder():
    alike, apart = (
        compare_embeddings(vectors("a b c", 40), vectors(words, 40), "hash")[0]
        for words in ("a b c", "d e f")
    )
    assert (alike.name, alike.cls) == ("mauve", "internal")
    assert "40 a side, vectors of hash" in alike.note
    assert alike.value > 0.8 > 0.3 > apart.value


def test_the_interval_of_mauve_holds_it_and_narrows_with_more_texts():
    def width(count):
        found = compare_embeddings(vectors("a b c d", count), vectors("c d e f", count), "hash")
        value, low, high = (metric.value for metric in found)
        assert [metric.name for metric in found] == ["mauve", "mauve_low", "mauve_high"]
        assert {metric.cls for metric in found} == {"internal"}
        assert 0 <= low < value < high <= 1
        return high - low

    assert width(400) < width(50)


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
