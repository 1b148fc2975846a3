"""Connections, transactions and their failures. SQLite and PostgreSQL behave alike above this file.

Writes are serialized: SQLite by ``BEGIN IMMEDIATE`` (its default deferred transaction lets several
processes read the same balance and all spend it), PostgreSQL by a row lock on the chain's head.
Waiting is bounded, then ``LedgerUnavailable``.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from privsyn.errors import (
    BudgetError,
    ConfigError,
    DataError,
    LedgerUnavailable,
    PrivsynError,
    ReleaseLost,
    VerificationError,
)
from privsyn.ledger import chain, entries, sa, schema
from privsyn.ledger.entries import ENDED, Change, stamp

CONNECT_SECONDS = 5
SILENT: dict[str, int] = {
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""When a connection counts as broken whose server does not answer the kernel: after about a minute.

In seconds, the last in milliseconds. The system's default is hours: a firewall or a balancer that
drops an idle connection says nothing, and a task would hang on it.
"""

TIMEOUT = 15.0
"""Longest wait for another process's write, in seconds."""


def utc_now() -> datetime:
    """The system's clock."""
    return datetime.now(UTC)


class Database:
    """Where a ledger lives. Constructing one touches nothing.

    Args:
        url: SQLAlchemy URL: ``sqlite:///path`` or ``postgresql://user@host/name``.
        timeout: Longest wait for a lock, in seconds.
        clock: Time of entries and leases.
        requester: Whoever asks, for the record: user, driver, and of Airflow DAG and run.

    Raises:
        ConfigError: Not such a URL, or PostgreSQL without its driver.
    """

    def __init__(
        self,
        url: str,
        timeout: float = TIMEOUT,
        clock: Callable[[], datetime] = utc_now,
        requester: Mapping[str, str] | None = None,
    ) -> None:
        self._timeout = timeout
        self.clock = clock
        self.user = (requester or {}).get("user")
        self._requester = dict(requester or {})
        self._ready = False
        self._seen = False  # whether the file was there once: gone since then, it is lost
        self._path: Path | None = None
        self._password: str | None = None
        if plain := _PLAIN_FILE.fullmatch(url):
            self.where, self._path = url, Path(os.path.abspath(plain[1]))
            return
        parsed = _parse(url)
        self.where, self._password = _describe(parsed), parsed.password
        if parsed.get_backend_name() == "sqlite":
            self._path = Path(os.path.abspath(parsed.database or ""))
        else:
            self._engine = self._postgres(parsed)

    @functools.cached_property
    def _engine(self) -> sa.Engine:
        """Of a SQLite file: made when it is there, so that a plan before it needs no SQLAlchemy."""
        engine = sa.create_engine(
            "sqlite://", creator=self._open_sqlite, poolclass=sa.pool.NullPool
        )
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _postgres(self, url: sa.URL) -> sa.Engine:
        silent = {name: value for name, value in SILENT.items() if name not in url.query}
        try:
            engine = sa.create_engine(
                url,
                # no pool: a connection that survives a fork of an Airflow task breaks both
                poolclass=sa.pool.NullPool,
                # after waiting for the head's lock a statement must see what the holder wrote
                isolation_level="READ COMMITTED",
                # utf8: of a database without an encoding the driver else hands out bytes
                connect_args={"connect_timeout": CONNECT_SECONDS, "client_encoding": "utf8"}
                | silent,
            )
        except (ImportError, sa.exc.NoSuchModuleError):
            raise ConfigError(
                f"services.ledger={self.where}: driver {url.drivername!r} is missing.",
                hint="Run: pip install 'privsyn[postgres]'.",
            ) from None
        sa.event.listen(engine, "begin", self._begin_postgres)
        return engine

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction that sees one state of the ledger; an empty one where there is none yet."""
        with self._translate_errors():
            there = not self.missing()
            if there and not self._ready:
                with self._engine.connect() as connection, connection.begin():
                    there = self._ready = schema.is_there(connection)
            engine = self._engine if there else _empty()
            # A SQLite transaction sees one state by itself. PostgreSQL needs the level for it.
            if engine.dialect.name == "postgresql":
                engine = engine.execution_options(isolation_level="REPEATABLE READ")
            with engine.connect() as connection, connection.begin():
                yield connection

    @contextmanager
    def write(self, *, create: bool = False) -> Iterator[sa.Connection]:
        """A durable transaction that locks the chain's head, rolled back on any exception.

        Args:
            create: Whether a SQLite file that was never there is made. One that has gone since
                never is: an empty ledger in its place would have nothing spent.
        """
        with self._translate_errors():
            if create and self.missing():
                self._create_file()
            with self._connect() as connection, connection.begin():
                chain.lock(connection)
                yield connection

    def append(
        self,
        connection: sa.Connection,
        account: str,
        release_id: str | None,
        change: str,
        body: Mapping[str, Any],
    ) -> Change:
        """Add a row to the history, with whoever asks; a release that ends loses its sealed draws.

        In one transaction: draws whose key outlived their release could still be opened.

        Raises:
            LedgerUnavailable: This machine's clock is ahead of PostgreSQL's. Nothing is written.
        """
        _refuse_ahead(connection)
        who = self.requester(connection)
        by = {"by": who} if who else {}
        row = chain.append(connection, self.clock(), account, release_id, change, {**body, **by})
        if release_id is not None and change in ENDED:
            _destroy_draws(connection, release_id)
        return row

    def requester(self, connection: sa.Connection) -> dict[str, str]:
        """Who asks, as the driver says, and as whom the database has let it in, where it has users.

        The second does not hang on what a process says of itself.
        """
        return self._requester | session_user(connection)

    @contextmanager
    def record_refusals(
        self, release_id: str | None = None, account: str = "", **request: Any
    ) -> Iterator[None]:
        """Note refusals inside the block in their table, if the ledger can be written."""
        try:
            yield
        except (BudgetError, DataError, VerificationError) as error:
            # Retries would fill the table, and a lost release has its own row in the chain.
            if not error.retryable and not isinstance(error, ReleaseLost):
                # A ledger that cannot be written still refuses.
                with suppress(PrivsynError):
                    self._note_refusal(
                        error, {"release_id": release_id, "account": account, **request}
                    )
            raise

    def _note_refusal(self, error: PrivsynError, request: dict[str, Any]) -> None:
        with self.write() as connection:
            entry = entries.find_entry(connection, request["release_id"] or "")
            if entry is not None:
                for name in ("account", "method", "epsilon", "delta"):
                    request[name] = request.get(name) or getattr(entry, name)
            # Under the head's lock, so max + 1 is free.
            number = connection.execute(sa.select(sa.func.max(schema.refusals.c.number))).scalar()
            connection.execute(
                sa.insert(schema.refusals).values(
                    number=(number or 0) + 1,
                    at=stamp(self.clock()),
                    error=type(error).__name__,
                    message=str(error)[: chain.LONGEST_REASON],
                    refused_by=entries.canonical(who)
                    if (who := self.requester(connection))
                    else None,
                    **request,
                )
            )

    def _connect(self) -> sa.Connection:
        """A connection to write with, whose ledger has its tables; the caller closes it."""
        self._refuse_missing()
        writing = self._engine.execution_options(privsyn_write=True)
        if not self._ready:
            with writing.begin() as connection:
                schema.create(connection, stamp(utc_now()))
            self._ready = True
        return writing.connect()

    def _refuse_missing(self) -> None:
        if self.missing():
            raise LedgerUnavailable(
                f"ledger {self.where} does not exist.",
                hint="Check services.ledger, or restore the file from its backup.",
            )

    def missing(self) -> bool:
        """Whether there is no SQLite file yet."""
        if self._path is None:
            return False
        if self._path.exists():
            self._seen = True
            return False
        if self._seen:
            raise LedgerUnavailable(
                f"ledger file {self._path} is gone: it was there before.",
                hint="Restore it from its backup: a fresh ledger would forget what is spent.",
            )
        return True

    def _open_sqlite(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(self._path))}?mode=rw",  # never creates: _create_file sets the mode
            uri=True,
            timeout=self._timeout,
            isolation_level=None,  # the begin event starts transactions, not the driver
        )
        try:
            # EXTRA: a commit outlives a power cut, the removal of the rollback journal included
            connection.execute("PRAGMA synchronous=EXTRA")
            connection.execute("PRAGMA foreign_keys=ON")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _begin_postgres(self, connection: sa.Connection) -> None:
        # set per transaction, so that it also holds behind a connection pooler
        milliseconds = str(max(1, round(self._timeout * 1000)))
        connection.exec_driver_sql(
            "SELECT set_config('lock_timeout', %s, true),"
            " set_config('statement_timeout', %s, true),"
            " set_config('synchronous_commit', 'on', true)",
            (milliseconds, str(2 * int(milliseconds) + 5000)),
        )

    def _create_file(self) -> None:
        """The file holds the partition keys: it is its owner's alone from its first moment."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            self._seen = True
        except OSError as error:
            raise LedgerUnavailable(
                f"ledger {self.where} cannot be created: {error.strerror}.",
                hint="Check services.ledger and the folder's permissions.",
            ) from None

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            raise self._unavailable(str(error.orig)) from None
        except sa.exc.SQLAlchemyError as error:
            raise self._unavailable(type(error).__name__) from None

    def _unavailable(self, text: str) -> LedgerUnavailable:
        reason = (text.strip().splitlines() or ["no reason given"])[0].rstrip(".")
        # Drivers quote the connection string in their messages.
        if self._password:
            reason = reason.replace(self._password, "***")
        low = reason.lower()
        if "locked" in low or "lock timeout" in low or "statement timeout" in low:
            return LedgerUnavailable(
                f"ledger {self.where} is locked: another process has held it for more than "
                f"{self._timeout:g} s.",
                hint="Run again; if it stays, end the process that holds it.",
            )
        hint = "Check services.ledger and that its database is up."
        if low.startswith("privsyn: "):  # a trigger
            hint = ""
        elif "disk is full" in low or "no space left" in low:  # SQLite, PostgreSQL
            hint = "Free some space and run again."
        return LedgerUnavailable(f"ledger {self.where} cannot be used: {reason}.", hint=hint)


