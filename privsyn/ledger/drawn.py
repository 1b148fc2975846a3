"""The drawing half of a release in the ledger: where its draws lie, and who may draw a part."""

from __future__ import annotations

from privsyn.ledger import draws, leases
from privsyn.ledger.checks import check_name, check_state, entry_row
from privsyn.ledger.draws import DrawRows, VaultRow
from privsyn.ledger.entries import State
from privsyn.ledger.governance import GovernedLedger
from privsyn.ledger.leases import Lease

LEASE_TTL = 60.0
"""Seconds a lease lives without renewal."""


class DrawnLedger(GovernedLedger):
    """A ledger that keeps draws of releases, and lets one process at a time draw a part of one."""

    # Vault

    def pin(self, release_id: str, row: VaultRow) -> VaultRow:
        """Pin a reserved release to a place in a vault, and keep its wrapped key, once.

        Returns:
            What stands: of two processes that start at once one wins, and both get its row.

        Raises:
            BudgetError: It is not pinned, and has begun or ended.
        """
        with self._write() as connection:
            return draws.pin(connection, release_id, row, self._clock())

    def pinned(self, release_id: str) -> VaultRow | None:
        """What pins a release to a vault; None where nothing does, or it has ended."""
        with self._database.read() as connection:
            return draws.pinned(connection, release_id) if connection else None

    def create_draws(self, release_id: str, part: str, header: bytes) -> bytes:
        """The sealed header of a part's journal: ``header``, unless there is one."""
        with self._write() as connection:
            return draws.create(connection, release_id, part, header)

    def draws(
        self, release_id: str, part: str, start: int = 0, most: int | None = None
    ) -> list[bytes]:
        """The sealed rows of a part, its header first; none where it has no journal here.

        Those from number ``start`` on, ``most`` at most.
        """
        with self._database.read() as connection:
            if connection is None:
                return []
            return draws.rows_of(connection, release_id, part, start, most)

    def draw_rows(self, lease: Lease) -> DrawRows:
        """The rows of a part, to be read and added to by the holder of its lease."""
        return DrawRows(self._database, lease)

    # Leases

    def acquire(self, release_id: str, part: str, *, ttl: float = LEASE_TTL) -> Lease:
        """The right to draw a part of a begun release; use it as a context manager.

        Args:
            release_id: A begun release.
            part: ``partition``, ``shard-3``, ...
            ttl: Seconds it lives without renewal. In a ``with`` block a thread renews it.

        Raises:
            LeaseHeld: Another process draws the part. One that has died on this machine does not
                count; one elsewhere counts until its lease runs out.
            ReleaseLost: The release is lost.
            BudgetError: It has not begun, or is committed.
        """
        check_name("part", part)
        started = leases.elapsed()
        with self._write() as connection:
            check_state(entry_row(connection, release_id), State.BEGUN)
            token = leases.take(connection, release_id, part, ttl, self._clock())
        return Lease(release_id, part, token, ttl, self.renew, self.release_lease, started)

    def check_alone(self, release_id: str) -> None:
        """Refuse where another live process draws a part of a release. Holds nothing.

        Raises:
            LeaseHeld: Names the process and the part.
        """
        with self._database.read() as connection:
            if connection is not None:
                leases.check_alone(connection, release_id, self._clock(), but_mine=True)

    def renew(self, lease: Lease) -> None:
        """Let a lease live on.

        Raises:
            LeaseHeld: It was overtaken.
            ReleaseLost: The release was given up meanwhile.
        """
        started = leases.elapsed()
        with self._write() as connection:
            entry = entry_row(connection, lease.release_id)
            if entry.state is not State.COMMITTED:  # the holder itself may have committed by now
                check_state(entry, State.BEGUN)
            leases.extend(connection, lease, self._clock())
        lease.confirm(started)

    def release_lease(self, lease: Lease) -> None:
        """Give a lease back; nothing happens if it was overtaken."""
        with self._write() as connection:
            leases.free(connection, lease)
