"""Reading records from JSON Lines, CSV and Parquet, plain or compressed, one at a time.

Images come from Parquet, an .npz file or a folder (image_files.py); an image that cannot be decoded
is dropped as a text is.

What a record may do to a run: nothing but be in it or not. A row that cannot be parsed or decoded,
has no text, no unit id or a label outside the declared set is dropped in silence; whether it is
dropped depends on that row alone. One exception: in a CSV file a quote that is not closed takes the
rows up to the next quote with it. Only the shape of the file as a whole (missing, empty, without
the column) is an error, and no error or count here ever leaves with a record's content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privsyn.data.images import from_array, read_image, to_content
from privsyn.data.public_files import pieces
from privsyn.data.readers.image_files import (
    FILE,
    check_folder,
    check_npz,
    folder_rows,
    npz_rows,
    read_file,
)
from privsyn.data.readers.lines import CSV, JSONLines, Row
from privsyn.data.readers.parquet import IMAGE_COLUMN, check_parquet, parquet_rows
from privsyn.data.readers.streams import (
    COMPRESSIONS,
    bounded_lines,
    check_file,
    open_bytes,
    split_suffix,
)
from privsyn.data.records import Private, Record
from privsyn.data.settings import PLACEHOLDER, DatasetConfig, ImageConfig
from privsyn.data.tally import ENCODING, IMAGE, KIND, MISSING, Tally, folded
from privsyn.errors import DataError


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


def lines_and_values(cfg: DatasetConfig) -> Iterator[Private[list[str]]]:
    """The private file row by row, used or not: its lines and the values in them, as texts.

    Of Parquet only the texts that are records; of images nothing.

    Raises:
        DataError: As read_records.
    """
    check_source(cfg)
    if cfg.images is not None:
        return
    if split_suffix(cfg.path)[0] == ".parquet":
        for record in read_records(cfg):
            text = record.reveal().content
            yield Private([text, *text.splitlines()])
        return
    with open_bytes(cfg.path) as stream:
        for line in bounded_lines(stream.readline):
            if line is not None:
                text = line.decode(cfg.encoding, "replace")
                yield Private(list(pieces([text], cfg.delimiter or ",")))


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
    cfg: DatasetConfig, rows: Iterator[Row | str], has_units: bool, tally: Tally
) -> Iterator[Private[Record]]:
    labels = {folded(label): label for label in reversed(cfg.labels) if folded(label)}
    declared = frozenset(cfg.labels)
    width = len(cfg.text_columns) if cfg.images is None else 1
    for number, row in enumerate(rows):
        tally.rows += 1
        if isinstance(row, str):
            tally.drop(row)
            continue
        content, values = row[:width], iter(row[width:])
        label = None
        if cfg.label is not None:  # before the content: decoding an image is dear
            value = next(values)
            label = _identifier(value)
            if label is None:
                tally.drop(f"label: {_fault(value)}")
                continue
            if label not in declared:
                tally.drop_label(labels.get(folded(label)))
                continue
        value = next(values) if has_units else number
        unit = _identifier(value)
        if unit is None:
            tally.drop(f"unit: {_fault(value)}")
            continue
        if cfg.images is not None:
            text = _image(content[0], cfg.images)
            if text is None:
                tally.drop(IMAGE)
                continue
        else:
            texts = [_text(value) for value in content]
            if None in texts:
                tally.drop(f"text: {_fault(content[texts.index(None)])}")
                continue
            text = _filled(cfg, dict(zip(cfg.text_columns, map(str, texts), strict=True)))
        tally.keep(unit, label, text)
        yield Private(Record(unit, label, text))


def _filled(cfg: DatasetConfig, texts: Mapping[str, str]) -> str:
    """The text of a record: a column, or several in the form of ``cfg.text``."""
    if cfg.text in texts:
        return texts[cfg.text]
    return PLACEHOLDER.sub(lambda found: texts[found[1]], cfg.text)


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


def _fault(value: Any) -> str:
    """Why a value is neither text nor an identifier, in words that hold nothing of it."""
    if isinstance(value, str | bytes):
        return ENCODING if value.strip() else MISSING
    empty = value is None or value != value
    return MISSING if empty else KIND


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


# -- formats ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Format:
    """How files of one kind are checked and read."""

    check: Callable[[Path, Mapping[str, str]], None]
    rows: Callable[[Path, Mapping[str, str]], Iterator[Row | str]]


_PARQUET = _Format(check_parquet, parquet_rows)
_FOLDER = _Format(check_folder, folder_rows)
_IMAGE_FORMATS = {".npz": _Format(check_npz, npz_rows), ".parquet": _PARQUET}


def _text_formats(cfg: DatasetConfig) -> Mapping[str, _Format]:
    """Suffix -> how such a file of texts is read."""
    lines = JSONLines(cfg.encoding)
    commas = CSV(cfg.encoding, cfg.delimiter or ",")
    tabs = CSV(cfg.encoding, cfg.delimiter or "\t")
    by_line = dict.fromkeys((".jsonl", ".ndjson", ".json"), _Format(lines.check, lines.rows))
    return by_line | {
        ".csv": _Format(commas.check, commas.rows),
        ".tsv": _Format(tabs.check, tabs.rows),
        ".parquet": _PARQUET,
    }


def _format(cfg: DatasetConfig, path: Path) -> _Format:
    """How a file is read.

    Raises:
        DataError: It is missing, may not be read, or is of no known format.
    """
    if cfg.images is not None and path.is_dir():
        return _FOLDER
    check_file(path)
    suffix, packed = split_suffix(path)
    known = _text_formats(cfg) if cfg.images is None else _IMAGE_FORMATS
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
