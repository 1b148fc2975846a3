"""Settings of the suite: ``validation``."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, field_validator

from privsyn.files import OnDisk
from privsyn.section import Section

PATTERNS = ("email", "phone", "record_number")
"""Words of ``validation.forbid``; all else in it is a regular expression."""
RECORD_NUMBER = r"(?a:\b)[A-Z]{2,4}-\d{5,8}(?a:\b)"
"""What a record number looks like where nobody says it."""


def whole_pattern(pattern: str, before: str = "", behind: str = "") -> re.Pattern[str]:
    """A pattern with others around it. Flags such as (?i) may stand only at the very beginning."""
    flags, body = re.fullmatch(r"(?s)((?:\(\?[aiLmsux]+\))*)(.*)", pattern).groups()  # type: ignore[union-attr]
    return re.compile(f"{flags}{before}(?:{body}){behind}")


class ValidationConfig(Section):
    """The Great Expectations suite of the synthetic file."""

    suite: Annotated[str, OnDisk("file", ("text", "images"))] | None = None
    """A shipped suite (text, images), or a JSON file. Null: text or images, depending on the
    dataset."""
    max_chars: int = Field(default=4000, ge=1)
    """Most characters of a text."""
    min_share: float = Field(default=0.95, ge=0, le=1)
    """Share of rows that must keep the soft bounds: length, contrast of an image, the method's JSON
    schema. Also the smallest share of different rows."""
    forbid: tuple[str, ...] = PATTERNS
    """What no synthetic text may contain: email, phone, record_number, or regular expressions of
    your own record numbers. What the model invents is masked ([email], [phone], [record number])
    before the text is released."""

    @field_validator("forbid")
    @classmethod
    def _compiles(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            # Here, before anything is spent: after the draw it would fail a paid release.
            for one in value:
                whole_pattern(one)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        # A misspelled word would be looked for as a pattern, and mask nothing.
        if words := [one for one in value if one not in PATTERNS and re.fullmatch(r"\w*", one)]:
            raise ValueError(f"{words[0]!r} is neither a pattern nor one of {', '.join(PATTERNS)}")
        return value

    @property
    def record_numbers(self) -> tuple[str, ...]:
        """Regular expressions of the record numbers that no text may contain."""
        own = (one for one in self.forbid if one not in ("email", "phone"))
        return tuple(RECORD_NUMBER if one == "record_number" else one for one in own)

    def forbids(self, kind: str) -> bool:
        """Whether a kind of ``PATTERNS`` is masked, and looked for."""
        return bool(self.record_numbers) if kind == "record_number" else kind in self.forbid
