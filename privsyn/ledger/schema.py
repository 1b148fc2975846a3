"""The ledger's schema: its tables, and the version that they have.

A change of a released table gets a new number and a step that takes older ledgers there.
"""

from __future__ import annotations

from secrets import token_hex

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from privsyn.errors import BudgetError

metadata = sa.MetaData()

migrations = sa.Table(
    "ledger_migration",
    metadata,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("applied_at", sa.Text, nullable=False),
)

head = sa.Table(  # one row: every write locks it first, so writes happen one after the other
    "ledger_head",
    metadata,
    sa.Column(
        "id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True, autoincrement=False
    ),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)

history = sa.Table(  # append-only: the truth; accounts and entries are its newest values
    "ledger_history",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("release_id", sa.Text, index=True),
    sa.Column("change", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),  # canonical JSON
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)

accounts = sa.Table(
    "ledger_account",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("dataset", sa.Text, nullable=False, unique=True),
    sa.Column("unit", sa.Text, nullable=False),
    sa.Column("unit_column", sa.Text),  # null: every row is its own unit
    sa.Column("adjacency", sa.Text, nullable=False),
    sa.Column("epsilon", sa.Double, nullable=False),
    sa.Column("delta", sa.Double, nullable=False),
    sa.Column("renyi_order", sa.Double),  # null where delta is 0
    sa.Column("budget", sa.Double, nullable=False),
    sa.Column("period_days", sa.Integer),
    sa.Column("period_epsilon", sa.Double),
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("partition_key", sa.Text, nullable=False),  # hex; secret
    sa.Column("opened_at", sa.Text, nullable=False),
    sa.Column("split", sa.Text),  # canonical JSON: shares of delta; null where that is 0
    sa.Column("gaussian_budget", sa.Double),
    sa.Column("rooms", sa.Text),  # canonical JSON; null: no rooms
    sa.Column("terms", sa.Text),  # canonical JSON: its policy, limits and approvals
)

entries = sa.Table(
    "ledger_entry",
    metadata,
    sa.Column("release_id", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False, unique=True),
    sa.Column("account", sa.ForeignKey(accounts.c.name), nullable=False, index=True),
    sa.Column("method", sa.Text, nullable=False),
    sa.Column(
        "state",
        sa.Text,
        sa.CheckConstraint("state IN ('RESERVED', 'BEGUN', 'COMMITTED', 'LOST', 'VOID')"),
        nullable=False,
    ),
    sa.Column("event", sa.Text, nullable=False),  # canonical JSON
    sa.Column("loss", sa.Double, nullable=False),
    sa.Column("epsilon", sa.Double, nullable=False),
    sa.Column("delta", sa.Double, nullable=False),
    sa.Column("reserved_at", sa.Text, nullable=False),
    sa.Column("changed_at", sa.Text, nullable=False),
    sa.Column("scratch", sa.Text),
    sa.Column("host", sa.Text),
    sa.Column("nonce", sa.Text),
    sa.Column("artifact_sha256", sa.Text),
    sa.Column("certificate_sha256", sa.Text),
    sa.Column("reason", sa.Text),
    sa.Column("reserved_by", sa.Text),  # canonical JSON: user, driver, DAG, run
    sa.Column("mu_squared", sa.Double),
)

leases = sa.Table(  # a row stays after its release, so that tokens only ever grow
    "ledger_lease",
    metadata,
    sa.Column("release_id", sa.Text, primary_key=True),
    sa.Column("part", sa.Text, primary_key=True),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("machine", sa.Text),  # null: nobody holds it
    sa.Column("host", sa.Text),
    sa.Column("pid", sa.BigInteger),
    sa.Column("started", sa.BigInteger),
    sa.Column("expires_at", sa.Text, nullable=False),
    sa.Column("steps", sa.BigInteger, nullable=False),  # draws on file when it was last told
)

refusals = sa.Table(  # beside the chain: what is refused must not shape what is certified
    "ledger_refusal",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("release_id", sa.Text),
    sa.Column("method", sa.Text),
    sa.Column("epsilon", sa.Double),
    sa.Column("delta", sa.Double),
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("refused_by", sa.Text),
)

sources = sa.Table(  # internal, and beside the chain: hashes of that are published
    "ledger_source",
    metadata,
    sa.Column("release_id", sa.Text, primary_key=True),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False, index=True),
    sa.Column("noted_at", sa.Text, nullable=False),
)

secrets = sa.Table(
    "ledger_secret",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),  # hex
)

vault = sa.Table(  # beside the chain: gone with the end of its release, and with it all it sealed
    "ledger_vault",
    metadata,
    sa.Column("release_id", sa.Text, primary_key=True),
    sa.Column("key_id", sa.Text, nullable=False),  # of the deployment's key
    sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
    sa.Column("nonce", sa.Text, nullable=False),
    sa.Column("shards", sa.Integer, nullable=False),
    sa.Column("made_at", sa.Text, nullable=False),
)

draws = sa.Table(  # of releases in the vault; number 0 of a part is its journal's header
    "ledger_draw",
    metadata,
    sa.Column("release_id", sa.Text, primary_key=True),
    sa.Column("part", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("token", sa.BigInteger, nullable=False),  # of the lease it was drawn under
    sa.Column("body", sa.LargeBinary, nullable=False),  # sealed
)

VERSION = 11
"""Of the tables. Builds from before the first release gave smaller numbers to others."""

LOCK = 0x7072_6976_7379_6E00  # "privsyn": the advisory lock under which PostgreSQL's are made


def is_there(connection: Connection) -> bool:
    """Whether the database holds a ledger.

    Raises:
        BudgetError: Another version or build wrote it, whose tables this one does not know.
    """
    if not sa.inspect(connection).has_table(migrations.name):
        return False
    number = connection.execute(sa.select(sa.func.max(migrations.c.version))).scalar()
    if number not in (None, VERSION):
        raise BudgetError(
            f"the ledger has schema version {number}; this privsyn has version {VERSION}.",
            hint="A newer version wrote it, or a build that was never released: use that one.",
        )
    return number is not None


def create(connection: Connection, at: str) -> None:
    """Create the tables of a new ledger, inside a write transaction that is already open.

    On SQLite that transaction holds the write lock; on PostgreSQL an advisory lock is taken, so
    that of several processes one creates them and the others find them.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
    if is_there(connection):  # a role that may not create tables comes this far
        return
    metadata.create_all(connection)
    connection.execute(sa.insert(head).values(id=1, seq=0, hash="0" * 64))
    connection.execute(sa.insert(secrets).values(name="source", value=token_hex(32)))
    connection.execute(sa.insert(migrations).values(version=VERSION, applied_at=at))