class OpenConnection:
    """A connection that stays open between durable transactions, and is made anew once it broke.

    Of one thread, and of the process that made its first transaction.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: sa.Connection | None = None

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A durable transaction, rolled back on any exception."""
        database = self._database
        try:
            with database._translate_errors():
                if self._connection is None:
                    self._connection = database._connect()
                database._refuse_missing()
                with self._connection.begin():
                    yield self._connection
        except LedgerUnavailable:  # whether it was committed is not known: the next look tells
            self.close()
            raise

    def close(self) -> None:
        """Close the connection. Closing twice is fine."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):  # broken already, perhaps
                connection.close()


def _destroy_draws(connection: sa.Connection, release_id: str) -> None:
    """Delete a release's key and draws, once nobody can be in the middle of writing one."""
    query = sa.select(schema.vault).where(schema.vault.c.release_id == release_id)
    if connection.execute(query).one_or_none() is None:
        return
    # Waits for, and keeps out, whoever writes under a lease. In the order of the parts: two that
    # wait for each other's would be a deadlock.
    part = schema.leases.c.part
    parts = sa.select(part).where(schema.leases.c.release_id == release_id)
    connection.execute(parts.order_by(part).with_for_update(key_share=True)).all()
    for table in (schema.draws, schema.vault):
        connection.execute(sa.delete(table).where(table.c.release_id == release_id))


