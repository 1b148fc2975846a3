"""The lines of a journal: a header, then a draw each, chained by checksums."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from privsyn.data.artifacts import (
    atomic_file,
    private_folder,
    private_opener,
    storage_error,
    sync_folder,
)
from privsyn.data.draws import Draws, kept_as
from privsyn.errors import LeaseHeld, ReleaseLost, VerificationError

FORMAT = 1


def header_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The header as JSON gives it back."""
    header: dict[str, Any] = json.loads(json.dumps({"journal": FORMAT, **fields}, allow_nan=False))
    return header


def entry_of(key: str, value: Any, room: int) -> str:
    """The JSON of a draw, as long as its key and room make it unless the value is a longer one."""
    text = json.dumps({"k": key, "v": value}, allow_nan=False)
    return text.ljust(len(json.dumps({"k": key, "v": 0})) - 1 + room)


def digest_of(value: bytes) -> str:
    """Digest of a file beside the journal, as a line notes it."""
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
    """The error for a line that differs from what was written."""
    return VerificationError(
        f"journal {path} is damaged at line {number}; its draws cannot be replayed."
    )


def refuse_other(path: Path | str, header: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Refuse a journal that was begun with another header.

    Raises:
        VerificationError: Names the fields that differ.
    """
    differing = sorted(k for k in {*header, *expected} if header.get(k) != expected.get(k))
    if differing:
        raise VerificationError(
            f"journal {path} belongs to another run: {', '.join(differing)} differ."
        )


def opener(name: str, flags: int) -> int:
    """Opens no link."""
    return os.open(name, flags | os.O_NOFOLLOW)


def store_file(file: Path, value: bytes) -> None:
    """Write a file beside the journal, durably."""
    if not file.parent.is_dir():
        private_folder(file.parent)
        try:
            sync_folder(file.parent.parent)
        except OSError as error:
            raise storage_error("write", file.parent, error) from error
    with atomic_file(file) as stream:
        stream.write(value)


def stored_file(file: Path, digest: str) -> bytes:
    """The content of a file beside the journal, checked against its noted digest."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        content = None
    except OSError as error:
        raise storage_error("read", file, error) from error
    if content is None or digest_of(content) != digest:
        raise ReleaseLost(
            f"{file} is gone, dropped or changed; what was drawn cannot go on from it.",
            hint="Restore the file, or give the release up: its cost stays charged.",
        )
    return content


class Journal(Draws):
    """An open journal in a file, held by one process at a time. See ``Draws`` for what it does.

    ``Journal.create`` makes the file, ``Journal.open`` opens it; as a context manager it closes the
    file and frees the lock.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        super().__init__(str(path))
        self._path = path
        self._descriptor = descriptor
        self._crc = 0
        self._length = 0

    @classmethod
    def create(cls, path: Path, header: Mapping[str, Any]) -> None:
        """Make a journal without a draw, durably; does nothing where it is there already.

        To be called before anything may be drawn, and never by what draws.

        Args:
            path: The file; mode 0600. Its folder must exist.
            header: What the draws belong to (release, part, plan digest): plain JSON values.

        Raises:
            VerificationError: A file is there with another header, or is damaged.
            StorageError: The file cannot be written; none is there then.
        """
        expected = header_of(header)
        line, _ = line_of(json.dumps(expected, sort_keys=True), 0)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            if not path.exists():
                try:
                    with open(draft, "xb", opener=private_opener) as stream:
                        stream.write(line)
                        stream.flush()
                        os.fsync(stream.fileno())
                    with suppress(FileExistsError):  # a link, unlike a rename, replaces nothing
                        os.link(draft, path)
                finally:
                    draft.unlink(missing_ok=True)
            with open(path, "rb", opener=opener) as stream:
                first = stream.readline()
            sync_folder(path.parent)
        except OSError as error:
            raise storage_error("make", path, error) from error
        refuse_other(path, parsed(path, 1, first, 0)[0], expected)

    @classmethod
    def open(cls, path: Path, header: Mapping[str, Any]) -> Journal:
        """Open a journal and lock it; never makes one.

        Args:
            path: The file.
            header: As given to ``create``.

        Raises:
            ReleaseLost: The file is gone, and the draws with it.
            LeaseHeld: Another process holds the journal.
            VerificationError: The header differs, or a line other than a torn last one is damaged.
            StorageError: The file cannot be opened or written.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise ReleaseLost(
                f"journal {path} is gone; its draws cannot be replayed.",
                hint="Restore the file, or give the release up: its cost stays charged.",
            ) from None
        except OSError as error:
            raise storage_error("open", path, error) from error
        journal = cls(path, descriptor)
        try:
            journal._lock()
            journal._load(header)
        except BaseException:
            journal.close()
            raise
        return journal

    def close(self) -> None:
        """Close the file and free the lock. Closing twice is fine."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _lock(self) -> None:
        refusal = LeaseHeld(
            f"journal {self._path} is held by another process.",
            hint="Wait for it to end, then run again.",
        )
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise refusal from None
            raise storage_error("lock", self._path, error) from error
        try:
            same = os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except FileNotFoundError:
            same = False
        if not same:  # deleted between opening and locking: draws would go to a nameless file
            raise refusal

    def _load(self, header: Mapping[str, Any]) -> None:
        try:
            os.fchmod(self._descriptor, 0o600)
            with open(self._descriptor, "rb", closefd=False) as stream:
                data = stream.read()
        except OSError as error:
            raise storage_error("read", self._path, error) from error
        whole = data.rfind(b"\n") + 1  # what follows was torn by a crash before anyone saw it
        bodies = [self._check(n, line) for n, line in enumerate(data[:whole].splitlines(True), 1)]
        if not bodies:  # never a new journal: ``create`` leaves a whole header or no file
            raise damaged(self._path, 1)
        refuse_other(self._path, bodies[0], header_of(header))
        self._replay(bodies[1:], lambda number: damaged(self._path, number + 2))
        self._length = whole
        if whole < len(data):
            self._truncate()
        # Lines of a killed process may be in the page cache only, and are about to be used.
        self._sync()
        try:
            sync_folder(self._path.parent)
        except OSError as error:
            raise storage_error("write", self._path, error) from error

    def _check(self, number: int, line: bytes) -> dict[str, Any]:
        body, self._crc = parsed(self._path, number, line, self._crc)
        return body

    def _try_room(self, key: str, room: int) -> None:
        """Check for room: write as many blanks as the line will have, and remove them."""
        blank, _ = line_of(entry_of(key, None, room), 0)
        self._write(b" " * len(blank))
        self._truncate()

    def _append(self, text: str) -> None:
        line, crc = line_of(text, self._crc)
        self._write(line)
        self._crc = crc
        self._length += len(line)

    def _write(self, data: bytes) -> None:
        try:
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError as error:
            self._failure = storage_error("write", self._path, error)
            self._truncate()
            raise self._failure from error

    def _truncate(self) -> None:
        try:
            os.ftruncate(self._descriptor, self._length)
        except OSError as error:
            self._failure = storage_error("write", self._path, error)
            raise self._failure from error

    def _sync(self) -> None:
        entries = len(self._values)
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            self._failure = storage_error("write", self._path, error)
            raise self._failure from error
        self._durable = entries

    def _store(self, name: str, value: bytes) -> str:
        store_file(self._file(name), value)
        return digest_of(value)

    def _stored(self, name: str, digest: str) -> bytes:
        return stored_file(self._file(name), digest)

    def _delete(self, name: str, digest: str) -> None:
        file = self._file(name)
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error("delete", file, error) from error

    def _file(self, name: str) -> Path:
        return _files_of(self._path) / name


def kept_at(journal: Path, key: str) -> Path:
    """Where a journal keeps the file of a public value."""
    return _files_of(journal) / kept_as(key)[1]


def _files_of(journal: Path) -> Path:
    return journal.with_name(f"{journal.name}.kept")
