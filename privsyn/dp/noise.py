"""Sources of private randomness: exact samplers with OS entropy, or a seeded one for tests.

A noise source only draws. The mechanism that requests a draw (mechanisms.py) computes its cost from
the same numbers.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privsyn.dp import table_gaussian

_TOGETHER = 1 << 15
"""Entries of a vector per thread."""

_MOST = 1 << 62


class NoiseSource(Protocol):
    """Draws over int64 lattices. The certificate holds its ``kind``."""

    @property
    def kind(self) -> str:
        """``opendp`` (OS entropy). Any other word makes a release not private."""

    def noisy_max(self, scores: NDArray[np.int64], scale: float, sensitivity: int) -> int:
        """An index drawn with probability proportional to exp(score / scale)."""

    def laplace(self, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        """``values`` plus independent discrete Laplace noise."""

    def gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """``values`` plus independent discrete Gaussian noise."""

    def fine_gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """Discrete Gaussian noise for sigma of at least 2^20 steps; nearly exact [B13]."""

    def sample(self, units: int, rate: float) -> NDArray[np.bool_]:
        """Mask of a Poisson sample, shape (units,): each unit independently with ``rate``."""


class OpenDPNoise:
    """Exact samplers of OpenDP with OS entropy: the only source for private releases.

    Only ``fine_gaussian`` is our own sampler; its small error is charged [B13]. The source has no
    state that could be stored, forked or replayed.
    """

    kind = "opendp"

    def noisy_max(self, scores: NDArray[np.int64], scale: float, sensitivity: int) -> int:
        """An index drawn exactly from softmax(scores / scale), by Gumbel noise.

        Raises:
            RuntimeError: The installed OpenDP prices the draw above (D/scale)^2/2.
        """
        return int(_noisy_max(scale, sensitivity)(np.ascontiguousarray(scores)))

    def laplace(self, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        """Discrete Laplace noise; results saturate at the ends of int64."""
        return np.asarray(_adder("laplace", scale)(np.ascontiguousarray(values)), np.int64)

    def gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """Discrete Gaussian noise; results saturate at the ends of int64.

        Long vectors are split among threads: the sampler takes 8 to 12 us per number.
        """
        return _in_parts(_adder("gaussian", sigma), values)

    def fine_gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """Discrete Gaussian noise from a table. Values are first clipped to +-2^62.

        Raises:
            ValueError: sigma outside [2^20, 2^57].
        """
        table = table_gaussian.table(float(sigma))

        def draw(part: NDArray[np.int64]) -> NDArray[np.int64]:
            noise = table_gaussian.sample(table, len(part))  # below 2^62: the sum fits
            return np.asarray(np.clip(part, -_MOST, _MOST) + noise, np.int64)

        return _in_parts(draw, values)

    def sample(self, units: int, rate: float) -> NDArray[np.bool_]:
        """A Poisson sample; the rate is rounded down to a multiple of 2^-64."""
        threshold = math.floor(Fraction(rate) * 2**64)
        # Rate 1: 2^64 does not fit uint64.
        if threshold >= 2**64:
            return np.ones(units, np.bool_)
        # Integers, not floats: a float comparison could round the rate up.
        return np.frombuffer(secrets.token_bytes(8 * units), np.uint64) < np.uint64(threshold)


def _in_parts(draw: Callable[[Any], Any], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """A draw over a vector; a long one is split among threads."""
    if len(values) <= _TOGETHER:
        return np.asarray(draw(np.ascontiguousarray(values)), np.int64)
    parts = np.array_split(values, -(-len(values) // _TOGETHER))
    with ThreadPoolExecutor() as threads:
        noisy = list(threads.map(draw, map(np.ascontiguousarray, parts)))
    return np.concatenate([np.asarray(part, np.int64) for part in noisy])


@lru_cache(maxsize=64)
def _noisy_max(scale: float, sensitivity: int) -> Callable[[Any], Any]:
    dp = _opendp()
    # monotonic=True would charge only a fourth [B4]; max_divergence() samples permute-and-flip.
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64", monotonic=False)
    measurement = dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=scale)
    price, expected = measurement.map(sensitivity), (sensitivity / scale) ** 2 / 2
    # The installed version must agree with our price, or it is another sampler.
    if not price <= expected * (1 + 1e-9) + 1e-300:
        raise RuntimeError(f"opendp prices noisy max at rho={price!r}, expected {expected!r}")
    draw: Callable[[Any], Any] = measurement
    return draw


@lru_cache(maxsize=64)
def _adder(law: str, scale: float) -> Callable[[Any], Any]:
    dp = _opendp()
    distance = dp.l1_distance(T="i64") if law == "laplace" else dp.l2_distance(T="f64")
    space = dp.vector_domain(dp.atom_domain(T="i64")), distance
    draw: Callable[[Any], Any] = getattr(dp.m, f"make_{law}")(*space, scale=scale)
    return draw


@lru_cache(maxsize=1)
def _opendp() -> Any:
    # Late, because planning draws nothing. Not opendp.prelude, which imports scikit-learn, pandas
    # and pyarrow and costs every process seconds.
    from opendp import domains, measurements, measures, metrics, mod

    mod.enable_features("contrib")
    return SimpleNamespace(
        m=measurements,
        atom_domain=domains.atom_domain,
        vector_domain=domains.vector_domain,
        l1_distance=metrics.l1_distance,
        l2_distance=metrics.l2_distance,
        linf_distance=metrics.linf_distance,
        zero_concentrated_divergence=measures.zero_concentrated_divergence,
    )
