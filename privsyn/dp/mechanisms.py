"""Mechanisms: noise scale and price from one frozen object, over int64 lattices.

Sensitivities are in lattice steps and include adjacency and the records per unit.
Prices are rounded up from exact rational arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from privsyn.dp import events, table_gaussian
from privsyn.dp.noise import NoiseSource

FINE_SIGMA = 2.0**16
"""Smallest sigma, in lattice steps, at which the continuous Gaussian curve is charged.

The curves differ relatively by about (x / sigma)^2 / 8 in delta, for x below 40 standard
deviations: at most 4.7e-8, while conversions.gaussian_epsilon reserves 1e-6.
"""


CLIP_STEPS = 2**24
"""Lattice steps of the clip norm of a sampled Gaussian."""

Sampler = Literal["auto", "opendp", "table"]
"""Sampler of a sampled Gaussian's noise: OpenDP (exact) or a table (faster) [B13].

auto: the table for vectors of more than TABLE_ABOVE numbers, if its conditions hold.
"""

TABLE_ABOVE = 50_000

_FINER = 2**16
_LARGEST = 2**46
_MOST_STEPS, _MOST_NUMBERS = 2**16, 2**28
_LEAST_NOISE = 2.0**36 / (CLIP_STEPS * _FINER)
_MOST_NOISE = table_gaussian.MOST_SIGMA / (CLIP_STEPS * _FINER)


@dataclass(frozen=True)
class _Scaled:
    """A sensitivity and a scale, both in lattice steps."""

    sensitivity: int
    scale: float

    def __post_init__(self) -> None:
        if type(self.sensitivity) is not int or not 0 <= self.sensitivity < 2**62:
            raise ValueError(
                f"sensitivity={self.sensitivity!r} must be a whole number in [0, 2^62)"
            )
        _check_positive("scale", self.scale)

    @property
    def _ratio(self) -> Fraction:
        return Fraction(self.sensitivity) / Fraction(self.scale)


class ExponentialMechanism(_Scaled):
    """One index with probability proportional to exp(score / scale).

    Guarantee: between neighbors, the log probabilities of all indices change by amounts in one
    interval of width eta = 2 sensitivity / scale (bounded range). This is (sensitivity / scale)^2 /
    2 zCDP (Cesar and Rogers 2021): [B4] in bounds.md. Many composed draws cost less by their exact
    curve [B15].

    Attributes:
        sensitivity: Largest change of any one score between neighbors (L-inf), in lattice steps.
        scale: Temperature, in lattice steps.
    """

    @property
    def event(self) -> events.BoundedRange:
        """Price of one draw."""
        # 2 sensitivity / scale: the chosen score may rise while all others fall [B4].
        return events.BoundedRange(range=round_up(2 * self._ratio))

    def draw(self, scores: NDArray[np.int64], noise: NoiseSource) -> int:
        """Draw one index.

        Raises:
            TypeError: Scores are not int64. (Sums of floats depend on their order.)
            ValueError: Scores are not one non-empty row of shape (candidates,).
        """
        _check_lattice(scores)
        if scores.ndim != 1 or not len(scores):
            raise ValueError(f"scores of shape {scores.shape} must be one non-empty row")
        return noise.noisy_max(scores, float(self.scale), self.sensitivity)


class AboveThreshold(_Scaled):
    """Find the first query of a stream that is at or above a threshold: one round.

    Guarantee: pure loss 2 sensitivity / scale for one noisy threshold and all queries up to and
    including the first at or above it; each query may depend on earlier answers (Dwork and Roth
    2014, Theorem 3.23; Lyu, Su, Li 2017, Algorithm 1 with c = 1). After that answer the threshold
    must not be used again. Drawing it again earlier is a second round.

    Attributes:
        sensitivity: Largest change of any query between neighbors, in lattice steps.
        scale: Scale of the threshold's noise, in lattice steps; queries get twice that.
    """

    @property
    def event(self) -> events.Pure:
        """Price of one round."""
        return events.Pure(epsilon=round_up(2 * self._ratio))

    def threshold(self, theta: int, noise: NoiseSource) -> int:
        """The noisy threshold of a round."""
        # privacy: the noisy threshold itself is never released, only answers of comparisons.
        return int(noise.laplace(np.array([theta], np.int64), float(self.scale))[0])

    def is_above(self, query: int, threshold: int, noise: NoiseSource) -> bool:
        """Whether a query with its own noise is at or above the round's noisy threshold."""
        # Twice the scale: half of the loss pays for the threshold, half for the positive answer.
        noisy = noise.laplace(np.array([query], np.int64), 2 * float(self.scale))[0]
        return bool(noisy >= threshold)


class Laplace(_Scaled):
    """A vector plus discrete Laplace noise.

    Guarantee: pure loss sensitivity / scale.

    Attributes:
        sensitivity: L1 distance of neighbors' vectors, in lattice steps.
        scale: Scale of the noise, lattice steps.
    """

    @property
    def event(self) -> events.Pure:
        """Price of one draw."""
        return events.Pure(epsilon=round_up(self._ratio))

    def draw(self, values: NDArray[np.int64], noise: NoiseSource) -> NDArray[np.int64]:
        """Add noise to every entry; TypeError unless int64."""
        _check_lattice(values)
        return noise.laplace(values, float(self.scale))


