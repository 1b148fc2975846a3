"""Private kernel density estimates of phrases, by random Fourier features.

Source: Wagner, Naamad, Mishra 2023, "Fast private kernel density estimation via locality sensitive
quantization"; Nagesh et al. 2025, "Private text generation by seeding large language model
prompts", Appendix B.2. guarantee.md explains the tags [K4] ... .

A phrase is its unit vector z. With public frequencies w_j ~ N(0, 1) and bandwidth h

    f(z) = sqrt2 (cos a_j, sin a_j), a_j = sqrt2 w_j.z / h, j = 1 .. I/2,

E f(x).f(y) / I = exp(-||x - y||^2 / h^2), ||f||_2 = sqrt I and ||f||_1 <= I. The release is the
*sum* of f over the private phrases, with noise.

Every number that depends on the data is a whole number [K5]. Angles are multiples of 2 pi / TURN,
computed per public phrase. The entries of f come from one table of multiples of 1 / STEPS, rounded
toward zero. So a document's part of a sum depends on that document alone, to the last bit, and its
bound holds exactly.
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

SEED = (0x4B5053, 0, 1)
"""Seed of the public Fourier frequencies."""

Noise = Literal["laplace", "gaussian"]


@dataclass(frozen=True)
class Features:
    """Public parameters of the estimates.

    Attributes:
        bandwidth: Width of the kernel (h), for phrases of length 1.
        count: Numbers released (I), even.
    """

    bandwidth: float
    count: int

    def frequencies(self, width: int) -> NDArray[np.float32]:
        """The public w, shape (width, I/2)."""
        # Public randomness: the same in every run, so that a resumed release has the same features.
        rng = np.random.default_rng(SEED)
        return rng.standard_normal((width, self.count // 2), np.float32)

    def angles(self, vectors: NDArray[np.float32]) -> NDArray[np.uint16]:
        """Angle of every phrase, in units of 1/TURN turn.

        Args:
            vectors: Public unit vectors of the phrases, shape (phrases, width).

        Returns:
            Shape (phrases, I/2).
        """
        # a_j in units of 1/TURN turn: sqrt2 w.z / h radians are that / (2 pi) * TURN steps.
        turns = math.sqrt(2) / self.bandwidth / (2 * math.pi) * TURN
        at = vectors @ self.frequencies(vectors.shape[1])  # (phrases, I/2)
        at *= np.float32(turns)
        turned: NDArray[np.uint16] = np.rint(at, out=at).astype(np.int64).astype(np.uint16)
        return turned  # modulo TURN


def mechanism(
    noise: Noise, features: int, phrases: int, multiplier: float
) -> Laplace | DiscreteGaussian:
    """The noise of one estimate, in one object with its price.

    Args:
        noise: ``laplace`` (pure) or ``gaussian``.
        features: I.
        phrases: Most phrases by which neighboring datasets differ: M times the unit's records,
            doubled where one unit replaces another [K4].
        multiplier: Scale of the noise over the sensitivity: phrases * I (L1) under Laplace,
            phrases * sqrt(I) (L2) under Gaussian noise.
    """
    if noise == "laplace":
        l1 = phrases * features * STEPS
        return Laplace(l1, l1 * multiplier)
    # Rounded up twice: the floating-point root may be too small, and a sensitivity must not be.
    l2 = math.nextafter(phrases * math.sqrt(features) * STEPS * (1 + 2.0**-50), math.inf)
    return DiscreteGaussian(l2, l2 * multiplier)


def deviation(noise: Noise, features: int, phrases: int, multiplier: float) -> float:
    """The standard deviation of the noise on a score, in phrases. Public: settings alone set it.

    A score is f.g / I with ||g||_2^2 = I, so its deviation is that of one feature over sqrt I.
    """
    if noise == "laplace":
        return math.sqrt(2 * features) * phrases * multiplier
    return phrases * multiplier


def exact_sums(
    angles: NDArray[np.uint16], documents: Sequence[Sequence[int]], most: int
) -> NDArray[np.int64]:
    """The sum of f over the private phrases, in steps: cosines, then sines. Not yet private.

    Args:
        angles: The result of ``Features.angles``.
        documents: Numbers of each document's distinct phrases.
        most: Phrases of a document that count (M).

    Guarantee: a phrase adds a vector of norm at most I * STEPS (L1) and sqrt(I) * STEPS (L2),
    which does not depend on the other phrases, and a document at most M of them.
    """
    # privacy: at most M phrases of a document, as its sensitivity counts [K4]
    phrases = [phrase for document in documents for phrase in document[:most]]
    counts = np.bincount(np.array(phrases, np.int64), minlength=len(angles))
    present = np.flatnonzero(counts)
    weights = counts[present, None]  # (phrases present, 1)
    cosine = _cosine()
    # sin a = cos(a - quarter turn); uint16 wraps around, which is modulo TURN.
    parts = (cosine[angles[present]], cosine[angles[present] - np.uint16(TURN // 4)])
    return np.concatenate([(part * weights).sum(axis=0) for part in parts])


def scores_of(angles: NDArray[np.uint16], sums: NDArray[np.int64]) -> NDArray[np.float32]:
    """f.g / I for every phrase, shape (phrases,): post-processing of noisy sums.

    The sum of kernels, so an estimate of (number of private phrases) * density.
    """
    turns = angles.astype(np.float32) * np.float32(2 * math.pi / TURN)
    features = np.concatenate([np.cos(turns), np.sin(turns)], axis=1)  # (phrases, I)
    scale = math.sqrt(2) / STEPS / len(sums)
    scores: NDArray[np.float32] = features @ (sums * scale).astype(np.float32)
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
