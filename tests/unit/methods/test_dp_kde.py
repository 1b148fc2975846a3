"""Density estimates: the kernel they estimate, their bounds, zero padding, one document alone."""

import math

import numpy as np
import pytest

from privsyn.dp.events import DiscreteGaussian as FineGaussian
from privsyn.methods.keyphrase_seeding import dp_kde
from privsyn.methods.keyphrase_seeding.dp_kde import (
    STEPS,
    TURN,
    Scorer,
    Structure,
    deviation,
    exact_sums,
    mechanism,
    structure_of,
    structures,
    windows,
)
from tests.noise import SeededNoise

ENSEMBLES = ("independent", "linear", "logarithmic")


def unit(rng, count, width=8):
    vectors = rng.standard_normal((count, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def kernel(shape, vectors, x, y):
    """exp(-||x - y||^2 / h^2) of every x and y, sequences of phrases; y is padded with zeros."""

    def points(rows):
        flat = vectors.astype(np.float64)[rows].reshape(len(rows), -1)
        return np.pad(flat, ((0, 0), (0, shape.blocks * vectors.shape[1] - flat.shape[1])))

    gaps = ((points(x)[:, None] - points(y)[None]) ** 2).sum(axis=2)
    return np.exp(-gaps / shape.bandwidth**2)


def features(shape, vectors, row):
    return exact_sums(shape.angles(vectors), np.array([row]))


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


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_scores_estimate_the_kernel_sum(ensemble):
    """Without noise, within five standard errors of random features; also for begun sequences."""
    rng = np.random.default_rng(2)
    vectors = unit(rng, 6)
    for shape in structures(ensemble, 5, 40_000, 1.0):
        private = rng.integers(0, 6, (3, shape.blocks))
        angles = shape.angles(vectors)
        sums = exact_sums(angles, private)
        for length in range(1, shape.blocks + 1):
            begun = rng.integers(0, 6, (2, length - 1))
            scores = Scorer(angles, length - 1).scores(sums, begun)
            asked = np.array([[*row, word] for row in begun for word in range(6)])
            exact = kernel(shape, vectors, private, asked).sum(axis=0).reshape(2, 6)
            assert np.abs(scores - exact).max() < 5 * 3 / math.sqrt(20_000)


@pytest.mark.parametrize("length", range(1, 9))
def test_padding_with_zeros_is_a_constant_factor(length):
    """Theorem B.2: k(x, (y, 0)) = k(x[:l], y) e^{-u (L' - l)}, the same for all y."""
    rng = np.random.default_rng(3)
    vectors = unit(rng, 9)
    shape = next(s for s in structures("logarithmic", 8, 10, 0.8) if s.blocks == 8)
    x, y = rng.integers(0, 9, (4, 8)), rng.integers(0, 9, (5, length))
    padded = kernel(shape, vectors, x, y)
    whole = Structure(0, length, shape.bandwidth, 10)
    prefix = kernel(whole, vectors, x[:, :length], y)
    factor = math.exp(-shape.block_norm * (8 - length))
    assert padded == pytest.approx(prefix * factor, rel=1e-6)  # unit length to float32


@pytest.mark.parametrize("length", range(1, 34))
def test_structures_of_an_ensemble(length):
    assert len(structures("independent", length, 2, 1.0)) == 1
    assert [s.blocks for s in structures("linear", length, 2, 1.0)] == list(range(1, length + 1))
    logarithmic = structures("logarithmic", length, 2, 1.0)
    count = max(1, math.ceil(math.log2(length)))
    assert [s.blocks for s in logarithmic] == [2**j for j in range(1, count + 1)]
    assert [s.block_norm for s in logarithmic] == pytest.approx([2 / s.blocks for s in logarithmic])
    assert [s.number for s in logarithmic] == list(range(count))
    asked = {structure_of("logarithmic", step) for step in range(1, length + 1)}
    assert asked == set(range(count))


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_a_document_adds_the_same_whatever_the_others_are(ensemble):
    """Permuted, inserted among, alone: sums are bit-equal, so one document moves its own part."""
    rng = np.random.default_rng(5)
    vectors = unit(rng, 30)
    documents = [rng.integers(0, 30, rng.integers(0, 9)).tolist() for _ in range(700)]
    for shape in structures(ensemble, 6, 64, 0.5)[-2:]:
        angles = shape.angles(vectors)

        def sums(of, shape=shape, angles=angles):
            return exact_sums(angles, windows(of, shape.blocks, 4))

        whole, order = sums(documents), rng.permutation(700)
        assert np.array_equal(whole, sums([documents[i] for i in order]))
        for place in (0, 350, 699):
            others = documents[:place] + documents[place + 1 :]
            assert np.array_equal(whole - sums(others), sums([documents[place]]))


def test_noise_has_the_deviation_it_is_said_to_have():
    rng, vectors = np.random.default_rng(7), unit(np.random.default_rng(7), 40)
    shape = Structure(0, 1, 1.0, 500)
    angles = shape.angles(vectors)
    for noise in ("laplace", "gaussian"):
        released = mechanism(noise, 500, 3, 0.7)
        zeros, none = np.zeros(500, np.int64), np.empty((1, 0), np.int64)
        scores = [
            Scorer(angles, 0).scores(released.draw(zeros, SeededNoise(seed)), none)[0, seed % 40]
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
