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
too. ``keep`` writes such values to files beside the journal, each before it is used, and the
journal holds their digests. ``draw_file`` does the same for a draw that is too large for a line,
such as the state of a model in training. These files have mode 0600 in a folder of mode 0700.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from privsyn.data.artifacts import private_opener, storage_error, sync_folder
from privsyn.data.draws import Draws, kept_as
from privsyn.data.journal_lines import (
    damaged,
    digest_of,
    entry_of,
    header_of,
    line_of,
    opener,
    parsed,
    refuse_other,
    store_file,
    stored_file,
)
from privsyn.errors import LeaseHeld, ReleaseLost


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
        # A new line must not continue the torn one.
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
        # Blanks are written, not reserved with fallocate, which network file systems lack.
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
            # A half line would make the next append unreadable.
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
