"""A value of a row as text; what is none, or no id, has a reason that holds nothing of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from privsyn.data.address import Source
from privsyn.data.tally import ENCODING, KIND, LOST, MISSING
from privsyn.data.unit_key import lost_digits, trimmed
from privsyn.errors import ConfigError, DataError
from privsyn.spelling import nearest


def as_text(value: Any) -> str | None:
    """A string with something in it that UTF-8 can hold, else None."""
    try:
        if isinstance(value, bytes):
            value = value.decode("utf-8")
        elif not isinstance(value, str):
            return None
        elif not value.isascii():
            value.encode("utf-8")  # refuses the surrogates that stand for undecodable bytes
    except UnicodeError:
        return None
    return value if value and not value.isspace() else None


def fault(value: Any) -> str:
    """Why a value is neither text nor an id, in words that hold nothing of it."""
    if value is None or (isinstance(value, float | Decimal) and value != value):
        return MISSING
    if lost_digits(value):
        return LOST
    if isinstance(value, str):
        return ENCODING if trimmed(value) else MISSING
    if isinstance(value, bytes):
        return ENCODING if value.strip(b" \t\r\n\0") else MISSING
    return f"{KIND} ({kind_of(value)})"


_KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    Decimal: "a number",
    date: "a date",
    list: "a list",
    dict: "an object",
}


def kind_of(value: Any) -> str:
    """What a value is, in words that hold nothing of it."""
    return next((words for kind, words in _KINDS.items() if isinstance(value, kind)), "no text")


def check_header(
    path: Source, columns: Mapping[str, str], header: Sequence[str], *, may_be_record: bool
) -> None:
    """Refuse a header or schema that lacks a configured column or has it twice.

    Args:
        path: The file.
        columns: Setting under ``dataset.`` -> column.
        header: The names as the file gives them.
        may_be_record: The names are the first line of a file that may have no header. They are
            shown only where a configured column is among them and all of them look like names: a
            record can look like names, too.

    Raises:
        DataError: Names the first column that is missing or doubled.
    """
    missing = {setting: name for setting, name in columns.items() if name not in header}
    if missing and may_be_record:
        has_some = len(missing) < len(columns)
        if not has_some or not all(looks_like_name(name) for name in header):
            setting, column = next(iter(missing.items()))
            raise DataError(
                f"column {column!r} (dataset.{setting}) is not in the first line of {path}, which "
                f"{'does not look like' if has_some else 'holds none of the wanted'} column names.",
                hint="Write a header line in UTF-8, with commas between the names, or set "
                f"dataset.{setting} to the name it has there.",
            )
    refuse_missing(path, missing, header)
    for setting, column in columns.items():
        if list(header).count(column) > 1:
            raise DataError(
                f"column {column!r} (dataset.{setting}) occurs twice in {path}.",
                hint="Rename or remove one.",
            )


LOST_INDEX = re.compile(r"|index|level_0|Unnamed: \d+(\.\d+)*")
"""What pandas calls an index that became a column: row numbers, as a rule."""


def refuse_index(unit: str, *, index: bool = False) -> None:
    """Refuse an index for a unit: its numbers name nobody.

    Args:
        unit: The column's name.
        index: It is known to be one; else its name says so.

    Raises:
        ConfigError: It is one.
    """
    if index or LOST_INDEX.fullmatch(unit):
        raise ConfigError(
            f"unit={unit!r} is an index, or was one: row numbers shift when a record is added or "
            "removed, so they name nobody.",
            hint="Name a column with a stable id of those who are protected. If these are such "
            "ids, give the column their name: frame.reset_index(names='person_id'). If there is "
            "none: every row by itself (unit=None, --rows-are-units).",
        )


def float_unit(column: str, kind: str, *, hint: str = "") -> DataError:
    """The refusal of a unit column of floats, whatever its values.

    Privacy: pandas makes a column of whole numbers one of floats as soon as one is missing, and
    floats of 2**53 and more are neighbors that became one. So one row without an id would decide
    who the others are. The type decides here, which is public, and no value is looked at.

    Args:
        column: What the column is, for the message.
        kind: Its type.
        hint: The way out, where another one is nearer.
    """
    return DataError(
        f"{column} is of type {kind}: floats lose the last digits of long ids, so that several "
        "people become one.",
        hint=hint
        or "Write ids as text or as whole numbers: where pandas read them, with dtype "
        "'string' or 'Int64', which keeps a missing one apart.",
    )


def refuse_missing(
    path: Source, missing: Mapping[str, str], names: Sequence[str], *, prefix: str = "dataset."
) -> None:
    """Refuse a missing column; the error names it and the columns there are.

    Args:
        path: The file.
        missing: Setting -> column that is not there; does nothing where empty.
        names: Columns of the file; those that do not look like names are not shown.
        prefix: What stands before a setting where the user gives it.

    Raises:
        DataError: ``missing`` is not empty.
    """
    for setting, column in missing.items():
        names = [name for name in names if looks_like_name(name)]
        listed = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
        near = nearest(column, names)
        said = f"{prefix}{setting}"
        raise DataError(
            f"column {column!r} ({said}) is not in {path}; columns: {listed or 'none'}.",
            hint=f"Did you mean {near!r}?"
            if near
            else f"Set {said} to one of them."
            if prefix
            else "Name one of them.",
        )


PEOPLE = "(patient|user|customer|client|author|person|member|student|employee)"
"""Columns that are called after people hold their ids, as a rule."""


def called_after_people(name: str) -> bool:
    """Whether a column's name says that it holds ids of people."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    return bool(re.fullmatch(rf"{PEOPLE}[ _-]?(id|no|nr|number|key)?[.]?", spaced))


def looks_like_name(name: str) -> bool:
    """Whether a word of a file's first line may be shown: short, few words, no sentence."""
    pattern = r"[^\W\d][\w.:/()-]*( [\w.:/()-]+){0,2}"
    return len(name) <= 40 and bool(re.fullmatch(pattern, name))
