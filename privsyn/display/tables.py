"""Tables on a terminal, in a pipe and in a notebook.

Ids, paths, addresses and commands are Verbatim: each stays whole on one line, however narrow the
terminal is, so that a reader can copy it. Prose wraps between words on a terminal, and never in a
pipe.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from rich.console import Console
from rich.text import Text

GAP = 2
NOTE = "note:"
PAGE = 110
"""Columns of a notebook's output."""
NARROWEST = 40
"""Prose gets this many columns even where names leave it fewer."""


class Verbatim(str):
    """An id, a path, an address or a command."""

    __slots__ = ()


def at_a_terminal(console: Console) -> bool:
    """Whether a person sees what is printed, and no file keeps it: colors may be forced on one."""
    # Not console.is_terminal: FORCE_COLOR makes rich call a log file a terminal.
    return console.file.isatty()


def show(console: Console, *parts: str | Text) -> None:
    """Print parts as they are, one under the other."""
    for part in parts:
        # soft_wrap: rich cuts and wraps nothing.
        console.print(part, soft_wrap=True, markup=False, highlight=False)


def facts(
    console: Console,
    rows: Mapping[str, str],
    *,
    title: str = "",
    style: str = "bold",
    gap: int = GAP,
) -> None:
    """Print names and values side by side; prose goes on below itself.

    Args:
        console: Where to.
        rows: Values by name; those to be copied are Verbatim.
        title: A line above.
        style: Of the names.
        gap: Columns between them and the values, at least.
    """
    if title:
        show(console, Text(title, "bold"))
    names = max(map(len, rows), default=0) + gap
    for name, value in rows.items():
        first, *further = _lines(console, value, names)
        show(console, Text.assemble((name.ljust(names), style), first))
        show(console, *(" " * names + line for line in further))


def table(
    console: Console, header: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = ""
) -> None:
    """Print columns side by side, each as wide as its widest cell.

    On a terminal that is too narrow for them each row is a list of names and values.
    """
    cells = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if title:
        show(console, *(Text(line, "bold") for line in _lines(console, title, 0)))
    # In a pipe a table is as wide as it needs to be: programs read it line by line.
    if console.is_terminal and sum(widths) + GAP * (len(widths) - 1) > console.width:
        for number, row in enumerate(cells[1:]):
            show(console, *[""] * (number > 0))
            facts(console, dict(zip(header, row, strict=True)), style="dim")
        return
    for number, row in enumerate(cells):
        line = (" " * GAP).join(map(str.ljust, row, widths)).rstrip()
        show(console, Text(line, "dim" if number == 0 else ""))


def note(console: Console, words: str) -> None:
    """Print something that a reader should know; it goes on below itself."""
    facts(console, {NOTE: words}, gap=1, style="")


@dataclass(frozen=True, repr=False)
class Table:
    """One table, the same on a terminal, in a pipe and in a notebook.

    Attributes:
        title: A line above.
        columns: Names of the columns. Empty: each row is a name and its value.
        rows: The cells. What a reader copies (an id, a path) is Verbatim.
        notes: What a reader should know, below.
    """

    title: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, title: str, values: Mapping[str, str], notes: Iterable[str] = ()) -> Table:
        """A table of names and values."""
        return cls(title, (), tuple(values.items()), tuple(notes))

    def print(self, console: Console) -> None:
        """Print it on a terminal, or in a pipe without wrapping."""
        if self.columns:
            table(console, self.columns, self.rows, title=self.title)
        else:
            facts(console, {name: value for name, value in self.rows}, title=self.title)
        for words in self.notes:
            note(console, words)


class Displayable:
    """A result that shows itself: as tables on a terminal and in a notebook, and as JSON."""

    def as_json(self) -> Any:
        """It as one JSON-able answer."""
        raise NotImplementedError

    def _tables(self) -> Sequence[Table]:
        """The tables that show it."""
        raise NotImplementedError

    def print(self, console: Console) -> None:
        """Print its tables, one below the other."""
        for number, one in enumerate(self._tables()):
            if number:
                show(console, "")
            one.print(console)

    def __repr__(self) -> str:
        return self._text(terminal=False)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self._text(terminal=True))}</pre>"

    def _text(self, *, terminal: bool) -> str:
        """What it prints in a pipe, or on a terminal of a page's width, where prose wraps."""
        stream = io.StringIO()
        self.print(
            Console(
                file=stream,
                width=PAGE,
                force_terminal=terminal,
                force_jupyter=False,
                color_system=None,
            )
        )
        return stream.getvalue().rstrip("\n")


def _lines(console: Console, value: str, indent: int) -> list[str]:
    """A value as lines: one of what is to be copied, and of everything in a pipe."""
    # A line break in a value would look like another row to a program that reads the pipe.
    if isinstance(value, Verbatim) or not console.is_terminal:
        return [" ".join(value.split()) if not isinstance(value, Verbatim) else value]
    room = max(NARROWEST, console.width - indent)
    return textwrap.wrap(value, room, break_long_words=False, break_on_hyphens=False) or [""]
