"""Reading records from JSON Lines, CSV and Parquet, plain or compressed, one at a time.

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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from privsyn.config import DatasetConfig
from privsyn.data.columns import check_header, refuse_missing
from privsyn.data.parquet import check_parquet, parquet_rows
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
    check_file(path)
    _format(path).check(path, _columns(cfg))


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
    return _records(cfg, _format(path).rows(path, _columns(cfg)), tally or Tally())


def _columns(cfg: DatasetConfig) -> Mapping[str, str]:
    """Setting -> column, the text first."""
    wanted = {"text": cfg.text, "label": cfg.label, "unit": cfg.unit}
    return {setting: column for setting, column in wanted.items() if column is not None}


def _records(
    cfg: DatasetConfig, rows: Iterator[Row | None], tally: Tally
) -> Iterator[Private[Record]]:
    labels = frozenset(cfg.labels)
    for number, row in enumerate(rows):
        tally.rows += 1
        if row is None:
            continue
        values = iter(row)
        text = _text(next(values))
        label = None if cfg.label is None else _identifier(next(values))
        unit = str(number) if cfg.unit is None else _identifier(next(values))
        if text is None or unit is None or (cfg.label is not None and label not in labels):
            continue
        tally.kept += 1
        yield Private(Record(unit, label, text))


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


def _format(path: Path) -> _Format:
    suffix, _ = split_suffix(path)
    if suffix not in _FORMATS:
        raise DataError(
            f"{path} ends in {suffix!r}; known are {', '.join(_FORMATS)}, each also with "
            f"{', '.join(COMPRESSIONS)}.",
            hint="Convert or rename the file.",
        )
    return _FORMATS[suffix]
