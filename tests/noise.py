"""For tests of methods: noise sources without noise, with constants or with errors; a fake journal.

A method receives its noise and its journal (``Draw``), so a test passes one of these and looks at
the requests or at the result. None of them is private: each has a ``kind`` other than ``opendp``,
so the certificate of a release says ``not-private``. Fake models are in
``tests/fakes.py``.
"""

import math
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class SeededNoise:
    """The same distributions from a seeded generator, for tests. The seed reveals everything."""

    kind = "seeded"

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)

    def noisy_max(self, scores, scale, sensitivity):
        shifted = (scores - scores.max()).astype(np.float64) / scale
        return int(np.argmax(shifted + self._rng.gumbel(size=len(scores))))

    def laplace(self, values, scale):
        stop = -math.expm1(-1 / scale)
        sides = self._rng.geometric(stop, size=(2, *values.shape))
        return np.asarray(values + sides[0] - sides[1], np.int64)

    def gaussian(self, values, sigma):
        noise = np.rint(self._rng.normal(scale=sigma, size=values.shape))
        return np.asarray(values + noise.astype(np.int64), np.int64)

    def fine_gaussian(self, values, sigma):
        return self.gaussian(values, sigma)

    def sample(self, units, rate):
        mask: NDArray[np.bool_] = self._rng.random(units) < rate
        return mask


class Drawn(NamedTuple):
    """A request to a noise source: its name, the values without noise, and scale or sigma."""

    draw: str
    values: NDArray[np.int64]
    scale: float


class NoNoise:
    """Adds no noise, chooses the best score, samples every unit, and records every request.

    So ``drawn`` holds the exact inputs of a method's mechanisms and the scales they asked for.
    """

    kind = "none"

    def __init__(self):
        self.drawn: list[Drawn] = []
        self.sampled: list[tuple[int, float]] = []

    def noisy_max(self, scores, scale, sensitivity):
        self.drawn.append(Drawn("noisy_max", scores, scale))
        return int(np.argmax(scores))

    def laplace(self, values, scale):
        self.drawn.append(Drawn("laplace", values, scale))
        return values

    def gaussian(self, values, sigma):
        self.drawn.append(Drawn("gaussian", values, sigma))
        return values

    def fine_gaussian(self, values, sigma):
        self.drawn.append(Drawn("fine_gaussian", values, sigma))
        return values

    def sample(self, units, rate):
        self.sampled.append((units, rate))
        return np.ones(units, np.bool_)


class Constant(NoNoise):
    """A source whose answers depend only on the size of a request, as given or from positions.

    Everything a run outputs with it is public, so neighboring datasets must give the same bytes:
    any difference went past the mechanisms. Requests are recorded, as in ``NoNoise``.
    """

    kind = "constant"

    def __init__(self, choice=0, laplace=np.zeros_like, gaussian=np.zeros_like, sample=None):
        super().__init__()
        self._choice = choice
        self._laplace = laplace
        self._gaussian = gaussian
        self._sample = sample

    def noisy_max(self, scores, scale, sensitivity):
        super().noisy_max(scores, scale, sensitivity)
        # In range for any vector, and by its length alone, which is public.
        return min(self._choice, len(scores) - 1)

    def laplace(self, values, scale):
        return self._laplace(_places(super().laplace(values, scale)))

    def gaussian(self, values, sigma):
        return self._gaussian(_places(super().gaussian(values, sigma)))

    def fine_gaussian(self, values, sigma):
        return self._gaussian(_places(super().fine_gaussian(values, sigma)))

    def sample(self, units, rate):
        everybody = super().sample(units, rate)
        return everybody if self._sample is None else self._sample(_places(everybody))


class Dies(SeededNoise):
    """Seeded noise that raises once, in place of its n-th draw; of 0 draws are only counted.

    Sampling of units does not count as a draw here.
    """

    def __init__(self, seed, at=0, error=None):
        super().__init__(seed)
        self.calls = 0
        self._at = at
        # A MemoryError can come at any line, and no stage takes it for a mistake of the user.
        self._error = error or MemoryError()

    def noisy_max(self, scores, scale, sensitivity):
        self._count()
        return super().noisy_max(scores, scale, sensitivity)

    def laplace(self, values, scale):
        self._count()
        return super().laplace(values, scale)

    def gaussian(self, values, sigma):
        self._count()
        return super().gaussian(values, sigma)

    def _count(self):
        self.calls += 1
        if self.calls == self._at:
            raise self._error


class DrawnAgain(BaseException):
    """A draw was asked for where none may be. No ``Exception``: nothing of privsyn catches it."""


class NeverDraws:
    """Raises ``DrawnAgain`` at whatever it is asked: for a run that has all its draws on file."""

    kind = "never"

    def noisy_max(self, *_):
        raise DrawnAgain

    laplace = gaussian = fine_gaussian = sample = noisy_max


class NullJournal:
    """A journal that writes nothing, so that every run draws anew: for laws of outputs."""

    drawn = False

    def has(self, key):
        return False

    def draw_all(self, items):
        return [draw() for _, draw in items]

    def draw_array(self, key, draw, size):
        values = draw()
        # As the real journal does, so that a method with a wrong shape fails in its own tests.
        if values.dtype != np.int64 or values.shape != (size,):
            raise ValueError(f"{key}: {values.dtype} of shape {values.shape}, not int64[{size}]")
        return values

    def public_file(self, key, make):
        return make()


def _places(like):
    return np.arange(len(like), dtype=np.int64)
