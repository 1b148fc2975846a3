"""Reading records from JSON Lines, CSV and Parquet, plain or compressed, one at a time.

Images come from Parquet, an .npz file or a folder (image_files.py); an image that cannot be decoded
is dropped as a text is.

What a record may do to a run: nothing but be in it or not. A row that cannot be parsed or decoded,
has no text, no unit id or a label outside the declared set is dropped in silence; whether it is
dropped depends on that row alone. Only the shape of the file as a whole (missing, empty, without
the column) is an error, and no error or count here ever leaves with a record's content.

A CSV is read as the table its writer meant: an unclosed quote takes the rows it swallows with it.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from privsyn.config import PLACEHOLDER, DatasetConfig, ImageConfig
from privsyn.data.columns import check_header, refuse_missing
from privsyn.data.image_files import FILE, check_folder, check_npz, folder_rows, npz_rows, read_file
from privsyn.data.images import from_array, read_image, to_content
from privsyn.data.parquet import IMAGE_COLUMN, check_parquet, parquet_rows
from privsyn.data.records import Private, Record
from privsyn.data.streams import (
    COMPRESSIONS,
    LONGEST_LINE,
    bounded_lines,
    check_file,
    open_bytes,
    split_suffix,
)
from privsyn.errors import DataError

_ROWS_CHECKED = 1000

Row = tuple[Any, ...]
"""Values of the wanted columns, in their order."""


@dataclass
class Tally:
    """Exact counts of one reading. Internal: never logged, published or shown beside a release.

    Attributes:
        rows: Rows of the file, parsable or not.
        kept: Records that were handed out.
    """

    rows: int = 0
    kept: int = 0


def check_source(cfg: DatasetConfig, path: Path | None = None) -> None:
    """Refuse a file whose shape does not fit the config; reads its head only.

    A JSON Lines file lacks a column if none of its first 1000 objects has the key, so no single
    record decides; CSV goes by its header, Parquet by its schema.

    Args:
        cfg: Path and columns.
        path: Another file with the same columns, instead of ``cfg.path``.

    Raises:
        DataError: Missing, unreadable, of unknown format, without a row, or without a column.
    """
    path = path or cfg.path
    _format(cfg, path).check(path, _columns(cfg, path))


def read_records(
    cfg: DatasetConfig, path: Path | None = None, tally: Tally | None = None
) -> Iterator[Private[Record]]:
    """The usable records of the private file, streaming, in file order.

    Without ``cfg.unit`` the unit is the row's number, counting every row of the file, so that a row
    made unusable does not renumber the others.

    Args:
        cfg: Path, columns and declared labels.
        path: Another file with the same columns, instead of ``cfg.path``.
        tally: Filled in while reading. Internal.

    Returns:
        An iterator; it raises DataError, too, where the file turns out to be cut off.

    Raises:
        DataError: As check_source, before the first record.
    """
    path = path or cfg.path
    check_source(cfg, path)
    columns = _columns(cfg, path)
    rows = _format(cfg, path).rows(path, columns)
    return _records(cfg, rows, "unit" in columns, tally or Tally())


def _columns(cfg: DatasetConfig, path: Path) -> Mapping[str, str]:
    """Setting -> column, the content first."""
    wanted: dict[str, str | None]
    if cfg.images is None:
        names = cfg.text_columns
        wanted = {"text" if not n else f"text ({n + 1})": name for n, name in enumerate(names)}
    else:
        wanted = {IMAGE_COLUMN: cfg.images.column}
    unit = FILE if cfg.images is not None and cfg.unit is None and path.is_dir() else cfg.unit
    wanted |= {"label": cfg.label, "unit": unit}
    return {setting: column for setting, column in wanted.items() if column is not None}


def _records(
    cfg: DatasetConfig, rows: Iterator[Row | None], has_units: bool, tally: Tally
) -> Iterator[Private[Record]]:
    labels = frozenset(cfg.labels)
    width = len(cfg.text_columns) if cfg.images is None else 1
    for number, row in enumerate(rows):
        tally.rows += 1
        if row is None:
            continue
        content, values = row[:width], iter(row[width:])
        label = None if cfg.label is None else _identifier(next(values))
        unit = _identifier(next(values)) if has_units else str(number)
        if cfg.label is not None and label not in labels:
            continue  # before the content: decoding an image is dear
        text = _filled(cfg, content) if cfg.images is None else _image(content[0], cfg.images)
        if text is None or unit is None:
            continue
        tally.kept += 1
        yield Private(Record(unit, label, text))


def _filled(cfg: DatasetConfig, values: Sequence[Any]) -> str | None:
    """The text of a record: a column, or several in the form of ``cfg.text``; None without one."""
    texts = [_text(value) for value in values]
    known = dict(zip(cfg.text_columns, texts, strict=True))
    if None in texts:
        return None
    if cfg.text in known:
        return texts[0]
    return PLACEHOLDER.sub(lambda found: str(known[found[1]]), cfg.text)


def _text(value: Any) -> str | None:
    """A string with something in it that UTF-8 can hold, else None."""
    try:
        if isinstance(value, bytes):
            value = value.decode("utf-8")
        elif not isinstance(value, str):
            return None
        elif not value.isascii():
            value.encode("utf-8")  # refuses the surrogates that stand for undecodable bytes
    except UnicodeError:
        return None
    return value if value and not value.isspace() else None


def _image(value: Any, wanted: ImageConfig) -> str | None:
    """An image file or an array of pixels in canonical form, else None."""
    if isinstance(value, dict):  # as the datasets library writes images
        value = value.get("bytes")
    if isinstance(value, Path):
        value = read_file(value)
    if isinstance(value, bytes):
        pixels = read_image(value, wanted.size, wanted.mode)
    elif isinstance(value, np.ndarray):
        pixels = from_array(value, wanted.size, wanted.mode)
    else:
        return None
    return None if pixels is None else to_content(pixels)


def _identifier(value: Any) -> str | None:
    """A string or whole number as text; 12.0 is what a column of integers with gaps holds."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else None
    return _text(value)


