"""Column names of a private file. No other content is read."""

from __future__ import annotations

import csv
import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from privsyn.data.readers.columns import looks_like_name
from privsyn.data.readers.lines import JSONLines
from privsyn.data.readers.parquet import parquet_columns
from privsyn.data.readers.streams import (
    COMPRESSIONS,
    bounded_lines,
    check_file,
    open_bytes,
    split_suffix,
    way_out,
)
from privsyn.errors import DataError, NoRows

_OBJECTS = 1000
_DELIMITERS = (",", ";", "\t", "|")


@dataclass(frozen=True)
class Header:
    """Column names of a private file.

    Attributes:
        names: Columns that may be shown.
        rare: Rarer keys of the first objects of JSON Lines. A rare key can be content, so it is
            never shown; a user's column is only looked up in it.
        delimiter: Delimiter of a CSV, else None.
    """

    names: tuple[str, ...]
    rare: frozenset[str] = field(default=frozenset(), repr=False)
    delimiter: str | None = None

    def __contains__(self, name: object) -> bool:
        return name in self.names or name in self.rare


def read_header(path: Path, *, setting: str = "dataset.path") -> Header:
    """The columns of a JSON Lines, CSV or Parquet file, and the delimiter of a CSV.

    Reads the first line of a CSV, the schema of Parquet, or the keys of the first 1000 objects of
    JSON Lines.

    Args:
        path: The file.
        setting: The setting that names the file, for messages.

    Raises:
        DataError: The file cannot be read, or its first line does not look like column names. The
            line may be a record, so it is not shown.
    """
    check_file(path, setting)
    suffix, _ = split_suffix(path)
    delimiter, rare = None, frozenset[str]()
    match suffix:
        case ".csv" | ".tsv":
            names, delimiter = _first_line(path)
        case ".jsonl" | ".ndjson" | ".json":
            JSONLines().check(path, {})
            names, rare = _keys(path)
        case ".parquet":
            names = parquet_columns(path)
        case _:
            raise DataError(
                f"{path} ends in {suffix!r}; known are .jsonl, .ndjson, .json, .csv, .tsv and "
                f".parquet, each also with {', '.join(COMPRESSIONS)}.",
                hint=way_out(suffix),
            )
    if suffix in (".csv", ".tsv") and not all(map(looks_like_name, names)):
        raise DataError(
            f"the first line of {path} does not look like column names.",
            hint="Write a header line with short names, or give the columns as options.",
        )
    names = [name for name in names if looks_like_name(name)]
    if not names and not rare:
        raise DataError(f"{path} has no columns with names.", hint="Is it the right file?")
    return Header(tuple(names), rare, delimiter)


def _first_line(path: Path) -> tuple[list[str], str]:
    with open_bytes(path) as stream:
        line = next(bounded_lines(stream.readline), b"") or b""
    if not line:
        raise NoRows(f"{path} is empty.", hint="Check the export.")
    text = line.decode("utf-8-sig", "replace").rstrip("\r\n")
    columns = {mark: next(csv.reader([text], delimiter=mark), []) for mark in _DELIMITERS}
    delimiter = max(_DELIMITERS, key=lambda mark: len(columns[mark]))  # a tie: the first
    return [name.strip() for name in columns[delimiter]], delimiter


def _keys(path: Path) -> tuple[list[str], frozenset[str]]:
    """Keys that more than half of the first objects have, and all other keys."""
    counts, objects = Counter[str](), 0
    with open_bytes(path) as stream:
        for line in islice(bounded_lines(stream.readline), _OBJECTS):
            try:
                value = json.loads((line or b"").decode("utf-8-sig"))
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                objects += 1
                counts.update(value.keys())
    common = [name for name, count in counts.items() if 2 * count > objects]
    return common, frozenset(counts.keys() - set(common))
