"""The attack of the canary audit on mechanisms whose answers are known."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from canaries import posterior
from canaries.attack import ACCOUNT, Answer, Recorded, Replayed, Told, contributions
from canaries.posterior import QUIETER, scores
from scipy.special import log_softmax, logsumexp
from scipy.stats import multivariate_normal

from privsyn.dp.noise import OpenDPNoise
from privsyn.errors import ConfigError
from tests.noise import NoNoise

UNITS = 60


def vectors(noise, dimensions, seed):
    """Sums of random contributions of those inside, with noise: answers, and who was in."""
    rng = np.random.default_rng(seed)
    inside = rng.random(UNITS) < 0.5
    own = rng.normal(size=(UNITS, dimensions))
    given = own[inside].sum(axis=0) + noise * rng.normal(size=dimensions)
    return [(Answer("gaussian", given, max(noise, 1e-3)), np.zeros(dimensions), own)], inside


def test_without_noise_least_squares_tell_everybody_apart():
    found, inside = vectors(0.0, 200, 1)
    assert np.array_equal(scores(iter(found), UNITS) > 0, inside)


def test_tokens_of_a_bucket_give_the_exact_posterior():
    """Against a sum over all subsets and loudnesses, of canaries that push the same tokens."""
    rng = np.random.default_rng(3)
    own, alone = np.zeros((UNITS, 5)), rng.normal(size=5)
    own[:4] = rng.normal(size=(4, 5))
    drawn = [2, 0, 3, 2]
    ratio = scores(((Answer("noisy_max", token, 2.0), alone, own) for token in drawn), UNITS)
    for unit in range(4):
        seen = {0: [], 1: []}
        for subset, quieter in itertools.product(itertools.product((0, 1), repeat=4), QUIETER):
            law = log_softmax(quieter * (alone + np.array(subset) @ own[:4]) / 2)
            seen[subset[unit]].append(sum(law[token] for token in drawn))
        assert ratio[unit] == pytest.approx(logsumexp(seen[1]) - logsumexp(seen[0]))
    assert not ratio[4:].any()


def test_vectors_give_the_exact_posterior_where_coins_are_normal():
    """Against a density written out: half a coin's mean and variance, and every loudness."""
    rng = np.random.default_rng(6)
    own, given = rng.normal(size=(3, 4)), rng.normal(size=4)
    found = scores(iter([(Answer("gaussian", given, 2.0), np.zeros(4), own)]), 3)
    weights, means = [], []
    for quieter in QUIETER:
        spread = own.T @ own / 4 + (2 / quieter) ** 2 * np.eye(4)
        left = given - own.sum(axis=0) / 2
        weights.append(multivariate_normal(np.zeros(4), spread).pdf(left))
        means.append(own @ np.linalg.solve(spread, left) / 4)
    assert found == pytest.approx(np.average(means, axis=0, weights=weights))


def test_an_attacker_who_doubts_the_loudness_finds_noise_that_is_too_quiet():
    """32 times too quiet: by the loudness that was priced far fewer are told apart."""
    doubting = believing = 0
    for seed in range(20):
        found, inside = vectors(1.0, UNITS, seed)
        [(answer, alone, own)] = found
        loud = answer._replace(scale=32.0)
        doubting += int(((scores(iter([(loud, alone, own)]), UNITS) > 0) == inside).sum())
        precise = own @ own.T / 32**2
        left = own @ (answer.given - own.sum(axis=0) / 2) / 32**2
        believed = np.linalg.solve(4 * np.eye(UNITS) + precise, left)
        believing += int(((believed > 0) == inside).sum())
    assert doubting > believing + 100  # of 1,200


def test_canaries_that_share_no_bucket_are_told_apart_by_their_own_tokens_alone(monkeypatch):
    monkeypatch.setattr(posterior, "QUIETER", (1.0,))  # which is told by the tokens of all
    rng = np.random.default_rng(4)
    first, second = np.zeros((2, UNITS, 3))
    first[:30], second[30:] = rng.normal(size=(30, 3)), rng.normal(size=(30, 3))  # beyond subsets
    one = [(Answer("noisy_max", 1, 1.0), np.zeros(3), first)]
    both = [*one, (Answer("noisy_max", 2, 1.0), np.zeros(3), second)]
    assert scores(both, UNITS)[:30] == pytest.approx(scores(one, UNITS)[:30])
    assert scores(both, UNITS)[30:].all()


def test_answers_are_noted_and_given_again_whatever_is_asked():
    answers = []
    noise = Recorded(NoNoise(), answers)
    first = noise.gaussian(np.array([3, 4]), 2.0)
    assert noise.noisy_max(np.array([1, 9, 2]), 1.0, 1) == 1
    assert noise.kind == "none"
    assert Recorded(OpenDPNoise(), []).kind == "opendp"
    again = Replayed(answers)
    assert again.gaussian(np.array([0, 0]), 2.0).tolist() == first.tolist() == [3, 4]
    with pytest.raises(Told):
        again.noisy_max(np.array([7, 0, 0]), 1.0, 1)
    assert [values.tolist() for values in again.asked] == [[0, 0], [7, 0, 0]]


def test_no_release_of_another_account_is_attacked():
    run = SimpleNamespace(ctx=None, planned=SimpleNamespace(account="portal"))
    with pytest.raises(ConfigError, match=f"portal: canaries .* {ACCOUNT} alone"):
        next(contributions(run, []))
