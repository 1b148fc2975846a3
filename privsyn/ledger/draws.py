"""Draws of a release whose parts several machines draw: rows, sealed by whoever draws them.

A row is written under the part's lease, in a transaction that holds the lease's row and finds its
token there: of two processes that believe that they hold a part, the overtaken one writes nothing
more. With the end of a release its rows go, and the key that can open them, in the transaction that
ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from privsyn.errors import VerificationError
from privsyn.ledger import leases, sa, schema
from privsyn.ledger.database import Database, OpenConnection
from privsyn.ledger.entries import State, check_state, entry_row, stamp
from privsyn.ledger.leases import Lease


@dataclass(frozen=True)
class VaultRow:
    """What pins a release to its place in the vault, from before it begins until it ends.

    Attributes:
        key_id: Which key of the deployment wraps the release's.
        wrapped_key: The release's key, wrapped.
        nonce: Of the run; its objects lie under it.
        shards: Parts the run was started with.
    """

    key_id: str
    wrapped_key: bytes = field(repr=False)
    nonce: str
    shards: int


class DrawRows:
    """The rows of one part, for the holder of its lease."""

    def __init__(self, database: Database, lease: Lease) -> None:
        self._connection = OpenConnection(database)
        self._lease = lease

    def load(self) -> list[bytes]:
        """All rows, oldest first: what an overtaken holder wrote, too.

        Raises:
            LeaseHeld: The lease was overtaken.
            VerificationError: One is missing.
        """
        with self._connection.write() as connection:
            self._check(connection)
            return _rows(connection, self._lease.release_id, self._lease.part)

    def append(self, number: int, bodies: Sequence[bytes]) -> None:
        """Write rows, durably, all or none; ``number`` is the first one's.

        Raises:
            LeaseHeld: The lease was overtaken: nothing was written.
            ReleaseLost: The release was given up: nothing was written.
            LedgerUnavailable: Whether they were written is not known. Load them to see.
        """
        with self._connection.write() as connection:
            self._check(connection)
            lease = {name: getattr(self._lease, name) for name in ("release_id", "part", "token")}
            rows = [lease | {"number": n, "body": body} for n, body in enumerate(bodies, number)]
            connection.execute(sa.insert(schema.draws), rows)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _check(self, connection: sa.Connection) -> None:
        """Hold the lease's row: who takes the part over, or ends the release, waits for us."""
        # Locks the row: a takeover or an ending must not slip between the check and the write.
        leases.check(connection, self._lease, hold=True)
        check_state(entry_row(connection, self._lease.release_id), State.BEGUN)


class SealedDraws:
    """The sealed draws of a ledger, and what pins a release to its place in the vault."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def pin(self, release_id: str, row: VaultRow) -> VaultRow:
        """Pin a reserved release to a place in a vault, and keep its wrapped key, once.

        Returns:
            What stands: of two processes that start at once one wins, and both get its row.

        Raises:
            BudgetError: It is not pinned, and has begun or ended.
        """
        with self._database.write() as connection:
            known = _find_pin(connection, release_id)
            if known is not None:
                return known
            # After it began its draws may lie elsewhere: a second place would draw them again.
            check_state(entry_row(connection, release_id), State.RESERVED)
            connection.execute(
                sa.insert(schema.vault).values(
                    release_id=release_id, made_at=stamp(self._database.clock()), **asdict(row)
                )
            )
            return row

    def find_pin(self, release_id: str) -> VaultRow | None:
        """What pins a release to a vault; None where nothing does, or it has ended."""
        with self._database.read() as connection:
            return _find_pin(connection, release_id)

    def create(self, release_id: str, part: str, header: bytes) -> bytes:
        """The sealed header of a part's journal: ``header``, unless there is one."""
        with self._database.write() as connection:
            check_state(entry_row(connection, release_id), State.BEGUN)
            bodies = _rows(connection, release_id, part)
            if not bodies:
                row = {"release_id": release_id, "part": part, "number": 0, "token": 0}
                connection.execute(sa.insert(schema.draws).values(row | {"body": header}))
            return bodies[0] if bodies else header

    def rows(
        self, release_id: str, part: str, start: int = 0, most: int | None = None
    ) -> list[bytes]:
        """The sealed rows of a part, its header first; none where it has no journal here.

        Those from number ``start`` on, ``most`` at most.
        """
        with self._database.read() as connection:
            return _rows(connection, release_id, part, start, most)

    def open(self, lease: Lease) -> DrawRows:
        """The rows of a part, to be read and added to by the holder of its lease."""
        return DrawRows(self._database, lease)


def _rows(
    connection: sa.Connection, release_id: str, part: str, start: int = 0, most: int | None = None
) -> list[bytes]:
    """The rows of a part, oldest first: from a number on, so many at most.

    Raises:
        VerificationError: One is missing.
    """
    drawn = schema.draws.c
    query = (
        sa.select(drawn.number, drawn.body)
        .where(drawn.release_id == release_id, drawn.part == part, drawn.number >= start)
        .order_by(drawn.number)
        .limit(most)
    )
    rows = [(row.number, bytes(row.body)) for row in connection.execute(query)]
    # A gap would replay later draws at an earlier place, and draw anew what was used.
    if [number for number, _ in rows] != list(range(start, start + len(rows))):
        raise VerificationError(
            f"release {release_id}, {part}: a draw is missing from the ledger's database.",
            hint="Restore the database from its backup, or give the release up: "
            f"privsyn ledger lose {release_id}",
        )
    return [body for _, body in rows]


def _find_pin(connection: sa.Connection, release_id: str) -> VaultRow | None:
    """What pins a release to the vault, if anything does."""
    table = schema.vault
    query = sa.select(table).where(table.c.release_id == release_id)
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        return None
    return VaultRow(row["key_id"], bytes(row["wrapped_key"]), row["nonce"], row["shards"])
