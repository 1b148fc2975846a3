"""Images as records: any input in one canonical form, PNG files, contact sheets.

Guarantee. ``read_image`` is a function of the bytes of one record and of public settings: it never
raises on a record, keeps nothing between records, and prints, warns and logs nothing of what it
reads. Formats that Pillow hands to another program (EPS, WMF) are not read.

Pillow is imported on first use.
"""

from __future__ import annotations

import base64
import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from privsyn.files import open_file

if TYPE_CHECKING:
    from PIL.Image import Image

Mode = Literal["L", "RGB"]
"""L: gray levels. RGB: red, green and blue. One byte each."""

Pixels = NDArray[np.uint8]
"""Shape (height, width) for gray, (height, width, 3) for color."""

FORMATS = ("PNG", "JPEG", "MPO", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF")
"""What Pillow may decode. Many cameras write MPO into a .jpg."""
MOST_PIXELS = 1 << 26
MOST_BYTES = 1 << 28
_DEEP = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")
_SHEET_CELL = (96, 128)
"""Smallest and largest side of a picture on a sheet, in pixels; others are resized."""
_SHEET_GAP = 2


def read_image_file(path: Path) -> bytes | None:
    """The bytes of an image file; None if it cannot be read or is too large.

    A pipe or device gives None at once: reading it could wait forever.
    """
    try:
        with open_file(path) as stream:
            raw = stream.read(MOST_BYTES + 1)
    except OSError:
        return None
    return raw if len(raw) <= MOST_BYTES else None


def read_image(raw: bytes, size: int, mode: Mode) -> Pixels | None:
    """The canonical form of a private image.

    Takes the first frame of an animation, turns it by its EXIF orientation, puts transparent parts
    over white, converts it to ``mode``, and stretches it to a square by antialiased bicubic
    resampling. A gray image of more than 8 bits a value (16 bits, floating point) is not read: a
    range taken from the data would be an unpaid query.

    Args:
        raw: An image file.
        size: Side of the result in pixels.
        mode: ``L`` for gray, ``RGB`` for color.

    Returns:
        Shape (size, size), or (size, size, 3) for ``RGB``. None if the bytes are not an image of 8
        bits in one of ``FORMATS``, are damaged, or hold more than ``MOST_PIXELS`` pixels.
    """
    if len(raw) > MOST_BYTES:
        return None
    from PIL import Image

    with _silence():
        formats = _readable()
        try:
            with Image.open(io.BytesIO(raw), formats=formats) as image:
                if image.width * image.height > MOST_PIXELS:
                    # Before it is decoded: a small file can hold an image that fills the memory.
                    return None
                image.draft(None, (4 * size, 4 * size))  # JPEG: decode at 1/2, 1/4 or 1/8 at once
                image.load()
                if image.mode in _DEEP:
                    return None
                return _square(_flat(_upright(image), mode), size)
        except MemoryError:  # the machine's fault, not the record's: the run must end
            raise
        except Exception:  # decoders raise whatever their parsers raise
            return None


def from_array(values: NDArray[np.generic], size: int, mode: Mode) -> Pixels | None:
    """The canonical form of a private image that is an array of numbers.

    Args:
        values: Shape (height, width), (height, width, 1, 3 or 4), or (1, 3 or 4, height, width).
            The fourth channel is opacity. Booleans are black and white.
        size: Side of the result in pixels.
        mode: ``L`` for gray, ``RGB`` for color.

    Returns:
        As read_image; None if the numbers are not uint8, or there are more than ``MOST_PIXELS``.
    """
    from PIL import Image

    if values.ndim == 3 and values.shape[2] not in (1, 3, 4):
        # (channels, height, width) -> (height, width, channels)
        values = np.moveaxis(values, 0, 2)
    if values.dtype == np.bool_:
        values = values.astype(np.uint8) * np.uint8(255)
    if values.dtype != np.uint8 or values.size > 4 * MOST_PIXELS or 0 in values.shape:
        return None
    pixels = values[..., 0] if values.shape[2:] == (1,) else values
    return _square(_flat(Image.fromarray(np.ascontiguousarray(pixels)), mode), size)


def check_pixels(pixels: NDArray[np.generic]) -> Pixels:
    """Return the array if it is an image.

    Raises:
        ValueError: Not uint8, not of shape (height, width) or (height, width, 3), or empty.
    """
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)):
        raise ValueError(f"an image of type {pixels.dtype} and shape {pixels.shape}")
    if 0 in pixels.shape:
        raise ValueError(f"an image of shape {pixels.shape}")
    return pixels.astype(np.uint8, copy=False)


def encode(pixels: Pixels) -> bytes:
    """A PNG file of the pixels alone. Equal pixels have equal bytes on one installation.

    Raises:
        ValueError: The array is not an image.
    """
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(check_pixels(pixels)).save(out, "PNG", compress_level=6)
    return out.getvalue()


