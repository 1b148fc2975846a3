"""The journal of private draws: written before it is used, replayed and never drawn again.

A resumed run must see the draws of the first attempt, since a second draw would be a second look
at the data that nobody paid for. Every draw is on file before it leaves ``Journal.draw_all``. A
crash loses at most the draws of one call that nobody had seen.

Format: one line per entry, ``crc32 (8 hex digits) space JSON newline``. Each checksum runs on from
that of the line before, so an edited, missing or moved line is found. The first line is the header.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from privsyn.data.artifacts import storage_error, sync_folder
from privsyn.errors import LeaseHeld, PrivsynError, ReleaseLost, VerificationError

T = TypeVar("T")

_FORMAT = 1


class Journal:
    """An open journal, held by one process at a time.

    Use ``Journal.open``; as a context manager it closes the file and frees the lock.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._values: dict[str, Any] = {}
        self._crc = 0
        self._length = 0
        self._drawn = False
        self._failure: PrivsynError | None = None

    @classmethod
    def open(cls, path: Path, header: Mapping[str, Any]) -> Journal:
        """Open or create a journal and lock it.

        Args:
            path: The file; mode 0600. Its folder must exist.
            header: What the draws belong to (release, part, plan digest): plain JSON values. An
                existing journal must have the same.

        Raises:
            LeaseHeld: Another process holds the journal.
            VerificationError: The header differs, or a line other than a torn last one is damaged.
            StorageError: The file cannot be opened or written.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
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

    @property
    def drawn(self) -> bool:
        """Whether a draw is on file or was begun by this process, even one that raised."""
        return self._drawn

    def __len__(self) -> int:
        """Number of draws on file."""
        return len(self._values)

    def has(self, key: str) -> bool:
        """Whether the draw of this key is on file."""
        return key in self._values

    def draw_all(self, items: Sequence[tuple[str, Callable[[], T]]]) -> list[T]:
        """The values of some draws: replayed where on file, drawn in order where not.

        Each fresh value is written right after its draw, and all are on disk before any is
        returned. A value comes back as JSON gives it (a tuple as a list), first time and replayed.

        Args:
            items: Pairs of a key and its draw; the draw returns a plain JSON value. Keys are unique
                in the journal's life.

        Raises:
            StorageError: A write failed. The one draw it was for is not on file, so a later run
                draws it again; this object draws nothing more.
            ReleaseLost: An earlier draw of this object raised.
            ValueError: A key occurs twice in ``items``, or a draw returned what JSON cannot hold.
        """
        keys = [key for key, _ in items]
        if len(set(keys)) != len(keys):
            raise ValueError("a key occurs twice among the items of one draw_all")
        fresh = False
        for key, draw in items:
            if key in self._values:
                continue
            if self._failure:
                raise self._failure
            self._drawn = fresh = True
            # An exception may carry what was drawn, so a second draw must not follow it.
            self._failure = ReleaseLost(
                f"journal {self._path}: a draw raised before it was written."
            )
            body = json.dumps({"k": key, "v": draw()}, allow_nan=False)
            self._append(body)
            self._values[key] = json.loads(body)["v"]
            self._failure = None
        if fresh:
            self._sync()
        return [self._values[key] for key in keys]

    def close(self) -> None:
        """Close the file and free the lock. Closing twice is fine."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _lock(self) -> None:
        held = LeaseHeld(
            f"journal {self._path} is held by another process.",
            hint="Wait for it to end, then run again.",
        )
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise held from None
            raise storage_error("lock", self._path, error) from error
        try:
            same = os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except FileNotFoundError:
            same = False
        if not same:  # deleted between opening and locking: draws would go to a nameless file
            raise held

    def _load(self, header: Mapping[str, Any]) -> None:
        try:
            os.fchmod(self._descriptor, 0o600)
            with open(self._descriptor, "rb", closefd=False) as stream:
                data = stream.read()
        except OSError as error:
            raise storage_error("read", self._path, error) from error
        whole = data.rfind(b"\n") + 1  # what follows was torn by a crash before anyone saw it
        bodies = [self._check(n, line) for n, line in enumerate(data[:whole].split(b"\n")[:-1], 1)]
        self._length = whole
        if whole < len(data):
            self._truncate()
        wanted = json.loads(json.dumps({"journal": _FORMAT, **header}, allow_nan=False))
        if not bodies:
            self._append(json.dumps(wanted, sort_keys=True))
        elif bodies[0] != wanted:
            raise VerificationError(
                f"journal {self._path} belongs to another run: "
                f"{', '.join(_differing(bodies[0], wanted))} differ."
            )
        for n, body in enumerate(bodies[1:], 2):
            if set(body) != {"k", "v"} or body["k"] in self._values:
                raise self._damaged(n)
            self._values[body["k"]] = body["v"]
        self._drawn = bool(self._values)
        # Lines of a killed process may be in the page cache only, and are about to be used.
        self._sync()
        try:
            sync_folder(self._path.parent)
        except OSError as error:
            raise storage_error("write", self._path, error) from error

    def _check(self, number: int, line: bytes) -> dict[str, Any]:
        body = line[9:]
        self._crc = zlib.crc32(body, self._crc)
        if line[:9] != b"%08x " % self._crc:
            raise self._damaged(number)
        try:
            value = json.loads(body)
        except ValueError:
            raise self._damaged(number) from None
        if not isinstance(value, dict):
            raise self._damaged(number)
        return value

    def _damaged(self, number: int) -> VerificationError:
        return VerificationError(
            f"journal {self._path} is damaged at line {number}; its draws cannot be replayed."
        )

    def _append(self, text: str) -> None:
        body = text.encode("ascii")
        crc = zlib.crc32(body, self._crc)
        line = b"%08x %s\n" % (crc, body)
        try:
            written = 0
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError as error:
            self._failure = storage_error("write", self._path, error)
            self._truncate()
            raise self._failure from error
        self._crc = crc
        self._length += len(line)

    def _truncate(self) -> None:
        try:
            os.ftruncate(self._descriptor, self._length)
        except OSError as error:
            raise storage_error("write", self._path, error) from error

    def _sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            self._failure = storage_error("write", self._path, error)
            raise self._failure from error


def _differing(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    return sorted(k for k in {*found, *wanted} if found.get(k) != wanted.get(k))
