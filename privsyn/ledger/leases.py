"""Leases: of several processes one draws a part of a release, and a late one is found out.

Each ``acquire`` takes a higher token for its part. A holder that was overtaken, because its host
slept or its network broke for longer than the lease, holds an old token, and is refused at its next
renewal and at ``commit``.
"""

from __future__ import annotations

import functools
import os
import platform
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType

from privsyn.errors import LeaseHeld, LedgerUnavailable, PrivsynError
from privsyn.ledger import sa, schema
from privsyn.ledger.database import Database
from privsyn.ledger.entries import State, check_name, check_state, entry_row, moment, stamp

LEASE_TTL = 60.0
"""Seconds a lease lives without renewal."""


@dataclass(frozen=True)
class Holder:
    """A process that no later one can be taken for.

    Attributes:
        machine: Host, boot and process-id namespace: within it, a process id and its start time
            are one process.
        host: Host name, for messages.
        pid: Process id.
        started: Start time in clock ticks since boot; None where the system does not tell.
    """

    machine: str
    host: str
    pid: int
    started: int | None

    @classmethod
    def me(cls) -> Holder:
        """This process."""
        return cls(_machine(), platform.node(), os.getpid(), _start_time(os.getpid()))

    @classmethod
    def of(cls, row: sa.RowMapping) -> Holder:
        """The process a lease row names."""
        return cls(row["machine"], row["host"], row["pid"], row["started"])

    @property
    def known_dead(self) -> bool:
        """Whether the process has ended, as far as this machine can tell; False if it cannot."""
        if self.machine != _machine():
            return False
        if self.started is not None:
            return _start_time(self.pid) != self.started
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False


@functools.cache
def _machine() -> str:
    parts = [platform.node()]
    with suppress(OSError):  # not Linux: the host name has to do
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "/".join(parts)


def _start_time(pid: int) -> int | None:
    """Start time of a live process, from field 22 of its stat file; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = stat[stat.rindex(")") + 2 :].split()
    return None if state in "ZX" else int(rest[18])  # a zombie draws nothing any more


@dataclass(eq=False, repr=False)
class Lease:
    """The right to draw one part of a release, kept alive by a thread while in a ``with`` block.

    Attributes:
        release_id: The release.
        part: ``partition``, ``shard-3``, ...
        token: Grows with every holder of the part.
        ttl: Seconds it lives after each renewal.
    """

    release_id: str
    part: str
    token: int
    ttl: float
    _renew: Callable[[Lease], None]
    _free: Callable[[Lease], None]
    _confirmed: float
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _failure: PrivsynError | None = None
    _trouble: LedgerUnavailable | None = None
    _steps: Callable[[], int] = lambda: 0

    @property
    def steps(self) -> int:
        """Draws of the part that are on file now; reported with every renewal and at the end."""
        return self._steps()

    def count(self, steps: Callable[[], int]) -> None:
        """Set the function that counts the draws on file; the renewing thread calls it too."""
        self._steps = steps

    def __repr__(self) -> str:
        return f"Lease({self.release_id!r}, {self.part!r}, token={self.token})"

    def confirm(self, started: float) -> None:
        """Note a renewal that went through.

        Args:
            started: ``elapsed()`` from before the renewal: the ledger counts from no earlier.
        """
        self._confirmed, self._trouble = started, None

    def check(self) -> None:
        """Raise if the lease was lost, or ran out. Cheap: does not ask the ledger.

        Raises:
            LeaseHeld: Another process has overtaken this one, or may have: this one stood still
                for longer than the lease lives.
            ReleaseLost: The release was given up meanwhile.
            LedgerUnavailable: It could not be renewed for longer than it lives.
        """
        if self._failure is not None:
            raise self._failure
        silent = elapsed() - self._confirmed
        if silent >= self.ttl:  # after a stop the renewing thread may wake up later than this one
            raise self._trouble or LeaseHeld(
                f"release {self.release_id}, {self.part}: this process's lease was last renewed "
                f"{silent:.0f} s ago and lives {self.ttl:g} s: another process may be drawing.",
                hint="Run again: it goes on where this one stopped.",
            )

    def __enter__(self) -> Lease:
        self._thread = threading.Thread(target=self._beat, name=f"lease {self.part}", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        try:
            if kind is None:
                self.check()
        finally:
            # It runs out by itself, and an error under way matters more.
            with suppress(LedgerUnavailable):
                self._free(self)

    def _beat(self) -> None:
        # Three tries a life: one that fails leaves time for the next.
        while not self._stop.wait(self.ttl / 3):
            try:
                self._renew(self)
            except LedgerUnavailable as failure:
                self._trouble = failure
                if elapsed() - self._confirmed >= self.ttl:
                    self._failure = failure
                    return
            except PrivsynError as failure:
                self._failure = failure
                return
            except Exception as error:  # a thread that ends in silence would leave the lease alive
                self._failure = LedgerUnavailable(
                    f"release {self.release_id}, {self.part}: the lease could not be renewed "
                    f"({type(error).__name__}).",
                    hint="Run again: it goes on where this process stopped.",
                )
                self._failure.__cause__ = error
                return


class Leases:
    """The leases of a ledger: of several processes one draws a part of a release."""

    def __init__(self, database: Database) -> None:
        self._database = database

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
        # Before the call: the ledger counts the lease's life from no earlier.
        started = elapsed()
        with self._database.write() as connection:
            check_state(entry_row(connection, release_id), State.BEGUN)
            row, now = _row(connection, release_id, part), self._database.clock()
            if row is not None and _live(row, now):
                raise LeaseHeld(
                    f"release {release_id}, {part}: process {row['pid']} on {row['host']} is "
                    "drawing it.",
                    hint=f"Wait for it, or until its lease runs out at {row['expires_at']}.",
                )
            # Never reused, so that a holder that slept through a takeover finds out.
            token = row["token"] + 1 if row is not None else 1
            values = asdict(Holder.me()) | {
                "token": token,
                "expires_at": stamp(now + timedelta(seconds=ttl)),
            }
            if row is None:
                values |= {"release_id": release_id, "part": part, "steps": 0}
                connection.execute(sa.insert(schema.leases).values(values))
            else:
                connection.execute(
                    sa.update(schema.leases).where(*_key(release_id, part)).values(values)
                )
        return Lease(release_id, part, token, ttl, self.renew, self.release, started)

    def renew(self, lease: Lease) -> None:
        """Let a lease live on.

        Raises:
            LeaseHeld: It was overtaken.
            ReleaseLost: The release was given up meanwhile.
        """
        started = elapsed()
        with self._database.write() as connection:
            entry = entry_row(connection, lease.release_id)
            if entry.state is not State.COMMITTED:  # the holder itself may have committed by now
                check_state(entry, State.BEGUN)
            check(connection, lease)
            until = stamp(self._database.clock() + timedelta(seconds=lease.ttl))
            connection.execute(_update(lease).values(expires_at=until))
        lease.confirm(started)

    def release(self, lease: Lease) -> None:
        """Give a lease back; its token stays used. Nothing happens if it was overtaken."""
        with self._database.write() as connection:
            connection.execute(_update(lease).values(machine=None))

    def check_idle(self, release_id: str) -> None:
        """Refuse where another live process draws a part of a release. Holds nothing.

        Raises:
            LeaseHeld: Names the process and the part.
        """
        with self._database.read() as connection:
            check_idle(connection, release_id, self._database.clock(), but_mine=True)

    def parts(self, release_id: str) -> dict[str, int]:
        """Every part of a release that a process ever held: the draws it had on file, at least.

        A part that is not here was never drawn. See ``acquire`` for when the count is told.
        """
        parts = schema.leases.c
        query = sa.select(parts.part, parts.steps).where(parts.release_id == release_id)
        with self._database.read() as connection:
            return {row.part: row.steps for row in connection.execute(query)}


def elapsed() -> float:
    """Seconds on a clock that is never set, and that counts sleep where the system has such one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)  # Linux: monotonic() stands still in a sleep
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def check(connection: sa.Connection, lease: Lease, *, hold: bool = False) -> None:
    """Refuse a lease that is not its part's newest.

    Args:
        connection: A transaction.
        lease: The lease.
        hold: Whether it cannot be overtaken before the transaction ends.

    Raises:
        LeaseHeld: It was overtaken or given back.
    """
    row = _row(connection, lease.release_id, lease.part, hold=hold)
    if row is None or row["token"] != lease.token or row["machine"] is None:
        raise LeaseHeld(
            f"release {lease.release_id}, {lease.part}: this process's lease (token {lease.token}) "
            f"was overtaken by token {row['token'] if row else 'none'}.",
            hint="Nothing of this process counts from here; let the other one finish.",
        )