def annotate(png: bytes, notes: Mapping[str, str]) -> bytes:
    """A PNG file that ``encode`` made, with texts by keyword beside those that it has."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    with _open_png(png) as image:
        kept = {str(name): text for name, text in image.info.items() if isinstance(text, str)}
    info, out = PngInfo(), io.BytesIO()
    for keyword, text in (kept | dict(notes)).items():
        info.add_text(keyword, text)
    Image.fromarray(decode_png(png)).save(out, "PNG", compress_level=6, pnginfo=info)
    return out.getvalue()


def decode_png(png: bytes) -> Pixels:
    """The pixels of a PNG file that encode made.

    Raises:
        ValueError: It is something else.
    """
    with _open_png(png) as image:
        if image.mode in ("L", "RGB") and image.width * image.height <= MOST_PIXELS:
            return np.array(image, np.uint8)
    raise ValueError("a PNG file that is neither gray nor RGB with 8 bits")


def note_of(png: bytes, keyword: str) -> str | None:
    """A text that ``annotate`` wrote into a PNG file; None where it has no such text.

    Raises:
        ValueError: It is not a PNG file that can be read.
    """
    with _open_png(png) as image:
        text = image.info.get(keyword)
    return None if text is None else str(text)


@contextlib.contextmanager
def _open_png(png: bytes) -> Iterator[Image]:
    """A PNG file; ValueError if it cannot be read."""
    from PIL import Image

    with _silence():
        try:
            with Image.open(io.BytesIO(png), formats=("PNG",)) as image:
                yield image
        except MemoryError:
            raise
        except Exception:  # decoders raise whatever their parsers raise
            raise ValueError("not a PNG file that can be read") from None


def to_content(pixels: Pixels) -> str:
    """An image as the text of a record: base64 of its PNG file."""
    return base64.b64encode(encode(pixels)).decode("ascii")


def decode(content: str) -> Pixels:
    """The pixels of what to_content made.

    Raises:
        ValueError: It is something else.
    """
    return decode_png(base64.b64decode(content, validate=True))


def contact_sheet(images: Sequence[Pixels], columns: int) -> bytes:
    """Images in rows on a white page, as a PNG file; small ones enlarged, pixels kept sharp.

    Args:
        images: At least one; all are shown at the size of the first.
        columns: Images in a row, at least one.

    Raises:
        ValueError: There is no image or no column, or an array is not an image.
    """
    from PIL import Image

    if not images or columns < 1:
        raise ValueError(f"a contact sheet of {len(images)} images in {columns} columns")
    height, width = _cell(images[0].shape[0], images[0].shape[1])
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    gray = all(pixels.ndim == 2 for pixels in images)
    size = (columns * (width + _SHEET_GAP), rows * (height + _SHEET_GAP))
    page = Image.new("L" if gray else "RGB", (size[0] + _SHEET_GAP, size[1] + _SHEET_GAP), "white")
    for number, pixels in enumerate(images):
        picture = Image.fromarray(check_pixels(pixels))
        shrinks = picture.width > width or picture.height > height
        method = Image.Resampling.BICUBIC if shrinks else Image.Resampling.NEAREST
        row, column = divmod(number, columns)
        place = (
            _SHEET_GAP + column * (width + _SHEET_GAP),
            _SHEET_GAP + row * (height + _SHEET_GAP),
        )
        page.paste(picture.convert(page.mode).resize((width, height), method), place)
    out = io.BytesIO()
    page.save(out, "PNG", compress_level=6)
    return out.getvalue()


@cache
def _readable() -> tuple[str, ...]:
    """The formats that this installation can read."""
    from PIL import Image

    # Image.OPEN is filled by this call alone.
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _cell(height: int, width: int) -> tuple[int, int]:
    side, (small, large) = max(height, width), _SHEET_CELL
    if side <= large:
        times = max(1, small // side)
        return height * times, width * times
    return max(1, round(height * large / side)), max(1, round(width * large / side))


def _upright(image: Image) -> Image:
    """The image turned by its EXIF orientation; an unreadable orientation is ignored."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # EXIF in the wild is often damaged where the image is not
        return image


def _flat(image: Image, mode: Mode) -> Image:
    """The image in ``mode``, opaque."""
    from PIL import Image as images

    if image.has_transparency_data:
        over = image.convert("RGBA")
        image = images.alpha_composite(images.new("RGBA", over.size, "white"), over).convert("RGB")
    elif image.mode not in ("L", "RGB", "1"):
        image = image.convert("RGB")  # palettes, CMYK, YCbCr, LAB
    return image if image.mode == mode else image.convert(mode)


def _square(image: Image, size: int) -> Pixels:
    from PIL.Image import Resampling

    if image.size != (size, size):
        image = image.resize((size, size), Resampling.BICUBIC)
    return np.array(image, np.uint8)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep Pillow's messages out of logs: at level DEBUG they hold an image's comments."""
    logging.getLogger("PIL").setLevel(logging.CRITICAL + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
