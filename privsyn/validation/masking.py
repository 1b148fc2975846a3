"""Masking of e-mail addresses, phone numbers and record numbers in synthetic texts.

A language model invents them, and nobody can distinguish an invented number from a person's. The
rules are public and read one released text alone, so they are post-processing at no cost. They mask
what the shipped suite of texts forbids, so a masked text passes the suite.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from privsyn.validation.settings import PATTERNS, ValidationConfig
from privsyn.validation.suite import SHIPPED

PLACEHOLDERS: Mapping[str, str] = {
    "record_number": "[record number]",
    "email": "[email]",
    "phone": "[phone]",
}
"""Kind -> placeholder, in the order of masking."""
_BEFORE = {"email": r"[\w.+%-]*", "phone": r"(?:\+?\d[\d ().-]{0,12})?\(?", "record_number": r""}
_BEHIND = {"email": r"(?:[\w-]|\.(?=\w))*", "phone": r"(?:[ ().-]?\d)*", "record_number": r"\w*"}
"""Characters around the suite's pattern that belong to the same address or number."""
_PASSES = 3


def masked(text: str, cfg: ValidationConfig) -> str:
    """The text with placeholders for everything in ``validation.forbid``; JSON stays JSON.

    >>> masked("Call 555-0123-4567 or ann@example.org.", ValidationConfig())
    'Call [phone] or [email].'
    """
    matches = [
        (PLACEHOLDERS[kind], _pattern(kind, cfg)) for kind in PLACEHOLDERS if kind in cfg.forbid
    ]

    def replaced(part: str) -> str:
        for placeholder, pattern in matches:
            for _ in range(_PASSES):  # adjacent matches hide each other in one pass
                part, count = pattern.subn(placeholder, part)
                if not count:
                    break
        return part

    # Masking the raw JSON could cut a key or an escape, and the text would no longer parse.
    if text.lstrip().startswith(("{", "[{")):
        try:
            # Values alone: a key that looks like a number is part of the schema.
            return json.dumps(_walked(json.loads(text), replaced), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return replaced(text)


def masks(texts: Iterable[str]) -> dict[str, int]:
    """Number of placeholders of each kind in texts, without zeros."""
    counts = Counter[str]()
    for text in texts:
        for kind, placeholder in PLACEHOLDERS.items():
            counts[kind] += text.count(placeholder)
    return {kind: count for kind, count in counts.items() if count}


def mask_rows(rows: Sequence[Mapping[str, Any]], cfg: ValidationConfig) -> list[dict[str, Any]]:
    """Rows of a synthetic file with masked texts; rows without a text do not change."""
    return [
        {**row, "text": masked(row["text"], cfg)} if isinstance(row.get("text"), str) else {**row}
        for row in rows
    ]


def _walked(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_walked(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _walked(item, change) for key, item in value.items()}
    return value


def _pattern(kind: str, cfg: ValidationConfig) -> re.Pattern[str]:
    looked_for = cfg.record_number_pattern if kind == "record_number" else _shipped()[kind]
    return re.compile(f"{_BEFORE[kind]}(?:{looked_for}){_BEHIND[kind]}")


@cache
def _shipped() -> Mapping[str, str]:
    """Kind -> regular expression of the shipped suite."""
    suite = json.loads((SHIPPED / "text.json").read_bytes())
    return {
        expectation["meta"]["privsyn"]["when"]: expectation["kwargs"]["regex"]
        for expectation in suite["expectations"]
        if expectation.get("meta", {}).get("privsyn", {}).get("when") in PATTERNS
    }
