"""The ledger: what every release costs, reserved before a record is read and never given back.

Any number of processes may use one ledger. Each call is one durable transaction, all writes happen
one after the other, and every call may be repeated: a repetition answers like the first one.
"""

from __future__ import annotations

import math
import os
import platform
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from privsyn.dp.events import Event, dump
from privsyn.dp.filters import gaussian_mu_squared
from privsyn.errors import (
    AccountMismatch,
    ApprovalNeeded,
    BudgetError,
    DataError,
    LeaseHeld,
    LedgerUnavailable,
    PrivsynError,
    ReleaseLost,
    VerificationError,
)
from privsyn.ledger import audit, balances, chain, leases, rows, tables
from privsyn.ledger.accounts import Account, AccountSpec
from privsyn.ledger.caps import check_kind
from privsyn.ledger.checks import (
    account_row,
    check_entry,
    check_known,
    check_name,
    check_paid_elsewhere,
    check_source,
    check_state,
    entry_row,
    judged,
    lost,
    matching,
)
from privsyn.ledger.decisions import cost_digest
from privsyn.ledger.endings import EndedLedger
from privsyn.ledger.entries import DatasetSource, Entry, State, stamp
from privsyn.ledger.governance import LONGEST_REASON
from privsyn.ledger.terms import Terms
from privsyn.ledger.views import TIMEOUT, utc_now

if TYPE_CHECKING:
    from privsyn.dp.accountant import Guarantee


def open_ledger(
    url: str,
    *,
    clock: Callable[[], datetime] = utc_now,
    timeout: float = TIMEOUT,
    who: Mapping[str, str] | None = None,
) -> Ledger:
    """The ledger at a SQLAlchemy URL. Nothing is created or asked before the first call.

    Args:
        url: ``sqlite:///path`` or ``postgresql://user@host/name``.
        clock: Time of entries and leases. Workers that share a ledger should agree on it to within
            a fraction of a lease's life. The times of the history never decrease: a clock that is
            behind the last row writes that row's time, and its own beside it.
        timeout: Longest wait for another process's write, in seconds.
        who: Whoever asks, for the record: user, driver, and of Airflow DAG and run.

    Raises:
        ConfigError: Not such a URL, or PostgreSQL without its driver.
    """
    return Ledger(url, clock=clock, timeout=timeout, who=who)


def open_existing(url: str) -> Ledger:
    """The ledger at a URL, which must be there: to ask it about a release.

    Raises:
        LedgerUnavailable: There is none.
    """
    book = open_ledger(url)
    if not book.exists():
        raise LedgerUnavailable(
            f"there is no ledger at {book.where}; the release was not checked.",
            hint="Check the URL: sqlite:////absolute/path/ledger.db or "
            "postgresql://user@host/name.",
        )
    return book


