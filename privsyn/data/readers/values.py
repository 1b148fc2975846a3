"""A value of a row as text or identifier; what is neither has a reason that holds nothing of it."""

from __future__ import annotations

from typing import Any

from privsyn.data.tally import ENCODING, KIND, MISSING


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


def as_identifier(value: Any) -> str | None:
    """A string or whole number as text; 12.0 is what a column of integers with gaps holds."""
    if isinstance(value, str | bytes):
        return as_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else None
    return as_text(value)


def fault(value: Any) -> str:
    """Why a value is neither text nor an identifier, in words that hold nothing of it."""
    if isinstance(value, str | bytes):
        return ENCODING if value.strip() else MISSING
    empty = value is None or value != value
    return MISSING if empty else KIND
