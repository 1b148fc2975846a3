"""Settings of the suite: ``validation``."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from privsyn.files import LocalPath, OnDisk, Sha256
from privsyn.section import Section

PATTERNS: tuple[Literal["email", "phone", "record_number"], ...] = (
    "email",
    "phone",
    "record_number",
)
"""Allowed values of ``validation.forbid``."""


class ValidationConfig(Section):
    """The Great Expectations suite of the synthetic file."""

    suite: Annotated[str, OnDisk("file", ("text", "images"), pinned=True)] | None = Field(
        default=None,
        description="A shipped suite (text, images), or a JSON file. Null: "
        "text or images, depending on the dataset.",
    )
    suite_digest: Sha256 | None = Field(default=None, description="SHA-256 of the suite file.")
    max_chars: int = Field(default=4000, ge=1, description="Most characters of a text.")
    min_share: float = Field(
        default=0.95,
        ge=0,
        le=1,
        description="Share of rows that must keep the soft bounds: length, contrast of an image, "
        "JSON and its schema. Also the smallest share of different rows.",
    )
    forbid: tuple[Literal["email", "phone", "record_number"], ...] = Field(
        default=PATTERNS,
        description="Patterns that no synthetic text may contain. What the model invents is masked "
        "([email], [phone], [record number]) before the text is released.",
    )
    record_number_pattern: str = Field(
        default=r"(?a:\b)[A-Z]{2,4}-\d{5,8}(?a:\b)",
        description="What a record number looks like.",
    )
    json_schema: Annotated[LocalPath, OnDisk("file", pinned=True)] | None = Field(
        default=None,
        description="JSON schema every text must satisfy (structured records): a file.",
    )
    json_schema_digest: Sha256 | None = Field(
        default=None, description="SHA-256 the schema file must have."
    )

    @field_validator("record_number_pattern")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            # Here, before anything is spent: after the draw it would fail a paid release.
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value
