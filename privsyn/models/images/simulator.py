"""Digits and letters drawn from fonts: an image generator without a network.

The fonts come with matplotlib, so every machine has them offline, and equal fonts give equal
images. A drawing is six numbers (face, size, stroke, slant, place). A variation moves them toward
fresh numbers by the degree; the face changes with that probability.

Samples are arrays without these numbers. The simulator keeps the numbers of this process's drawings
by a digest of the pixels. For any other image, such as one of an earlier process, a search finds
the nearest drawing. So a resumed run continues, with variations of what the search found.
Source: Lin et al. 2024, section 4 (any generator will do); Lin et al. 2025, a simulator as one.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from privsyn.errors import ModelError
from privsyn.models.images.image_folders import refuse_unknown_label

Pixels = NDArray[np.uint8]

SIZE = (28, 28)
LABELS = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
FACES = (
    "DejaVuSans.ttf",
    "DejaVuSans-Bold.ttf",
    "DejaVuSans-Oblique.ttf",
    "DejaVuSansMono.ttf",
    "DejaVuSansMono-Bold.ttf",
    "DejaVuSerif.ttf",
    "DejaVuSerif-Bold.ttf",
    "DejaVuSerif-Italic.ttf",
    "STIXGeneral.ttf",
    "STIXGeneralBol.ttf",
    "STIXGeneralItalic.ttf",
    "cmr10.ttf",
    "cmb10.ttf",
    "cmss10.ttf",
    "cmti10.ttf",
    "cmtt10.ttf",
)

_LOW = np.array([0.0, 0.55, 0.0, -0.35, -0.12, -0.12])
_HIGH = np.array([len(FACES) - 1e-9, 0.9, 0.045, 0.35, 0.12, 0.12])
"""Bounds of face, height, stroke (shares of the image's side), slant, and shift right and down."""

_SCALE = 4  # drawn this much larger, then shrunk: strokes of less than a pixel
_KEPT = 200_000  # drawings whose numbers are kept
_SEEDS = 384  # drawings a search starts from
_STARTS = 4
_ROUNDS = 4


class FontSimulator:
    """Digits and letters, 28x28, white on black.

    Args:
        rng: Public randomness; by default from the operating system.

    Raises:
        ModelError: matplotlib's fonts are not installed.

    >>> image = FontSimulator().random(1, "7")[0]
    >>> image.shape, image.dtype
    ((28, 28), dtype('uint8'))
    """

    def __init__(self, rng: np.random.Generator | None = None) -> None:
        self.revision = revision()
        self._rng = rng or np.random.default_rng()  # public randomness
        self._drawings: OrderedDict[bytes, NDArray[np.float64]] = OrderedDict()
        self._seeds: dict[str, tuple[NDArray[np.float64], NDArray[np.float32]]] = {}

    def random(self, count: int, label: str | None) -> list[Pixels]:
        """``count`` fresh drawings of a label, or of random digits without a label.

        Raises:
            ModelError: The label is not one of ``LABELS``.
        """
        return [self._draw(self._label(label), self._fresh()) for _ in range(count)]

    def vary(self, samples: Sequence[Pixels], label: str | None, degree: float) -> list[Pixels]:
        """One variation of each image: numbers moved by ``degree`` toward fresh ones.

        An image of another size or mode is converted first.

        Raises:
            ModelError: The label is not one of ``LABELS``.
        """
        if not 0 <= degree <= 1:
            raise ValueError(f"degree={degree} is outside [0, 1]")
        if degree == 0:
            return [sample.copy() for sample in samples]
        if degree == 1:
            return self.random(len(samples), label)
        varied = []
        for sample in samples:
            text, numbers = self._recognize(sample, label)
            fresh = self._fresh()
            moved = numbers + degree * (fresh - numbers)
            moved[0] = fresh[0] if self._rng.random() < degree else numbers[0]
            varied.append(self._draw(text, moved))
        return varied

    def _label(self, label: str | None) -> str:
        if label is None:
            return LABELS[int(self._rng.integers(10))]
        refuse_unknown_label(LABELS, label, "models.image=simulator")
        return label

    def _fresh(self) -> NDArray[np.float64]:
        return self._rng.uniform(_LOW, _HIGH)

    def _draw(self, text: str, numbers: NDArray[np.float64]) -> Pixels:
        """Draw, and keep the numbers."""
        image = draw(text, numbers)
        self._drawings[_key(text, image)] = numbers
        if len(self._drawings) > _KEPT:
            self._drawings.popitem(last=False)
        return image

    def _recognize(self, sample: Pixels, label: str | None) -> tuple[str, NDArray[np.float64]]:
        """The text that an image shows, and the numbers of the nearest drawing."""
        texts = LABELS[:10] if label is None else (self._label(label),)
        for text in texts:
            if (known := self._drawings.get(_key(text, sample))) is not None:
                return text, known
        from privsyn.models.images.image_embed import as_pixels

        target = as_pixels(sample, SIZE, "L").astype(np.float32)
        best, best_match = np.inf, (texts[0], self._fresh())
        for text in texts:
            numbers, distance = self._search(text, target)
            if distance < best:
                best, best_match = distance, (text, numbers)
        return best_match

    def _search(self, text: str, target: NDArray[np.float32]) -> tuple[NDArray[np.float64], float]:
        """The nearest of some drawings, improved one number at a time in ever smaller steps."""
        if text not in self._seeds:
            # A fixed seed: every process searches from the same drawings.
            seeds = np.random.default_rng(0).uniform(_LOW, _HIGH, (_SEEDS, len(_LOW)))
            seeds[:, 0] = np.arange(_SEEDS) % len(FACES)
            drawn = np.stack([draw(text, row).ravel() for row in seeds]).astype(np.float32)
            self._seeds[text] = seeds, drawn
        seeds, drawn = self._seeds[text]
        distances = ((drawn - target.ravel()) ** 2).sum(1)
        best_match = [
            self._refine(text, target, seeds[i], float(distances[i]))
            for i in np.argsort(distances, kind="stable")[:_STARTS]
        ]
        return min(best_match, key=lambda pair: pair[1])

    @staticmethod
    def _refine(
        text: str, target: NDArray[np.float32], numbers: NDArray[np.float64], best: float
    ) -> tuple[NDArray[np.float64], float]:
        for step in range(_ROUNDS):
            for i in range(1, len(_LOW)):
                for sign in (-1, 1):
                    tried = numbers.copy()
                    tried[i] += sign * (_HIGH[i] - _LOW[i]) * 0.25 * 0.6**step
                    tried = tried.clip(_LOW, _HIGH)
                    distance = float(((draw(text, tried) - target) ** 2).sum())
                    if distance < best:
                        numbers, best = tried, distance
        return numbers, best


def draw(text: str, numbers: NDArray[np.float64]) -> Pixels:
    """The drawing of six numbers (their ranges: ``_LOW``), a function of them and the fonts."""
    face, height, stroke, slant, right, down = (float(x) for x in numbers)
    side = SIZE[0] * _SCALE
    canvas = Image.new("L", (side, side))
    font = _font(FACES[int(face)], round(height * side / 0.73))  # digits are .73 of the font's size
    pen = ImageDraw.Draw(canvas)
    middle = (side * (0.5 + right), side * (0.5 + down))
    width = round(stroke * side)
    pen.text(_corner(font, text, middle, width), text, fill=255, font=font, stroke_width=width)
    # Slant about the middle: x' = x + slant * (y - middle).
    sheared = canvas.transform(
        canvas.size,
        Image.Transform.AFFINE,
        (1, slant, -slant * middle[1], 0, 1, 0),
        Image.Resampling.BILINEAR,
    )
    return np.asarray(sheared.resize(SIZE[::-1], Image.Resampling.BOX), np.uint8)


def revision() -> str:
    """Digest of the fonts and of the rules of drawing.

    Raises:
        ModelError: matplotlib's fonts are not installed.
    """
    whole = hashlib.sha256(f"{SIZE}{_LOW.tolist()}{_HIGH.tolist()}{_SCALE}".encode())
    for name in FACES:
        whole.update(name.encode() + hashlib.sha256(_path(name).read_bytes()).digest())
    return f"simulator-1:{whole.hexdigest()}+pillow={PIL.__version__}"


def _corner(
    font: ImageFont.FreeTypeFont, text: str, middle: tuple[float, float], stroke: int
) -> tuple[float, float]:
    """The corner at which to start so that the ink is centered on ``middle``."""
    left, top, right, bottom = font.getbbox(text, stroke_width=stroke)
    return middle[0] - (left + right) / 2, middle[1] - (top + bottom) / 2


@lru_cache(maxsize=1024)
def _font(name: str, points: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(_path(name)), points)


@lru_cache(maxsize=64)
def _path(name: str) -> Path:
    package = importlib.util.find_spec("matplotlib")
    if package is not None and package.origin is not None:
        path = Path(package.origin).parent / "mpl-data" / "fonts" / "ttf" / name
        if path.is_file():
            return path
    raise ModelError(
        f"models.image=simulator: the font {name} of matplotlib is not installed.",
        hint="pip install matplotlib, or use builtin.",
    )


def _key(text: str, image: Pixels) -> bytes:
    return hashlib.blake2b(text.encode() + image.tobytes(), digest_size=16).digest()
