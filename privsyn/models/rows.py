"""What prompts say of the records, and of a record's columns beside its label."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from privsyn.data.columns import MISSING, OTHER, Column
from privsyn.data.records import Row
from privsyn.data.settings import TextExample
from privsyn.errors import ConfigError

_ROW, _CELL, _IS = "\x1f", "\x1e", "\x1d"  # in no label, name or value: those are printed
COLUMN_SLOT = re.compile(r"\{(columns(?:\.([^{}\n]+))?)\}")
"""The place of all columns in a prompt, or of one by its name."""
_LINE = "Details: {columns}\n"
_UNKNOWN = "unknown"
"""What a prompt says for a missing value of a column that it names."""
_TEXTS = ("{reference}", "{text}", "{phrases}")


def with_row(label: str | None, words: str) -> str | None:
    """A label as prompts take it, with the words of a row; without words the label itself."""
    return f"{label or ''}{_ROW}{words}" if words else label


def split_row(key: str | None) -> tuple[str | None, str]:
    """The label and the words of ``with_row``.

    >>> split_row(with_row("sleep", "age: 40 to 49")), split_row(with_row(None, "")), split_row("a")
    (('sleep', 'age: 40 to 49'), (None, ''), ('a', ''))
    """
    label, mark, words = (key or "").partition(_ROW)
    return (label or None if mark else key), words


def row_words(cells: Mapping[str, str]) -> str:
    """A row as prompts take it: the words of its columns by name, empty where it has no value."""
    return _CELL.join(f"{name}{_IS}{word}" for name, word in cells.items())


def row_slots(prompt: str, words: str) -> dict[str, str]:
    """What fills the places of a prompt that name columns: all with a value, or one by its name.

    Without a row all are empty.

    >>> row_slots("{columns} {columns.age} {columns.day}", row_words({"age": "40", "day": ""}))
    {'columns': 'age: 40', 'columns.age': '40', 'columns.day': 'unknown'}
    """
    cells = dict(cell.split(_IS) for cell in words.split(_CELL) if cell)
    line = ", ".join(f"{name.replace('_', ' ')}: {word}" for name, word in cells.items() if word)
    # One line of a prompt may be all of it: a value that is missing must not take it along.
    empty = _UNKNOWN if cells else ""
    slots = COLUMN_SLOT.finditer(prompt)
    return {slot[1]: cells.get(slot[2]) or empty if slot[2] else line for slot in slots}


def with_columns(prompt: str) -> str:
    r"""A prompt that names the columns: in its own words, or in a line behind that of the label.

    >>> with_columns("Topic: {label}\nText:")
    'Topic: {label}\nDetails: {columns}\nText:'
    """
    if COLUMN_SLOT.search(prompt):
        return prompt
    lines = prompt.splitlines(keepends=True)
    places = [
        place
        for place, line in enumerate(lines, 1)
        if "{label}" in line and line.endswith("\n") and not any(slot in line for slot in _TEXTS)
    ]
    if not places:
        return begin_with(_LINE, prompt)
    return "".join([*lines[: places[-1]], _LINE, *lines[places[-1] :]])


def begin_with(line: str, prompt: str) -> str:
    """The prompt with a first line, after the special token that may begin it."""
    # A special token must stay the first of the prompt, where the model learned it.
    if prompt.startswith("<|") and "|>" in prompt:
        head, mark, rest = prompt.partition("|>")
        return f"{head}{mark}{line}{rest}"
    return line + prompt


@dataclass(frozen=True)
class Subject:
    """Public facts about the records for default prompts.

    Attributes:
        document: A phrase for one record, with its article; None where the config has no phrase.
        descriptions: Pairs (label, the words that prompts use for it), where the words differ.
        examples: Invented records.
        columns: Names of the columns beside the text.
        roles: Of a conversation; none of other texts.
    """

    document: str | None = None
    descriptions: tuple[tuple[str, str], ...] = ()
    examples: tuple[TextExample, ...] = ()
    columns: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    def fill(self, prompt: str) -> str:
        """A prompt with ``{document}`` filled in, and a place for ``{columns}`` where there are.

        Raises:
            ConfigError: As ``refuse_unknown``.
        """
        self.refuse_unknown(prompt)
        prompt = prompt.replace("{document}", self.document or "a text")
        return with_columns(prompt) if self.columns else prompt

    def refuse_unknown(self, *prompts: str) -> None:
        """Refuse prompts that name a column which is not declared.

        Raises:
            ConfigError: One does.
        """
        names = {slot[2] for prompt in prompts for slot in COLUMN_SLOT.finditer(prompt)}
        if unknown := sorted(filter(None, names.difference(self.columns))):
            raise ConfigError(
                f"a prompt has {{columns.{unknown[0]}}}, which dataset.columns does not declare.",
                hint=f"Declared are: {', '.join(self.columns) or 'none'}.",
            )


ANYTHING = Subject()
"""Records without any description in the config."""


@dataclass(frozen=True)
class SyntheticRows:
    """The synthetic rows of a release, and what prompts say of a row. Public.

    Attributes:
        columns: The declared columns; empty without.
        by_label: Rows of each label, in the order in which its texts are written.
    """

    columns: Mapping[str, Column] = field(default_factory=dict)
    by_label: Mapping[str | None, Sequence[Row]] = field(default_factory=dict)

    def row(self, label: str | None, number: int) -> Row:
        """The cells of a label's n-th text; () without columns."""
        return self.by_label[label][number] if self.columns else ()

    def words(self, row: Sequence[int]) -> str:
        """A row as prompts take it; it may be a private record's: a function of it alone."""
        cells = zip(self.columns.items(), row, strict=False)
        return row_words({name: _word(column, cell) for (name, column), cell in cells})

    def words_of(self, values: Mapping[str, Any]) -> str:
        """What a prompt says of the values of a released row."""
        return self.words([column.cell(values[name]) for name, column in self.columns.items()])

    def key(self, label: str | None, number: int) -> str | None:
        """The label with the words of its n-th row, as models take it."""
        return with_row(label, self.words(self.row(label, number)))

    def words_from(self, label: str | None, first: int, count: int) -> list[str]:
        """The words of so many rows of a label, from the ``first`` on; none without columns."""
        numbers = range(first, first + count) if self.columns else ()
        return [self.words(self.row(label, number)) for number in numbers]

    @property
    def longest(self) -> str:
        """Words as long as any row's in a prompt: public, so they may set a shape."""
        words = {
            name: [_UNKNOWN, *(_word(column, cell) for cell in range(len(column.cells)))]
            for name, column in self.columns.items()
        }
        return row_words({name: max(some, key=len) for name, some in words.items()})


def _word(column: Column, cell: int) -> str:
    """What prompts call a cell; empty where they leave it out."""
    word = column.cells[cell]
    return "" if word == MISSING or (word == OTHER and column.values is None) else word


NO_ROWS = SyntheticRows()
