"""Where private records lie in an object store: an address instead of a path of this machine."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic_core import CoreSchema, core_schema

SCHEMES = ("s3", "gs", "az")
_WILD = re.compile(r"[*?\[]")
_ONE_SLASH = re.compile(r"(s3a?|gs|az|abfss?|https?):/(?!/)", re.IGNORECASE)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class Address(PurePosixPath):
    """An object, all objects below a prefix, or those that a pattern in its last part names.

    No file of this machine: it has names and suffixes as a path has, and nothing that opens it but
    the readers. Credentials are no part of it; they come from the environment.

    >>> Address("s3://bucket/raw/part-*.parquet").suffixes
    ['.parquet']
    """

    @classmethod
    def parsed(cls, text: str) -> Address:
        """The address that a setting holds.

        Raises:
            ValueError: It is none, or holds more than an address. A secret in it is not quoted.
        """
        parts = urlsplit(text)
        scheme = parts.scheme.lower()
        if "@" in text or parts.query or parts.fragment:
            raise ValueError(
                "an address holds no user, password, version or signature: give credentials in "
                "the environment, such as AWS_ACCESS_KEY_ID"
            )
        if scheme not in SCHEMES:
            raise ValueError(
                f"{scheme}:// is no place that records are read from: name a path of this machine, "
                f"or an address that begins with {', '.join(f'{known}://' for known in SCHEMES)}"
            )
        names = parts.path.strip("/").split("/")
        if not parts.netloc or _WILD.search(parts.netloc) or ":" in parts.netloc:
            raise ValueError(f"{scheme}:// is to be followed by the name of a bucket")
        if any(name in ("", ".", "..") for name in names):
            raise ValueError("an address names an object or a folder below the bucket, in full")
        if any(_WILD.search(name) for name in names[:-1]):
            raise ValueError("only the last part of an address may be a pattern")
        return cls(f"{scheme}://{parts.netloc}/{'/'.join(names)}")

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def is_absolute(self) -> bool:
        """It is not below the project folder."""
        return True

    @property
    def bucket(self) -> str:
        """URL of the bucket."""
        return f"{self.parts[0]}//{self.parts[1]}"

    @property
    def key(self) -> str:
        """Name of the object, or of the folder, in the bucket."""
        return "/".join(self.parts[2:])

    @property
    def pattern(self) -> str | None:
        """Its last part where that is a pattern."""
        return self.name if _WILD.search(self.name) else None

    def names(self, key: str) -> bool:
        """Whether the pattern names an object of the folder it stands in."""
        folder, _, name = key.rpartition("/")
        return folder == "/".join(self.parts[2:-1]) and fnmatchcase(name, self.name)

    def touches(self, other: str) -> bool:
        """Whether another address is this one, lies in it or holds it; patterns as their folder.

        >>> Address("s3://bucket/raw/part-*.parquet").touches("S3://bucket/raw/words.txt")
        True
        """
        return overlap(str(self), other)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, cls) else cls.parsed(value),
            serialization=core_schema.to_string_ser_schema(),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "format": "uri"}


Source = Path | Address
"""Where records are read from."""


def is_address(value: str) -> bool:
    """Whether a setting's value begins like ``scheme://``, also after ``Path`` has read it."""
    return bool(_ADDRESS.match(value)) or bool(re.match(r"(s3a?|gs|az|abfss?|https?):/", value))


def overlap(one: str, other: str) -> bool:
    """Whether one URL is the other, or lies in it, or holds it; patterns as their folder.

    >>> overlap("s3://bucket", "S3://bucket/vault"), overlap("s3://bucket/a", "s3://bucket/ab")
    (True, False)
    """
    mine, theirs = _folder_of(_split(one)), _folder_of(_split(other))
    shorter = min(len(mine), len(theirs))
    return mine[:shorter] == theirs[:shorter]


def source(value: Any) -> Any:
    """A path of this machine, ``file://`` or not, or an address: what ``dataset.path`` may be."""
    if not isinstance(value, str):
        return value
    if _ONE_SLASH.match(value):  # as a path it would be quoted, with a password in it
        raise ValueError("an address begins with two slashes: s3://bucket/object")
    if not _ADDRESS.match(value):
        return value
    if value.lower().startswith("file://"):
        parts = urlsplit(value)
        if parts.netloc or not parts.path.strip("/"):
            raise ValueError("file:// is followed by an absolute path: file:///secure/records")
        return unquote(parts.path)
    return Address.parsed(value)


def _split(text: str) -> tuple[str, ...]:
    scheme, _, rest = text.partition(":")
    return (f"{scheme.lower()}:", *(name for name in rest.split("/") if name))


def _folder_of(parts: tuple[str, ...]) -> tuple[str, ...]:
    wild = next((n for n, name in enumerate(parts) if "{" in name or _WILD.search(name)), None)
    return parts[:wild]
