"""Points of a plane as two-pixel images, a generator and an embedder of them, and two moons."""

import numpy as np

from privsyn.data.images import to_content


class Plane:
    """A VariationAPI over points: fresh ones anywhere, variations around the given ones."""

    revision = "plane-1"

    def __init__(self, seed=0, spread=60.0):
        self.rng, self.spread = np.random.default_rng(seed), spread
        self.calls = 0

    def random(self, count, label):
        self.calls += 1
        return list(self.rng.integers(0, 256, (count, 1, 2)).astype(np.uint8))

    def vary(self, samples, label, degree):
        self.calls += 1
        moved = np.stack(samples) + self.rng.normal(0, degree * self.spread, (len(samples), 1, 2))
        return list(np.clip(np.rint(moved), 0, 255).astype(np.uint8))


class Coordinates:
    """An Embedder: a point's own coordinates."""

    revision, width = "coordinates-1", 2

    def embed(self, samples):
        return np.stack(samples).reshape(len(samples), 2).astype(np.float32) / 255


def moons(count, seed=1):
    rng = np.random.default_rng(seed)
    angle, side = rng.uniform(0, np.pi, count), rng.integers(0, 2, count)
    x = np.where(side, 100 + 60 * np.cos(angle), 160 - 60 * np.cos(angle))
    y = np.where(side, 110 + 60 * np.sin(angle), 150 - 60 * np.sin(angle))
    points = np.stack([x, y], axis=1) + rng.normal(0, 3, (count, 2))
    return [to_content(point[None]) for point in np.clip(points, 0, 255).astype(np.uint8)]
