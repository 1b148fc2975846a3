"""Rows and images of a synthetic file, read without trust, and their summary.

As for texts, all of it is post-processing of the release and may be shown.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from privsyn.data.images import MOST_BYTES, Pixels, contact_sheet, decode_png
from privsyn.errors import DataError
from privsyn.release import layout
from privsyn.validation.profile import Histogram, histogram

COLUMNS = 12
"""Images per row of the contact sheet."""
MOST_ROWS = 12


@dataclass(frozen=True)
class ImageRow:
    """One line of the file and its image; unknown values are None.

    Attributes:
        id: The row's id.
        label: The row's label.
        file: Path of the image in the release folder, if it is ``images/NAME``.
        well_formed: Whether the line is a JSON object whose id, file and sha256 are strings, whose
            label is a string or missing, and whose file is in the folder ``images``.
        readable: Whether the file is an 8-bit PNG, gray or RGB, with the row's digest.
        width: Width in pixels.
        height: Height in pixels.
        mode: ``L`` or ``RGB``.
        mean: Mean of all values, 0 to 255.
        spread: Largest minus smallest value.
        pixels_sha256: Digest of the pixels, which does not depend on compression.
        label_rows: Rows of the file with this row's label; None without one.
    """

    id: str | None
    label: str | None
    file: str | None
    well_formed: bool
    readable: bool = False
    width: int | None = None
    height: int | None = None
    mode: str | None = None
    mean: float | None = None
    spread: int | None = None
    pixels_sha256: str | None = None
    label_rows: int | None = None


@dataclass(frozen=True)
class ImageProfile:
    """A summary of the synthetic images.

    Attributes:
        means: Histogram of the mean values of images, rounded to whole numbers.
        darkest: Smallest mean value.
        median: Median of the mean values, to one digit.
        brightest: Largest mean value.
        sizes: Readable images by ``width x height mode``, the most common first.
        labels: Rows per declared label, in declared order; then any others together.
        samples: Files of a contact sheet with ``COLUMNS`` images per row: one row for each of the
            first ``MOST_ROWS`` labels, or without labels four rows at even distances. None is an
            empty position.
    """

    means: Histogram
    darkest: float
    median: float
    brightest: float
    sizes: tuple[tuple[str, int], ...]
    labels: tuple[tuple[str, int], ...]
    samples: tuple[str | None, ...]


def read_image_rows(artifact: Path) -> list[ImageRow]:
    """Every line of a JSONL file with the image it names, one image in memory at a time.

    Raises:
        DataError: The JSONL file is missing or cannot be read. A missing image gives a row
            that is not readable.
    """
    try:
        with artifact.open("rb") as lines:
            rows = [_row(line, artifact.parent) for line in lines]
    except FileNotFoundError:
        raise DataError(
            f"synthetic file {artifact} does not exist.", hint="Run the generate stage first."
        ) from None
    except OSError as error:
        raise DataError(f"synthetic file {artifact} cannot be read: {error.strerror}.") from None
    counts = Counter(row.label for row in rows if row.label is not None)
    return [
        row if row.label is None else replace(row, label_rows=counts[row.label]) for row in rows
    ]


def profile_images(rows: Sequence[ImageRow], labels: Sequence[str]) -> ImageProfile:
    """Brightness, sizes, label counts and samples of a file's images."""
    means = sorted(row.mean for row in rows if row.mean is not None)
    seen = Counter(row.label for row in rows if row.label is not None)
    counted = [(label, seen.pop(label, 0)) for label in labels]
    if labels and (others := sum(seen.values())):
        counted.append(("(not declared)", others))
    sizes = Counter(f"{row.width} x {row.height} {row.mode}" for row in rows if row.readable)
    return ImageProfile(
        means=histogram([round(mean) for mean in means]),
        darkest=means[0] if means else 0.0,
        median=round(median(means), 1) if means else 0.0,
        brightest=means[-1] if means else 0.0,
        sizes=tuple(sizes.most_common(5)),
        labels=tuple(counted),
        samples=tuple(_samples(rows, labels)),
    )


def sample_sheet(folder: Path, profile: ImageProfile) -> bytes | None:
    """The contact sheet of a profile as a PNG file; None if no image can be read."""
    pictures = [None if name is None else _pixels(folder / name) for name in profile.samples]
    first = next((pixels for pixels in pictures if pixels is not None), None)
    if first is None:
        return None
    blank = np.full_like(first, 255)
    return contact_sheet([blank if one is None else one for one in pictures], COLUMNS)


def load_images(folder: Path, rows: Sequence[ImageRow]) -> Iterator[tuple[Pixels, str | None]]:
    """Pixels and label of every readable image, one at a time."""
    for row in rows:
        if row.readable and row.file is not None:
            pixels = _pixels(folder / row.file)
            if pixels is not None:
                yield pixels, row.label


def _row(line: bytes, folder: Path) -> ImageRow:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested too deeply
        value = None
    fields = value if isinstance(value, dict) else {}
    id_, label, digest = (_string(fields.get(name)) for name in ("id", "label", "sha256"))
    file = _string(fields.get("file"))
    if file is not None and file != f"{layout.IMAGES}/{Path(file).name}":
        file = None  # a row must not make us open a file outside of the release
    row = ImageRow(
        id=id_,
        label=label,
        file=file,
        well_formed=None not in (id_, file, digest) and isinstance(fields.get("label"), str | None),
    )
    raw = None if file is None else _read(folder / file)
    # Before decoding: only bytes that the row names reach the PNG decoder.
    if raw is None or hashlib.sha256(raw).hexdigest() != digest:
        return row
    try:
        pixels = decode_png(raw)
    except ValueError:
        return row
    return replace(
        row,
        readable=True,
        width=pixels.shape[1],
        height=pixels.shape[0],
        mode="L" if pixels.ndim == 2 else "RGB",
        mean=float(pixels.mean()),
        spread=int(pixels.max()) - int(pixels.min()),
        # With the shape: 2 x 8 and 4 x 4 pixels may have the same bytes.
        pixels_sha256=hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).hexdigest(),
    )


def _string(value: object) -> str | None:
    """An encodable string without zero bytes, which paths may not contain."""
    if not isinstance(value, str) or "\0" in value:
        return None
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read(file: Path) -> bytes | None:
    try:
        with file.open("rb") as stream:
            # One byte more than allowed: a file of any size is told from a fitting one without
            # reading it.
            raw = stream.read(MOST_BYTES + 1)
    except OSError:
        return None
    return raw if len(raw) <= MOST_BYTES else None


def _pixels(file: Path) -> Pixels | None:
    raw = _read(file)
    try:
        return None if raw is None else decode_png(raw)
    except ValueError:
        return None


def _samples(rows: Sequence[ImageRow], labels: Sequence[str]) -> Iterator[str | None]:
    readable = [row for row in rows if row.readable]
    if not labels:
        yield from (row.file for row in _spaced(readable, 4 * COLUMNS))
        return
    for label in labels[:MOST_ROWS]:
        chosen = _spaced([row for row in readable if row.label == label], COLUMNS)
        yield from (row.file for row in chosen)
        # Filled up, so that each row of the sheet stays one label.
        yield from [None] * (COLUMNS - len(chosen))


def _spaced(rows: Sequence[ImageRow], most: int) -> list[ImageRow]:
    count = min(most, len(rows))
    return [rows[(2 * i + 1) * len(rows) // (2 * count)] for i in range(count)]
