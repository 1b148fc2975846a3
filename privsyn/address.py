"""Addresses of private records in an object store, such as ``s3://bucket/folder``."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic_core import CoreSchema, core_schema

SCHEMES = ("s3", "gs", "az", "iceberg")
_WILD = re.compile(r"[*?\[]")
_ONE_SLASH = re.compile(r"(s3a?|gs|az|abfss?|https?):/(?!/)", re.IGNORECASE)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class Address(PurePosixPath):
    """Address of one object, of all objects below a prefix, or of those that match a pattern.

    It has names and suffixes like a path, but only the readers can open it. It holds no
    credentials: they come from the environment.

    >>> Address("s3://bucket/raw/part-*.parquet").suffixes
    ['.parquet']
    """

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse the address in a setting.

        Raises:
            ValueError: The text is not an address, or holds more. The message quotes no secret.
        """
        parts = urlsplit(text)
        scheme = parts.scheme.lower()
        # Of the text these two show at most its scheme: it may hold a password.
        if scheme not in SCHEMES:
            raise ValueError(
                f"records cannot be read from {scheme}:// addresses: name a path of this machine, "
                f"or an address that begins with {', '.join(f'{known}://' for known in SCHEMES)}"
            )
        if "@" in text or parts.query or parts.fragment:
            raise ValueError(
                "an address holds no user, password, version or signature: give credentials in "
                "the environment, such as AWS_ACCESS_KEY_ID"
            )
        names = parts.path.strip("/").split("/")
        if not parts.netloc or _WILD.search(parts.netloc) or ":" in parts.netloc:
            raise ValueError(f"{scheme}:// must be followed by the name of a bucket")
        if any(name in ("", ".", "..") for name in names):
            raise ValueError("an address must name an object or a folder below the bucket")
        if any(_WILD.search(name) for name in names[:-1]):
            raise ValueError("only the last part of an address may be a pattern")
        return cls(f"{scheme}://{parts.netloc}/{'/'.join(names)}")

    def __str__(self) -> str:
        # A pure path joins repeated slashes.
        return super().__str__().replace(":/", "://", 1)

    def is_absolute(self) -> bool:
        """True: an address is never relative to the project folder."""
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
        """The last part if it is a pattern, else None."""
        return self.name if _WILD.search(self.name) else None

    def names(self, key: str) -> bool:
        """Whether the pattern matches an object of its folder."""
        folder, _, name = key.rpartition("/")
        return folder == "/".join(self.parts[2:-1]) and fnmatchcase(name, self.name)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, cls) else cls.parse(value),
            serialization=core_schema.to_string_ser_schema(),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "format": "uri"}


Source = Path | Address
"""A place to read records from."""


class Stream:
    """Records that are read as a stream of batches and not from files: a query, or a table.

    Their rows have no order, and the same rows may come in other batches.
    """


Origin = Path | Address | Stream
"""Where records come from: files, or a stream."""


def is_address(value: str) -> bool:
    """Whether a value begins like ``scheme://``, also after ``Path`` has merged the slashes."""
    return bool(_ADDRESS.match(value)) or bool(re.match(r"(s3a?|gs|az|abfss?|https?):/", value))


def overlap(one: str, other: str) -> bool:
    """Whether two URLs are equal or one contains the other. A pattern counts as its folder.

    >>> overlap("s3://bucket", "S3://bucket/vault"), overlap("s3://bucket/a", "s3://bucket/ab")
    (True, False)
    >>> overlap("s3://bucket/raw/part-*.parquet", "S3://bucket/raw/words.txt")
    True
    """
    mine, theirs = _folder_of(_split(one)), _folder_of(_split(other))
    shorter = min(len(mine), len(theirs))
    return mine[:shorter] == theirs[:shorter]


def source(value: Any) -> Any:
    """Parse ``dataset.path``: a path of this machine, also as ``file://``, or an address."""
    if not isinstance(value, str):
        return value
    if _ONE_SLASH.match(value):  # an error about a missing path would show a password in it
        raise ValueError("an address begins with two slashes: s3://bucket/object")
    if not _ADDRESS.match(value):
        return value
    if value.lower().startswith("file://"):
        parts = urlsplit(value)
        if parts.netloc or not parts.path.strip("/"):
            raise ValueError("file:// is followed by an absolute path: file:///secure/records")
        return unquote(parts.path)
    # The scheme decides: a wrong one raises there with the known ones.
    return Address.parse(value)


def _split(text: str) -> tuple[str, ...]:
    scheme, _, rest = text.partition(":")
    return (f"{scheme.lower()}:", *(name for name in rest.split("/") if name))


def _folder_of(parts: tuple[str, ...]) -> tuple[str, ...]:
    wild = next((n for n, name in enumerate(parts) if "{" in name or _WILD.search(name)), None)
    return parts[:wild]
