"""Of several texts for a label, the one its writer holds to be most of it."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from privsyn.methods.shared.baseline import Recipe, write_alone
from privsyn.methods.shared.label_choice import MOST_LABELS, of_their_labels
from privsyn.methods.shared.prompts import Prompt
from privsyn.models.protocols import PromptTemplate
from tests.fakes import FakeLogitModel

SAID = {"bill": {"x": -1.0, "y": -9.0}, "help": {"x": -9.0, "y": -1.0}, "the": {"x": -0.1, "y": 0}}

PROMPT = PromptTemplate("{reference}", "A letter.\nTopic: {label}\nText:", labels=(("y", "why"),))


def nats(labels, texts):
    return np.array(
        [sum(SAID[w][of] for w in text.split()) for of, text in zip(labels, texts, strict=True)]
    )


def test_the_posterior_decides_and_not_the_likelihood():
    found = of_their_labels(
        ["x", "y"], ["the", "bill", "help", "the", "help the", "bill"], ["x", "y"], nats, PROMPT
    )
    assert found == ["bill", "help the"]


def test_one_candidate_is_kept_unread_and_one_label_tells_nothing_apart():
    def unread(labels, texts):
        raise AssertionError

    assert of_their_labels(["x", "y"], ["the", ""], ["x", "y"], unread, PROMPT) == ["the", ""]
    assert of_their_labels([], [], ["x", "y"], unread, PROMPT) == []
    assert of_their_labels(["x"], ["the", "bill", "help"], ["x"], nats, PROMPT) == ["the"]


def test_an_empty_text_is_kept_only_where_there_is_no_other():
    assert of_their_labels(["x"], ["", "help"], ["x", "y"], nats, PROMPT) == ["help"]
    assert of_their_labels(["x"], ["", " "], ["x", "y"], nats, PROMPT) == [""]


def test_a_text_that_strayed_is_kept_only_among_such():
    """Its prompt again, an answer, a circle; and whatever of these is most of its label."""

    def first(labels, texts):
        return np.array([-10.0 * ("bill" in text) if of == "y" else -1.0
                         for of, text in zip(labels, texts, strict=True)])  # fmt: skip

    scraps = ["Topic: why bill", "I'm here to help you with a bill", "bill to pay " * 20]
    for scrap in scraps:
        assert of_their_labels(["x"], [scrap, "no"], ["x", "y"], first, PROMPT) == ["no"]
        assert of_their_labels(["x"], ["", scrap], ["x", "y"], first, PROMPT) == [scrap]
    assert of_their_labels(["x"], ["no", "a bill"], ["x", "y"], first, PROMPT) == ["a bill"]
    said_by_slots = of_their_labels(["x", "y"], ["Topic: x bill", "no"] * 2, ["x", "y"], first,
                                    PROMPT)  # fmt: skip
    assert said_by_slots == ["no", "no"]
    lost = of_their_labels(["x"], ["I'm here to help you", scraps[1]], ["x", "y"], first, PROMPT)
    assert lost == [scraps[1]]  # of these the one most of its label


@pytest.mark.parametrize("none", [-math.inf, math.nan])
def test_a_label_that_holds_a_text_impossible_is_no_error(none):
    found = of_their_labels(
        ["x"],
        ["a", "b"],
        ["x", "y"],
        lambda of, texts: np.array([none if t == "a" else -1.0 for t in texts]),
        PROMPT,
    )
    assert found == ["b"]


def test_of_many_labels_a_few_are_compared_its_own_among_them():
    every, asked = [f"label {i}" for i in range(77)], []

    def watched(labels, texts):
        asked.append((labels, texts))
        return np.zeros(len(texts))

    of_their_labels(["label 70", "label 3"], list("abcd"), every, watched, PROMPT)
    ((labels, texts),) = asked
    assert texts == tuple(text for text in "abcd" for _ in range(MOST_LABELS))
    for start, own in zip(range(0, len(labels), MOST_LABELS), [70, 70, 3, 3], strict=True):
        of = labels[start : start + MOST_LABELS]
        assert of[0] == f"label {own}"
        assert len(set(of)) == MOST_LABELS


def test_the_public_model_alone_has_the_same_choice():
    """Its texts of two labels differ more in what it holds of them where it may choose."""
    model, labels = FakeLogitModel(), ["x", "y"] * 60
    prompt = Prompt(private="{reference}", public="say")

    def decided(candidates):
        recipe = Recipe(prompt=prompt, max_tokens=8, min_tokens=2, candidates=candidates)
        texts = write_alone(recipe, model, labels, np.random.default_rng(3), ("x", "y"))
        assert len(texts) == len(labels)
        own = model.likelihoods(prompt.template, labels, texts, 8)
        other = model.likelihoods(prompt.template, ["y", "x"] * 60, texts, 8)
        return float(np.mean(own - other))

    assert decided(8) > decided(1) + 1


def test_labels_that_are_missing_leave_nothing_to_choose():
    recipe = Recipe(prompt=Prompt(private="{reference}", public="say"), max_tokens=4)
    many = recipe.model_copy(update={"candidates": 5})
    for labels in ([None] * 6, ["x", None] * 3):
        alone = write_alone(recipe, FakeLogitModel(), labels, np.random.default_rng(3))
        assert write_alone(many, FakeLogitModel(), labels, np.random.default_rng(3)) == alone


def test_a_nucleus_holds_the_likeliest_words_alone():
    likely = np.log([0.02, 0.5, 0.3, 0.15, 0.03])
    model = FakeLogitModel(("<end>", "a", "b", "c", "d"), script=lambda *_: likely)
    prompt = Prompt(private="{reference}", public="say")

    def words(top_p):
        recipe = Recipe(prompt=prompt, max_tokens=6, min_tokens=6, top_k=None, top_p=top_p)
        texts = write_alone(recipe, model, ["x"] * 80, np.random.default_rng(1))
        return set(" ".join(texts).split())

    assert words(0.4) == {"a"}
    assert words(0.8) == {"a", "b"}
    assert words(0.9) == {"a", "b", "c"}
    assert words(1.0) == {"a", "b", "c", "d"}


def test_words_of_a_nucleus_are_as_likely_as_they_were():
    likely = np.array([0.02, 0.5, 0.3, 0.15, 0.03])
    model = FakeLogitModel(("<end>", "a", "b", "c", "d"), script=lambda *_: np.log(likely))
    prompt = Prompt(private="{reference}", public="say")
    for top_p, top_k, kept in ((0.9, None, 3), (0.8, 4, 2), (1.0, None, 4)):
        recipe = Recipe(prompt=prompt, max_tokens=6, min_tokens=6, top_k=top_k, top_p=top_p)
        texts = write_alone(recipe, model, ["x"] * 2_000, np.random.default_rng(5))
        found = Counter(" ".join(texts).split())
        expected = likely[1 : 1 + kept] / likely[1 : 1 + kept].sum()
        counts = [found[word] for word in "abcd"[:kept]]
        assert sum(counts) == found.total()
        # A seeded generator: always or never.
        assert chisquare(counts, expected * found.total()).pvalue > 1e-4
        assert chisquare(counts).pvalue < 1e-9


def test_a_nucleus_of_a_large_vocabulary_is_that_of_its_sorted_words():
    words = ("<end>", *(f"w{i}" for i in range(3_000)))
    for spread in (0.1, 4.0):  # a wide nucleus, a narrow one
        logits = np.random.default_rng(2).normal(0, spread, len(words))
        model = FakeLogitModel(words, script=lambda *_, logits=logits: logits)
        prompt = Prompt(private="{reference}", public="say")
        recipe = Recipe(prompt=prompt, max_tokens=6, min_tokens=6, top_k=None, top_p=0.5)
        texts = write_alone(recipe, model, ["x"] * 500, np.random.default_rng(5))
        logits[0] = -np.inf  # too short to end
        likely = np.exp(logits) / np.exp(logits).sum()
        order = np.argsort(-likely)
        nucleus = order[: int((likely[order].cumsum() < 0.5).sum()) + 1]
        found = set(" ".join(texts).split())
        assert found <= {words[i] for i in nucleus}
        assert len(found) > 0.6 * len(nucleus)


def test_a_row_without_numbers_ends_all_the_same():
    model = FakeLogitModel(script=lambda *_: np.full(12, -np.inf))
    prompt = Prompt(private="{reference}", public="say")
    for top_p in (0.9, 1.0):
        recipe = Recipe(prompt=prompt, max_tokens=3, top_k=None, top_p=top_p)
        assert len(write_alone(recipe, model, ["x"] * 4, np.random.default_rng(1))) == 4
