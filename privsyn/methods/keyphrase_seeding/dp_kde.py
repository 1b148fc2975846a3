"""Private kernel density estimates of sequences of phrases, by random Fourier features.

Source: Wagner, Naamad, Mishra 2023, "Fast private kernel density estimation via locality sensitive
quantization"; Nagesh et al. 2025, "Private text generation by seeding large language model
prompts", Appendix B.2. guarantee.md explains the tags [K4] ... .

A structure estimates the density of sequences of L' phrases ("blocks"). A sequence is the point z
of its L' unit vectors in a row. With public frequencies w_j ~ N(0, 1) and bandwidth h

    f(z) = sqrt2 (cos a_j, sin a_j), a_j = sqrt2 w_j.z / h, j = 1 .. I/2,

E f(x).f(y) / I = exp(-||x - y||^2 / h^2), ||f||_2 = sqrt I and ||f||_1 <= I. The release is the
*sum* of f over the private sequences, with noise.

Every number that depends on the data is a whole number [K5]. Angles are multiples of 2 pi / TURN,
computed per public phrase and block and added modulo TURN. The entries of f come from one table of
multiples of 1 / STEPS, rounded toward zero. So a document's part of a sum depends on that document
alone, to the last bit, and its bound holds exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from privsyn.dp.mechanisms import DiscreteGaussian, Laplace

STEPS = 2**24
"""Lattice: a feature is a multiple of 1 / STEPS."""

TURN = 2**16
"""Lattice angles in a full turn."""

SEED = 0x4B5053
"""Seed of the public Fourier frequencies."""

ROWS = 512
"""Sequences per batch of features: as many as fit into a processor's cache."""

Ensemble = Literal["independent", "linear", "logarithmic"]
Noise = Literal["laplace", "gaussian"]


