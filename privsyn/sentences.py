"""Sentences that follow from facts: tables of rows in YAML files, each with a condition.

``when`` of a row is a Jinja expression over the facts; a row without it always holds. Every other
text of a row is a Jinja template over the same facts, so a sentence stands in the file whole. A
name that no fact has is an error. Facts are values alone: none is read as a template.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from privsyn.section import read_table


class Rows:
    """The tables of a file.

    Args:
        file: YAML: rows by the name of their table.
    """

    def __init__(self, file: Path) -> None:
        self._tables: dict[str, list[dict[str, Any]]] = read_table(file)

    def holding(self, table: str, facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The rows whose condition holds, filled in."""
        for row in self._tables[table]:
            if worth(row.get("when", "true"), facts):
                yield fill({key: value for key, value in row.items() if key != "when"}, facts)

    def first(self, table: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The first row whose condition holds."""
        return next(self.holding(table, facts))

    def says(self, table: str, **facts: Any) -> tuple[str, ...]:
        """What each row whose condition holds says."""
        return tuple(row["says"] for row in self.holding(table, facts))


def worth(expression: str, facts: Mapping[str, Any]) -> Any:
    """What a Jinja expression is worth."""
    return _expression(expression)(**facts)


def fill(value: Any, facts: Mapping[str, Any]) -> Any:
    """A value with what it names. A key whose value is None is left out.

    A text that is one expression alone becomes what the expression is worth: a number stays one.
    """
    if isinstance(value, dict):
        filled = {key: fill(one, facts) for key, one in value.items()}
        return {key: one for key, one in filled.items() if one is not None}
    if isinstance(value, list):
        return [fill(one, facts) for one in value]
    if not isinstance(value, str):
        return value
    # Rendering gives text: a list or a number would be printed into it.
    if alone := re.fullmatch(r"\{\{((?:(?!\}\}).)*)\}\}", value):
        return worth(alone[1], facts)
    return template(value).render(facts)


@cache
def template(text: str) -> Template:
    """A text as a template."""
    return environment().from_string(text)


@cache
def _expression(text: str) -> Any:
    return environment().compile_expression(text, undefined_to_none=False)


@cache
def environment() -> Environment:
    """Of all sentences. No HTML is made: whoever prints a sentence into a page escapes it."""
    made = Environment(
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["form"] = format
    return made
