"""The schema, as numbered steps that are only ever added to.

A released step is never edited: ledgers out there have already run it. Each step is plain DDL that
SQLite and PostgreSQL both take, and runs in the transaction that records it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from privsyn.errors import BudgetError
from privsyn.ledger.entries import stamp
from privsyn.ledger.tables import migrations

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
        " gaussian_budget DOUBLE PRECISION, period_gaussian_budget DOUBLE PRECISION, terms TEXT)",
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
        f" VALUES ('source', '{secrets.token_hex(32)}')",
        "CREATE TABLE ledger_vault (release_id TEXT PRIMARY KEY, key_id TEXT NOT NULL,"
        f" wrapped_key {binary} NOT NULL, nonce TEXT NOT NULL, shards INTEGER NOT NULL,"
        " made_at TEXT NOT NULL)",
        "CREATE TABLE ledger_draw (release_id TEXT NOT NULL, part TEXT NOT NULL,"
        f" number BIGINT NOT NULL, token BIGINT NOT NULL, body {binary} NOT NULL,"
        " PRIMARY KEY (release_id, part, number))",
    ):
        connection.exec_driver_sql(statement)


MIGRATIONS: Sequence[Callable[[Connection], None]] = (m001_first_tables,)
"""Step n brings a ledger from version n-1 to n."""


def version(connection: Connection) -> int:
    """Number of steps the database has run; 0 where there is no ledger in it.

    Raises:
        BudgetError: A newer privsyn wrote it.
    """
    if not sa.inspect(connection).has_table(migrations.name):
        return 0
    number: int = connection.execute(sa.select(sa.func.max(migrations.c.version))).scalar() or 0
    if number > len(MIGRATIONS):
        raise BudgetError(
            f"the ledger has schema version {number}; this privsyn knows up to {len(MIGRATIONS)}.",
            hint="Upgrade privsyn.",
        )
    return number


def migrate(connection: Connection) -> None:
    """Run the missing steps, inside a write transaction that is already open.

    On SQLite that transaction holds the write lock; on PostgreSQL an advisory lock is taken, so
    that of several processes one migrates and the others find it done.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
    if version(connection) == len(MIGRATIONS):  # a role that may not create tables comes this far
        return
    connection.exec_driver_sql(
        "CREATE TABLE IF NOT EXISTS ledger_migration"
        " (version INTEGER PRIMARY KEY, applied_at TEXT NOT NULL)"
    )
    for number in range(version(connection) + 1, len(MIGRATIONS) + 1):
        MIGRATIONS[number - 1](connection)
        connection.execute(
            sa.insert(migrations).values(version=number, applied_at=stamp(datetime.now(UTC)))
        )
