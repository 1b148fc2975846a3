r"""JSON Lines and CSV: rows that are read independently of each other.

A CSV is split into records before any is parsed. A record ends at a line end outside of quoted
fields, so a quoted field may hold line ends, and the content of one record does not change where
the next begins. Python's csv module alone does not guarantee this: it ends a record at a bare
carriage return, and continues in the middle of a field after an error.

The split is right if the writer followed one of two rules for quotes within quotes: they are
doubled, or have a backslash before them (``dataset.escape``: Spark, MySQL, pandas with
``escapechar``). The records do not show which: a text in a file of one rule can spell rows of the
other. So the owner sets it; it is a fact about the writer. Under the wrong rule an inch mark at
the end of one text swallows the next rows, and one record decides about others.

Privacy of the refusal. A file with a quote where its rule allows none is refused as a whole
(``RowsRunTogether``), before anything is spent. Dropping only that record would keep a file in
which others were swallowed. A file whose writer follows its rule is never refused, whatever its
texts are, so for two such files that differ in one record the refusal shows nothing. For a file by
another writer it shows its owner one bit: some record holds a quote. No release exists then. A rule
that refused every ``\"`` would let one text that quotes program code block a release.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property
from itertools import islice
from typing import Any, TextIO

from privsyn.address import Source
from privsyn.data import row_counts
from privsyn.data.readers import streams
from privsyn.data.readers.columns import check_header, refuse_missing
from privsyn.data.readers.streams import (
    LONGEST_LINE,
    Part,
    bounded_lines,
    open_bytes,
    split_suffix,
)
from privsyn.data.unit_key import lost_digits
from privsyn.errors import DataError, NoRows

QUOTE = '"'
_ENDS = ("\n", "\r")


class RowsRunTogether(ValueError):
    """A quote is where the rule for quotes allows none, so records cannot be separated."""


class _At(Enum):
    BEGIN = auto()  # of a field
    PLAIN = auto()  # in a field without quotes
    ESCAPED = auto()  # there, behind a backslash, which goes with a quote or another backslash
    QUOTED = auto()  # in a quoted field
    TAKEN = auto()  # there, behind a backslash: the next character is text, whatever it is
    CLOSING = auto()  # behind a quote in one: it ends the field, or stands for a quote
    RETURNED = auto()  # behind that and a carriage return: a line feed follows


class _Quotes:
    """State of a reader within a record, which is fed part by part."""

    def __init__(self, delimiter: str, ends: tuple[str, ...], escape: str | None) -> None:
        self._delimiter, self._ends, self._escape, self._at = delimiter, ends, escape, _At.BEGIN
        field = field_pattern(delimiter, escape)
        self._whole = re.compile(rf"{field}(?:{re.escape(delimiter)}{field})*+\r?\n?", re.DOTALL)
        self._plain = re.compile("|".join(map(re.escape, (delimiter, QUOTE, *(escape or "")))))
        self._quoted = re.compile("|".join(map(re.escape, (QUOTE, *(escape or "")))))

    def begin(self) -> None:
        """Start a new record."""
        self._at = _At.BEGIN

    @property
    def open(self) -> bool:
        """Whether a quoted field is open, so that a line end belongs to it."""
        return self._at in (_At.QUOTED, _At.TAKEN)

    def feed(self, part: str) -> None:
        """Read the next part of the text.

        Raises:
            RowsRunTogether: A quote is where the rule allows none.
        """
        place = 0
        if self._at is _At.BEGIN and part.endswith(self._ends) and self._whole.fullmatch(part):
            self._at = _At.PLAIN  # most parts are whole lines: one fast match instead of a loop
            return
        while place < len(part):
            match self._at:
                case _At.BEGIN:
                    quoted = part[place] == QUOTE
                    self._at, place = (_At.QUOTED, place + 1) if quoted else (_At.PLAIN, place)
                case _At.PLAIN:
                    match = self._plain.search(part, place)
                    if match is None:
                        return
                    if match[0] == QUOTE:
                        raise RowsRunTogether
                    self._at = _At.BEGIN if match[0] == self._delimiter else _At.ESCAPED
                    place = match.end()
                case _At.ESCAPED:
                    self._at = _At.PLAIN
                    place += part[place] in (QUOTE, self._escape)
                case _At.QUOTED:
                    match = self._quoted.search(part, place)
                    if match is None:
                        return
                    self._at = _At.CLOSING if match[0] == QUOTE else _At.TAKEN
                    place = match.end()
                case _At.TAKEN:
                    self._at, place = _At.QUOTED, place + 1
                case _At.CLOSING:
                    if part[place] == QUOTE and self._escape is None:
                        self._at, place = _At.QUOTED, place + 1
                    elif part[place] == self._delimiter:
                        self._at, place = _At.BEGIN, place + 1
                    elif part[place:] in ("\r\n", *self._ends):
                        return
                    elif part[place:] == "\r":  # the part was cut there
                        self._at = _At.RETURNED
                        return
                    else:
                        raise RowsRunTogether
                case _At.RETURNED:
                    if part[place] != "\n":
                        raise RowsRunTogether
                    return


def field_pattern(delimiter: str, escape: str | None) -> str:
    """A regular expression for one field with its quotes, by the rule that ``escape`` chooses."""
    apart, taken = re.escape(delimiter), re.escape(escape or "")
    # Possessive quantifiers (++, *+): a match never backtracks, so no text can make it slow.
    if escape is None:
        return rf'(?:"(?:[^"]++|"")*+"|[^"\r\n{apart}]*+)'
    quoted = rf'"(?:[^"{taken}]++|{taken}.)*+"'
    return rf'(?:{quoted}|(?:[^"\r\n{taken}{apart}]++|{taken}["{taken}]?+)*+)'


def split_records(
    text: TextIO, delimiter: str, end: str | None = None, escape: str | None = None
) -> Iterator[str | None]:
    """The records of a CSV, each with its line end; None stands for one beyond LONGEST_LINE.

    An over-long record is read to its end but not kept in memory.

    Args:
        text: The file, whose lines end as ``end`` says.
        delimiter: Between fields.
        end: How lines end; None for any end.
        escape: Stands before a quote within quotes; None: such a quote is doubled.

    Raises:
        RowsRunTogether: The writer followed another rule: there is a quote in a field without
            quotes, a character other than a delimiter or a line end after a quoted field, or a
            quoted field that never ends.
    """
    ends = _ENDS if end is None else (end,)
    parts: list[str] = []
    length, quotes = 0, _Quotes(delimiter, ends, escape)
    while part := text.readline(streams.LONGEST_LINE):
        quotes.feed(part)
        length += len(part)
        if length <= streams.LONGEST_LINE:
            parts.append(part)
        else:
            parts.clear()
        if part.endswith(ends) and not quotes.open:
            yield None if length > streams.LONGEST_LINE else "".join(parts)
            parts, length = [], 0
            quotes.begin()
    if quotes.open and length:
        raise RowsRunTogether
    if length:
        yield None if length > streams.LONGEST_LINE else "".join(parts)


_ROWS_CHECKED = 1000
DELIMITERS = {",": ",", ";": ";", "\t": "\\t", "|": "|"}
"""Delimiter -> how it is written in a config."""


def _float(text: str) -> float:
    """A number of JSON; infinite where it was rounded, which the number alone does not show."""
    return math.inf if lost_digits(text) else float(text)


_decode = json.JSONDecoder(parse_float=_float).decode

Row = tuple[Any, ...]
"""Values of the configured columns, in their order."""


def _first_byte(path: Source) -> bytes:
    """The first byte that is not blank; empty if there is none."""
    with open_bytes(path) as stream:
        return stream.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]


@dataclass(frozen=True)
class JSONLines:
    """A file with one JSON object per line.

    Attributes:
        encoding: Name of its codec.
    """

    encoding: str = "utf-8"

    def check(self, path: Source, columns: Mapping[str, str]) -> None:
        """Refuse a file without objects, or without a configured key in its first 1000 objects.

        Raises:
            DataError: As said.
        """
        if _first_byte(path) == b"[":  # one row may be a list: most rows decide
            head = list(islice(self._objects(path), _ROWS_CHECKED))
            if 2 * sum(isinstance(value, dict) for value in head) < len(head):
                raise DataError(
                    f"{path} is a JSON list, not one object per line.", hint=_by_line(path, ".[]")
                )
        missing, counts, objects = dict(columns), Counter[str](), 0
        parsable = (value for value in self._objects(path) if isinstance(value, dict))
        for value in islice(parsable, _ROWS_CHECKED):
            objects += 1
            counts.update(value.keys())
            missing = {k: column for k, column in missing.items() if column not in value}
            if not missing:
                return
        if not objects:
            raise DataError(
                f"{path} holds no line that is a JSON object in {self.encoding.upper()}.",
                hint=_by_line(path, ".")  # an object over several lines, it may be
                if _first_byte(path) == b"{"
                else "Write one JSON object per line.",
            )
        # A key that most rows have is part of the layout; a rarer one could be content.
        refuse_missing(path, missing, [name for name, n in counts.items() if 2 * n > objects])

    def rows(self, path: Source, columns: Mapping[str, str]) -> Iterator[Row | str]:
        """Values of the wanted columns, or why there are none."""
        names = tuple(columns.values())
        for value in self._objects(path):
            yield value if isinstance(value, str) else tuple(map(value.get, names))

    def _objects(self, path: Source) -> Iterator[dict[str, Any] | str]:
        with open_bytes(path) as stream:
            for line in bounded_lines(stream.readline):
                yield row_counts.TOO_LONG if line is None else self._parse_line(line)

    def _parse_line(self, line: bytes) -> dict[str, Any] | str:
        # privacy: a byte order mark is skipped in every line: whether a row is read must not
        # depend on whether it is the first.
        codec = "utf-8-sig" if self.encoding == "utf-8" else self.encoding
        try:
            value = _decode(line.decode(codec))
        except UnicodeDecodeError:
            return row_counts.ROW_ENCODING
        except (ValueError, RecursionError):  # not JSON, or nested too deeply
            return row_counts.UNPARSED
        return value if isinstance(value, dict) else row_counts.NO_OBJECT


_UNPACK = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
"""Compression -> the program that reverses it."""


def _by_line(path: Source, objects: str) -> str:
    """A command that writes the objects of a JSON file into lines; ``objects`` is jq's filter."""
    packed = split_suffix(path)[1]
    name = "FILE" if isinstance(path, Part) else path.name
    # Another file: redirecting into the file that is read would empty it.
    source, target = _argument(name), _argument(f"{name.partition('.')[0]}-lines.jsonl")
    read = f"{_UNPACK[packed]} -dc {source} | jq -c '{objects}'" if packed else ""
    read = read or f"jq -c '{objects}' {source}"
    return f"Write one object per line into another file, for example: {read} > {target}"


