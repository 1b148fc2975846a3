"""The ledger's schema: its tables, and the numbered steps that create them.

A released step is never edited: ledgers out there have already run it. Each step is plain DDL that
SQLite and PostgreSQL both take, and runs in the transaction that records it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
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
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)

history = sa.Table(  # append-only: the truth; accounts and entries are its newest values
    "ledger_history",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("release_id", sa.Text),
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
    sa.Column("period_order", sa.Double),
    sa.Column("period_budget", sa.Double),
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("partition_key", sa.Text, nullable=False),  # hex; secret
    sa.Column("opened_at", sa.Text, nullable=False),
    sa.Column("renyi", sa.Double),  # shares of delta; null where that is 0
    sa.Column("gaussian", sa.Double),
    sa.Column("repeats", sa.Double),
    sa.Column("chances", sa.Double),
    sa.Column("gaussian_budget", sa.Double),
    sa.Column("period_gaussian_budget", sa.Double),
    sa.Column("rooms", sa.Text),  # canonical JSON; null: no rooms
    sa.Column("terms", sa.Text),  # canonical JSON: its policy, limits and approvals
)

entries = sa.Table(
    "ledger_entry",
    metadata,
    sa.Column("release_id", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False, unique=True),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("method", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("event", sa.Text, nullable=False),  # canonical JSON
    sa.Column("loss", sa.Double, nullable=False),
    sa.Column("period_loss", sa.Double),
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
    sa.Column("fingerprint", sa.Text, nullable=False),
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

LOCK = 0x7072_6976_7379_6E00  # "privsyn": the advisory lock of PostgreSQL migrations


def m001_first_tables(connection: Connection) -> None:
    """All tables of the first release."""
    binary = "BYTEA" if connection.dialect.name == "postgresql" else "BLOB"
    for statement in (
        "CREATE TABLE ledger_head (id INTEGER PRIMARY KEY CHECK (id = 1), seq BIGINT NOT NULL,"
        " hash TEXT NOT NULL)",
        f"INSERT INTO ledger_head (id, seq, hash) VALUES (1, 0, '{'0' * 64}')",  # noqa: S608
        "CREATE TABLE ledger_history (seq BIGINT PRIMARY KEY, at TEXT NOT NULL,"
        " account TEXT NOT NULL, release_id TEXT, change TEXT NOT NULL, body TEXT NOT NULL,"
        " previous TEXT NOT NULL, hash TEXT NOT NULL)",
        "CREATE INDEX ledger_history_release ON ledger_history (release_id)",
        "CREATE TABLE ledger_account (name TEXT PRIMARY KEY, dataset TEXT NOT NULL UNIQUE,"
        " unit TEXT NOT NULL, unit_column TEXT, adjacency TEXT NOT NULL,"
        " epsilon DOUBLE PRECISION NOT NULL, delta DOUBLE PRECISION NOT NULL,"
        " renyi_order DOUBLE PRECISION,"
        " budget DOUBLE PRECISION NOT NULL, period_days INTEGER, period_epsilon DOUBLE PRECISION,"
        " period_order DOUBLE PRECISION, period_budget DOUBLE PRECISION, key_id TEXT NOT NULL,"
        " partition_key TEXT NOT NULL, opened_at TEXT NOT NULL,"
        " renyi DOUBLE PRECISION, gaussian DOUBLE PRECISION, repeats DOUBLE PRECISION,"
        " chances DOUBLE PRECISION,"
        " gaussian_budget DOUBLE PRECISION, period_gaussian_budget DOUBLE PRECISION,"
        " rooms TEXT, terms TEXT)",
        "CREATE TABLE ledger_entry (release_id TEXT PRIMARY KEY, number BIGINT NOT NULL UNIQUE,"
        " account TEXT NOT NULL REFERENCES ledger_account (name), method TEXT NOT NULL,"
        " state TEXT NOT NULL"
        " CHECK (state IN ('RESERVED', 'BEGUN', 'COMMITTED', 'LOST', 'VOID')),"
        " event TEXT NOT NULL, loss DOUBLE PRECISION NOT NULL, period_loss DOUBLE PRECISION,"
        " epsilon DOUBLE PRECISION NOT NULL, delta DOUBLE PRECISION NOT NULL,"
        " reserved_at TEXT NOT NULL, changed_at TEXT NOT NULL, scratch TEXT, host TEXT,"
        " nonce TEXT, artifact_sha256 TEXT, certificate_sha256 TEXT, reason TEXT,"
        " reserved_by TEXT, mu_squared DOUBLE PRECISION)",
        "CREATE INDEX ledger_entry_account ON ledger_entry (account)",
        "CREATE TABLE ledger_lease (release_id TEXT NOT NULL, part TEXT NOT NULL,"
        " token BIGINT NOT NULL, machine TEXT, host TEXT, pid BIGINT, started BIGINT,"
        " expires_at TEXT NOT NULL, steps BIGINT NOT NULL DEFAULT 0,"
        " PRIMARY KEY (release_id, part))",
        "CREATE TABLE ledger_refusal (number BIGINT PRIMARY KEY, at TEXT NOT NULL,"
        " account TEXT NOT NULL, release_id TEXT, method TEXT, epsilon DOUBLE PRECISION,"
        " delta DOUBLE PRECISION, error TEXT NOT NULL, message TEXT NOT NULL, refused_by TEXT)",
        "CREATE TABLE ledger_source (release_id TEXT PRIMARY KEY, account TEXT NOT NULL,"
        " version TEXT NOT NULL, fingerprint TEXT NOT NULL, noted_at TEXT NOT NULL)",
        "CREATE INDEX ledger_source_fingerprint ON ledger_source (fingerprint)",
        "CREATE TABLE ledger_secret (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
        "INSERT INTO ledger_secret (name, value)"  # noqa: S608
        f" VALUES ('source', '{token_hex(32)}')",
        "CREATE TABLE ledger_vault (release_id TEXT PRIMARY KEY, key_id TEXT NOT NULL,"
        f" wrapped_key {binary} NOT NULL, nonce TEXT NOT NULL, shards INTEGER NOT NULL,"
        " made_at TEXT NOT NULL)",
        "CREATE TABLE ledger_draw (release_id TEXT NOT NULL, part TEXT NOT NULL,"
        f" number BIGINT NOT NULL, token BIGINT NOT NULL, body {binary} NOT NULL,"
        " PRIMARY KEY (release_id, part, number))",
    ):
        connection.exec_driver_sql(statement)


MIGRATIONS: Sequence[Callable[[Connection], None]] = (m001_first_tables,)
FIRST = 10
"""Number of the first step, and each later one is one more. Builds from before the first release
gave the numbers 1 to 5 to other tables."""


def latest() -> int:
    """Number of the last step."""
    return FIRST + len(MIGRATIONS) - 1


def version(connection: Connection) -> int:
    """Number of the last step the database has run; 0 where there is no ledger in it.

    Raises:
        BudgetError: Another version or build wrote it, whose tables this one does not know.
    """
    if not sa.inspect(connection).has_table(migrations.name):
        return 0
    number: int = connection.execute(sa.select(sa.func.max(migrations.c.version))).scalar() or 0
    if number and not FIRST <= number <= latest():
        newer = number >= FIRST
        raise BudgetError(
            f"the ledger has schema version {number}; this privsyn has version {latest()}.",
            hint="A newer version wrote it, or a build that was never released: use that one."
            if newer
            else "A build from before the first release wrote it: use that one.",
        )
    return number


def migrate(connection: Connection) -> None:
    """Run the missing steps, inside a write transaction that is already open.

    On SQLite that transaction holds the write lock; on PostgreSQL an advisory lock is taken, so
    that of several processes one migrates and the others find it done.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
    before = version(connection)
    if before == latest():  # a role that may not create tables comes this far
        return
    connection.exec_driver_sql(
        "CREATE TABLE IF NOT EXISTS ledger_migration"
        " (version INTEGER PRIMARY KEY, applied_at TEXT NOT NULL)"
    )
    for number in range(max(before + 1, FIRST), latest() + 1):
        MIGRATIONS[number - FIRST](connection)
        connection.execute(
            sa.insert(migrations).values(version=number, applied_at=stamp(datetime.now(UTC)))
        )


TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


def stamp(at: datetime) -> str:
    """A time as the ledger writes it: UTC, of fixed width, so that text order is time order."""
    return at.astimezone(UTC).strftime(TIME)


def moment(text: str) -> datetime:
    """The inverse of ``stamp``."""
    return datetime.strptime(text, TIME).replace(tzinfo=UTC)