@dataclass(frozen=True)
class DiscreteGaussian:
    """A vector plus discrete Gaussian noise.

    Guarantee: (sensitivity / sigma)^2 / 2 zCDP on any lattice (Canonne, Kamath, Steinke 2020). From
    FINE_SIGMA on, the tighter curve of the continuous Gaussian [B6].

    Attributes:
        sensitivity: L2 distance of neighbors' vectors, in lattice steps.
        sigma: Standard deviation parameter of the noise, in lattice steps.
    """

    sensitivity: float
    sigma: float

    def __post_init__(self) -> None:
        _check_positive("sensitivity", self.sensitivity)
        _check_positive("sigma", self.sigma)

    @property
    def event(self) -> events.DiscreteGaussian | events.ZCDP:
        """Price of one draw."""
        ratio = Fraction(self.sensitivity) / Fraction(self.sigma)
        # On a coarse lattice the continuous curve claims less than the truth [B6].
        if self.sigma < FINE_SIGMA:
            return events.ZCDP(rho=round_up(ratio**2 / 2))
        return events.DiscreteGaussian(noise_multiplier=_down(1 / ratio))

    def draw(self, values: NDArray[np.int64], noise: NoiseSource) -> NDArray[np.int64]:
        """Add noise to every entry; TypeError unless int64."""
        _check_lattice(values)
        return noise.gaussian(values, float(self.sigma))


def root_up(squared: int) -> float:
    """The square root of an integer, rounded up: an L2 sensitivity.

    >>> root_up(9), root_up(2) ** 2 >= 2
    (3.0, True)
    """
    root = math.sqrt(squared)
    # math.sqrt rounds to the nearest float, which may be below the root.
    while Fraction(root) ** 2 < squared:
        root = math.nextafter(root, math.inf)
    return root


@dataclass(frozen=True)
class SampledGaussian:
    """Sums of clipped vectors over Poisson samples of the units, each plus discrete Gaussian noise.

    Guarantee: that of as many sampled Gaussians over the reals, for neighbors that differ by the
    presence of one unit (Abadi et al. 2016; Mironov, Talwar, Zhang 2019). The errors of the lattice
    and of the table are below what the accountant reserves: [B12] and [B13] in bounds.md.

    Attributes:
        rate: Probability of each unit to enter a sample.
        noise_multiplier: Standard deviation of the noise over the clip norm.
        steps: Number of sums, each chosen after those before.
        sampler: Sampler of the noise. The price is the same. The table needs a rate below 1:
            without sampling nothing is reserved for its error.
    """

    rate: float
    noise_multiplier: float
    steps: int
    sampler: Sampler = "opendp"

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate={self.rate!r} must be above 0 and at most 1")
        _check_positive("noise_multiplier", self.noise_multiplier)
        if not (type(self.steps) is int and 1 <= self.steps <= _MOST_STEPS):
            raise ValueError(f"steps={self.steps!r} must be a whole number in [1, {_MOST_STEPS}]")
        # Below this the lattice is too coarse for the error that [B12] bounds.
        if self.noise_multiplier < _LEAST_NOISE:
            raise ValueError(f"noise_multiplier={self.noise_multiplier!r} is below {_LEAST_NOISE}")
        if self.sampler not in get_args(Sampler):
            raise ValueError(f"sampler={self.sampler!r} must be one of {get_args(Sampler)}")
        if self.sampler == "table" and not self._table_holds:
            raise ValueError(
                f"sampler='table' needs rate={self.rate!r} below 1 and "
                f"noise_multiplier={self.noise_multiplier!r} at most {_MOST_NOISE}; use 'opendp'"
            )

    @property
    def event(self) -> events.SampledGaussian:
        """Price of all steps."""
        return events.SampledGaussian(self.rate, self.noise_multiplier, self.steps)

    @property
    def _table_holds(self) -> bool:
        return self.rate < 1 and self.noise_multiplier <= _MOST_NOISE

    def sample(self, units: int, noise: NoiseSource) -> NDArray[np.bool_]:
        """Mask of the units in a step's sample, shape (units,). It is secret, and so is its sum."""
        return noise.sample(units, self.rate)

    def draw(self, total: NDArray[np.int64], noise: NoiseSource) -> NDArray[np.float64]:
        """The noisy sum of a step, in multiples of the clip norm.

        Args:
            total: Exact sum over the sample of vectors of L2 norm at most CLIP_STEPS, (numbers,).
            noise: Source of randomness.

        Raises:
            TypeError: Not int64.
            ValueError: There are more numbers than [B12] and [B13] cover.
        """
        _check_lattice(total)
        if total.size > _MOST_NUMBERS:
            raise ValueError(f"{total.size} numbers are more than {_MOST_NUMBERS}")
        # privacy: clipping is 1-Lipschitz, so the sensitivity holds; real sums never reach it.
        clipped = np.clip(total, -_LARGEST, _LARGEST)
        large = self.sampler == "auto" and total.size > TABLE_ABOVE and self._table_holds
        add = noise.fine_gaussian if self.sampler == "table" or large else noise.gaussian
        # A finer lattice for the noise, on which it is as good as real-valued noise [B12].
        # |clipped| * _FINER stays below 2^62, so the sum with noise cannot overflow unnoticed.
        fine = add(clipped * _FINER, self.noise_multiplier * CLIP_STEPS * _FINER)
        return fine / (CLIP_STEPS * _FINER)


def round_up(exact: Fraction) -> float:
    """The least float that is not below an exact number."""
    # Rational arithmetic: a price must not be rounded below the truth [B10].
    value = float(exact)
    return value if Fraction(value) >= exact else math.nextafter(value, math.inf)


def _down(exact: Fraction) -> float:
    value = float(exact)
    return value if Fraction(value) <= exact else math.nextafter(value, 0.0)


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name}={value!r} must be a finite number above 0")


def _check_lattice(values: NDArray[Any]) -> None:
    if not isinstance(values, np.ndarray) or values.dtype != np.int64:
        raise TypeError(
            f"a draw needs an int64 array, not {getattr(values, 'dtype', type(values))}"
        )