def _argument(name: str) -> str:
    """A file's name as a shell argument, also if it begins with a dash."""
    return shlex.quote(f"./{name}" if name.startswith("-") else name)


@dataclass(frozen=True)
class CSV:
    """A table with a header line.

    Attributes:
        encoding: Name of its codec.
        delimiter: Character between its columns.
        escape: Stands before a quote within quotes; None: such a quote is doubled.
    """

    encoding: str = "utf-8"
    delimiter: str = ","
    escape: str | None = None

    def check(self, path: Source, columns: Mapping[str, str]) -> None:
        """Refuse a file without the configured columns, or without a row as long as the header.

        Raises:
            DataError: As said.
        """
        header = self._head(path)
        if header is None:
            raise NoRows(f"{path} is empty.", hint="Check the export.")
        for delimiter, spelling in DELIMITERS.items():
            if delimiter == self.delimiter or not (not header or _missing(columns, header)):
                continue
            other = replace(self, delimiter=delimiter)._head(path)
            if other and not _missing(columns, other):
                raise DataError(
                    f"the columns of {path} are not separated by {self.delimiter!r}.",
                    hint=f'Set dataset.delimiter to "{spelling}".',
                )
        with self._rows_apart(path):
            table = self._table(path)
            next(table)
            if not header:
                raise DataError(
                    f"{path} does not begin with a header line.", hint="Add column names."
                )
            check_header(path, columns, header, may_be_record=True)
            # Stops at the first usable row.
            if all(isinstance(row, str) for row in table):
                raise NoRows(f"{path} holds no row that fits its header.", hint="Check the export.")

    def rows(self, path: Source, columns: Mapping[str, str]) -> Iterator[Row | str]:
        """Values of the wanted columns, or why there are none.

        Raises:
            DataError: The rows run together.
        """
        with self._rows_apart(path):
            table = self._table(path)
            header = next(table, None)
            if header is None:  # an empty part among others
                return
            places = [header.index(name) for name in columns.values()]
            for row in table:
                yield row if isinstance(row, str) else tuple(row[place] for place in places)

    def _head(self, path: Source) -> list[str] | None:
        """The names in the header; empty if it cannot be read, None if the file is empty."""
        try:
            header = next(self._table(path), None)
        except RowsRunTogether:
            return []
        return [] if isinstance(header, str) else header

    def _table(self, path: Source) -> Iterator[list[str] | str]:
        """The header, then the rows; a reason in place of a malformed row."""
        # The module's default of 131,072 characters would drop long texts.
        csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
        # privacy: the header decides the line end: a record may hold the other one in a text
        end = "\r" if self._header(path).endswith("\r") else "\n"
        ends_escaped = re.compile(rf"(?<!\\)(?:\\\\)*\\(?:{re.escape(self.delimiter)}|[\r\n])")
        parse = self._split_doubled if self.escape is None else self._split_escaped
        width, cut = -1, False
        with self._text(path, end) as text:
            for record in split_records(text, self.delimiter, end, self.escape):
                if record is None:
                    yield row_counts.TOO_LONG
                    continue
                row = parse(record)
                before, cut = cut, ends_escaped.search(record) is not None
                if isinstance(row, list):
                    width = len(row) if width < 0 else width
                    if len(row) != width and (before or cut):
                        raise RowsRunTogether  # the writer escapes delimiters instead of quoting
                    row = row if len(row) == width else row_counts.FIELDS
                yield row

    def _split_doubled(self, record: str) -> list[str] | str:
        """The fields of one record, parsed independently of all others."""
        try:
            return next(csv.reader((record,), delimiter=self.delimiter, strict=True))
        except csv.Error:
            return row_counts.UNPARSED

    @cached_property
    def _field(self) -> re.Pattern[str]:
        field = field_pattern(self.delimiter, self.escape)
        return re.compile(rf"({field})(?:{re.escape(self.delimiter)}|(\r?\n|\r|$))", re.DOTALL)

    @cached_property
    def _escape(self) -> re.Pattern[str]:
        """A backslash and the character that it escapes; before others it is a plain character."""
        return re.compile(rf'\\(["\\\r\n{re.escape(self.delimiter)}])')

    def _split_escaped(self, record: str) -> list[str] | str:
        """The fields of one record with a backslash before quotes within quotes."""
        row: list[str] = []
        place, last = 0, False
        while not last:
            match = self._field.match(record, place)
            if match is None:
                return row_counts.UNPARSED
            field, end = match.groups()
            inner = field[1:-1] if field.startswith(QUOTE) else field
            row.append(self._escape.sub(r"\1", inner))
            place, last = match.end(), end is not None
        return row if place == len(record) else row_counts.UNPARSED

    def _header(self, path: Source) -> str:
        """The first record with its line end; empty if there is none."""
        with self._text(path, "") as text:
            return next(split_records(text, self.delimiter, escape=self.escape), "") or ""

    @contextmanager
    def _rows_apart(self, path: Source) -> Iterator[None]:
        """Turn RowsRunTogether into an error that names the setting to change."""
        rule, hint = _RULES[self.escape is None]
        try:
            yield
        except RowsRunTogether:
            raise DataError(
                f"the rows of {path} cannot be separated: there is a quote where a writer that "
                f"{rule} writes none, so one record would decide how others are read.",
                hint=hint,
            ) from None

    @contextmanager
    def _text(self, path: Source, end: str) -> Iterator[io.TextIOWrapper]:
        """The file as text. Lines end with ``end``; line ends are not translated."""
        codec = "utf-8-sig" if self.encoding == "utf-8" else self.encoding
        with (
            open_bytes(path) as stream,
            # privacy: undecodable bytes spoil their own row, not the whole file
            io.TextIOWrapper(stream, codec, errors="surrogateescape", newline=end) as text,
        ):
            yield text


_RULES = {
    True: (
        "doubles quotes within quotes",
        "If it puts a backslash before them, as Spark and MySQL do, set dataset.escape: '\\'. If "
        "it writes no quotes around texts, export JSON Lines, Parquet, or a CSV by one that does.",
    ),
    False: (
        "puts a backslash before quotes within quotes",
        "If it doubles them, leave dataset.escape out. Else export JSON Lines or Parquet.",
    ),
}
"""Whether quotes are doubled -> what such a writer does, and the next step for another file."""


def _missing(columns: Mapping[str, str], header: Sequence[str]) -> bool:
    return not set(columns.values()) <= set(header)
