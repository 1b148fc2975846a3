"""The ledger: what every release costs, reserved before a record is read and never given back.

Any number of processes may use one ledger. Each call is one durable transaction, all writes happen
one after the other, and every call may be repeated: a repetition answers like the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from privsyn.errors import LedgerUnavailable
from privsyn.ledger import audit, chain
from privsyn.ledger.accounts import Accounts
from privsyn.ledger.approvals import Approvals
from privsyn.ledger.audit import LedgerAudit
from privsyn.ledger.database import TIMEOUT, Database, utc_now
from privsyn.ledger.draws import SealedDraws
from privsyn.ledger.entries import Change
from privsyn.ledger.leases import Leases
from privsyn.ledger.releases import Releases


class Ledger:
    """Accounts, releases, approvals, leases and sealed draws in one database.

    Every method, of its parts too, is one transaction and may raise ``LedgerUnavailable``. A
    question creates no database, and is answered from one consistent state. To construct a ledger
    creates and asks nothing.

    Args:
        url: ``sqlite:///path`` or ``postgresql://user@host/name``.
        clock: Time of entries and leases. Workers that share a ledger should agree on it to within
            a fraction of a lease's life. The times of the history never decrease: a clock that is
            behind the last row writes that row's time, and its own beside it.
        timeout: Longest wait for another process's write, in seconds.
        requester: Whoever asks, for the record: user, driver, and of Airflow DAG and run.

    Attributes:
        database: Where all of them are.
        accounts: What each dataset may spend.
        releases: What was spent.
        approvals: What people allowed.
        leases: Who draws.
        draws: Rows of releases that several machines draw.

    Raises:
        ConfigError: Not such a URL, or PostgreSQL without its driver.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], datetime] = utc_now,
        timeout: float = TIMEOUT,
        requester: Mapping[str, str] | None = None,
    ) -> None:
        self.database = Database(url, timeout, clock, requester)
        self.accounts = Accounts(self.database)
        self.approvals = Approvals(self.database)
        self.releases = Releases(self.database, self.approvals)
        self.leases = Leases(self.database)
        self.draws = SealedDraws(self.database)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where!r})"

    @property
    def where(self) -> str:
        """Address of the ledger for messages: no user, no password."""
        return self.database.where

    def exists(self) -> bool:
        """Whether there is a ledger at all: something was written in it."""
        with self.database.read() as connection:
            return chain.length(connection) != 0

    def migrate(self) -> None:
        """Create the ledger's tables: as their owner, where roles differ.

        Every write does so by itself where its role may.
        """
        with self.database.write(create=True):
            pass

    def clock_note(self) -> str:
        """What to say of a clock that is well behind the ledger's time; empty where it is not."""
        with self.database.read() as connection:
            return chain.behind(connection, self.database.clock())

    def history(self, release_id: str | None = None) -> list[Change]:
        """Every change of state of a release, or of the whole ledger, oldest first."""
        with self.database.read() as connection:
            return list(chain.walk(connection, release_id))

    def check(self) -> None:
        """Check what every balance is computed from: the chain, and the tables against it.

        Raises:
            VerificationError: Names the row that does not agree.
        """
        with self.database.read() as connection:
            audit.check_account(connection, None)

    def verify(self) -> LedgerAudit:
        """Check the hash chain, the tables, the cost of every event and the caps.

        Raises:
            VerificationError: Names the row that does not agree.
        """
        with self.database.read() as connection:
            return audit.verify(connection)


def open_existing(url: str) -> Ledger:
    """The ledger at a URL, which must be there: to ask it about a release.

    Raises:
        LedgerUnavailable: There is none.
    """
    book = Ledger(url)
    if not book.exists():
        raise LedgerUnavailable(
            f"there is no ledger at {book.where}; the release was not checked.",
            hint="Check the URL: sqlite:////absolute/path/ledger.db or "
            "postgresql://user@host/name.",
        )
    return book
