"""Base of the sections of params.yaml: frozen models that refuse unknown keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from pydantic import (
    BaseModel,
    ConfigDict,
)

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
RELEASE = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$"
VERSION = r"^[A-Za-z0-9{][A-Za-z0-9_.:%{}-]{0,63}$"
CONNECTION = r"^[A-Za-z0-9_.-]+$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
SHA256 = r"^[0-9a-f]{64}$"
PAGE = r"^https?://[^\s<>\"]{1,500}$"
ASSET = r"^[a-z][a-z0-9+.-]*://\S+$"
EVENT = r"^(partition_key|extra\.\w+)$"

WORDS: Mapping[str, str] = {
    NAME: "up to 64 letters (A to Z), digits, dots, dashes and underscores, a letter or digit "
    "first",
    RELEASE: "the id of a release: letters (A to Z), digits, dots, colons, dashes and underscores",
    VERSION: "up to 64 letters (A to Z), digits, dots, colons, dashes and underscores, a letter or "
    "digit first; {date:%Y-%m} stands for the run's date",
    CONNECTION: "letters (A to Z), digits, dots, dashes and underscores",
    VARIABLE: "the name of an environment variable: letters (A to Z), digits and underscores, no "
    "digit first",
    SHA256: "a SHA-256 digest: 64 digits or letters a to f",
    PAGE: "an address of at most 500 characters that begins with https:// or http://, without "
    "spaces, quotes or angle brackets",
    ASSET: "an address such as s3://bucket/file, without spaces",
    EVENT: "partition_key, or extra.KEY of the event",
}
"""Pattern of a setting -> what it requires, for messages."""


class Section(BaseModel):
    """A frozen part of the config that refuses unknown keys."""

    # frozen: settings that enter a release id must not change after it was computed.
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Sets of values by name, which a line ``settings: NAME`` of the section stands for."""


PRESET: Final = "settings"
"""Key of a section, and line of a trigger form, that names a preset, and not a setting: a plan and
a certificate hold the values that it stands for."""
PAPER: Final = "paper"
"""The preset of a method's paper."""
SMALL: Final = "small"
"""The preset for language models of fewer than ``MANY`` parameters."""
MANY: Final = 10**9
