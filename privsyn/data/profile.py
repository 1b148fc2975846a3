"""Rows and images of a synthetic file, read without trust, and their summary.

The file is the output of the mechanism, so everything here is post-processing and may be shown. A
record may have any number of fields with any names and values, so all sizes are bounded.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

import numpy as np

from privsyn import layout
from privsyn.data.columns import Column
from privsyn.data.images import Pixels, contact_sheet, decode_png, read_image_file
from privsyn.errors import DataError

SAMPLES = 6
SAMPLE_CHARS = 1200
BINS = 24


@dataclass(frozen=True)
class Row:
    """One line of the file. A field that is missing or not text is None.

    Attributes:
        id: The row's id.
        text: The synthetic text, lone surrogates replaced by U+FFFD.
        label: The row's label.
        well_formed: Whether the line is a JSON object whose id, text and label are strings.
        text_is_json: Whether the text parses as JSON.
        values: Its other fields, as they are.
    """

    id: str | None
    text: str | None
    label: str | None
    well_formed: bool
    text_is_json: bool
    values: Mapping[str, Any] = field(default_factory=dict)


def read_rows(artifact: Path, *, worded: bool = True) -> list[Row]:
    """All lines of a JSONL file as rows; a malformed line is a row without fields.

    Args:
        artifact: The file.
        worded: Whether a well-formed row has a text.

    Raises:
        DataError: The file is missing or cannot be read.
    """
    return [_row(_fields_of(line), worded=worded) for line in _lines(artifact)]


def _lines(artifact: Path) -> Iterator[bytes]:
    try:
        with artifact.open("rb") as lines:
            yield from lines
    except FileNotFoundError:
        raise DataError(
            f"synthetic file {artifact} does not exist.", hint="Run the generate stage first."
        ) from None
    except OSError as error:
        raise DataError(f"synthetic file {artifact} cannot be read: {error.strerror}.") from None


def samples_of(rows: Sequence[Row]) -> list[Row]:
    """A few rows at even distances, texts cut to 1,200 characters."""
    some = [row for row in rows if row.text or row.well_formed]
    return [replace(row, text=_shorten(row.text or "")) for row in _pick_evenly(some, SAMPLES)]


def count_labels(
    rows: Sequence[Row] | Sequence[ImageRow], labels: Sequence[str]
) -> list[tuple[str, int]]:
    """Rows per declared label, in declared order; then any others together."""
    seen = Counter(row.label for row in rows if row.label is not None)
    counted = [(label, seen.pop(label, 0)) for label in labels]
    # Together: the names of labels that nobody declared are the model's words.
    if labels and (others := sum(seen.values())):
        counted.append(("(not declared)", others))
    return counted


def count_cells(rows: Sequence[Row], name: str, column: Column) -> list[int]:
    """Rows per cell of a declared column."""
    seen = Counter(column.cell(row.values.get(name)) for row in rows)
    return [seen[cell] for cell in range(len(column.cells))]


R = TypeVar("R")


def _pick_evenly(rows: Sequence[R], most: int) -> list[R]:
    """The middles of equal parts: the first rows may all be of one label."""
    count = min(most, len(rows))
    return [rows[(2 * i + 1) * len(rows) // (2 * count)] for i in range(count)]


def _parse(text: str | bytes) -> tuple[Any, ...]:
    """The JSON value of a text; none where it is no JSON, not UTF-8, or nested too deeply."""
    try:
        return (json.loads(text),)
    except (ValueError, RecursionError):
        return ()


def _fields_of(line: str | bytes) -> Mapping[str, Any] | None:
    """The object of a line; None where it is none."""
    return next((value for value in _parse(line) if isinstance(value, dict)), None)


def _row(value: Mapping[str, Any] | None, *, worded: bool) -> Row:
    fields = {name: (value or {}).get(name) for name in ("id", "text", "label")}
    text = _string(fields["text"])
    return Row(
        id=_string(fields["id"]),
        text=text,
        label=_string(fields["label"]),
        well_formed=value is not None
        and isinstance(fields["id"], str)
        and isinstance(fields["text"], str if worded else NoneType)
        and isinstance(fields["label"], str | None),
        text_is_json=text is not None and bool(_parse(text)),
        values={name: one for name, one in (value or {}).items() if name not in fields},
    )


def _string(value: Any) -> str | None:
    """An encodable text: JSON may contain lone surrogates, which UTF-8 cannot encode."""
    if not isinstance(value, str):
        return None
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def histogram(lengths: Sequence[int]) -> dict[str, Any]:
    """Bins of equal round width up to the 99th percentile, so that one huge text hides nothing.

    Args:
        lengths: Sorted integers of at least 0, one or more.

    Returns:
        ``edges``, one more than bins, of which each belongs to the bin above it; ``counts`` by bin,
        all greater lengths in the last; and ``longer``: how many are beyond the last edge.
    """
    low, high = lengths[0], lengths[int(0.99 * (len(lengths) - 1))]
    width = _round_width(low, high)
    first = low // width
    counts = [0] * (high // width - first + 1)
    for length in lengths:
        # Texts beyond the 99th percentile go into the last bin.
        counts[min(length // width - first, len(counts) - 1)] += 1
    edges = tuple((first + i) * width for i in range(len(counts) + 1))
    longer = sum(length >= edges[-1] for length in lengths)
    return {"edges": edges, "counts": tuple(counts), "longer": longer}


def _round_width(low: int, high: int) -> int:
    """Width of at most ``BINS`` bins: 1, 2 or 5 times a power of ten."""
    return next(
        width
        for power in itertools.count()
        for width in (step * int(10**power) for step in (1, 2, 5))
        if high // width - low // width < BINS
    )


def _shorten(text: str) -> str:
    return text if len(text) <= SAMPLE_CHARS else text[:SAMPLE_CHARS].rstrip() + " ..."


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


def read_image_rows(artifact: Path) -> list[ImageRow]:
    """Every line of a JSONL file with the image it names, one image in memory at a time.

    Raises:
        DataError: The JSONL file is missing or cannot be read. A missing image gives a row
            that is not readable.
    """
    return [_image_row(_fields_of(line) or {}, artifact.parent) for line in _lines(artifact)]


def sample_sheet(folder: Path, rows: Sequence[ImageRow], labels: Sequence[str]) -> bytes | None:
    """A contact sheet as a PNG file, ``COLUMNS`` images per row; None if no image can be read.

    One row for each of the first ``MOST_ROWS`` labels, or without labels four rows at even
    distances.
    """
    names = _sheet_samples(rows, labels)
    pictures = [None if name is None else _pixels(folder / name) for name in names]
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


def _image_row(fields: Mapping[str, Any], folder: Path) -> ImageRow:
    id_, label, digest, file = (
        _string(fields.get(name)) for name in ("id", "label", "sha256", "file")
    )
    if file is not None and ("\0" in file or file != f"{layout.IMAGES}/{Path(file).name}"):
        file = None  # a row must not make us open a file outside of the release
    row = ImageRow(
        id=id_,
        label=label,
        file=file,
        well_formed=None not in (id_, file, digest) and isinstance(fields.get("label"), str | None),
    )
    raw = None if file is None else read_image_file(folder / file)
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


def _pixels(file: Path) -> Pixels | None:
    raw = read_image_file(file)
    try:
        return None if raw is None else decode_png(raw)
    except ValueError:
        return None


def _sheet_samples(rows: Sequence[ImageRow], labels: Sequence[str]) -> Iterator[str | None]:
    readable = [row for row in rows if row.readable]
    if not labels:
        yield from (row.file for row in _pick_evenly(readable, 4 * COLUMNS))
        return
    for label in labels[:MOST_ROWS]:
        chosen = _pick_evenly([row for row in readable if row.label == label], COLUMNS)
        yield from (row.file for row in chosen)
        # Filled up, so that each row of the sheet stays one label.
        yield from [None] * (COLUMNS - len(chosen))
