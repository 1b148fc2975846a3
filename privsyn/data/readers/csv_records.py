"""Records of a CSV as its writer ended them, before any is parsed.

A record ends where a line does and no quoted field is open, so a quoted field may hold line ends,
and whatever one record holds, the next begins where its writer began it. Python's csv module alone
does not keep that: it ends a record at a carriage return that a writer left bare, and goes on in
the middle of a field after an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import TextIO

from privsyn.data.readers import streams

QUOTE = '"'
_ENDS = ("\n", "\r")


class _At(Enum):
    BEGIN = auto()  # of a field
    PLAIN = auto()  # in a field without quotes, where a quote is a character like others
    QUOTED = auto()  # in a quoted field
    CLOSING = auto()  # behind a quote in one: it ends the field, or stands for a quote


class _Quotes:
    """Where in a record a reader is, told its text part by part."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter, self._at = delimiter, _At.BEGIN
        apart = re.escape(delimiter)
        field = rf'(?:"(?:[^"]++|"")*+"[^{apart}]*+|[^"{apart}][^{apart}]*+)?+'
        self._whole = re.compile(rf"{field}(?:{apart}{field})*+", re.DOTALL)

    def begin(self) -> None:
        """Go to the beginning of a record."""
        self._at = _At.BEGIN

    @property
    def open(self) -> bool:
        """Whether a quoted field is open, so that a line end is part of it."""
        return self._at is _At.QUOTED

    def feed(self, part: str) -> None:
        """Go on over the next part of the text."""
        place = 0
        if self._at is _At.BEGIN and part[-1:] in _ENDS and self._whole.fullmatch(part):
            self._at = _At.PLAIN  # a whole line, as most are, at the speed of its expression
            return
        while place < len(part):
            match self._at:
                case _At.BEGIN:
                    quoted = part[place] == QUOTE
                    self._at, place = (_At.QUOTED, place + 1) if quoted else (_At.PLAIN, place)
                case _At.PLAIN:
                    found = part.find(self._delimiter, place)
                    if found < 0:
                        return
                    self._at, place = _At.BEGIN, found + 1
                case _At.QUOTED:
                    found = part.find(QUOTE, place)
                    if found < 0:
                        return
                    self._at, place = _At.CLOSING, found + 1
                case _At.CLOSING:
                    twice = part[place] == QUOTE
                    self._at, place = (_At.QUOTED, place + 1) if twice else (_At.PLAIN, place)


def split_records(text: TextIO, delimiter: str, end: str | None = None) -> Iterator[str | None]:
    """The records of a CSV, each with its line end; None stands for one beyond LONGEST_LINE.

    Such a record is read to its end and not held.

    Args:
        text: The file, whose lines end as ``end`` says.
        delimiter: Between fields.
        end: How lines end; None for any end.
    """
    ends = _ENDS if end is None else (end,)
    parts: list[str] = []
    length, quotes = 0, _Quotes(delimiter)
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
    if length:
        yield None if length > streams.LONGEST_LINE else "".join(parts)
