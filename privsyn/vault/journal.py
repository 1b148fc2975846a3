"""The journal of a part that any of several machines may draw: encrypted, in the ledger's database.

It has the same entries as a ``Journal``'s file, chained by the same checksums, one row each. All
draws of one call are one commit, before they are used. Only one process writes: a commit locks the
part's lease and checks its token, so the commit of a process that lost the lease fails, and nobody
sees its draws.

The effect of a full disk must not depend on the draws. The length of a row depends on key and room
alone, and rows are encrypted, so a commit fails for lack of space independently of the draws.

Public values that draws depend on, and draws that are files, are encrypted in the vault. Their
names contain a keyed digest of their content, so a late write of a process that lost its lease
replaces nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from privsyn.data.draws import Draws, kept_as
from privsyn.data.journal_lines import damaged, header_of, line_of, parsed, refuse_other
from privsyn.errors import PrivsynError, ReleaseLost
from privsyn.ledger.draws import DrawRows, SealedDraws
from privsyn.ledger.leases import Lease
from privsyn.object_store import NoSuchObject
from privsyn.vault.vault import ReleaseVault

T = TypeVar("T")

_PAGE = 1024
"""Rows per page when the journal is only searched."""


class LedgerJournal(Draws):
    """A journal in the ledger's database.

    Args:
        rows: The journal's rows.
        vault: The release's objects in the vault, and its key.
        lease: The right to draw the part.
    """

    def __init__(self, rows: DrawRows, vault: ReleaseVault, lease: Lease) -> None:
        super().__init__(f"{lease.part} of {lease.release_id}")
        self._rows, self._vault, self._lease = rows, vault, lease
        self._crc = 0
        self._waiting: list[bytes] = []
        self._waiting_keys: list[str] = []
        self._next = 0

    @classmethod
    def create(
        cls, draws: SealedDraws, vault: ReleaseVault, part: str, header: Mapping[str, Any]
    ) -> None:
        """Make an empty journal, durably. Does nothing if it exists.

        Raises:
            VerificationError: It exists with another header, or is damaged.
        """
        expected = header_of(header)
        line, _ = line_of(json.dumps(expected, sort_keys=True), 0)
        made = draws.create(vault.release_id, part, vault.key.seal_entry(part, 0, line))
        where = f"{part} of {vault.release_id}"
        first, _ = parsed(where, 1, vault.key.open_entry(part, 0, made), 0)
        refuse_other(where, first, expected)

    @classmethod
    def open(
        cls, draws: SealedDraws, vault: ReleaseVault, lease: Lease, header: Mapping[str, Any]
    ) -> LedgerJournal:
        """Open the journal of the lease's part. Never makes one.

        Raises:
            ReleaseLost: The journal is gone, and the draws with it.
            LeaseHeld: Another process has taken the lease.
            VerificationError: The header differs, or an entry is damaged or missing.
        """
        journal = cls(draws.open(lease), vault, lease)
        try:
            journal._load(journal._rows.load(), header)
        except BaseException:
            journal.close()
            raise
        return journal

    def draw_all(
        self, items: Sequence[tuple[str, Callable[[], T]]], *, room: int | None = None
    ) -> list[T]:
        """As ``Draws.draw_all``; the draws of a failed call are stored nowhere."""
        try:
            return super().draw_all(items, room=room)
        except BaseException as error:
            if self._waiting:
                for text in self._waiting_keys:
                    # They were not committed: replaying one would return a draw that the next
                    # attempt does not see.
                    self._values.pop(text, None)
                self._waiting, self._waiting_keys = [], []
                if self._failure is None:
                    self._failure = (
                        error
                        if isinstance(error, PrivsynError)
                        else ReleaseLost(
                            f"journal {self.where}: a step ended before it was written."
                        )
                    )
            raise

    def close(self) -> None:
        """Close the connection. Closing twice is fine."""
        self._rows.close()

    def _load(self, sealed: list[bytes], header: Mapping[str, Any]) -> None:
        bodies = self._opened(sealed)
        if not bodies:
            raise ReleaseLost(
                f"journal {self.where} is gone; its draws cannot be replayed.",
                hint="Restore the ledger's database, or mark the release as lost: its cost stays "
                "charged.",
            )
        refuse_other(self.where, bodies[0], header_of(header))
        self._replay(bodies[1:], lambda number: damaged(self.where, number + 2))
        self._next, self._durable = len(bodies), len(bodies) - 1

    def _opened(self, sealed: list[bytes]) -> list[dict[str, Any]]:
        bodies = []
        for number, body in enumerate(sealed):
            line = self._vault.key.open_entry(self._lease.part, number, body)
            value, self._crc = parsed(self.where, number + 1, line, self._crc)
            bodies.append(value)
        return bodies

    def _try_room(self, key: str, room: int) -> None:
        self._lease.check()  # before the draw: without the lease its result would be discarded

    def _append(self, text: str) -> None:
        line, self._crc = line_of(text, self._crc)
        number = self._next + len(self._waiting)
        self._waiting.append(self._vault.key.seal_entry(self._lease.part, number, line))
        self._waiting_keys.append(json.loads(text)["k"])

    def _sync(self) -> None:
        try:
            self._rows.append(self._next, self._waiting)
        except PrivsynError as error:
            self._failure = error
            raise
        self._next += len(self._waiting)
        self._waiting, self._waiting_keys = [], []
        self._durable = self._next - 1

    def _store(self, name: str, value: bytes) -> str:
        digest = self._vault.key.digest(value)
        self._vault.put_bytes(self._object(name, digest), value)
        return digest

    def _stored(self, name: str, digest: str) -> bytes:
        try:
            content = self._vault.get_bytes(self._object(name, digest))
        except NoSuchObject:
            raise ReleaseLost(
                f"journal {self.where}: one of its files is gone from the vault; its release "
                "cannot be resumed.",
                hint="Restore the object, or mark the release as lost: its cost stays charged.",
            ) from None
        return content

    def _delete(self, name: str, digest: str) -> None:
        self._vault.delete(self._object(name, digest))

    def _object(self, name: str, digest: str) -> str:
        return object_name(self._lease.part, name, digest)


def entries(draws: SealedDraws, vault: ReleaseVault, part: str) -> int:
    """Number of stored entries of a part, read without its lease."""
    return max(0, sum(1 for _ in _rows(draws, vault, part)) - 1)


def kept(draws: SealedDraws, vault: ReleaseVault, part: str, key: str) -> bytes | None:
    """A public value in a part's journal, read without its lease; None if it is not there yet."""
    entry, name = kept_as(key)
    crc = 0
    for number, body in enumerate(_rows(draws, vault, part)):
        line = vault.key.open_entry(part, number, body)
        value, crc = parsed(f"{part} of {vault.release_id}", number + 1, line, crc)
        if value.get("k") == entry:
            return vault.get_bytes(object_name(part, name, value["v"]))
    return None


def _rows(draws: SealedDraws, vault: ReleaseVault, part: str) -> Iterator[bytes]:
    """The encrypted rows of a part, page by page: a part may have one row per token."""
    start = 0
    while page := draws.rows(vault.release_id, part, start, _PAGE):
        yield from page
        start += len(page)


def object_name(part: str, name: str, digest: str) -> str:
    """Name of a journal's file among the release's objects."""
    return f"journal-{part}/{name}-{digest}"