class Ledger(EndedLedger):
    """Accounts, releases and leases.

    Guarantee: an account's charged releases, chosen adaptively, together cost no more than its cap
    (epsilon, delta), whatever runs at once or crashes - given that each costs no more than its
    event says, and that no record is read before ``begin``.

    Every method may raise ``LedgerUnavailable``; one that names an account or a release raises
    ``BudgetError`` for one the ledger does not know.
    """

    @contextmanager
    def _refusals(
        self, release_id: str | None = None, account: str = "", **request: Any
    ) -> Iterator[None]:
        """Note refusals inside the block in their table, if the ledger can be written."""
        try:
            yield
        except (BudgetError, DataError, VerificationError) as error:
            if not error.retryable and not isinstance(error, ReleaseLost):
                with suppress(PrivsynError):
                    self._note(error, {"release_id": release_id, "account": account, **request})
            raise

    def _note(self, error: PrivsynError, request: dict[str, Any]) -> None:
        with self._write() as connection:
            entry = rows.find_entry(connection, request["release_id"] or "")
            if entry is not None:
                for name in ("account", "method", "epsilon", "delta"):
                    request[name] = request.get(name) or getattr(entry, name)
            number = connection.execute(sa.select(sa.func.max(tables.refusals.c.number))).scalar()
            connection.execute(
                sa.insert(tables.refusals).values(
                    number=(number or 0) + 1,
                    at=stamp(self._clock()),
                    error=type(error).__name__,
                    message=str(error)[:LONGEST_REASON],
                    refused_by=chain.canonical(who) if (who := self._asking(connection)) else None,
                    **request,
                )
            )

    def migrate(self) -> None:
        """Create the ledger's tables, or bring them up to date: as their owner, where roles differ.

        Every write does so by itself where its role may.
        """
        with self._write(create=True):
            pass

    # Accounts

    def open_account(self, spec: AccountSpec, *, known_releases: Collection[str] = ()) -> Account:
        """The account of a spec, created with a fresh partition key if it is new.

        The only call that creates a SQLite ledger.

        Args:
            spec: What the account promises.
            known_releases: Ids of releases whose certificates name this account. A ledger that
                does not hold them all was lost, or replaced by an older copy.

        Raises:
            AccountMismatch: The name is taken by another spec, the dataset has an account, the
                terms are laxer than the account's, or a known release is missing. Nothing is
                created. Stricter terms are the account's from here on.
        """
        with self._refusals(account=spec.name):
            with self._database.read() as connection:  # an existing one needs no write lock
                row = matching(connection, spec) if connection else None
                check_known(connection, spec.name, known_releases)
                if row is not None and Terms.load(row["terms"]) == spec.terms:
                    return rows.account_of(row)
            with self._write(create=True) as connection:
                if matching(connection, spec) is None:
                    self._open(connection, spec)
                self._hold_to(connection, spec.name, spec.terms)
                return rows.account_of(account_row(connection, spec.name))

    def rename_unit_column(self, name: str, column: str, reason: str) -> Account:
        """Record that the file now calls the unit's column something else; same ids, same unit.

        The caller vouches for that: with other ids in it the cap protects nobody.

        Args:
            name: The account.
            column: Name of the column from now on.
            reason: Who says so and why. Kept in the history; must hold no record text.

        Raises:
            AccountMismatch: Every row is its own unit in this account: it has no such column.
            BudgetError: The account is unknown, or column or reason is empty.
        """
        if not column or not reason.strip():
            raise BudgetError(f"account {name}: a renamed column needs its name and a reason.")
        with self._write() as connection:
            was = account_row(connection, name)["unit_column"]
            if was is None:
                raise AccountMismatch(
                    f"dataset.unit={column}: account {name} was opened with dataset.unit=null, "
                    "so every row is its own unit and there is no column to rename.",
                    hint="Set dataset.unit back to null.",
                )
            if was != column:
                body = {"unit_column": column, "was": was, "reason": reason[:LONGEST_REASON]}
                self._append(connection, name, None, chain.RENAMED, body)
            return rows.account_of(account_row(connection, name))

    def _open(self, connection: Connection, spec: AccountSpec) -> None:
        key = secrets.token_bytes(rows.KEY_BYTES)
        row = balances.new_row(spec)
        body = {name: value for name, value in row.items() if name not in ("name", "terms")}
        body |= {"key_id": secrets.token_hex(6), "key_sha256": chain.key_digest(key)}
        change = self._append(connection, spec.name, None, chain.OPENED, body)
        values = chain.project(change) | {"partition_key": key.hex()}
        connection.execute(sa.insert(tables.accounts).values(values))

    # Releases

    def reserve(
        self,
        account: str,
        release_id: str,
        event: Event,
        *,
        method: str,
        guarantee: Guarantee,
        source: DatasetSource | None = None,
    ) -> Entry:
        """Set the cost of a release aside, once: a known release returns its entry as it stands.

        A void release is reserved anew. What is refused is kept in the table of refusals.

        Args:
            account: Name of the account that pays.
            release_id: Name of the release; decides what counts as the same one.
            event: What the release does to the data; its loss is what is charged.
            method: Name of the method, for the record.
            guarantee: (epsilon, delta) of the release alone, for the record.
            source: The private file, noted with the release; None where it cannot be read, or need
                not be, as the release has begun.

        Raises:
            BudgetExceeded: It does not fit the account's cap or period cap. Nothing is charged.
            PolicyBroken: The account's terms do not allow it.
            ApprovalNeeded: It costs more than may be spent unasked, and nobody has approved it;
                the request is then on record.
            BudgetError: The account does not take events of this kind; or another account has paid
                for the file, and the source is strict.
            DataError: The file changed under its version, or is that of another version.
            VerificationError: The release is known with another cost, method or account; or the
                chain or the account's rows were edited, so that no balance can be trusted.
        """
        check_name("release id", release_id)
        self._price(account, event, method, guarantee)
        request = {"method": method, "epsilon": guarantee.epsilon, "delta": guarantee.delta}
        with (
            self._refusals(release_id, account, **request),
            self._requests(account, release_id, event, method=method, guarantee=guarantee),
            self._write() as connection,
        ):
            row = account_row(connection, account)
            audit.check_account(connection, account)
            spec = rows.spec_of(row)
            check_kind(spec, event)
            lifetime, period = rows.caps_of(row)
            charge = lifetime.charge(event)
            loss, period_loss = charge.loss, period.charge(event).loss if period else None
            entry = rows.find_entry(connection, release_id)
            if entry is not None:
                check_entry(entry, account, method, (loss, period_loss))
                if source is not None and entry.state is not State.BEGUN:
                    check_source(connection, account, entry, source)
            elif source is not None:
                check_source(connection, account, None, source)
            if source is not None and (entry is None or not judged(connection, entry, source)):
                check_paid_elsewhere(connection, account, source)
            if entry is not None and entry.charged:
                self._note_source(connection, entry, source)
                return entry
            asked = self._asked(spec, event, method, guarantee)
            spec.terms.refuse(account, f"release {release_id}", asked)
            now = self._clock()
            entries = rows.entries_of(connection, account)
            late = chain.behind(connection, now)
            balances.check_fits(row, entries, release_id, event, guarantee, now, late)
            digest = cost_digest(account, release_id, method, dump(event), guarantee)
            self._check_spend(connection, spec, release_id, asked, digest)
            body = {
                "method": method,
                "event": dump(event),
                "loss": loss,
                "period_loss": period_loss,
                "mu_squared": _finite(charge.mu_squared),
                "epsilon": guarantee.epsilon,
                "delta": guarantee.delta,
            }
            self._append(connection, account, release_id, State.RESERVED, body)
            entry = entry_row(connection, release_id)
            self._note_source(connection, entry, source)
            return entry

    def _price(self, account: str, event: Event, method: str, guarantee: Guarantee) -> None:
        """What is dear to compute, and kept in memory, before others wait for the lock."""
        gaussian_mu_squared(event)
        opened = self.find_account(account)
        if opened is not None:
            self._asked(opened.spec, event, method, guarantee)

    @contextmanager
    def _requests(
        self, account: str, release_id: str, event: Event, *, method: str, guarantee: Guarantee
    ) -> Iterator[None]:
        """Put a cost that nobody has decided on yet on record as asked for."""
        try:
            yield
        except ApprovalNeeded:
            self.request(account, release_id, event, method=method, guarantee=guarantee)
            raise

    def _note_source(
        self, connection: Connection, entry: Entry, source: DatasetSource | None
    ) -> None:
        """Note the source of a release that is about to begin."""
        if source is None or entry.state is not State.RESERVED:
            return
        table = tables.sources
        connection.execute(sa.delete(table).where(table.c.release_id == entry.release_id))
        connection.execute(
            sa.insert(table).values(
                release_id=entry.release_id,
                account=entry.account,
                version=source.version,
                fingerprint=source.fingerprint,
                noted_at=stamp(self._clock()),
            )
        )

    def begin(self, release_id: str, scratch: str, nonce: str) -> Entry:
        """Record, durably, that records are about to be opened: from here the cost stands.

        Call it before the first record is read and whenever a release is resumed. A begun release
        goes on where its nonce lies, whatever the host or the folder is called by now: leases keep
        two processes from drawing one part, and ``parts`` tells an older copy of the scratch.
        Another nonce in the folder of the host it began on means that its draws are gone, and loses
        the release, once nobody draws it any more. Elsewhere it proves nothing, and changes
        nothing.

        Args:
            release_id: A reserved release, or a begun one to resume.
            scratch: Folder of buckets and journals, or URL of their place in a vault.
            nonce: Random text that lies in that folder, and pins the release to it.

        Raises:
            ReleaseLost: The release is lost, or is now: its scratch was replaced.
            LeaseHeld: Its scratch lies in another place; or was replaced while a process, this one
                included, holds a lease on it.
            BudgetExceeded: The clock was ahead when it was reserved, and the period cap is full. It
                stays reserved.
            BudgetError: It is void or already committed.
            VerificationError: The chain or the account's rows were edited.
        """
        scratch = scratch if "://" in scratch else os.path.abspath(scratch)
        host, now = platform.node(), self._clock()
        with self._refusals(release_id), self._write() as connection:
            entry = entry_row(connection, release_id)
            audit.check_account(connection, entry.account)
            if entry.state is State.RESERVED:
                row = account_row(connection, entry.account)
                balances.check_begins(row, rows.entries_of(connection, row["name"]), entry, now)
                body = {"scratch": scratch, "host": host, "nonce": nonce}
                self._append(connection, entry.account, release_id, State.BEGUN, body)
                return entry_row(connection, release_id)
            check_state(entry, State.BEGUN)
            if entry.nonce == nonce:
                return entry
            if (entry.scratch, entry.host) != (scratch, host):
                # that scratch may be whole and its driver between two tasks: not ours to end
                raise LeaseHeld(
                    f"release {release_id} was begun in {entry.scratch} on {entry.host}, and "
                    f"{scratch} on {host} does not hold its draws.",
                    hint="Resume it with that folder, there or moved here whole: its cost is paid. "
                    f"Only where the folder is gone for good: privsyn ledger lose {release_id}",
                )
            leases.check_alone(connection, release_id, now, but_mine=False)
            body = {"reason": "scratch was replaced: its draws are gone"}
            self._append(connection, entry.account, release_id, State.LOST, body)
        raise lost(release_id, str(body["reason"]))


def _finite(value: float | None) -> float | None:
    """A number as JSON has it; infinity, which a filter never admits, as none."""
    return value if value is not None and math.isfinite(value) else None
