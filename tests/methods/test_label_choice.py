"""Of several texts for a label, the one its writer holds to be most of it."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from privsyn.methods.shared import alone
from privsyn.methods.shared.alone import Recipe, write_alone
from privsyn.methods.shared.label_choice import MOST_LABELS, of_their_labels
from privsyn.methods.shared.prompts import PromptConfig
from privsyn.models.testing.language import FakeLogitModel

SAID = {"bill": {"x": -1.0, "y": -9.0}, "help": {"x": -9.0, "y": -1.0}, "the": {"x": -0.1, "y": 0}}


def nats(labels, texts):
    """Words that tell labels apart, and one that is likely under both."""
    return np.array(
        [sum(SAID[w][of] for w in text.split()) for of, text in zip(labels, texts, strict=True)]
    )


def test_the_posterior_decides_and_not_the_likelihood():
    found = of_their_labels(
        ["x", "y"], ["the", "bill", "help", "the", "help the", "bill"], ["x", "y"], nats
    )
    assert found == ["bill", "help the"]


def test_one_candidate_is_kept_unread_and_one_label_tells_nothing_apart():
    def unread(labels, texts):
        raise AssertionError

    assert of_their_labels(["x", "y"], ["the", ""], ["x", "y"], unread) == ["the", ""]
    assert of_their_labels([], [], ["x", "y"], unread) == []
    assert of_their_labels(["x"], ["the", "bill", "help"], ["x"], nats) == ["the"]


def test_an_empty_text_is_kept_only_where_there_is_no_other():
    assert of_their_labels(["x"], ["", "help"], ["x", "y"], nats) == ["help"]
    assert of_their_labels(["x"], ["", " "], ["x", "y"], nats) == [""]


@pytest.mark.parametrize("none", [-math.inf, math.nan])
def test_a_label_that_holds_a_text_impossible_is_no_error(none):
    found = of_their_labels(
        ["x"],
        ["a", "b"],
        ["x", "y"],
        lambda of, texts: np.array([none if t == "a" else -1.0 for t in texts]),
    )
    assert found == ["b"]


def test_of_many_labels_a_few_are_compared_its_own_among_them():
    every, asked = [f"label {i}" for i in range(77)], []

    def watched(labels, texts):
        asked.append((labels, texts))
        return np.zeros(len(texts))

    of_their_labels(["label 70", "label 3"], list("abcd"), every, watched)
    ((labels, texts),) = asked
    assert texts == tuple(text for text in "abcd" for _ in range(MOST_LABELS))
    for start, own in zip(range(0, len(labels), MOST_LABELS), [70, 70, 3, 3], strict=True):
        of = labels[start : start + MOST_LABELS]
        assert of[0] == f"label {own}"
        assert len(set(of)) == MOST_LABELS


def test_the_public_model_alone_has_the_same_choice():
    """Its texts of two labels differ more in what it holds of them where it may choose."""
    model, labels = FakeLogitModel(), ["x", "y"] * 60
    prompt = PromptConfig(private="{reference}", public="say")

    def decided(candidates: int) -> float:
        recipe = Recipe(prompt=prompt, max_tokens=8, min_tokens=2, candidates=candidates)
        texts = write_alone(recipe, model, labels, np.random.default_rng(3), ("x", "y"))
        assert len(texts) == len(labels)
        own = model.likelihoods(prompt.template, labels, texts, 8)
        other = model.likelihoods(prompt.template, ["y", "x"] * 60, texts, 8)
        return float(np.mean(own - other))

    assert decided(8) > decided(1) + 1


def test_labels_that_are_missing_leave_nothing_to_choose():
    recipe = Recipe(prompt=PromptConfig(private="{reference}", public="say"), max_tokens=4)
    many = recipe.model_copy(update={"candidates": 5})
    for labels in ([None] * 6, ["x", None] * 3):
        alone = write_alone(recipe, FakeLogitModel(), labels, np.random.default_rng(3))
        assert write_alone(many, FakeLogitModel(), labels, np.random.default_rng(3)) == alone


def test_a_nucleus_holds_the_likeliest_words_alone():
    likely = np.log([0.02, 0.5, 0.3, 0.15, 0.03])
    model = FakeLogitModel(("<end>", "a", "b", "c", "d"), script=lambda *_: likely)
    prompt = PromptConfig(private="{reference}", public="say")

    def words(top_p: float) -> set[str]:
        recipe = Recipe(prompt=prompt, max_tokens=6, min_tokens=6, top_k=None, top_p=top_p)
        texts = write_alone(recipe, model, ["x"] * 80, np.random.default_rng(1))
        return set(" ".join(texts).split())

    assert words(0.4) == {"a"}
    assert words(0.8) == {"a", "b"}
    assert words(0.9) == {"a", "b", "c"}
    assert words(1.0) == {"a", "b", "c", "d"}


def test_a_nucleus_wider_than_what_is_sorted_first_is_whole(monkeypatch):
    """Draws are the same however many tokens are sorted first."""
    model = FakeLogitModel()
    prompt = PromptConfig(private="{reference}", public="say")
    recipe = Recipe(prompt=prompt, max_tokens=6, top_k=None, top_p=0.7)
    drawn = []
    for first in (1, 2, 1024):
        monkeypatch.setattr(alone, "_NUCLEUS", first)
        texts = write_alone(recipe, model, ["x"] * 300, np.random.default_rng(5))
        drawn.append(Counter(" ".join(texts).split()))
    assert set(drawn[0]) == set(drawn[1]) == set(drawn[2])
    narrow = recipe.model_copy(update={"top_k": 2})
    texts = write_alone(narrow, model, ["x"] * 300, np.random.default_rng(5))
    assert len(set(texts)) > 20