MOST_AHEAD = timedelta(minutes=5)
"""Of a machine's clock before the database's."""


def _refuse_ahead(connection: sa.Connection) -> None:
    """Refuse to write rows by a clock that is ahead: it would end a period's window early.

    Against the database's clock, which is one for all machines; SQLite has no clock. The error may
    be retried: a release that has drawn must not be lost by it.
    """
    if connection.dialect.name != "postgresql":
        return
    theirs = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
    ahead = utc_now() - theirs
    if ahead > MOST_AHEAD:
        raise LedgerUnavailable(
            f"the clock of this machine is {ahead.total_seconds() / 60:.0f} min ahead of the "
            f"ledger's database, which says {theirs:%Y-%m-%d %H:%M} UTC; "
            f"{MOST_AHEAD.total_seconds() / 60:.0f} min are allowed.",
            hint="Set the clock (NTP), and run again. Nothing was written.",
        )


def session_user(connection: sa.Connection) -> dict[str, str]:
    """The role that PostgreSQL let in, whatever it acts as since; of SQLite nothing: a file."""
    if connection.dialect.name != "postgresql":
        return {}
    return {"db_user": str(connection.exec_driver_sql("SELECT session_user").scalar_one())}


@functools.cache
def _empty() -> sa.Engine:
    """A ledger in memory that nobody has written in: it answers where there is none."""
    here = {"check_same_thread": False}
    engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool, connect_args=here)
    with engine.begin() as connection:
        schema.metadata.create_all(connection, checkfirst=False)
        connection.execute(sa.insert(schema.head).values(id=1, seq=0, hash=chain.GENESIS))
    return engine


def _begin_sqlite(connection: sa.Connection) -> None:
    write = connection.get_execution_options().get("privsyn_write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


_PLAIN_FILE = re.compile(r"sqlite:///([\w./ -]+)")
"""A URL of a file that has nothing to be taken apart."""


def _parse(text: str) -> sa.URL:
    try:
        url = sa.make_url(text)
    except sa.exc.ArgumentError:  # its message quotes the URL, password and all
        raise ConfigError(
            "services.ledger is not a database URL.",
            hint="Use sqlite:///path/to/ledger.db or postgresql://user@host/name.",
        ) from None
    name = url.get_backend_name()
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    if name not in ("sqlite", "postgresql"):
        raise ConfigError(
            f"services.ledger names the database {name!r}; known: sqlite, postgresql.",
            hint="Use sqlite:///path/to/ledger.db or postgresql://user@host/name.",
        )
    if name == "sqlite" and url.database in (None, "", ":memory:"):
        raise ConfigError(
            "services.ledger is a SQLite database in memory, which forgets what was spent.",
            hint="Name a file: sqlite:///path/to/ledger.db.",
        )
    return url


def _describe(url: sa.URL) -> str:
    """A URL for messages: no user, no password, no query."""
    bare = sa.URL.create(
        url.get_backend_name(), host=url.host, port=url.port, database=url.database
    )
    return bare.render_as_string()
