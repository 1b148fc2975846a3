"""Journals of private draws: each draw is stored before it is used, then replayed, never repeated.

``Draws`` is the interface and its logic; subclasses say where entries and files are. ``Journal``
(data/journal.py) has them in a file of this machine, ``LedgerJournal`` (vault/journal.py) in the
ledger's database and the vault, for releases that several machines draw.
"""

from __future__ import annotations

import base64
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from privsyn.data.journal_lines import entry_of
from privsyn.errors import PrivsynError, ReleaseLost

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
    def drawn(self) -> bool:
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

    def keep(self, key: str, make: Callable[[], bytes]) -> bytes:
        """A public value that later draws depend on: made once, then read back.

        On disk before it is returned, so that a resumed run votes on the same population. A value
        whose digest was not stored before a kill is made again.

        Raises:
            ReleaseLost: The file is gone or changed, and draws depend on it.
            StorageError: It cannot be written.
        """
        drawn = self._drawn
        key, name = kept_as(key)
        noted = "" if self.has(key) else self._store(name, make())
        [digest] = self.draw_all([(key, lambda: noted)])
        self._drawn = drawn  # nothing private came out
        return self._stored(name, digest)

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
        return self._stored(name, digest)

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
    def _stored(self, name: str, digest: str) -> bytes:
        """The content of a stored file, checked. ReleaseLost if it is gone or differs."""

    @abstractmethod
    def _delete(self, name: str, digest: str) -> None:
        """Delete a stored file; a missing one is fine."""


def kept_as(key: str) -> tuple[str, str]:
    """The key of the entry of a public value, and the name of its file."""
    return _KEPT + key, _name(key)


def _name(key: str, person: bytes = b"") -> str:
    return hashlib.blake2b(key.encode(), person=person, digest_size=12).hexdigest()
