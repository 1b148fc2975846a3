"""For tests of methods: noise that is none, a constant, or dies; a journal without a file.

A method is given its noise and its journal (``Draw``), so a test gives it one of these and looks at
what was asked of it, or at what came out. None of them is private: each has a ``kind`` other than
``opendp``, so that a release drawn with it says ``not-private`` on its certificate. The models to
go with them are in ``privsyn/models/fakes.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from privsyn.dp.noise import SeededNoise

T = TypeVar("T")

Numbers = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Places of a vector (0, 1, 2, ...) -> the number at each."""


class Drawn(NamedTuple):
    """What a noise source was asked for.

    Attributes:
        draw: The name of its method: ``noisy_max``, ``laplace``, ``gaussian``, ``fine_gaussian``.
        values: What noise was to be added to: a function of private records.
        scale: The scale or sigma of the noise.
    """

    draw: str
    values: NDArray[np.int64]
    scale: float


class NoNoise:
    """For tests of methods: a noise that adds none, and notes what it was asked.

    The best score is chosen and every unit is sampled. ``drawn`` is then what a method hands to its
    mechanisms, clean, with the scale it asks for: what sensitivities and prices are about.

    Attributes:
        drawn: Scores and vectors, in the order they were asked about.
        sampled: Number of units and rate of every sample.
    """

    kind = "none"

    def __init__(self) -> None:
        self.drawn: list[Drawn] = []
        self.sampled: list[tuple[int, float]] = []

    def noisy_max(self, scores: NDArray[np.int64], scale: float, sensitivity: int) -> int:
        """The best score, the first of them among equals."""
        self.drawn.append(Drawn("noisy_max", scores, scale))
        return int(np.argmax(scores))

    def laplace(self, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        """The values as they are."""
        self.drawn.append(Drawn("laplace", values, scale))
        return values

    def gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """The values as they are."""
        self.drawn.append(Drawn("gaussian", values, sigma))
        return values

    def fine_gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """The values as they are."""
        self.drawn.append(Drawn("fine_gaussian", values, sigma))
        return values

    def sample(self, units: int, rate: float) -> NDArray[np.bool_]:
        """All units."""
        self.sampled.append((units, rate))
        return np.ones(units, np.bool_)


class Constant(NoNoise):
    """For tests of methods: a noise that answers by the size of what it is asked, and by no more.

    All that comes out of a run on it is public, so neighbouring data must give the same bytes:
    whatever differs went past the mechanism. What it was asked is noted, as in ``NoNoise``.

    Args:
        choice: The index chosen by ``noisy_max``; the last one where there are fewer.
        laplace: The vector that Laplace noise makes, from its places; zeros by default.
        gaussian: The same of Gaussian noise.
        sample: Which units are in a sample, from their places; all by default.
    """

    kind = "constant"

    def __init__(
        self,
        choice: int = 0,
        laplace: Numbers = np.zeros_like,
        gaussian: Numbers = np.zeros_like,
        sample: Callable[[NDArray[np.int64]], NDArray[np.bool_]] | None = None,
    ) -> None:
        super().__init__()
        self._choice = choice
        self._laplace = laplace
        self._gaussian = gaussian
        self._sample = sample

    def noisy_max(self, scores: NDArray[np.int64], scale: float, sensitivity: int) -> int:
        """The same index, whatever the scores."""
        super().noisy_max(scores, scale, sensitivity)
        return min(self._choice, len(scores) - 1)

    def laplace(self, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        """The same numbers, whatever the values."""
        return self._laplace(_places(super().laplace(values, scale)))

    def gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """The same numbers, whatever the values."""
        return self._gaussian(_places(super().gaussian(values, sigma)))

    def fine_gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """As ``gaussian``."""
        return self._gaussian(_places(super().fine_gaussian(values, sigma)))

    def sample(self, units: int, rate: float) -> NDArray[np.bool_]:
        """The same units at every step."""
        everybody = super().sample(units, rate)
        return everybody if self._sample is None else self._sample(_places(everybody))


class Dies(SeededNoise):
    """For tests of methods: seeded noise that raises in place of its n-th draw, and once only.

    A run that ended so is resumed with a ``SeededNoise`` of any seed, and must give what was on
    file as it was. A sample of units is no draw here.

    Args:
        seed: Of the noise before and after.
        at: Number of the draw that is not made, from 1; 0: none, which counts draws.
        error: What is raised in its place: by default what stages take for a failure from outside.

    Attributes:
        calls: Draws asked for so far.
    """

    def __init__(self, seed: int, at: int = 0, error: BaseException | None = None) -> None:
        super().__init__(seed)
        self.calls = 0
        self._at = at
        self._error = error or MemoryError()

    def noisy_max(self, scores: NDArray[np.int64], scale: float, sensitivity: int) -> int:
        """As seeded noise, where it does not die."""
        self._count()
        return super().noisy_max(scores, scale, sensitivity)

    def laplace(self, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        """As seeded noise, where it does not die."""
        self._count()
        return super().laplace(values, scale)

    def gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """As seeded noise, where it does not die; ``fine_gaussian`` is the same."""
        self._count()
        return super().gaussian(values, sigma)

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self._at:
            raise self._error


class DrawnAgain(BaseException):
    """A draw was asked for where none may be. No ``Exception``: nothing of privsyn catches it."""


class NeverDraws:
    """For tests of methods: a noise that raises ``DrawnAgain`` at whatever it is asked.

    For a run that has all its draws on file already.
    """

    kind = "never"

    def noisy_max(self, scores: NDArray[np.int64], scale: float, sensitivity: int) -> int:
        """Raises DrawnAgain."""
        raise DrawnAgain("noisy_max")

    def laplace(self, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        """Raises DrawnAgain."""
        raise DrawnAgain("laplace")

    def gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """Raises DrawnAgain."""
        raise DrawnAgain("gaussian")

    def fine_gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """Raises DrawnAgain."""
        raise DrawnAgain("fine_gaussian")

    def sample(self, units: int, rate: float) -> NDArray[np.bool_]:
        """Raises DrawnAgain."""
        raise DrawnAgain("sample")


class NullJournal:
    """For tests of methods: a journal that writes nothing, so that every run of it draws anew.

    For laws of outputs, which need many runs. Whether a run resumes is tested on a real ``Journal``
    in a temporary folder.
    """

    drawn = False

    def has(self, key: str) -> bool:
        """Nothing is on file."""
        return False

    def draw_all(self, items: Sequence[tuple[str, Callable[[], T]]]) -> list[T]:
        """All draws, made."""
        return [draw() for _, draw in items]

    def draw_array(
        self, key: str, draw: Callable[[], NDArray[np.int64]], size: int
    ) -> NDArray[np.int64]:
        """A draw, made; of the size it was announced with.

        Raises:
            ValueError: It is no such array.
        """
        values = draw()
        if values.dtype != np.int64 or values.shape != (size,):
            raise ValueError(f"{key}: {values.dtype} of shape {values.shape}, not int64[{size}]")
        return values

    def keep(self, key: str, make: Callable[[], bytes]) -> bytes:
        """A public value, made."""
        return make()


def _places(like: NDArray[np.int64] | NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.arange(len(like), dtype=np.int64)
