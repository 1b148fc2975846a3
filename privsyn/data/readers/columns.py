"""Values and columns of a private file, read as text or refused without showing a value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from privsyn.address import Origin
from privsyn.data.row_counts import ENCODING, KIND, LOST, MISSING, NOTHING
from privsyn.data.unit_key import lost_digits, spells_nothing, trimmed
from privsyn.errors import ConfigError, DataError
from privsyn.section import nearest


@dataclass(frozen=True)
class Header:
    """Column names of a private file.

    Attributes:
        names: Columns that may be shown.
        rare: Rarer keys of the first objects of JSON Lines. A rare key can be content, so it is
            never shown; a user's column is only looked up in it.
    """

    names: tuple[str, ...]
    rare: frozenset[str] = field(default=frozenset(), repr=False)

    def __contains__(self, name: object) -> bool:
        return name in self.names or name in self.rare


def as_text(value: Any) -> str | None:
    """The value as text; None if it is blank, a word for nothing, no text, or cannot be UTF-8."""
    try:
        if isinstance(value, bytes):
            value = value.decode("utf-8")
        elif not isinstance(value, str):
            return None
        elif not value.isascii():
            value.encode("utf-8")  # refuses the surrogates that stand for undecodable bytes
    except UnicodeError:
        return None
    return None if not value or value.isspace() or spells_nothing(value) else value


def fault(value: Any) -> str:
    """Why a value is neither text nor an id, without showing the value."""
    # NaN is how pandas writes a missing value.
    if value is None or (isinstance(value, float | Decimal) and value != value):
        return MISSING
    if lost_digits(value):
        return LOST
    if isinstance(value, bytes | UUID):
        value = str(value) if isinstance(value, UUID) else value.decode("utf-8", "surrogateescape")
    if isinstance(value, str):
        not_utf8 = re.search("[\ud800-\udfff]", value)
        return ENCODING if not_utf8 else NOTHING if trimmed(value) else MISSING
    words = (words for kind, words in _KINDS.items() if isinstance(value, kind))
    return f"{KIND} ({next(words, 'no text')})"


_KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    Decimal: "a number",
    date: "a date",
    list: "a list",
    dict: "an object",
}


def check_header(
    path: Origin, columns: Mapping[str, str], header: Sequence[str], *, may_be_record: bool
) -> None:
    """Refuse a header or schema that lacks a configured column or has it twice.

    Args:
        path: The file.
        columns: Setting under ``dataset.`` -> column.
        header: The names as the file gives them.
        may_be_record: The names come from the first line of a file that may have no header. They
            are shown only if one of them is a configured column and all of them look like names: a
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
                f"{'does not look like' if has_some else 'has none of the configured'} column "
                "names.",
                hint="Write a header line in UTF-8, or set "
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
"""Names that pandas gives to an index that became a column: usually row numbers."""


def refuse_index(unit: str, *, index: bool = False) -> None:
    """Refuse an index as unit column: row numbers identify no person.

    Args:
        unit: The column's name.
        index: Whether it is known to be an index; otherwise its name decides.

    Raises:
        ConfigError: It is an index.
    """
    if index or LOST_INDEX.fullmatch(unit):
        raise ConfigError(
            f"unit={unit!r} is an index, or was one: row numbers shift when a record is added or "
            "removed, so they identify nobody.",
            hint="Name a column with a stable id of the protected people. If these are such ids, "
            "rename the column: frame.reset_index(names='person_id'). Without any ids, protect "
            "each row (unit=None, --rows-are-units).",
        )


def float_unit(column: str, kind: str = "") -> DataError:
    """Error for a unit column of floats: by its type, or for one id that has lost digits.

    Privacy: pandas turns whole numbers into floats as soon as one is missing, and floats of 2**53
    and more merge neighboring ids. So one row without an id would change who the others are, or
    whether they have an id at all. Where the type is known it alone decides, and no value is read.
    Text has no types: there one such id tells that its writer had made floats of all. To drop its
    row alone would let that one record decide about the others.

    Args:
        column: What the column is, for the message.
        kind: Its type; empty if it has none.
    """
    what = f"is of type {kind}" if kind else "holds an id that was rounded, as in 1.3e+18"
    return DataError(
        f"{column} {what}: floats lose the last digits of long ids, so that several people become "
        "one.",
        hint="Write ids as text or as whole numbers (in a spreadsheet: as text). pandas "
        "reads them by dtype 'string' or 'Int64', which keeps a missing one apart.",
    )


def refuse_missing(
    path: Origin, missing: Mapping[str, str], names: Sequence[str], *, prefix: str = "dataset."
) -> None:
    """Refuse a missing column; the error lists the columns of the file.

    Args:
        path: The file.
        missing: Setting -> missing column; if empty, nothing happens.
        names: Columns of the file; only those that look like names are shown.
        prefix: Prefix of the setting in the user's interface.

    Raises:
        DataError: ``missing`` is not empty.
    """
    for setting, column in missing.items():
        names = [name for name in names if looks_like_name(name)]
        listed = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
        near = nearest(column, names)
        full_name = f"{prefix}{setting}"
        raise DataError(
            f"column {column!r} ({full_name}) is not in {path}; columns: {listed or 'none'}.",
            hint=f"Did you mean {near!r}?"
            if near
            else "Name it there as the file does, or leave it out."
            if setting.startswith("columns.")
            else f"Set {full_name} to one of them."
            if prefix
            else "Name one of them.",
        )


PEOPLE = "(patient|user|customer|client|author|person|member|student|employee)"
"""Columns with such a name usually hold ids of people."""


def called_after_people(name: str) -> bool:
    """Whether a column's name says that it holds ids of people."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    return bool(re.fullmatch(rf"{PEOPLE}[ _-]?(id|no|nr|number|key)?[.]?", spaced))


def looks_like_name(name: str) -> bool:
    """Whether a name from a file's first line may be shown: short, at most three words."""
    pattern = r"[^\W\d][\w.:/()-]*( [\w.:/()-]+){0,2}"
    return len(name) <= 40 and bool(re.fullmatch(pattern, name))
