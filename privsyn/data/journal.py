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
The count is sent with each renewal of the lease (every 20 s of its 60 s), before a finished part is
published, and when a process ends other than by a kill. Draws of a killed process's last 20 s may
be uncounted. If the scratch folder is then replaced by an older copy that is as new as the last
count, nobody notices.

A public value that draws depend on, such as a population that records vote for, must be stored,
too. ``public_file`` writes such values to files beside the journal, each before it is used, and the
journal holds their digests. ``draw_file`` does the same for a draw that is too large for a line,
such as the state of a model in training. These files have mode 0600 in a folder of mode 0700.

``Draws`` is the interface and its logic; subclasses say where entries and files are. ``Journal``
has them in a file of this machine, ``LedgerJournal`` (vault.py) in the ledger's database and the
vault, for releases that several machines draw.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import hashlib
import json
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from privsyn.data.artifacts import (
    atomic_file,
    private_folder,
    storage_error,
    storage_errors,
    sync_folder,
)
from privsyn.errors import LeaseHeld, PrivsynError, ReleaseLost, VerificationError

T = TypeVar("T")

_KEPT = "kept "
"""Prefix of the keys of public values. They are not draws."""

_DRAWN = b"drawn"
"""Enters the names of files that are private draws, so they differ from those of public values."""

ROOM = 32
"""Characters every value has room for in its entry: any 64-bit integer, any float."""


