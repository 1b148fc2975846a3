"""The attack of benchmarks/audit.py on mechanisms whose answers are known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

with pytest.MonkeyPatch.context() as patch:  # as where a benchmark is started
    patch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    from canary_attack import Answer, Recorded, Replayed, Told, scores

UNITS = 60


def vectors(noise: float, dimensions: int, seed: int):
    """Sums of random contributions of those inside, with noise: answers, and who was in."""
    rng = np.random.default_rng(seed)
    inside = rng.random(UNITS) < 0.5
    own = rng.normal(size=(UNITS, dimensions))
    given = own[inside].sum(axis=0) + noise * rng.normal(size=dimensions)
    return [(Answer("gaussian", given, max(noise, 1e-3)), np.zeros(dimensions), own)], inside


def test_without_noise_least_squares_tell_everybody_apart():
    found, inside = vectors(0.0, 200, 1)
    assert np.array_equal(scores(iter(found), UNITS) > 0.5, inside)


def test_under_much_noise_they_tell_nobody():
    right = 0
    for seed in range(30):
        found, inside = vectors(1e4, 200, seed)
        right += int(((scores(iter(found), UNITS) > 0.5) == inside).sum())
    assert 780 < right < 1020  # of 1,800 coins: within five deviations of the half


def test_tokens_speak_for_whom_they_were_likelier_with():
    own = np.zeros((UNITS, 4))
    own[0, 2], own[1, 3] = 5.0, 5.0
    ratio = scores(iter([(Answer("noisy_max", 2, 1.0), np.zeros(4), own)]), UNITS)
    assert ratio[0] > 0 > ratio[1]
    assert not ratio[2:].any()


def test_answers_are_noted_and_given_again_whatever_is_asked():
    answers: list[Answer] = []
    noise = Recorded(math.inf, answers)
    first = noise.gaussian(np.array([3, 4]), 2.0)
    assert noise.noisy_max(np.array([1, 9, 2]), 1.0, 1) == 1
    assert noise.kind == "broken"
    assert Recorded(1, []).kind == "opendp"
    again = Replayed(answers)
    assert again.gaussian(np.array([0, 0]), 2.0).tolist() == first.tolist() == [3, 4]
    with pytest.raises(Told):
        again.noisy_max(np.array([7, 0, 0]), 1.0, 1)
    assert [values.tolist() for values in again.asked] == [[0, 0], [7, 0, 0]]
