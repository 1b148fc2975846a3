"""Of several texts for a label, the one its writer holds to be most of it."""

import math

import numpy as np
import pytest

from privsyn.methods.shared.label_choice import MOST_LABELS, of_their_labels
from privsyn.models.protocols import PromptTemplate

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