class Draws(ABC):
    """An open journal, used by one process at a time. As a context manager it closes at the end.

    Args:
        where: The journal's name for messages.

    Attributes:
        where: The journal's name for messages.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self._values: dict[str, Any] = {}
        self._drawn = False
        self._durable = 0
        self._failure: PrivsynError | None = None

    @property
    def has_drawn(self) -> bool:
        """Whether a private draw is stored, or this process started one, even one that raised."""
        return self._drawn

    def __len__(self) -> int:
        """Number of entries: draws and public values."""
        return len(self._values)

    @property
    def durable(self) -> int:
        """Number of entries on disk. Another thread may read it while this one draws."""
        return self._durable

    def has(self, key: str) -> bool:
        """Whether the draw of this key is stored."""
        return key in self._values

    def draw_all(
        self, items: Sequence[tuple[str, Callable[[], T]]], *, room: int | None = None
    ) -> list[T]:
        """Values of draws: replayed if stored, otherwise drawn in order.

        Each fresh value is written right after its draw, and all are on disk before any is
        returned. A value comes back as JSON gives it (a tuple as a list), first time and replayed.

        Args:
            items: Pairs of a key and its draw; the draw returns a plain JSON value. Keys are unique
                in the journal's life.
            room: Characters every value's line has room for; None: 32.

        Raises:
            StorageError: There is no room for the next draw, which was not made; or there was and
                then a write failed, so that a later run makes that one draw again. This object
                draws nothing more. In the ledger's database: LedgerUnavailable.
            LeaseHeld: Another process is drawing this part.
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
            self._try_room(key, room or ROOM)
            # Set before the draw: if it raises, something private may have been seen, and the
            # release must not begin again from nothing.
            self._drawn = fresh = True
            # An exception may carry what was drawn, so a second draw must not follow it.
            self._failure = ReleaseLost(
                f"journal {self.where}: a draw raised before it was written."
            )
            body = entry_of(key, draw(), room or ROOM)
            self._append(body)
            # Read back from the line: a first run and a resumed run see the same value, to the last
            # digit.
            self._values[key] = json.loads(body)["v"]
            self._failure = None
        if fresh:
            # One sync per call, before any value is returned: a crash loses only unseen draws.
            self._sync()
        return [self._values[key] for key in keys]

    def draw_array(
        self, key: str, draw: Callable[[], NDArray[np.int64]], size: int
    ) -> NDArray[np.int64]:
        """A draw of ``size`` integers as one entry, replayed if stored. Shape (size,), read-only.

        The length of its line depends on key and size alone. Errors as draw_all; ValueError if the
        draw is not an int64 array of this size, and the release is lost then.
        """

        def encoded() -> str:
            values = draw()
            if values.dtype != np.int64 or values.shape != (size,):
                raise ValueError(
                    f"{key}: {values.dtype} of shape {values.shape}, not int64[{size}]"
                )
            # Fixed byte order: a part may be resumed on another machine.
            return base64.b64encode(values.astype("<i8").tobytes()).decode("ascii")

        # Base64 turns 3 bytes into 4 characters; 2 more for the quotes of the JSON string.
        [text] = self.draw_all([(key, encoded)], room=4 * -(-8 * size // 3) + 2)
        return np.frombuffer(base64.b64decode(text), "<i8").astype(np.int64, copy=False)

    def public_file(self, key: str, make: Callable[[], bytes]) -> bytes:
        """A public value that later draws depend on: made once, then read back.

        On disk before it is returned, so that a resumed run votes on the same population. A value
        whose digest was not stored before a kill is made again.

        Raises:
            ReleaseLost: The file is gone or changed, and draws depend on it.
            StorageError: It cannot be written.
        """
        drawn = self._drawn
        key, name = public_entry(key)
        noted = "" if self.has(key) else self._store(name, make())
        [digest] = self.draw_all([(key, lambda: noted)])
        self._drawn = drawn  # nothing private came out
        return self._read_stored(name, digest)

    def draw_file(self, key: str, draw: Callable[[], bytes]) -> bytes:
        """A private draw whose value is a file: drawn once, then read back.

        The file is on disk before its digest is stored, and the digest before the file is returned.
        Nobody has seen a file whose digest was not stored before a kill: it is drawn again.
        privacy: its length must not depend on the draw, as a full disk is noticed after the draw.

        Args:
            key: Unique among the draws of the journal's life.
            draw: Returns the bytes of the file. Its exceptions are handled as in ``draw_all``.

        Raises:
            ReleaseLost: The file is gone, dropped or changed: it is never drawn again. Or
                an earlier draw of this object raised.
            StorageError: It cannot be written, so that a later run makes the draw again, or read.
        """
        name = _name(key, _DRAWN)
        [digest] = self.draw_all([(key, lambda: self._store(name, draw()))])
        return self._read_stored(name, digest)

    def drop_file(self, key: str) -> None:
        """Delete the file of a ``draw_file`` that a later one replaced, to free disk space.

        Its entry stays, so drawing it again raises ReleaseLost. Dropping twice
        is fine: a resumed run may do so.

        Raises:
            StorageError: It cannot be deleted.
            ValueError: No such draw is stored.
        """
        if not self.has(key):
            raise ValueError(f"{key}: no such draw is stored")
        self._delete(_name(key, _DRAWN), self._values[key])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _replay(
        self, bodies: Sequence[Mapping[str, Any]], refused: Callable[[int], Exception]
    ) -> None:
        """Take over stored entries, oldest first; ``refused`` makes the error for a bad one."""
        for number, body in enumerate(bodies):
            if set(body) != {"k", "v"} or body["k"] in self._values:
                raise refused(number)
            self._values[body["k"]] = body["v"]
        self._drawn = any(not key.startswith(_KEPT) for key in self._values)

    @abstractmethod
    def close(self) -> None:
        """Close the journal and free its lock. Closing twice is fine."""

    @abstractmethod
    def _try_room(self, key: str, room: int) -> None:
        """Raise, before the draw, if its entry cannot be written."""

    @abstractmethod
    def _append(self, text: str) -> None:
        """Append an entry; it is on disk after ``_sync``. A failure is kept in ``_failure``."""

    @abstractmethod
    def _sync(self) -> None:
        """Bring all entries to disk and count them. A failure is kept in ``_failure``."""

    @abstractmethod
    def _store(self, name: str, value: bytes) -> str:
        """Store a file durably and return the digest for its entry."""

    @abstractmethod
    def _read_stored(self, name: str, digest: str) -> bytes:
        """The content of a stored file, checked. ReleaseLost if it is gone or differs."""

    @abstractmethod
    def _delete(self, name: str, digest: str) -> None:
        """Delete a stored file; a missing one is fine."""


def public_entry(key: str) -> tuple[str, str]:
    """The key of the entry of a public value, and the name of its file."""
    return _KEPT + key, _name(key)


def _name(key: str, person: bytes = b"") -> str:
    return hashlib.blake2b(key.encode(), person=person, digest_size=12).hexdigest()


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


def parse_line(path: Path | str, number: int, line: bytes, crc: int) -> tuple[dict[str, Any], int]:
    """The value of a line, and the checksum that the next line continues."""
    body = line[9:-1]
    crc = zlib.crc32(body, crc)
    if line[:9] != b"%08x " % crc or line[-1:] != b"\n":
        raise damage_error(path, number)
    try:
        value = json.loads(body)
    except ValueError:
        raise damage_error(path, number) from None
    if not isinstance(value, dict):
        raise damage_error(path, number)
    return value, crc


def damage_error(path: Path | str, number: int) -> VerificationError:
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
        with storage_errors("write", file.parent):
            # Otherwise a power cut may take the new folder with the file in it.
            sync_folder(file.parent.parent)
    with atomic_file(file) as stream:
        stream.write(value)


def stored_file(file: Path, digest: str) -> bytes:
    """The content of a file beside the journal, checked against its digest."""
    content = None
    with storage_errors("read", file), suppress(FileNotFoundError):
        content = file.read_bytes()
    if content is None or digest_of(content) != digest:
        raise ReleaseLost(
            f"{file} is gone, dropped or changed; its release cannot be resumed.",
            hint="Restore the file, or mark the release as lost: its cost stays charged.",
        )
    return content


class Journal(Draws):
    """A journal in a file of this machine, open in one process at a time.

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
        """Make an empty journal, durably. Does nothing if it exists.

        Call it before anything can be drawn. Code that draws must never call it.

        Args:
            path: The file; mode 0600. Its folder must exist.
            header: What the draws belong to (release, part, plan digest): plain JSON values.

        Raises:
            VerificationError: The file exists with another header, or is damaged.
            StorageError: The file cannot be written; nothing is left behind.
        """
        expected = header_of(header)
        line, _ = line_of(json.dumps(expected, sort_keys=True), 0)
        with storage_errors("make", path):
            os.stat(path.parent)  # a folder that is gone is not made again
            if not path.exists():
                with suppress(FileExistsError), atomic_file(path, replace=False) as stream:
                    stream.write(line)
            with open(path, "rb", opener=opener) as stream:
                first = stream.readline()
            sync_folder(path.parent)
        refuse_other(path, parse_line(path, 1, first, 0)[0], expected)

    @classmethod
    def open(cls, path: Path, header: Mapping[str, Any]) -> Journal:
        """Open a journal and lock it. Never makes a file.

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
            # Never O_CREAT: an empty journal would draw everything a second time. O_NOFOLLOW: a
            # link could lead out of the private folder.
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise ReleaseLost(
                f"journal {path} is gone; its draws cannot be replayed.",
                hint="Restore the file, or mark the release as lost: its cost stays charged.",
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
            # The kernel frees the lock when the process dies, so a crash leaves no stale lock.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise refusal from None
            raise storage_error("lock", self._path, error) from error
        try:
            same = os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except FileNotFoundError:
            same = False
        if not same:  # deleted or replaced before the lock: draws would go to a nameless file
            raise refusal

    def _load(self, header: Mapping[str, Any]) -> None:
        with storage_errors("read", self._path):
            os.fchmod(self._descriptor, 0o600)
            with open(self._descriptor, "rb", closefd=False) as stream:
                data = stream.read()
        whole = data.rfind(b"\n") + 1  # what follows was torn by a crash before anyone saw it
        bodies = [self._check(n, line) for n, line in enumerate(data[:whole].splitlines(True), 1)]
        if not bodies:  # never a new journal: ``create`` leaves a whole header or no file
            raise damage_error(self._path, 1)
        refuse_other(self._path, bodies[0], header_of(header))
        self._replay(bodies[1:], lambda number: damage_error(self._path, number + 2))
        self._length = whole
        # A new line must not continue the torn one.
        if whole < len(data):
            self._truncate()
        # Lines of a killed process may be in the page cache only, and are about to be used.
        self._sync()
        with storage_errors("write", self._path):
            sync_folder(self._path.parent)

    def _check(self, number: int, line: bytes) -> dict[str, Any]:
        body, self._crc = parse_line(self._path, number, line, self._crc)
        return body

    def _try_room(self, key: str, room: int) -> None:
        """Check for room: write as many blanks as the line will have, and remove them."""
        blank, _ = line_of(entry_of(key, None, room), 0)
        # Blanks are written, not reserved with fallocate, which network file systems lack.
        self._write(b" " * len(blank))
        self._truncate()

    def _append(self, text: str) -> None:
        line, crc = line_of(text, self._crc)
        self._write(line)
        self._crc = crc
        self._length += len(line)

    @contextmanager
    def _or_failed(self) -> Iterator[None]:
        """Keep a failure: after it nothing more is drawn."""
        try:
            yield
        except OSError as error:
            self._failure = storage_error("write", self._path, error)
            raise self._failure from error

    def _write(self, data: bytes) -> None:
        with self._or_failed():
            try:
                written = 0
                while written < len(data):
                    written += os.write(self._descriptor, data[written:])
            except OSError:
                # A half line would make the next append unreadable.
                os.ftruncate(self._descriptor, self._length)
                raise

    def _truncate(self) -> None:
        with self._or_failed():
            os.ftruncate(self._descriptor, self._length)

    def _sync(self) -> None:
        entries = len(self._values)
        with self._or_failed():
            os.fsync(self._descriptor)
        self._durable = entries

    def _store(self, name: str, value: bytes) -> str:
        store_file(self._file(name), value)
        return digest_of(value)

    def _read_stored(self, name: str, digest: str) -> bytes:
        return stored_file(self._file(name), digest)

    def _delete(self, name: str, digest: str) -> None:
        file = self._file(name)
        with storage_errors("delete", file):
            file.unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._path.with_name(f"{self._path.name}.kept") / name
