"""The names of a private file's columns, and nothing else of it."""

from __future__ import annotations

import csv
import json
from collections import Counter
from itertools import islice
from pathlib import Path

from privsyn.data.readers.columns import looks_like_name
from privsyn.data.readers.parquet import parquet_columns
from privsyn.data.readers.streams import bounded_lines, check_file, open_bytes, split_suffix
from privsyn.errors import DataError

_OBJECTS = 1000
_DELIMITERS = (",", ";", "\t", "|")


def column_names(path: Path) -> tuple[list[str], str | None]:
    """The columns of a JSON Lines, CSV or Parquet file, and the delimiter of a CSV.

    Read are a CSV's first line, a Parquet's schema, and of JSON Lines the keys that most of the
    first objects have: a rarer one could be content.

    Raises:
        DataError: The file cannot be read, or what should be names does not look like names: it
            may be somebody's record, so it is not shown.
    """
    check_file(path)
    suffix, _ = split_suffix(path)
    delimiter = None
    match suffix:
        case ".csv" | ".tsv":
            names, delimiter = _first_line(path)
        case ".jsonl" | ".ndjson":
            names = _common_keys(path)
        case ".parquet":
            names = parquet_columns(path)
        case _:
            raise DataError(
                f"{path} ends in {suffix!r}; known are .jsonl, .csv, .tsv and .parquet.",
                hint="Convert or rename the file.",
            )
    if suffix in (".csv", ".tsv") and not all(map(looks_like_name, names)):
        raise DataError(
            f"the first line of {path} does not look like column names.",
            hint="Write a header line with short names, or give the columns as options.",
        )
    names = [name for name in names if looks_like_name(name)]
    if not names:
        raise DataError(f"{path} has no columns with names.", hint="Is it the right file?")
    return names, delimiter


def _first_line(path: Path) -> tuple[list[str], str]:
    with open_bytes(path) as stream:
        line = next(bounded_lines(stream.readline), None) or b""
    text = line.decode("utf-8-sig", "replace").rstrip("\r\n")
    columns = {mark: next(csv.reader([text], delimiter=mark), []) for mark in _DELIMITERS}
    delimiter = max(_DELIMITERS, key=lambda mark: len(columns[mark]))  # of equals the first
    return [name.strip() for name in columns[delimiter]], delimiter


def _common_keys(path: Path) -> list[str]:
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
    return [name for name, count in counts.items() if 2 * count > objects]
