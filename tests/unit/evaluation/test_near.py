"""How near texts without labels come to real ones, beside what is free."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.evaluation.classifiers import near
from privsyn.evaluation.judge import verdict

WIDTH = 6


def embed(texts):
    """A text is its vector, written out."""
    return np.array([[float(number) for number in text.split()] for text in texts], np.float32)


def written(rng, middle, count, wide=0.3):
    vectors = np.asarray(middle) + rng.normal(0, wide, (count, WIDTH))
    return [" ".join(f"{number:.6f}" for number in row) for row in vectors]


def measured(synthetic, real, public):
    return {one.name: one.value for one in near(synthetic, real, public, embed, "here")}


@pytest.fixture
def sides():
    """Real records on two matters; a release that knows both; a public model that knows one."""
    rng = np.random.default_rng(1)
    one, other = np.eye(WIDTH)[:2]
    real = written(rng, one, 60) + written(rng, other, 60)
    return rng, real, (one, other)


def test_it_is_the_mean_cosine_to_the_nearest_text(sides):
    rng, real, (one, other) = sides
    texts = written(rng, one, 20) + written(rng, other, 20)
    found = measured(texts, real, [])
    order = np.random.default_rng(20240615).permutation(len(real)).tolist()
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (embed(real), embed(texts))]
    asked = unit[0][order[40:]]
    assert found["nearness.cosine"] == pytest.approx((asked @ unit[1].T).max(axis=1).mean())
    assert (found["nearness.records"], found["nearness.real_records"]) == (80, 40)
    known = (asked @ unit[0][order[:40]].T).max(axis=1).mean()
    assert found["nearness.real"] == pytest.approx(known)
    assert "nearness.public" not in found
    assert "worth its epsilon" not in verdict(found)


def test_what_covers_more_than_the_public_model_alone_gains_and_the_same_does_not(sides):
    rng, real, (one, other) = sides
    half = [written(rng, one, 40) for _ in range(2)]
    both = written(rng, one, 20) + written(rng, other, 20)
    found = measured(both, real, half)
    assert found["nearness.gain_low"] > 0.05
    assert "not worth" not in verdict(found)
    found = measured(written(rng, one, 40), real, half)
    assert found["nearness.gain_low"] < 0
    assert "not worth its epsilon" in verdict(found)


def test_it_is_the_same_every_time_and_the_order_of_texts_is_nothing(sides):
    rng, real, (one, _) = sides
    texts, public = written(rng, one, 15), [written(rng, one, 15)]
    found = measured(texts, real, public)
    assert found == measured(texts, real, public)
    turned = measured(texts[::-1], real, public)
    assert turned["nearness.cosine"] == pytest.approx(found["nearness.cosine"])


def test_a_text_that_is_one_of_the_records_is_as_near_as_can_be(sides):
    _, real, _ = sides
    found = measured(real, real, [real])
    assert found["nearness.cosine"] == pytest.approx(1)
    assert found["nearness.cosine_high"] <= 1


@pytest.mark.parametrize(("texts", "records"), [(9, 100), (100, 19)])
def test_of_a_handful_nothing_is_said(texts, records):
    rng = np.random.default_rng(0)
    middle = np.eye(WIDTH)[0]
    assert near(written(rng, middle, texts), written(rng, middle, records), [], embed, "") == []


def test_vectors_of_zeros_are_near_nothing():
    zeros = ["0 " * WIDTH] * 20
    real = written(np.random.default_rng(0), np.eye(WIDTH)[0], 40)
    assert measured(zeros, real, [])["nearness.cosine"] == 0
