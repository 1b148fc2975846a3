"""Toys that make and embed images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privsyn.models.images.image_folders import refuse_unknown_label


@dataclass(frozen=True)
class FakeImageAPI:
    """A VariationAPI of tiny grey images: one brightness per label, noise on top.

    Attributes:
        labels: The labels it knows, from dark to bright.
        size: Height and width.
        rng: Public randomness; seeded, so that a run can be repeated.
    """

    labels: tuple[str, ...] = ("0", "1")
    size: tuple[int, int] = (4, 4)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    revision: str = "fake-image-1"

    def random(self, count: int, label: str | None) -> list[NDArray[np.uint8]]:
        """``count`` images of the label's brightness, or of any.

        Raises:
            ModelError: The label is not known.
        """
        if label is not None:
            refuse_unknown_label(self.labels, label, "models.image=fake")
        levels = self.rng.integers(0, len(self.labels), count)
        if label is not None:
            levels[:] = self.labels.index(label)
        base = (levels + 1) * (200 // len(self.labels))
        noise = self.rng.integers(-20, 21, (count, *self.size))
        return list((base[:, None, None] + noise).clip(0, 255).astype(np.uint8))

    def vary(
        self, samples: Sequence[NDArray[np.uint8]], label: str | None, degree: float
    ) -> list[NDArray[np.uint8]]:
        """Each image moved toward a fresh one by ``degree``."""
        fresh = self.random(len(samples), label)
        return [
            np.rint(old + degree * (new.astype(np.float64) - old)).astype(np.uint8)
            for old, new in zip(samples, fresh, strict=True)
        ]


@dataclass(frozen=True)
class FakeImageEmbedder:
    """An Embedder of images: mean and deviation of each image's pixels, in [0, 1]."""

    revision: str = "fake-image-embedder-1"
    width: int = field(default=2, init=False)

    def embed(self, samples: Sequence[NDArray[np.uint8]], /) -> NDArray[np.float32]:
        """Vectors of the images, in order, shape (images, 2). Total: any array has one."""
        out = np.zeros((len(samples), self.width), np.float32)
        for i, sample in enumerate(samples):
            if sample.size:
                pixels = sample.astype(np.float64) / 255
                out[i] = pixels.mean(), pixels.std()
        return out
