"""A release beside its baselines: numbers that are right where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.evaluation import classifiers
from privsyn.evaluation.classifiers import Labelled, compare, headline, labelled, verdict
from privsyn.methods.shared.baseline import Recipe, write_alone
from privsyn.methods.shared.prompts import PromptConfig
from privsyn.models.fakes import FakeLogitModel

PLACES = {"a": 0, "b": 1, "c": 2}


def embed(texts):
    """The first letter decides the vector; the length moves it a little."""
    out = np.zeros((len(texts), 4), np.float32)
    for row, text in zip(out, texts, strict=True):
        if text[0] in PLACES:
            row[PLACES[text[0]]] = 1
        row[3] = 0.001 * len(text)
    return out


def pairs(count, right=1.0):
    """Texts whose first letter is the label; a share of them says another letter."""
    names = list(PLACES)
    found = []
    for i in range(count):
        label = names[i % 3]
        said = label if i < right * count else names[(i + 1) % 3]
        found.append((f"{said} word" + "x" * (i % 5), label))
    return found


def numbers(*args):
    return {metric.name: metric.value for metric in headline(*args, embed, "e")}


def test_a_release_better_than_its_public_prompt_says_so():
    found = numbers(pairs(60), pairs(300), [pairs(60, right=0.0)])
    assert found["vectors.accuracy"] == found["vectors.real"] == 1
    assert found["vectors.public"] == 0
    assert found["vectors.gain"] == 1
    assert found["vectors.gain_low"] > 0
    assert found["vectors.chance"] == pytest.approx(1 / 3, abs=0.05)
    assert (found["vectors.records"], found["vectors.real_records"]) == (240, 60)
    assert {"downstream.public", "downstream.real"} <= set(found)
    words = verdict(found)
    assert words is not None
    assert "+1.000" in words
    assert "NOT" not in words


def test_a_release_no_better_than_its_public_prompt_is_called_so():
    found = numbers(pairs(60), pairs(300), [pairs(60)])
    assert found["vectors.gain"] == 0
    assert "not worth its epsilon" in str(verdict(found))


def test_several_draws_of_the_public_model_count_by_their_mean():
    bad, good = pairs(60, right=0.0), pairs(60)
    found = numbers(pairs(60), pairs(300), [bad, good, good])
    assert found["vectors.public"] == pytest.approx(2 / 3)
    assert found["vectors.gain"] == pytest.approx(1 / 3)
    one, other = (numbers(pairs(60), pairs(300), [own]) for own in (bad, good))
    assert found["downstream.public"] == pytest.approx(
        (one["downstream.public"] + 2 * other["downstream.public"]) / 3
    )


def test_more_draws_make_the_interval_of_the_gain_narrower():
    rng = np.random.default_rng(4)

    def noisy(count):
        labels = np.array(list(PLACES))[rng.integers(0, 3, count)]
        vectors = embed([label + " x" for label in labels])
        return Labelled(vectors + rng.normal(0, 1.5, vectors.shape).astype(np.float32), labels)

    ours, test, draws = noisy(600), noisy(2000), [noisy(12) for _ in range(8)]
    widths = []
    for public in (draws[:1], draws):
        gain = compare({"synthetic": ours, "public": public}, test).gain["public"]
        widths.append(gain.high - gain.low)
    assert widths[1] < 0.7 * widths[0]


def test_what_cannot_be_measured_is_left_out():
    assert headline(pairs(10), pairs(300), [], embed, "e") == []
    found = numbers(pairs(60), pairs(300), [])
    assert "vectors.gain" not in found
    assert "public model" not in str(verdict(found))
    assert verdict({"downstream.accuracy": 1.0}) is None
    assert labelled(["x", "y", "z"], ["a", None, "b"], 9) == [("x", "a"), ("z", "b")]
    assert len(labelled(["x"] * 99, ["a"] * 99, 7)) == 7


def test_few_held_out_records_are_halved():
    found = numbers(pairs(60), pairs(40), [])
    assert (found["vectors.records"], found["vectors.real_records"]) == (20, 20)


def test_intervals_hold_the_value_and_are_the_same_every_time():
    rng = np.random.default_rng(1)
    names = np.array(list(PLACES))

    def noisy(count):
        labels = names[rng.integers(0, 3, count)]
        vectors = embed([label + " x" for label in labels])
        return Labelled(vectors + rng.normal(0, 0.6, vectors.shape).astype(np.float32), labels)

    sets, test = {"synthetic": noisy(50), "public": noisy(50)}, noisy(200)
    found = compare(sets, test)
    assert found == compare(sets, test)
    for interval in (*found.value.values(), *found.gain.values()):
        assert interval.low <= interval.value <= interval.high
        assert 0.02 < interval.high - interval.low < 0.5
    one = compare({"one": Labelled(test.vectors[:3], np.array(["a"] * 3))}, test)
    assert one.value["one"].value == np.mean(test.labels == "a")


def test_the_public_model_alone_keeps_the_public_rules():
    prompt = PromptConfig(private="{reference}", public="x", stops=("visit",))
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


def test_a_gain_over_a_public_model_that_is_worse_than_nothing_is_no_worth():
    found = {
        "vectors.accuracy": 0.3,
        "vectors.accuracy_low": 0.2,
        "vectors.accuracy_high": 0.4,
        "vectors.records": 100,
        "vectors.chance": 0.25,
        "vectors.public": 0.1,
        "vectors.real_records": 40,
        "vectors.real": 0.8,
        "vectors.gain": 0.2,
        "vectors.gain_low": 0.1,
        "vectors.gain_high": 0.3,
    }
    said = str(verdict(found))
    assert "NOT shown to be more than the commonest label" in said
    assert "not worth its epsilon" in said
    assert "NOT" not in str(verdict(found | {"vectors.chance": 0.15}))
