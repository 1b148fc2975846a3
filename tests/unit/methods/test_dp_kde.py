"""Density estimates: the kernel they estimate, their bounds, one document alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privsyn.dp.events import DiscreteGaussian as FineGaussian
from privsyn.methods.keyphrase_seeding import dp_kde
from privsyn.methods.keyphrase_seeding.dp_kde import (
    STEPS,
    TURN,
    Features,
    deviation,
    exact_sums,
    mechanism,
    scores_of,
)
from tests.noise import SeededNoise


def unit(rng, count, width=8):
    vectors = rng.standard_normal((count, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def kernel(bandwidth, x, y):
    """exp(-||x - y||^2 / h^2) of every x and y."""
    gaps = ((x.astype(np.float64)[:, None] - y[None]) ** 2).sum(axis=2)
    return np.exp(-gaps / bandwidth**2)


def test_every_pair_keeps_its_bounds_exactly():
    """All TURN angles: L1 at most 2, squared L2 at most 2 and no less than the rounding takes."""
    cosine = dp_kde._cosine().astype(object)
    sine = np.roll(cosine, TURN // 4)
    assert max(np.abs(cosine) + np.abs(sine)) <= 2 * STEPS
    squares = cosine**2 + sine**2
    assert max(squares) <= 2 * STEPS**2
    assert min(squares) >= 2 * STEPS**2 * (1 - 2**-22)


def test_unrounded_pairs_have_norm_sqrt_features():
    rng = np.random.default_rng(1)
    angles = rng.uniform(0, 100, 500)
    pairs = math.sqrt(2) * np.concatenate([np.cos(angles), np.sin(angles)])
    assert np.linalg.norm(pairs) == pytest.approx(math.sqrt(1000), rel=1e-12)
    assert np.abs(pairs).sum() <= 1000


def test_scores_estimate_the_kernel_sum():
    """Without noise, within five standard errors of random features."""
    rng = np.random.default_rng(2)
    vectors = unit(rng, 6)
    private = rng.integers(0, 6, 3)
    angles = Features(1.0, 40_000).angles(vectors)
    scores = scores_of(angles, exact_sums(angles, [[phrase] for phrase in private], 1))
    exact = kernel(1.0, vectors[private], vectors).sum(axis=0)
    assert np.abs(scores - exact).max() < 5 * 3 / math.sqrt(20_000)


def test_the_first_phrases_of_a_document_count():
    angles = Features(1.0, 16).angles(unit(np.random.default_rng(6), 5))
    cut = exact_sums(angles, [[1, 2, 3], [], [4]], 2)
    assert np.array_equal(cut, exact_sums(angles, [[1], [2], [4]], 9))
    assert exact_sums(angles, [], 3).tolist() == exact_sums(angles, [[]], 3).tolist() == [0] * 16


def test_a_document_adds_the_same_whatever_the_others_are():
    """Permuted, inserted among, alone: sums are bit-equal, so one document moves its own part."""
    rng = np.random.default_rng(5)
    documents = [rng.integers(0, 30, rng.integers(0, 9)).tolist() for _ in range(700)]
    angles = Features(0.5, 64).angles(unit(rng, 30))

    def sums(of):
        return exact_sums(angles, of, 4)

    whole, order = sums(documents), rng.permutation(700)
    assert np.array_equal(whole, sums([documents[i] for i in order]))
    for place in (0, 350, 699):
        others = documents[:place] + documents[place + 1 :]
        assert np.array_equal(whole - sums(others), sums([documents[place]]))


def test_noise_has_the_deviation_it_is_said_to_have():
    rng, vectors = np.random.default_rng(7), unit(np.random.default_rng(7), 40)
    angles = Features(1.0, 500).angles(vectors)
    for noise in ("laplace", "gaussian"):
        released = mechanism(noise, 500, 3, 0.7)
        zeros = np.zeros(500, np.int64)
        scores = [
            scores_of(angles, released.draw(zeros, SeededNoise(seed)))[seed % 40]
            for seed in rng.integers(0, 2**31, 400)
        ]
        assert np.std(scores) == pytest.approx(deviation(noise, 500, 3, 0.7), rel=0.12)


def test_gaussian_noise_is_on_a_fine_lattice():
    assert isinstance(mechanism("gaussian", 2, 1, 0.1).event, FineGaussian)
    one, many = mechanism("gaussian", 1000, 10, 1.5), mechanism("laplace", 1000, 10, 1.5)
    assert one.sensitivity >= 10 * math.sqrt(1000) * STEPS
    assert one.sensitivity == pytest.approx(10 * math.sqrt(1000) * STEPS, rel=1e-12)
    assert many.sensitivity == 10 * 1000 * STEPS


def test_padding_cancels_in_released_scores():
    """The same through features: scores of padded queries over prefix kernels are one constant."""
    rng = np.random.default_rng(4)
    vectors = unit(rng, 5)
    shape = structures("logarithmic", 4, 400_000, 1.0)[1]
    private = rng.integers(0, 5, (6, 4))
    angles = shape.angles(vectors)
    scores = Scorer(angles, 2).scores(exact_sums(angles, private), np.array([[1, 3]]))[0]
    whole = Structure(0, 3, shape.bandwidth, 2)
    asked = np.array([[1, 3, word] for word in range(5)])
    prefix = kernel(whole, vectors, private[:, :3], asked).sum(axis=0)
    expected = math.exp(-shape.block_norm)
    assert scores / prefix == pytest.approx(np.full(5, expected), rel=0.05)


def test_padding_factor_is_at_most_e_where_it_is_asked():
    for length in range(1, 34):
        shapes = structures("logarithmic", length, 2, 1.0)
        for step in range(1, length + 1):
            shape = shapes[structure_of("logarithmic", step)]
            assert step <= shape.blocks
            assert shape.block_norm * (shape.blocks - step) <= 1 + 1e-12
