r"""Records of a CSV as its writer ended them, before any is parsed.

A record ends where a line does and no quoted field is open, so a quoted field may hold line ends,
and whatever one record holds, the next begins where its writer began it. Python's csv module alone
does not keep that: it ends a record at a carriage return that a writer left bare, and goes on in
the middle of a field after an error.

That holds of a writer who follows one of two rules for quotes within quotes: they are doubled, or
have a backslash before them (``dataset.escape``: Spark, MySQL, pandas with ``escapechar``). Which
rule it was cannot be read off the records: a text in a file of the one rule can spell rows of the
other. So the owner says it, a fact of the writer and of nobody's record. By the wrong rule an inch
mark at the end of one text takes the next rows with it, and one record decides about others.

Privacy of the refusal. A file with a quote where writers of its rule write none is refused whole
(``RowsRunTogether``), before anything is spent. Dropping the record would keep a file in which
others are swallowed. A file whose writer follows its rule is never refused, whatever its texts say,
so between two such files that differ in one record the refusal tells nothing. Of a file by another
writer it tells one bit, that some record holds a quote, to its owner and of a release that does not
exist. A rule that refused every ``\"`` would let one text that quotes program code block a release.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import TextIO

from privsyn.data.readers import streams

QUOTE = '"'
_ENDS = ("\n", "\r")


class RowsRunTogether(ValueError):
    """A quote stands where no writer of the rule writes one: the records cannot be told apart."""


class _At(Enum):
    BEGIN = auto()  # of a field
    PLAIN = auto()  # in a field without quotes
    ESCAPED = auto()  # there, behind a backslash, which goes with a quote or another backslash
    QUOTED = auto()  # in a quoted field
    TAKEN = auto()  # there, behind a backslash: the next character is text, whatever it is
    CLOSING = auto()  # behind a quote in one: it ends the field, or stands for a quote
    RETURNED = auto()  # behind that and a carriage return: a line feed follows


class _Quotes:
    """Where in a record a reader is, told its text part by part."""

    def __init__(self, delimiter: str, ends: tuple[str, ...], escape: str | None) -> None:
        self._delimiter, self._ends, self._escape, self._at = delimiter, ends, escape, _At.BEGIN
        field = field_pattern(delimiter, escape)
        self._whole = re.compile(rf"{field}(?:{re.escape(delimiter)}{field})*+\r?\n?", re.DOTALL)
        self._plain = re.compile("|".join(map(re.escape, (delimiter, QUOTE, *(escape or "")))))
        self._quoted = re.compile("|".join(map(re.escape, (QUOTE, *(escape or "")))))

    def begin(self) -> None:
        """Go to the beginning of a record."""
        self._at = _At.BEGIN

    @property
    def open(self) -> bool:
        """Whether a quoted field is open, so that a line end is part of it."""
        return self._at in (_At.QUOTED, _At.TAKEN)

    def feed(self, part: str) -> None:
        """Go on over the next part of the text.

        Raises:
            RowsRunTogether: A quote stands where none can.
        """
        place = 0
        if self._at is _At.BEGIN and part.endswith(self._ends) and self._whole.fullmatch(part):
            self._at = _At.PLAIN  # a whole line, as most are, at the speed of its expression
            return
        while place < len(part):
            match self._at:
                case _At.BEGIN:
                    quoted = part[place] == QUOTE
                    self._at, place = (_At.QUOTED, place + 1) if quoted else (_At.PLAIN, place)
                case _At.PLAIN:
                    found = self._plain.search(part, place)
                    if found is None:
                        return
                    if found[0] == QUOTE:
                        raise RowsRunTogether
                    self._at = _At.BEGIN if found[0] == self._delimiter else _At.ESCAPED
                    place = found.end()
                case _At.ESCAPED:
                    self._at = _At.PLAIN
                    place += part[place] in (QUOTE, self._escape)
                case _At.QUOTED:
                    found = self._quoted.search(part, place)
                    if found is None:
                        return
                    self._at = _At.CLOSING if found[0] == QUOTE else _At.TAKEN
                    place = found.end()
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
    """An expression for one field by the rule for quotes within quotes, its quotes with it."""
    apart, taken = re.escape(delimiter), re.escape(escape or "")
    if escape is None:
        return rf'(?:"(?:[^"]++|"")*+"|[^"\r\n{apart}]*+)'
    quoted = rf'"(?:[^"{taken}]++|{taken}.)*+"'
    return rf'(?:{quoted}|(?:[^"\r\n{taken}{apart}]++|{taken}["{taken}]?+)*+)'


def split_records(
    text: TextIO, delimiter: str, end: str | None = None, escape: str | None = None
) -> Iterator[str | None]:
    """The records of a CSV, each with its line end; None stands for one beyond LONGEST_LINE.

    Such a record is read to its end and not held.

    Args:
        text: The file, whose lines end as ``end`` says.
        delimiter: Between fields.
        end: How lines end; None for any end.
        escape: Stands before a quote within quotes; None: such a quote is doubled.

    Raises:
        RowsRunTogether: The writer had another rule: a quote in a field without quotes, something
            else than a delimiter or a line end behind a quoted field, or one that is never closed.
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