# -- JSON Lines ---------------------------------------------------------------------------------


def _json_objects(path: Path) -> Iterator[dict[str, Any] | None]:
    with open_bytes(path) as stream:
        first = True
        for line in bounded_lines(stream.readline):
            try:
                text = (line or b"").decode("utf-8-sig" if first else "utf-8")
                value = json.loads(text)
            except (ValueError, RecursionError):  # bad UTF-8, bad JSON, or nested without end
                value = None
            first = False
            yield value if isinstance(value, dict) else None


def _json_rows(path: Path, columns: Mapping[str, str]) -> Iterator[Row | None]:
    names = tuple(columns.values())
    for value in _json_objects(path):
        yield None if value is None else tuple(value.get(name) for name in names)


def _check_json(path: Path, columns: Mapping[str, str]) -> None:
    missing, seen, objects = dict(columns), Counter[str](), 0
    parsable = (value for value in _json_objects(path) if value is not None)
    for value in islice(parsable, _ROWS_CHECKED):
        objects += 1
        seen.update(value.keys())
        missing = {k: column for k, column in missing.items() if column not in value}
        if not missing:
            return
    if not objects:
        raise DataError(
            f"{path} holds no line that is a JSON object in UTF-8.",
            hint="Write one JSON object a line.",
        )
    # A key that most rows have is part of the layout; a rarer one could be content.
    refuse_missing(path, missing, [name for name, n in seen.items() if 2 * n > objects])


# -- CSV ----------------------------------------------------------------------------------------


def _csv_table(path: Path) -> Iterator[list[str] | None]:
    """The header, then the rows; None for one that is malformed or has not the header's length."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    with (
        open_bytes(path) as stream,
        io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="") as text,
    ):
        lines = ("\n" if line is None else line for line in bounded_lines(text.readline))
        reader, width = csv.reader(lines, strict=True), -1
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error:
                yield None
                continue
            if width < 0:
                width = len(row)
            yield row if len(row) == width else None


def _csv_rows(path: Path, columns: Mapping[str, str]) -> Iterator[Row | None]:
    table = _csv_table(path)
    header = next(table) or []
    places = [header.index(name) for name in columns.values()]
    for row in table:
        yield None if row is None else tuple(row[place] for place in places)


def _check_csv(path: Path, columns: Mapping[str, str]) -> None:
    table = _csv_table(path)
    header = next(table, None)
    if not header:
        raise DataError(f"{path} does not begin with a header line.", hint="Add column names.")
    check_header(path, columns, header, may_be_record=True)
    if all(row is None for row in table):
        raise DataError(f"{path} holds no row that fits its header.", hint="Check the export.")


# -- formats ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Format:
    """How files of one kind are checked and read."""

    check: Callable[[Path, Mapping[str, str]], None]
    rows: Callable[[Path, Mapping[str, str]], Iterator[Row | None]]


_JSONL = _Format(_check_json, _json_rows)
_FORMATS = {
    ".jsonl": _JSONL,
    ".ndjson": _JSONL,
    ".csv": _Format(_check_csv, _csv_rows),
    ".parquet": _Format(check_parquet, parquet_rows),
}


_IMAGE_FORMATS = {
    ".npz": _Format(check_npz, npz_rows),
    ".parquet": _FORMATS[".parquet"],
}
_FOLDER = _Format(check_folder, folder_rows)


def _format(cfg: DatasetConfig, path: Path) -> _Format:
    """How a file is read.

    Raises:
        DataError: It is missing, may not be read, or is of no known format.
    """
    if cfg.images is not None and path.is_dir():
        return _FOLDER
    check_file(path)
    suffix, packed = split_suffix(path)
    known = _FORMATS if cfg.images is None else _IMAGE_FORMATS
    if suffix in known and not (packed and suffix == ".npz"):
        return known[suffix]
    packings = ", ".join(COMPRESSIONS)
    offered = (
        f"{', '.join(known)}, each also with {packings}"
        if cfg.images is None
        else f"a folder, .npz and .parquet, the last also with {packings}, for images"
    )
    raise DataError(
        f"{path} ends in {suffix!r}; known are {offered}.", hint="Convert or rename the file."
    )