@dataclass(frozen=True)
class Structure:
    """Public parameters of one estimate.

    Attributes:
        number: Position in its ensemble, 0-based.
        blocks: Phrases of a sequence (L').
        bandwidth: Width of the kernel (h), for phrases of length 1.
        features: Numbers released (I), even.
    """

    number: int
    blocks: int
    bandwidth: float
    features: int

    @property
    def block_norm(self) -> float:
        """Squared norm (u) of a phrase divided by the bandwidth."""
        return 1 / self.bandwidth**2

    def frequencies(self, width: int) -> NDArray[np.float32]:
        """The public w, shape (blocks, width, I/2)."""
        # Public randomness: the same in every run, so that a resumed release has the same features.
        rng = np.random.default_rng((SEED, self.number, self.blocks))
        return rng.standard_normal((self.blocks, width, self.features // 2), np.float32)

    def angles(self, vectors: NDArray[np.float32]) -> NDArray[np.uint16]:
        """Angle of every phrase in every block, in units of 1/TURN turn.

        Args:
            vectors: Public unit vectors of the phrases, shape (phrases, width).

        Returns:
            Shape (blocks, phrases, I/2).
        """
        # a_j in units of 1/TURN turn: sqrt2 w.z / h radians are that / (2 pi) * TURN steps.
        turns = math.sqrt(2) / self.bandwidth / (2 * math.pi) * TURN
        angles = np.empty((self.blocks, len(vectors), self.features // 2), np.uint16)
        for block, w in enumerate(self.frequencies(vectors.shape[1])):
            at = vectors @ w  # (phrases, I/2)
            at *= np.float32(turns)
            angles[block] = np.rint(at, out=at).astype(np.int64).astype(np.uint16)  # modulo TURN
        return angles


def structures(ensemble: Ensemble, length: int, features: int, bandwidth: float) -> list[Structure]:
    """The estimates of an ensemble for sequences of ``length`` phrases, in order.

    Independent: one of single phrases. Linear: L, of 1 to L phrases, u = 1 / L'. Logarithmic:
    max(1, ceil(log2 L)), of 2, 4, 8 ... phrases, u = 2 / L'. All times 1 / bandwidth^2.

    >>> [s.blocks for s in structures("logarithmic", 10, 1000, 1.0)]
    [2, 4, 8, 16]
    """
    match ensemble:
        case "independent":
            shapes = [(1, 1.0)]
        case "linear":
            shapes = [(blocks, math.sqrt(blocks)) for blocks in range(1, length + 1)]
        case "logarithmic":
            count = max(1, (length - 1).bit_length())
            shapes = [(2**j, math.sqrt(2**j / 2)) for j in range(1, count + 1)]
    return [Structure(i, b, bandwidth * h, features) for i, (b, h) in enumerate(shapes)]


def structure_of(ensemble: Ensemble, step: int) -> int:
    """The number of the structure that scores the ``step``-th phrase (counted from 1).

    >>> [structure_of("logarithmic", step) for step in range(1, 10)]
    [0, 0, 1, 1, 2, 2, 2, 2, 3]
    """
    match ensemble:
        case "independent":
            return 0
        case "linear":
            return step - 1
        case "logarithmic":
            return max(1, (step - 1).bit_length()) - 1


def mechanism(
    noise: Noise, features: int, sequences: int, multiplier: float
) -> Laplace | DiscreteGaussian:
    """The noise of one structure, in one object with its price.

    Args:
        noise: ``laplace`` (pure) or ``gaussian``.
        features: I.
        sequences: Most sequences by which neighboring datasets differ: M times the unit's
            records, doubled where one unit replaces another [K4].
        multiplier: Scale of the noise over the sensitivity: sequences * I (L1) under Laplace,
            sequences * sqrt(I) (L2) under Gaussian noise.
    """
    if noise == "laplace":
        l1 = sequences * features * STEPS
        return Laplace(l1, l1 * multiplier)
    # Rounded up twice: the floating-point root may be too small, and a sensitivity must not be.
    l2 = math.nextafter(sequences * math.sqrt(features) * STEPS * (1 + 2.0**-50), math.inf)
    return DiscreteGaussian(l2, l2 * multiplier)


def deviation(noise: Noise, features: int, sequences: int, multiplier: float) -> float:
    """The standard deviation of the noise on a score, in sequences. Public: settings alone set it.

    A score is f.g / I with ||g||_2^2 = I, so its deviation is that of one feature over sqrt I.
    """
    if noise == "laplace":
        return math.sqrt(2 * features) * sequences * multiplier
    return sequences * multiplier


def windows(documents: Sequence[Sequence[int]], blocks: int, most: int) -> NDArray[np.int64]:
    """The sequences of the documents' distinct phrases, shape (sequences, blocks) [K6].

    A sequence begins at each of a document's first ``most`` phrases and follows the document's
    order; after the last phrase it continues at the first. So every sequence has all its blocks and
    all points have one norm. A document without phrases has no sequence.

    >>> windows([[7, 8, 9], [], [5]], blocks=2, most=2).tolist()
    [[7, 8], [8, 9], [5, 5]]
    """
    counts = np.array([len(document) for document in documents], np.int64)
    phrases = np.array([phrase for document in documents for phrase in document], np.int64)
    # privacy: at most M sequences of a document, as its sensitivity counts [K4]
    per_document = np.minimum(counts, most)
    owner = np.repeat(np.arange(len(counts)), per_document)  # (sequences,): document of each
    # Position in its own document at which each sequence begins, shape (sequences,).
    start = np.arange(len(owner)) - np.repeat(np.cumsum(per_document) - per_document, per_document)
    places = (start[:, None] + np.arange(blocks)) % counts[owner, None]  # (sequences, blocks)
    sequences: NDArray[np.int64] = phrases[(np.cumsum(counts) - counts)[owner, None] + places]
    return sequences


def exact_sums(angles: NDArray[np.uint16], sequences: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of f over the private sequences, in steps: cosines, then sines. Not yet private.

    Args:
        angles: The result of ``Structure.angles``.
        sequences: Phrase numbers, shape (sequences, blocks).

    Guarantee: a sequence adds a vector of norm at most I * STEPS (L1) and sqrt(I) * STEPS (L2),
    which does not depend on the other sequences.
    """
    cosine, half = _cosine(), angles.shape[2]
    sums = np.zeros(2 * half, np.int64)
    if angles.shape[0] == 1:  # one phrase each: count them
        counts = np.bincount(sequences[:, 0], minlength=angles.shape[1])
        present = np.flatnonzero(counts)
        weights = counts[present, None]  # (phrases present, 1)
        sums[:half] = (cosine[angles[0, present]] * weights).sum(axis=0)
        sums[half:] = (cosine[angles[0, present] - np.uint16(TURN // 4)] * weights).sum(axis=0)
        return sums
    for start in range(0, len(sequences), ROWS):
        # Batches only bound memory: sums of whole numbers are the same for every batch size.
        total = point(angles, sequences[start : start + ROWS])  # (at most ROWS, I/2)
        sums[:half] += np.take(cosine, total).sum(axis=0, dtype=np.int64)
        # sin a = cos(a - quarter turn); uint16 wraps around, which is modulo TURN.
        total -= np.uint16(TURN // 4)
        sums[half:] += np.take(cosine, total).sum(axis=0, dtype=np.int64)
    return sums


def point(angles: NDArray[np.uint16], sequences: NDArray[np.int64]) -> NDArray[np.uint16]:
    """Angles of full or partial sequences, shape (sequences, I/2); missing blocks add angle 0."""
    total = np.zeros((len(sequences), angles.shape[2]), np.uint16)
    for block in range(sequences.shape[1]):
        total += np.take(angles[block], sequences[:, block], axis=0)  # modulo TURN
    return total


class Scorer:
    """Scores of each phrase as the next of a partial sequence; post-processing of noisy sums.

    Args:
        angles: Angles of the scoring structure, shape (blocks, phrases, I/2).
        block: Position of the next phrase, 0-based; the blocks after it are zero vectors [K7].
    """

    def __init__(self, angles: NDArray[np.uint16], block: int) -> None:
        self._angles = angles
        turns = angles[block].astype(np.float32) * np.float32(2 * math.pi / TURN)
        self._next = np.concatenate([np.cos(turns), np.sin(turns)], axis=1)  # (phrases, I)

    def scores(self, sums: NDArray[np.int64], prefixes: NDArray[np.int64]) -> NDArray[np.float32]:
        """f.g / I for every partial sequence and next phrase, shape (sequences, phrases).

        The sum of kernels, so an estimate of (number of private sequences) * density.
        """
        half = self._angles.shape[2]
        c, s = (sums.reshape(2, half) * (math.sqrt(2) / STEPS / (2 * half))).astype(np.float32)
        # c, s: (I/2,); turns, cos, sin: (sequences, I/2); rotated: (sequences, I)
        turns = point(self._angles, prefixes).astype(np.float32) * np.float32(2 * math.pi / TURN)
        cos, sin = np.cos(turns), np.sin(turns)
        rotated = np.concatenate([c * cos + s * sin, s * cos - c * sin], axis=1)
        scores: NDArray[np.float32] = rotated @ self._next.T
        return scores


@lru_cache(maxsize=1)
def _cosine() -> NDArray[np.int32]:
    """sqrt2 cos of every angle, in steps, rounded toward zero; a quarter turn back is the sine.

    For each angle |cosine| + |sine| <= 2 STEPS and cosine^2 + sine^2 <= 2 STEPS^2 [K5].
    """
    exact = math.sqrt(2) * STEPS * np.cos(2 * math.pi / TURN * np.arange(TURN))
    # privacy: toward zero, so that rounding can only shrink a document's part of a sum [K5]
    table: NDArray[np.int32] = np.trunc(exact).astype(np.int32)  # (TURN,)
    return table