def _update(lease: Lease) -> sa.Update:
    """Of a lease's row, if it is its part's newest; the count of draws never gets less."""
    parts = schema.leases.c
    steps = sa.case((parts.steps < lease.steps, lease.steps), else_=parts.steps)
    newest = *_key(lease.release_id, lease.part), parts.token == lease.token
    return sa.update(schema.leases).where(*newest).values(steps=steps)


def check_idle(
    connection: sa.Connection, release_id: str, now: datetime, *, but_mine: bool
) -> None:
    """Refuse while a live process draws any part of a release.

    Args:
        connection: A write transaction; or one that reads, to look.
        release_id: The release.
        now: Time that leases are held against.
        but_mine: Whether this process's own leases do not count.

    Raises:
        LeaseHeld: Names the process and the part.
    """
    me = Holder.me() if but_mine else None
    parts = schema.leases.c
    query = sa.select(schema.leases).where(parts.release_id == release_id).order_by(parts.part)
    for row in connection.execute(query).mappings():
        if Holder.of(row) != me and _live(row, now):
            raise LeaseHeld(
                f"release {release_id}: process {row['pid']} on {row['host']} is drawing its "
                f"{row['part']}.",
                hint="Wait for it to finish.",
            )


def _key(release_id: str, part: str) -> tuple[sa.ColumnElement[bool], ...]:
    return schema.leases.c.release_id == release_id, schema.leases.c.part == part


def _row(
    connection: sa.Connection, release_id: str, part: str, *, hold: bool = False
) -> sa.RowMapping | None:
    query = sa.select(schema.leases).where(*_key(release_id, part))
    if hold:  # SQLite has one writer at a time, and leaves this out
        query = query.with_for_update(key_share=True)
    return connection.execute(query).mappings().one_or_none()


def _live(row: sa.RowMapping, now: datetime) -> bool:
    if row["machine"] is None or moment(row["expires_at"]) <= now:
        return False
    return not Holder.of(row).known_dead
