"""Poisson samples that several machines draw of one key, each among its own units alone."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privsyn.dp.noise import NoiseSource

_KEY_BITS = 256


def sample_key(noise: NoiseSource) -> bytes:
    """A fresh secret key, of one sample: fair coins of the noise source."""
    return np.packbits(noise.sample(_KEY_BITS, 0.5)).tobytes()


def keyed_sample(names: Sequence[str], rate: float, key: bytes) -> NDArray[np.bool_]:
    """Which units are in the sample of a key: a function of key and name, unit by unit.

    Whoever holds a unit therefore says of it what all others would, without seeing the others.
    Under a fresh key the answers are those of independent coins of the rate, rounded down to a
    multiple of 2^-64, for whoever cannot tell keyed BLAKE2b from a random function; the operating
    system's generator rests on the same kind of assumption.

    Args:
        names: Of units, no two alike over all who draw of this key.
        rate: Probability of each unit to be in the sample.
        key: Secret; never used for a second sample.
    """
    threshold = math.floor(Fraction(rate) * 2**64)
    keyed = hashlib.blake2b(key=key, person=b"privsyn sample", digest_size=8)

    def drawn(name: str) -> bool:
        hasher = keyed.copy()
        hasher.update(name.encode())
        return int.from_bytes(hasher.digest()) < threshold

    return np.fromiter(map(drawn, names), np.bool_, len(names))
