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
from privsyn.ledger import audit, balances, chain, draws, leases, rows, tables
from privsyn.ledger.accounts import Account, AccountSpec
from privsyn.ledger.caps import check_kind
from privsyn.ledger.checks import (
    SHA256,
    account_row,
    check_entry,
    check_known,
    check_name,
    check_paid_elsewhere,
    check_source,
    check_state,
    entry_row,
    lost,
    matching,
)
from privsyn.ledger.decisions import cost_digest
from privsyn.ledger.draws import DrawRows, VaultRow
from privsyn.ledger.entries import Change, DatasetSource, Entry, State, stamp
from privsyn.ledger.governance import LONGEST_REASON, GovernedLedger
from privsyn.ledger.leases import Lease
from privsyn.ledger.terms import Terms
from privsyn.ledger.views import TIMEOUT, utc_now

if TYPE_CHECKING:
    from privsyn.dp.accountant import Guarantee

LEASE_TTL = 60.0
"""Seconds a lease lives without renewal."""


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
            a fraction of a lease's life.
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


class Ledger(GovernedLedger):
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
                if entry.charged:
                    self._note_source(connection, entry, source)
                    return entry
            elif source is not None:
                check_source(connection, account, None, source)
            if source is not None:
                check_paid_elsewhere(connection, account, source)
            asked = self._asked(spec, event, method, guarantee)
            spec.terms.refuse(account, f"release {release_id}", asked)
            now = self._clock()
            entries = rows.entries_of(connection, account)
            balances.check_fits(row, entries, release_id, event, guarantee, now)
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
            BudgetExceeded: Its reservation is of an older version of privsyn, and what was drawn
                since fills the period cap. It stays reserved.
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

    def commit(
        self,
        release_id: str,
        artifact_sha256: str,
        certificate_sha256: str,
        *,
        lease: Lease | None = None,
    ) -> Entry:
        """Close a begun release over its artifact, after that is in its final place.

        Args:
            release_id: A begun release.
            artifact_sha256: Digest of the synthetic file.
            certificate_sha256: Digest of its certificate.
            lease: A lease the caller drew under; refused if it was overtaken.

        Raises:
            LeaseHeld: Another live process still draws it, or ``lease`` was overtaken.
            ReleaseLost: The release is lost.
            VerificationError: It is committed with other digests.
            BudgetError: It has not begun.
        """
        body = _digests(artifact_sha256, certificate_sha256)
        with self._write() as connection:
            entry = entry_row(connection, release_id)
            if entry.state is State.COMMITTED:
                if (entry.artifact_sha256, entry.certificate_sha256) != (
                    artifact_sha256,
                    certificate_sha256,
                ):
                    raise VerificationError(
                        f"release {release_id} is committed with another artifact or certificate.",
                        hint=f"Bring the committed one back: privsyn restore {release_id}",
                    )
                return entry
            check_state(entry, State.BEGUN)
            if lease is not None:
                leases.check(connection, lease)
            leases.check_alone(connection, release_id, self._clock(), but_mine=True)
            return self._move(connection, entry, State.COMMITTED, body)

    def derive(self, release_id: str, artifact_sha256: str, certificate_sha256: str) -> Change:
        """Note an artifact made from a committed release's records alone. Costs nothing.

        Noting the same one again changes nothing.

        Args:
            release_id: The release it was made from.
            artifact_sha256: Digest of the new file.
            certificate_sha256: Digest of its certificate.

        Raises:
            BudgetError: The release is not committed.
        """
        body = _digests(artifact_sha256, certificate_sha256)
        with self._write() as connection:
            entry = entry_row(connection, release_id)
            check_state(entry, State.COMMITTED)
            for row in chain.walk(connection, release_id):
                if row.change == chain.DERIVED and body.items() <= dict(row.body).items():
                    return row
            return self._append(connection, entry.account, release_id, chain.DERIVED, body)

    def note_validation(
        self, release_id: str, name: str, certificate_sha256: str, reports: Mapping[str, str]
    ) -> Change:
        """Note the reports of a validated artifact, so that they are found changed. Costs nothing.

        Noting what the newest note of this artifact says changes nothing.

        Args:
            release_id: The release that was paid for.
            name: The release, or what was made from it, that was validated.
            certificate_sha256: Digest of its certificate.
            reports: SHA-256 of each report, by file name.

        Raises:
            BudgetError: The release is not committed.
        """
        body = {
            "name": name,
            "certificate_sha256": certificate_sha256,
            "reports": dict(reports),
        }
        with self._write() as connection:
            entry = entry_row(connection, release_id)
            check_state(entry, State.COMMITTED)
            notes = [
                row
                for row in chain.walk(connection, release_id)
                if row.change == chain.VALIDATED and row.body["name"] == name
            ]
            if notes and body.items() <= dict(notes[-1].body).items():
                return notes[-1]
            return self._append(connection, entry.account, release_id, chain.VALIDATED, body)

    def void(self, release_id: str, reason: str) -> Entry:
        """Give an untouched reservation back.

        Raises:
            BudgetError: The release has begun: its cost stands.
        """
        return self._end(release_id, State.RESERVED, State.VOID, reason)

    @contextmanager
    def held(self, release_id: str) -> Iterator[Entry | None]:
        """The entry of a release, which nobody can change while the block lasts: keep it short."""
        with self._write() as connection:
            yield rows.find_entry(connection, release_id)

    def lose(self, release_id: str, reason: str) -> Entry:
        """Declare a begun release spent without an artifact: final.

        Args:
            release_id: A begun release.
            reason: Why, in words that hold no record text.

        Raises:
            BudgetError: The release has not begun, or is committed.
        """
        return self._end(release_id, State.BEGUN, State.LOST, reason)

    def _end(self, release_id: str, before: State, after: State, reason: str) -> Entry:
        with self._write() as connection:
            entry = entry_row(connection, release_id)
            if entry.state is after:
                return entry
            check_state(entry, before)
            return self._move(connection, entry, after, {"reason": reason[:LONGEST_REASON]})

    def _move(
        self, connection: Connection, entry: Entry, state: State, body: Mapping[str, Any]
    ) -> Entry:
        self._append(connection, entry.account, entry.release_id, state, body)
        return entry_row(connection, entry.release_id)

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


def _finite(value: float | None) -> float | None:
    """A number as JSON has it; infinity, which a filter never admits, as none."""
    return value if value is not None and math.isfinite(value) else None


def _digests(artifact_sha256: str, certificate_sha256: str) -> dict[str, str]:
    """Both digests as a history row holds them; ValueError where one is none."""
    body = {"artifact_sha256": artifact_sha256, "certificate_sha256": certificate_sha256}
    for name, value in body.items():
        if not SHA256.fullmatch(value):
            raise ValueError(f"{name}={value!r} is not 64 lower-case hex digits")
    return body
