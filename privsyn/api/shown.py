"""How the API shows itself: as text on a terminal, as an escaped table in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from rich.console import Console

from privsyn.display import tables
from privsyn.display.tables import facts, note


def as_text(title: str, rows: Mapping[str, str], notes: Sequence[str] = ()) -> str:
    """Names and values side by side, as the command line prints them."""

    def tell(console: Console) -> None:
        facts(console, rows, title=title)
        for words in notes:
            note(console, words)

    return tables.as_text(tell)


def as_html(title: str, rows: Mapping[str, str], notes: Sequence[str] = ()) -> str:
    """The same as a table."""
    lines = [
        f'<tr><th style="text-align:left;vertical-align:top">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows.items()
    ]
    said = [f"<p>note: {escape(words)}</p>" for words in notes]
    head = f'<caption style="text-align:left"><b>{escape(title)}</b></caption>'
    return f"<table>{head}{''.join(lines)}</table>{''.join(said)}"


class Shown:
    """Something with a title, rows and notes to show. A subclass says them."""

    def _title(self) -> str:
        raise NotImplementedError

    def _rows(self) -> Mapping[str, str]:
        raise NotImplementedError

    def _notes(self) -> Sequence[str]:
        return ()

    def __repr__(self) -> str:
        return as_text(self._title(), self._rows(), self._notes())

    def _repr_html_(self) -> str:
        return as_html(self._title(), self._rows(), self._notes())
