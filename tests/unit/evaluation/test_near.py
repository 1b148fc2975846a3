"""How near texts without labels come to real ones, beside what is free."""

import numpy as np
import pytest

from privsyn.evaluation.classifiers import split_holdout
from privsyn.evaluation.judge import NEARNESS, Case, judge
from privsyn.evaluation.report import gains, verdict

WIDTH = 6


def embed(texts):
    return np.array([[float(number) for number in text.split()] for text in texts], np.float32)


def written(rng, middle, count, wide=0.3):
    vectors = np.asarray(middle) + rng.normal(0, wide, (count, WIDTH))
    return [" ".join(f"{number:.6f}" for number in row) for row in vectors]


def unlabeled(texts):
    return [(text, "") for text in texts]


def scored(synthetic, real, public=(), examples=()):
    known, tested = split_holdout(real, len(synthetic))
    parts = map(unlabeled, (synthetic, tested, known, public, examples))
    return judge(Case(*parts), {NEARNESS: embed})


def measured(*sides):
    return {one.name: one.value for one in scored(*sides).metrics({})}


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
    found = measured(texts, real)
    order = np.random.default_rng(20240615).permutation(len(real)).tolist()
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (embed(real), embed(texts))]
    asked = unit[0][order[40:]]
    assert found["nearness.cosine"] == pytest.approx((asked @ unit[1].T).max(axis=1).mean())
    assert (found["nearness.records"], found["nearness.real_records"]) == (80, 40)
    known = (asked @ unit[0][order[:40]].T).max(axis=1).mean()
    assert found["nearness.real"] == pytest.approx(known)
    assert "nearness.public" not in found
    assert "nearness.gain" not in found
    assert "By the cosine of a real record to the nearest text: release" in verdict(found)


def test_what_covers_more_than_the_public_model_alone_gains_and_the_same_does_not(sides):
    rng, real, (one, other) = sides
    half = written(rng, one, 80)  # two draws
    both = written(rng, one, 20) + written(rng, other, 20)
    found = scored(both, real, half)
    assert found[NEARNESS, "gain"].low > 0.05
    assert gains(found, None)[0] in ("good", "fair")
    found = scored(written(rng, one, 40), real, half)
    assert found[NEARNESS, "gain"].low < 0
    assert gains(found, None)[0] == "poor"


def test_the_users_own_examples_are_free_here_too_and_more_texts_are_no_rival(sides):
    """More texts lie nearer, whatever they say: a set of all that is free would win by number."""
    rng, real, (one, other) = sides
    both = written(rng, one, 20) + written(rng, other, 20)
    found = scored(both, real, written(rng, one, 80), written(rng, one, 3) + written(rng, other, 3))
    assert {rival.name for rival in found.rivals(NEARNESS)} == {"public", "examples", "real"}
    assert found.best_free(NEARNESS).name == "examples"


def test_vectors_of_zeros_are_near_nothing():
    zeros = ["0 " * WIDTH] * 20
    real = written(np.random.default_rng(0), np.eye(WIDTH)[0], 40)
    assert measured(zeros, real)["nearness.cosine"] == 0
