"""What classifiers are trained and tested on, and texts of the public model alone."""

import numpy as np
import pytest

from privsyn.evaluation import classifiers
from privsyn.evaluation.classifiers import labeled_texts, split_holdout
from privsyn.methods.shared.baseline import Recipe, write_alone
from privsyn.methods.shared.prompts import Prompt
from tests.fakes import FakeLogitModel


def test_labeled_texts_are_evenly_spaced():
    assert labeled_texts(["x", "y", "z"], ["a", None, "b"], 9) == [("x", "a"), ("z", "b")]
    assert len(labeled_texts(["x"] * 99, ["a"] * 99, 7)) == 7


@pytest.mark.parametrize(("count", "known"), [(60, 20), (10, 10), (0, 0)])
def test_at_most_half_of_the_held_out_records_are_a_baseline(count, known):
    real = list(range(40))
    first, other = split_holdout(real, count)
    assert (len(first), sorted(first + other)) == (known, real)


def test_the_public_model_alone_keeps_the_public_rules():
    prompt = Prompt(private="{reference}", public="x", stops=("visit",))
    recipe = Recipe(prompt=prompt, max_tokens=12, min_tokens=4, top_k=9)
    labels = ["a", "b", None] * 8
    texts = write_alone(recipe, FakeLogitModel(), labels, np.random.default_rng(2), together=5)
    assert len(texts) == len(labels)
    assert not any("visit" in text for text in texts)
    assert max(len(text.split()) for text in texts) <= 12
    free = recipe.model_copy(update={"prompt": prompt.model_copy(update={"stops": ()})})
    whole = write_alone(free, FakeLogitModel(), labels, np.random.default_rng(2))
    assert min(len(text.split()) for text in whole) >= 4
    assert any("visit" in text for text in whole)


@pytest.mark.parametrize(("value", "least"), [(1.0, 0), (0.0, 0), (1.0, -1), (-1.0, -1)])
def test_an_interval_stays_within_what_shares_and_their_differences_can_be(value, least):
    samples = np.array([0.6, 0.8, 1.0])
    found = classifiers.spread(value, samples, least=least)
    assert least <= found.low <= found.value <= found.high <= 1
    assert found.low < found.high
