"""The journal of private draws: written before it is used, replayed and never drawn again.

A resumed run must see the draws of the first attempt, since a second draw would be a second look
at the data that nobody paid for. Every draw is on file before it leaves ``Journal.draw_all``. A
crash loses at most the draws of one call that nobody had seen.

Format: one line per entry, ``crc32 (8 hex digits) space JSON newline``. Each checksum runs on from
that of the line before, so an edited, missing or moved line is found. The first line is the header.

What a full disk does must not depend on what is drawn, or the draws that a resumed run makes anew
would be chosen by their values. So the room of a line is tried before its draw, and lines are
padded with spaces: their lengths depend on the keys alone, for values of up to 32 characters.

A journal is made once, before the first draw can happen, and only opened from then on: one that is
missing has been lost with its draws, and is never taken for a new one. The ledger keeps a count of
the entries (``len(journal)``) that only grows, so that one of a backup is not taken for the newest.
It is told with each renewal of the lease that the part is drawn under, a third of its 60 s life
apart, before a finished part is handed on, and when a process ends other than by a kill. What a
killed process drew in its last 20 s may be uncounted: to put an older copy of the scratch back
in its place then goes unnoticed, if that copy is as new as the last count.

What a draw was made from may have to outlive it too: a population that votes are cast for, say.
``keep`` puts such public values into files beside the journal, each before it is used, and the
journal holds their digests. ``draw_file`` does the same with a draw too large for a line, such as
the state of a model in training. All these files have mode 0600 in a folder of mode 0700.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from privsyn.data.artifacts import private_opener, storage_error, sync_folder
from privsyn.data.journal_files import opener, store_file, stored_file
from privsyn.data.journal_lines import (
    damaged,
    digest_of,
    entry_of,
    header_of,
    line_of,
    parsed,
    refuse_other,
)
from privsyn.errors import LeaseHeld, PrivsynError, ReleaseLost

T = TypeVar("T")

_KEPT = "kept "
"""Prefix of the keys of public values, which are no draws."""

_DRAWN = b"drawn"
"""Marks the names of files that are private draws; files of public values lack it."""

_VALUE = 32
"""Characters every value has room for in its line: any 64-bit integer, any float."""


def kept_at(journal: Path, key: str, person: bytes = b"") -> Path:
    """Where a journal keeps the file of a key."""
    name = hashlib.blake2b(key.encode(), person=person, digest_size=12).hexdigest()
    return journal.with_name(f"{journal.name}.kept") / name


class Journal:
    """An open journal, held by one process at a time.

    ``Journal.create`` makes the file, ``Journal.open`` opens it; as a context manager it closes the
    file and frees the lock.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._values: dict[str, Any] = {}
        self._crc = 0
        self._length = 0
        self._drawn = False
        self._durable = 0
        self._failure: PrivsynError | None = None

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

    @property
    def drawn(self) -> bool:
        """Whether a private draw is on file or was begun by this process, even one that raised."""
        return self._drawn

    def __len__(self) -> int:
        """Number of entries on file: draws, and public values that are kept."""
        return len(self._values)

    @property
    def durable(self) -> int:
        """Number of entries on disk. Another thread may read it while this one draws."""
        return self._durable

    def has(self, key: str) -> bool:
        """Whether the draw of this key is on file."""
        return key in self._values

    def draw_all(
        self, items: Sequence[tuple[str, Callable[[], T]]], *, room: int | None = None
    ) -> list[T]:
        """The values of some draws: replayed where on file, drawn in order where not.

        Each fresh value is written right after its draw, and all are on disk before any is
        returned. A value comes back as JSON gives it (a tuple as a list), first time and replayed.

        Args:
            items: Pairs of a key and its draw; the draw returns a plain JSON value. Keys are unique
                in the journal's life.
            room: Characters every value's line has room for; None: 32.

        Raises:
            StorageError: There is no room for the next draw, which was not made; or there was and
                then a write failed, so that a later run makes that one draw again. This object
                draws nothing more.
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
            self._try_room(key, room or _VALUE)
            self._drawn = fresh = True
            # An exception may carry what was drawn, so a second draw must not follow it.
            self._failure = ReleaseLost(
                f"journal {self._path}: a draw raised before it was written."
            )
            body = entry_of(key, draw(), room or _VALUE)
            self._append(body)
            self._values[key] = json.loads(body)["v"]
            self._failure = None
        if fresh:
            self._sync()
        return [self._values[key] for key in keys]

    def draw_array(
        self, key: str, draw: Callable[[], NDArray[np.int64]], size: int
    ) -> NDArray[np.int64]:
        """A draw of ``size`` integers as one entry, replayed where on file. Read-only.

        Its line is as long as its key and size make it. Errors as draw_all; ValueError where the
        draw is not an int64 array of this size, and the release is lost then.
        """

        def encoded() -> str:
            values = draw()
            if values.dtype != np.int64 or values.shape != (size,):
                raise ValueError(
                    f"{key}: {values.dtype} of shape {values.shape}, not int64[{size}]"
                )
            return base64.b64encode(values.astype("<i8").tobytes()).decode("ascii")

        [text] = self.draw_all([(key, encoded)], room=4 * -(-8 * size // 3) + 2)
        return np.frombuffer(base64.b64decode(text), "<i8").astype(np.int64, copy=False)

    def keep(self, key: str, make: Callable[[], bytes]) -> bytes:
        """A public value that later draws depend on: made once, then read back.

        On disk before it is returned, so that a resumed run votes on the same population. A value
        whose digest a killed run had not noted yet is made again.

        Raises:
            ReleaseLost: The file is gone or was changed: draws that depend on it mean nothing now.
            StorageError: It cannot be written.
        """
        file, drawn = self._place(key), self._drawn
        key = _KEPT + key
        if not self.has(key):
            value = make()
            store_file(file, value)
        [digest] = self.draw_all([(key, lambda: digest_of(value))])
        self._drawn = drawn  # nothing private came out
        return stored_file(file, digest)

    def draw_file(self, key: str, draw: Callable[[], bytes]) -> bytes:
        """A private draw whose value is a file: drawn once, then read back.

        The file is on disk before its digest is noted, and the digest before the file is returned.
        A file whose digest a killed run had not noted was seen by nobody: it is drawn again.
        privacy: its length must not depend on the draw, as a full disk is noticed after the draw.

        Args:
            key: Unique among the draws of the journal's life.
            draw: Returns the bytes of the file. An exception in it is one of ``draw_all``.

        Raises:
            ReleaseLost: The file is gone, dropped or changed: it is never drawn a second time. Or
                an earlier draw of this object raised.
            StorageError: It cannot be written, so that a later run makes the draw again, or read.
        """
        file = self._place(key, _DRAWN)

        def stored() -> str:
            value = draw()
            store_file(file, value)
            return digest_of(value)

        [digest] = self.draw_all([(key, stored)])
        return stored_file(file, digest)

    def drop_file(self, key: str) -> None:
        """Delete the file of a draw_file that a later one replaced, to free its room.

        That it was drawn stays on file, so asking for it again raises ReleaseLost. Dropping twice
        is fine: a resumed run may do so.

        Raises:
            StorageError: It cannot be deleted.
            ValueError: No such draw is on file.
        """
        if not self.has(key):
            raise ValueError(f"{key}: no such draw is on file")
        file = self._place(key, _DRAWN)
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error("delete", file, error) from error

    def _place(self, key: str, person: bytes = b"") -> Path:
        return kept_at(self._path, key, person)

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
        for n, body in enumerate(bodies[1:], 2):
            if set(body) != {"k", "v"} or body["k"] in self._values:
                raise damaged(self._path, n)
            self._values[body["k"]] = body["v"]
        self._drawn = any(not key.startswith(_KEPT) for key in self._values)
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
