"""Lines and files of a journal: each line's checksum covers all lines before it."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privsyn.data.artifacts import atomic_file, private_folder, storage_error, sync_folder
from privsyn.errors import ReleaseLost, VerificationError

FORMAT = 1


def header_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The header as JSON gives it back."""
    header: dict[str, Any] = json.loads(json.dumps({"journal": FORMAT, **fields}, allow_nan=False))
    return header


def entry_of(key: str, value: Any, room: int) -> str:
    """The JSON of a draw, padded to a length that depends on key and room alone."""
    # NaN is refused: it would not equal itself when the line is read back.
    text = json.dumps({"k": key, "v": value}, allow_nan=False)
    return text.ljust(len(json.dumps({"k": key, "v": 0})) - 1 + room)


def digest_of(value: bytes) -> str:
    """Digest of a file beside the journal, as its entry holds it."""
    # 30 digits: with its quotes the digest fits the 32 characters of every entry.
    return hashlib.blake2b(value, digest_size=15).hexdigest()


def line_of(text: str, crc: int) -> tuple[bytes, int]:
    """A line, and the checksum that the next line continues."""
    body = text.encode("ascii")
    crc = zlib.crc32(body, crc)
    return b"%08x %s\n" % (crc, body), crc


def parsed(path: Path | str, number: int, line: bytes, crc: int) -> tuple[dict[str, Any], int]:
    """The value of a line, and the checksum that the next line continues."""
    body = line[9:-1]
    crc = zlib.crc32(body, crc)
    if line[:9] != b"%08x " % crc or line[-1:] != b"\n":
        raise damaged(path, number)
    try:
        value = json.loads(body)
    except ValueError:
        raise damaged(path, number) from None
    if not isinstance(value, dict):
        raise damaged(path, number)
    return value, crc


def damaged(path: Path | str, number: int) -> VerificationError:
    """Error for a line that differs from what was written."""
    return VerificationError(
        f"journal {path} is damaged at line {number}; its draws cannot be replayed."
    )


def refuse_other(path: Path | str, header: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Refuse a journal that has another header.

    Raises:
        VerificationError: Names the fields that differ.
    """
    differing = sorted(k for k in {*header, *expected} if header.get(k) != expected.get(k))
    if differing:
        raise VerificationError(
            f"journal {path} belongs to another run: {', '.join(differing)} differ."
        )


def opener(name: str, flags: int) -> int:
    """Opener for ``open`` that follows no link."""
    return os.open(name, flags | os.O_NOFOLLOW)


def store_file(file: Path, value: bytes) -> None:
    """Write a file beside the journal, durably."""
    if not file.parent.is_dir():
        private_folder(file.parent)
        try:
            # Otherwise a power cut may take the new folder with the file in it.
            sync_folder(file.parent.parent)
        except OSError as error:
            raise storage_error("write", file.parent, error) from error
    with atomic_file(file) as stream:
        stream.write(value)


def stored_file(file: Path, digest: str) -> bytes:
    """The content of a file beside the journal, checked against its digest."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        content = None
    except OSError as error:
        raise storage_error("read", file, error) from error
    if content is None or digest_of(content) != digest:
        raise ReleaseLost(
            f"{file} is gone, dropped or changed; its release cannot be resumed.",
            hint="Restore the file, or mark the release as lost: its cost stays charged.",
        )
    return content
