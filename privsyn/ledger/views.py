"""The asking half of the ledger: nothing here writes, or creates a database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from privsyn.data.records import Private
from privsyn.dp.accountant import Guarantee
from privsyn.dp.events import Event
from privsyn.errors import LedgerUnavailable
from privsyn.ledger import audit, balances, chain, decisions, leases, rows
from privsyn.ledger.accounts import Account, AccountSpec
from privsyn.ledger.caps import check_kind
from privsyn.ledger.checks import account_row, entry_row, matching
from privsyn.ledger.database import Database
from privsyn.ledger.decisions import Decision, What
from privsyn.ledger.entries import Change, Entry, Source, State
from privsyn.ledger.statements import Audit, Balance, Fill, Preview, Refusal, Statement, Step
from privsyn.ledger.terms import NONE, Terms

TIMEOUT = 15.0
"""Longest wait for another process's write, in seconds."""


def utc_now() -> datetime:
    """The system's clock."""
    return datetime.now(UTC)


class LedgerView:
    """Questions to a ledger. Each is answered from one consistent state.

    Every method may raise ``LedgerUnavailable``; one that names an account or a release raises
    ``BudgetError`` for one the ledger does not know. See ``open_ledger`` for the arguments.
    """

    def __init__(
        self, url: str, *, clock: Callable[[], datetime] = utc_now, timeout: float = TIMEOUT
    ) -> None:
        self._database = Database(url, timeout)
        self._clock = clock

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._database.where!r})"

    @property
    def where(self) -> str:
        """Address of the ledger for messages: no user, no password."""
        return self._database.where

    def exists(self) -> bool:
        """Whether there is a ledger at all: something was written in it."""
        with self._database.read() as connection:
            return connection is not None and chain.length(connection) != 0

    def find_account(self, name: str) -> Account | None:
        """An account by name, or None."""
        with self._database.read() as connection:
            row = rows.find_account(connection, name) if connection else None
            return rows.account_of(row) if row else None

    def accounts(self) -> list[Account]:
        """All accounts, by name."""
        with self._database.read() as connection:
            if connection is None:
                return []
            return [rows.account_of(row) for row in rows.all_accounts(connection)]

    def terms(self, name: str) -> Terms:
        """What an account is held to besides its cap; no rules where it is not in the ledger."""
        with self._database.read() as connection:
            row = rows.find_account(connection, name) if connection else None
            return Terms.load(row["terms"]) if row else NONE

    def decisions(self, release_id: str) -> list[Decision]:
        """What people approved or rejected of a release, oldest first."""
        with self._database.read() as connection:
            return decisions.of_release(connection, release_id) if connection else []

    def approved_cost(self, release_id: str) -> Decision | None:
        """The approval that the newest reservation of a release had; None without any."""
        with self._database.read() as connection:
            changes = list(chain.walk(connection, release_id)) if connection else []
        reserved = [row.seq for row in changes if row.change == State.RESERVED]
        found = [
            row
            for row in changes
            if row.change == chain.APPROVED
            and row.body["what"] == What.SPEND
            and row.seq < max(reserved, default=0)
        ]
        return Decision.of(found[-1]) if found else None

    def requested(self, release_id: str) -> Change | None:
        """The newest request to approve the cost of a release, or None."""
        with self._database.read() as connection:
            return decisions.request_of(connection, release_id) if connection else None

    def balance(self, name: str) -> Balance:
        """How full an account is."""
        with self._database.read() as connection:
            row = account_row(connection, name)
            entries = rows.entries_of(connection, name) if connection else []
        return balances.balance(row, entries, self._clock())

    def clock_note(self) -> str:
        """What to say of a clock that is well behind the ledger's time; empty where it is not."""
        with self._database.read() as connection:
            return chain.behind(connection, self._clock()) if connection else ""

    def reservation(self, release_id: str) -> tuple[Change, Fill]:
        """The row that set a release's cost aside, and how full its account was with it then.

        The lifetime cap alone: a period's window moves when other releases end, which depends on
        their records.
        """
        with self._database.read() as connection:
            entry = entry_row(connection, release_id)
            row = account_row(connection, entry.account)
            history = list(chain.walk(connection)) if connection else []
        reserved = [
            one for one in history if (one.release_id, one.change) == (release_id, State.RESERVED)
        ]
        if not reserved:
            raise chain.broken(f"release {release_id} is in its table and not in the history")
        last = reserved[-1]
        found: dict[str, dict[str, Any]] = {}
        for one in history[: last.seq]:
            if one.account == entry.account and one.change in chain.BEFORE:
                name = str(one.release_id)
                found[name] = {"release_id": name} | found.get(name, {}) | chain.project(one)
        entries = sorted(map(rows.entry_of, found.values()), key=lambda one: one.number)
        return last, balances.lifetime_fill(row, entries)

    def preview(self, spec: AccountSpec, event: Event, release_id: str | None = None) -> Preview:
        """Outcome of reserving an event now. Creates neither account nor database.

        Args:
            spec: The account, which need not exist.
            event: The event of the release.
            release_id: The release, if known: one that is already charged costs nothing more.

        Raises:
            AccountMismatch: As ``open_account``.
            VerificationError: The account's rows, or the chain, were edited.
        """
        with self._database.read() as connection:
            existing = matching(connection, spec) if connection else None
            if connection and existing:
                audit.check_account(connection, spec.name)
            row = existing if existing is not None else balances.new_row(spec)
            entry = rows.find_entry(connection, release_id) if connection and release_id else None
            entries = rows.entries_of(connection, spec.name) if connection and existing else []
        return balances.preview(row, entries, event, entry, self._clock())

    def check_opens(
        self, spec: AccountSpec, event: Event, guarantee: Guarantee, release: str
    ) -> None:
        """Refuse a first release that its account could not pay, so that none is opened for it.

        An account that is open fixes cap, unit and adjacency: a mistake in these must cost nothing.

        Args:
            spec: The account; nothing is said of one that is open.
            event: The event of the release.
            guarantee: (epsilon, delta) of the release alone.
            release: What it is called in the message.

        Raises:
            BudgetExceeded: It does not fit the cap or period cap of an empty account.
            BudgetError: The account would not take events of this kind.
        """
        with self._database.read() as connection:
            if connection is not None and rows.find_account(connection, spec.name) is not None:
                return
        check_kind(spec, event)
        row = balances.new_row(spec)
        balances.check_fits(row, [], release, event, guarantee, self._clock())

    def statements(self, account: str | None = None) -> list[Statement]:
        """Accounts with their releases: cap, spent share, left; state, epsilon, time.

        Args:
            account: Only this one; all if None.
        """
        with self._database.read() as connection:
            if connection is None and account is None:
                return []
            if account is not None:
                accounts = [account_row(connection, account)]
            else:
                accounts = rows.all_accounts(connection) if connection else []
            entries = rows.entries_of(connection, account) if connection else []
            refusals = rows.refusals_of(connection, account) if connection else []
            decided = list(decisions.of_accounts(connection, account)) if connection else []
        now = self._clock()
        return [
            balances.statement(
                row,
                [entry for entry in entries if entry.account == row["name"]],
                [refusal for refusal in refusals if refusal.account == row["name"]],
                [decision for decision in decided if decision.account == row["name"]],
                now,
            )
            for row in accounts
        ]

    def course(self, account: str, most: int) -> list[Step]:
        """How an account was filled, release by release, oldest first.

        Args:
            account: Its name.
            most: The newest so many releases; each takes a sum over all before it.
        """
        with self._database.read() as connection:
            row = account_row(connection, account)
            entries = rows.entries_of(connection, account) if connection else []
        return balances.course(row, entries, most)

    def refusals(self, account: str | None = None) -> list[Refusal]:
        """What an account, or any, was asked for and refused, oldest first."""
        with self._database.read() as connection:
            return rows.refusals_of(connection, account) if connection else []

    def find(self, release_id: str) -> Entry | None:
        """The entry of a release, or None."""
        with self._database.read() as connection:
            return rows.find_entry(connection, release_id) if connection else None

    def entry(self, release_id: str) -> Entry:
        """The entry of a release."""
        with self._database.read() as connection:
            return entry_row(connection, release_id)

    def entries(self, account: str | None = None) -> list[Entry]:
        """The releases of an account, or of all, oldest first."""
        with self._database.read() as connection:
            return rows.entries_of(connection, account) if connection else []

    def history(self, release_id: str | None = None) -> list[Change]:
        """Every change of state of a release, or of the whole ledger, oldest first."""
        with self._database.read() as connection:
            return list(chain.walk(connection, release_id)) if connection else []

    def parts(self, release_id: str) -> dict[str, int]:
        """Every part of a release that a process ever held: the draws it had on file, at least.

        A part that is not here was never drawn. See ``acquire`` for when the count is told.
        """
        with self._database.read() as connection:
            return leases.parts(connection, release_id) if connection else {}

    def source_key(self) -> Private[bytes]:
        """The secret that fingerprints of private files are made with: one for all accounts.

        Raises:
            LedgerUnavailable: There is no ledger yet: it comes with its first account.
        """
        with self._database.read() as connection:
            if connection is None:
                raise LedgerUnavailable(f"ledger {self.where} does not exist.")
            return Private(bytes.fromhex(rows.source_key(connection)))

    def sources(
        self, *, account: str | None = None, fingerprint: str | None = None
    ) -> list[Source]:
        """The private files behind charged releases, of an account or with a fingerprint."""
        with self._database.read() as connection:
            if connection is None:
                return []
            return rows.sources(connection, account=account, fingerprint=fingerprint)

    def check(self) -> None:
        """Check what every balance is computed from: the chain, and the tables against it.

        Raises:
            VerificationError: Names the row that does not agree.
        """
        with self._database.read() as connection:
            if connection is not None:
                audit.check_account(connection, None)

    def verify(self) -> Audit:
        """Check the hash chain, the tables, the cost of every event and the caps.

        Raises:
            VerificationError: Names the row that does not agree.
        """
        with self._database.read() as connection:
            if connection is None:
                return Audit(rows=0, accounts=0, entries=0, head=chain.GENESIS)
            return audit.verify(connection)
