"""Candidates of private evolution: requests to its generator and its embedder.

All samples here are public or already privatized: the first population, variations of samples that
votes chose, and their vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from privsyn.errors import ModelError
from privsyn.methods.base import Steps
from privsyn.modalities.base import Samples
from privsyn.models.protocols import VariationAPI

T = TypeVar("T")


CALL = 64
"""Samples per request to the generator, so that progress shows. Each sample is a step."""


def first_candidates(api: VariationAPI[T], count: int, label: str | None, steps: Steps) -> list[T]:
    """The first candidates of a label."""
    samples: list[T] = []
    # Public: the candidates come from the generator alone, before any record is read.
    while len(samples) < count:
        batch = min(CALL, count - len(samples))
        steps.next(batch)
        samples += fresh_samples(api, batch, label)
    return samples


def fresh_samples(api: VariationAPI[T], count: int, label: str | None) -> list[T]:
    """Exactly ``count`` new samples of the generator."""
    return _checked(api.random(count, label), count)


def variations(
    api: VariationAPI[T], samples: Sequence[T], label: str | None, degree: float
) -> list[T]:
    """One variation of each sample, in order."""
    return _checked(api.vary(samples, label, degree), len(samples))


def offspring_of(
    api: VariationAPI[T], samples: Sequence[T], label: str | None, degree: float, steps: Steps
) -> list[T]:
    """One variation of every sample, with progress."""
    new: list[T] = []
    for start in range(0, len(samples), CALL):
        batch = samples[start : start + CALL]
        steps.next(len(batch))
        new += variations(api, batch, label, degree)
    return new


def vectors_of(
    kind: Samples[T], group: Sequence[T], label: str | None, degree: float, k: int, steps: Steps
) -> NDArray[np.float32]:
    """Vector of each candidate: the mean over k of its variations, or its own if k = 0 [E5].

    Shape (candidates, width).
    """
    steps.next()
    looks = (offspring_of(kind.api, group, label, degree, steps) for _ in range(k))
    vectors = [kind.embedder.embed(look) for look in (looks if k else [group])]
    # float64: the mean must be the same in every process that computes it.
    return np.asarray(np.mean(vectors, axis=0, dtype=np.float64), np.float32)


def _checked(samples: list[T], count: int) -> list[T]:
    # Votes are counted by position, so a missing sample would shift them.
    if len(samples) != count:
        raise ModelError(f"the generator gave {len(samples)} samples where {count} were asked for.")
    return samples
