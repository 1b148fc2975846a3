r"""JSON Lines and CSV in UTF-8: rows that are read independently of each other.

A CSV is split into records before any is parsed. A record ends at a line end outside of quoted
fields, so a quoted field may hold line ends, and the content of one record does not change where
the next begins. Python's csv module alone does not guarantee this: it ends a record at a bare
carriage return, and continues in the middle of a field after an error.

The split is right if the writer doubled quotes within quotes (RFC 4180). Some writers put a
backslash before them instead (Spark, MySQL, pandas with ``escapechar``). The records do not show
which: a text in a file of one rule can spell rows of the other. Under the wrong rule an inch mark
at the end of one text swallows the next rows, and one record decides about others.

Privacy of the refusal. A file with a quote where the rule allows none is refused as a whole
(``RowsRunTogether``), before anything is spent. Dropping only that record would keep a file in
which others were swallowed. A file whose writer follows the rule is never refused, whatever its
texts are, so for two such files that differ in one record the refusal shows nothing. For a file by
another writer it shows its owner one bit: some record holds a quote. No release exists then. A rule
that refused every ``\"`` would let one text that quotes program code block a release.

The header alone decides the delimiter. Lines end with a line feed, behind a carriage return or not.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, TextIO

from privsyn.address import Source
from privsyn.data import row_counts
from privsyn.data.readers import streams
from privsyn.data.readers.columns import Header, check_header, looks_like_name, refuse_missing
from privsyn.data.readers.streams import LONGEST_LINE, bounded_lines, open_bytes, split_suffix
from privsyn.data.unit_key import lost_digits
from privsyn.errors import DataError, NoRows

Row = tuple[Any, ...]
"""Values of the configured columns, in their order."""

# privacy: a byte order mark is skipped in every line: whether a row is read must not depend on
# whether it is the first.
_CODEC = "utf-8-sig"
_ROWS = 1000


def _float(text: str) -> float:
    """A number of JSON; infinite where it was rounded, which the number alone does not show."""
    return math.inf if lost_digits(text) else float(text)


_decode = json.JSONDecoder(parse_float=_float).decode


def check_json(path: Source, columns: Mapping[str, str]) -> None:
    """Refuse a file without objects, or without a configured key in its first 1000 rows.

    Raises:
        DataError: As said.
    """
    header = json_header(path)
    missing = {setting: column for setting, column in columns.items() if column not in header}
    refuse_missing(path, missing, header.names)


def json_header(path: Source) -> Header:
    """The keys of the first 1000 rows.

    Raises:
        DataError: There is no object.
    """
    head = [value for value in islice(_objects(path), _ROWS) if isinstance(value, dict)]
    with open_bytes(path) as stream:
        start = stream.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if not head or (start == b"[" and len(head) == 1):  # of a list by lines its last row parses
        raise DataError(
            f"{path} holds no JSON object per line, in UTF-8.",
            hint="Write one per line; of a list: jq -c '.[]' FILE > FILE.jsonl",
        )
    counts = Counter(name for value in head for name in value)
    # A key that most rows have is part of the layout; a rarer one could be content.
    common = tuple(name for name, count in counts.items() if 2 * count > len(head))
    return Header(common, frozenset(counts.keys() - set(common)))


def json_rows(path: Source, columns: Mapping[str, str]) -> Iterator[Row | str]:
    """Values of the wanted columns, or why there are none."""
    names = tuple(columns.values())
    for value in _objects(path):
        yield value if isinstance(value, str) else tuple(map(value.get, names))


def _objects(path: Source) -> Iterator[dict[str, Any] | str]:
    with open_bytes(path) as stream:
        for line in bounded_lines(stream.readline):
            yield row_counts.TOO_LONG if line is None else _object(line)


def _object(line: bytes) -> dict[str, Any] | str:
    try:
        value = _decode(line.decode(_CODEC))
    except UnicodeDecodeError:
        return row_counts.ROW_ENCODING
    except (ValueError, RecursionError):  # not JSON, or nested too deeply
        return row_counts.UNPARSED
    return value if isinstance(value, dict) else row_counts.NO_OBJECT


class RowsRunTogether(ValueError):
    """A quote is where the rule for quotes allows none, so records cannot be separated."""


def split_records(text: TextIO, delimiter: str) -> Iterator[str | None]:
    """The records of a CSV, each with its line end; None stands for one beyond LONGEST_LINE.

    An over-long record is read to its end but not kept in memory.

    Args:
        text: The file.
        delimiter: Between fields.

    Raises:
        RowsRunTogether: There is a quote in a field without quotes, a character other than a
            delimiter or a line end after a quoted field, or a quoted field that never ends.
    """
    apart = re.escape(delimiter)
    # Possessive quantifiers (++, *+): a match never backtracks, so no text can make it slow.
    quoted, plain = r'"(?:[^"]++|"")*+', rf'[^"{apart}]*+'
    shape = re.compile(
        rf'(?:(?:{quoted}"|{plain}){apart})*+'
        rf'(?:(?P<open>{quoted})|{quoted}(?P<closed>"\r?\n?)|{plain})'
    )
    parts: list[str] = []
    # Of a record that goes on, so much is put before its next part as says where that begins.
    length, before = 0, ""
    while part := text.readline(streams.LONGEST_LINE):
        match = shape.fullmatch(before + part)
        if match is None:
            raise RowsRunTogether
        length += len(part)
        if length <= streams.LONGEST_LINE:
            parts.append(part)
        else:
            parts.clear()
        if match["open"] is None and part.endswith("\n"):
            yield None if length > streams.LONGEST_LINE else "".join(parts)
            parts, length, before = [], 0, ""
        elif match["open"] is not None:
            before = '"'
        elif match["closed"] is not None:
            before = '"' + match["closed"]
        else:
            before = "" if part.endswith(delimiter) else "x"
    if length:
        if before == '"':
            raise RowsRunTogether
        yield None if length > streams.LONGEST_LINE else "".join(parts)


DELIMITERS = ",;\t|"
_HEADER_PART, _HEADER_PARTS = 1 << 16, 1000
"""Most characters of a line that is read at once, and most of these of a header."""


def csv_header(path: Source) -> Header:
    """The columns of a CSV.

    Raises:
        DataError: It is empty, or its first line does not look like column names. The line may be
            a record, so it is not shown.
    """
    names = [name.strip() for name in _head(path, ())[0]]
    if not names:
        raise NoRows(f"{path} is empty.", hint="Check the export.")
    if not all(map(looks_like_name, names)):
        raise DataError(
            f"the first line of {path} does not look like column names.",
            hint="Write a header line with short names, or give the columns as options.",
        )
    return Header(tuple(names))


def check_csv(path: Source, columns: Mapping[str, str]) -> None:
    """Refuse a file without the configured columns, or without a row as long as the header.

    Raises:
        DataError: As said.
    """
    header, _ = _head(path, columns.values())
    if not header:
        raise NoRows(f"{path} is empty.", hint="Check the export.")
    check_header(path, columns, header, may_be_record=True)
    # Stops at the first usable row.
    if all(isinstance(row, str) for row in csv_rows(path, columns)):
        raise NoRows(f"{path} holds no row that fits its header.", hint="Check the export.")


def csv_rows(path: Source, columns: Mapping[str, str]) -> Iterator[Row | str]:
    """Values of the wanted columns, or why there are none.

    Raises:
        DataError: The rows run together.
    """
    header, delimiter = _head(path, columns.values())
    if not header:  # an empty part among others
        return
    places = [header.index(name) for name in columns.values()]
    try:
        for row in _table(path, delimiter, len(header)):
            yield row if isinstance(row, str) else tuple(row[place] for place in places)
    except RowsRunTogether:
        raise DataError(
            f"the rows of {path} cannot be separated: there is a quote where a writer that doubles "
            "quotes within quotes writes none, so one record would decide how others are read.",
            hint="If its writer puts a backslash before them, as Spark and MySQL do, or no quotes "
            "around texts, export JSON Lines or Parquet, or a CSV that doubles them (in Spark: "
            "option('escape', '\"')).",
        ) from None


def _head(path: Source, names: Iterable[str]) -> tuple[list[str], str]:
    """Names in the header, and the delimiter by which it has the wanted ones."""
    lines, quotes = list[str](), 0
    with _text(path) as text:
        for line in islice(iter(lambda: text.readline(_HEADER_PART), ""), _HEADER_PARTS):
            lines.append(line)
            quotes += line.count('"')
            if quotes % 2 == 0 and line.endswith("\n"):
                break
    record, known = "".join(lines), set(names)
    usual = "\t" if split_suffix(path)[0] == ".tsv" else ","
    if not record:
        return [], usual
    fields = {mark: _split(record, mark) for mark in dict.fromkeys(usual + DELIMITERS)}
    heads = {mark: head if isinstance(head, list) else [] for mark, head in fields.items()}
    # Of equals the first.
    best = max(heads, key=lambda mark: (known <= set(heads[mark]), len(heads[mark])))
    return heads[best] or [""], best


def _table(path: Source, delimiter: str, width: int) -> Iterator[list[str] | str]:
    """The rows behind the header; a reason in place of a malformed row."""
    # The module's default of 131,072 characters would drop long texts.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    ends_escaped = re.compile(rf"(?<!\\)(?:\\\\)*\\(?:{re.escape(delimiter)}|[\r\n])")
    cut = False
    with _text(path) as text:
        for record in islice(split_records(text, delimiter), 1, None):
            if record is None:
                yield row_counts.TOO_LONG
                continue
            row = _split(record, delimiter)
            before, cut = cut, ends_escaped.search(record) is not None
            if isinstance(row, list) and len(row) != width:
                if before or cut:
                    raise RowsRunTogether  # the writer escapes delimiters instead of quoting
                row = row_counts.FIELDS
            yield row


def _split(record: str, delimiter: str) -> list[str] | str:
    """The fields of one record, parsed independently of all others."""
    try:
        return next(csv.reader((record,), delimiter=delimiter, strict=True))
    except csv.Error:
        return row_counts.UNPARSED


@contextmanager
def _text(path: Source) -> Iterator[io.TextIOWrapper]:
    """The file as text; line ends are not translated."""
    with (
        open_bytes(path) as stream,
        # privacy: undecodable bytes spoil their own row, not the whole file
        io.TextIOWrapper(stream, _CODEC, errors="surrogateescape", newline="\n") as text,
    ):
        yield text
