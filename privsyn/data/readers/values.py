"""A value of a row as text; what is none, or no id, has a reason that holds nothing of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from privsyn.data.tally import ENCODING, KIND, LOST, MISSING
from privsyn.data.unit_key import lost_digits, trimmed


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
    return next((said for kind, said in _KINDS.items() if isinstance(value, kind)), "no text")
