"""Accounts of the ledger: opened once, held to their terms, and how full they are."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from privsyn.data.records import Private
from privsyn.dp.adjacency import Guarantee
from privsyn.dp.events import Event
from privsyn.errors import AccountMismatch, BudgetError, VerificationError
from privsyn.ledger import audit, balances, chain, decisions, entries, sa, schema
from privsyn.ledger.balances import Balance, Preview, Statement
from privsyn.ledger.caps import check_kind
from privsyn.ledger.chain import LONGEST_REASON
from privsyn.ledger.database import Database
from privsyn.ledger.entries import Entry, moment
from privsyn.ledger.spec import (
    NONE,
    SETTINGS,
    AccountSpec,
    Row,
    Terms,
    account_row,
    accounts_by,
    find_account,
    spec_of,
)

KEY_BYTES = 32
"""Length of a partition key."""


@dataclass(frozen=True)
class Asked:
    """A release that an account is asked for.

    Attributes:
        event: What it does to the data.
        release_id: Its id, where its account is open: one that is charged costs nothing more.
        settings_digest: What was asked for, as ``reserve`` takes it.
    """

    event: Event
    release_id: str | None = None
    settings_digest: str | None = None


@dataclass(frozen=True)
class Account:
    """An account as the ledger holds it.

    Attributes:
        spec: What it promises.
        key_id: Public, random id of the partition key; tells nothing about data or key.
        partition_key: 32 secret bytes from the operating system, drawn before any record was read.
        opened_at: Time of creation (UTC).
    """

    spec: AccountSpec
    key_id: str
    partition_key: Private[bytes]
    opened_at: datetime

    @property
    def name(self) -> str:
        """Account name."""
        return self.spec.name


class Accounts:
    """The accounts of a ledger. One that the ledger does not know is a ``BudgetError``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open(self, spec: AccountSpec, *, known_releases: Collection[str] = ()) -> Account:
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
        with self._database.record_refusals(account=spec.name):
            with self._database.read() as connection:  # an existing one needs no write lock
                row = matching(connection, spec)
                check_known(connection, spec.name, known_releases)
                if row is not None and Terms.load(row["terms"]) == spec.terms:
                    return account_of(row)
            with self._database.write(create=True) as connection:
                # Again under the lock: another process may have opened it since the read above.
                if matching(connection, spec) is None:
                    self._open(connection, spec)
                # Only stricter terms get here: ``matching`` refuses laxer ones.
                if Terms.load(account_row(connection, spec.name)["terms"]) != spec.terms:
                    body = {"terms": spec.terms.dump()}
                    self._database.append(connection, spec.name, None, chain.TERMS, body)
                return account_of(account_row(connection, spec.name))

    def find(self, name: str, *, known_releases: Collection[str] = ()) -> Account | None:
        """An account by name, or None.

        Args:
            name: The account.
            known_releases: As ``open`` takes them.

        Raises:
            AccountMismatch: A known release is missing: the ledger was lost or replaced.
        """
        if self._database.missing() and not known_releases:
            return None
        with self._database.read() as connection:
            check_known(connection, name, known_releases)
            row = find_account(connection, name)
            return account_of(row) if row else None

    def charged_to(self, spec: AccountSpec, *, known_releases: Collection[str] = ()) -> Account:
        """The account that a release was charged to, whatever its terms are by now.

        Args:
            spec: What the account promises; its terms are not compared.
            known_releases: As ``open`` takes them.

        Raises:
            AccountMismatch: Another cap, unit or adjacency, or a known release is missing.
            BudgetError: The account is unknown.
        """
        with self._database.record_refusals(account=spec.name), self._database.read() as connection:
            row = account_row(connection, spec.name)
            check_same(spec, spec_of(row))
            check_known(connection, spec.name, known_releases)
            return account_of(row)

    def all(self) -> list[Account]:
        """All accounts, by name."""
        if self._database.missing():
            return []
        with self._database.read() as connection:
            return [account_of(row) for row in accounts_by(connection)]

    def terms(self, name: str) -> Terms:
        """What an account is held to besides its cap; no rules where it is not in the ledger."""
        with self._database.read() as connection:
            row = find_account(connection, name)
            return Terms.load(row["terms"]) if row else NONE

    def loosen(self, name: str, terms: Terms, reason: str) -> Terms:
        """Give an account laxer terms, on record. For whoever answers for privacy, by hand.

        Args:
            name: The account.
            terms: What it is held to from now on.
            reason: Why. Kept in the history; must hold no record text.

        Raises:
            BudgetError: The account is unknown, or the reason is empty.
        """
        if not reason.strip():
            raise BudgetError(f"account {name}: laxer terms need a reason.")
        with self._database.write() as connection:
            # Laxer terms are a person's act: they are not recorded on a chain that is broken.
            audit.check_account(connection, name)
            if Terms.load(account_row(connection, name)["terms"]) != terms:
                body = {"terms": terms.dump(), "reason": reason[:LONGEST_REASON]}
                self._database.append(connection, name, None, chain.TERMS, body)
        return terms

    def balance(self, name: str) -> Balance:
        """How full an account is."""
        with self._database.read() as connection:
            row = account_row(connection, name)
            releases = entries.entries_of(connection, name)
        return balances.balance(row, releases, self._database.clock())

    def preview(self, spec: AccountSpec, event: Event, release_id: str | None = None) -> Preview:
        """Outcome of reserving an event now; see ``preview_all``."""
        return self.preview_all(spec, [Asked(event, release_id)])[0]

    def preview_all(self, spec: AccountSpec, asked: Sequence[Asked]) -> list[Preview]:
        """Outcomes of reserving several releases, in turn. Creates neither account nor database.

        Each is asked of the account as those before it leave it. One that does not fit takes
        nothing, as ``reserve`` has it.

        Raises:
            AccountMismatch: As ``open``.
            VerificationError: The account's rows, or the chain, were edited.
        """
        row, releases = balances.new_row(spec), list[Entry]()
        on_file: list[tuple[Entry | None, Entry | None]] = [(None, None)] * len(asked)
        if not self._database.missing():
            with self._database.read() as connection:
                if existing := matching(connection, spec):
                    audit.check_account(connection, spec.name)
                    row, releases = existing, entries.entries_of(connection, spec.name)
                on_file = [
                    (
                        entries.find_entry(connection, one.release_id) if one.release_id else None,
                        entries.made_before(
                            connection, spec.name, one.release_id, one.settings_digest
                        ),
                    )
                    for one in asked
                ]
        now, outcomes = self._database.clock(), list[Preview]()
        for one, (entry, earlier) in zip(asked, on_file, strict=True):
            planned = [outcome for outcome in outcomes if outcome.charges]
            seen = balances.preview(row, releases, one.event, entry, now, planned)
            if seen.entry is None and earlier is not None:
                seen = replace(seen, earlier=earlier, fits=False)
            outcomes.append(seen)
        return outcomes

    def check_first_release(
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
            if find_account(connection, spec.name) is not None:
                return
        check_kind(spec, event)
        # The row of an empty account: what is refused here must be what ``reserve`` would refuse.
        row = balances.new_row(spec)
        balances.check_fits(row, [], release, event, guarantee, self._database.clock())

    def statements(
        self, account: str | None = None, *, only: Collection[str] | None = None
    ) -> list[Statement]:
        """Accounts with their releases: cap, spent share, left; state, epsilon, time.

        Args:
            account: This one, which has to exist; all if None.
            only: Of all accounts those with these names; None: every one.
        """
        with self._database.read() as connection:
            if account is not None:
                rows = [account_row(connection, account)]
            else:
                rows = accounts_by(connection)
            parts = [
                (
                    row,
                    tuple(entries.entries_of(connection, row["name"])),
                    tuple(entries.refusals_of(connection, row["name"])),
                    tuple(decisions.of_account(connection, row["name"])),
                )
                for row in rows
                if only is None or row["name"] in only
            ]
        now = self._database.clock()
        return [
            Statement(
                spec=spec_of(row),
                key_id=row["key_id"],
                opened_at=moment(row["opened_at"]),
                balance=balances.balance(row, releases, now),
                releases=releases,
                refusals=refusals,
                decisions=decided,
                # privacy: whoever shows a statement has no use for the key of the partition
                row={name: value for name, value in row.items() if name != "partition_key"},
            )
            for row, releases, refusals, decided in parts
        ]

    def _open(self, connection: sa.Connection, spec: AccountSpec) -> None:
        key = secrets.token_bytes(KEY_BYTES)
        row = balances.new_row(spec)
        body = {name: value for name, value in row.items() if name not in ("name", "terms")}
        # The id is random, and no hash of the key: nobody can test guesses of the key against it.
        body |= {"key_id": secrets.token_hex(6), "key_sha256": chain.key_digest(key)}
        change = self._database.append(connection, spec.name, None, chain.OPENED, body)
        # The key is in this table alone: the history holds its digest.
        values = chain.project(change) | {"partition_key": key.hex()}
        connection.execute(sa.insert(schema.accounts).values(values))


def account_of(row: Row) -> Account:
    """An account row as a value.

    Raises:
        VerificationError: Its partition key is none that the ledger ever drew.
    """
    try:
        key = bytes.fromhex(row["partition_key"])
    except (TypeError, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise VerificationError(
            f"ledger: the partition key of account {row['name']} was edited.",
            hint="Restore the ledger from a backup.",
        )
    return Account(
        spec=spec_of(row),
        key_id=row["key_id"],
        partition_key=Private(key),
        opened_at=moment(row["opened_at"]),
    )


def matching(connection: sa.Connection, spec: AccountSpec) -> Row | None:
    """The row of a spec's account; None if neither name nor dataset has one."""
    row = find_account(connection, spec.name)
    if row is not None:
        opened = spec_of(row)
        check_same(spec, opened)
        check_terms(spec, opened)
        return row
    # A second account on a dataset would double its cap.
    for other in accounts_by(connection, dataset=spec.dataset):
        raise AccountMismatch(
            f"account.name={spec.name}: dataset {spec.dataset} already has the account "
            f"{other['name']}, and all its versions share people.",
            hint=f"Set account.name={other['name']}.",
        )
    return None


def check_same(spec: AccountSpec, opened: AccountSpec) -> None:
    """Refuse a spec that is not the account's, naming the first setting that differs."""
    # Terms may become stricter, and an account keeps the split it was opened with.
    for name, setting in SETTINGS.items():
        value, fixed = (
            "null" if one is None else one for one in (getattr(spec, name), getattr(opened, name))
        )
        if value != fixed:
            raise AccountMismatch(
                f"{setting}={value}: account {opened.name} was opened with {setting}={fixed}, "
                "which is fixed for its life.",
                hint=f"Set {setting} back to {fixed}.",
            )


def check_terms(spec: AccountSpec, opened: AccountSpec) -> None:
    """Refuse terms that are laxer than those the account is held to."""
    laxer = spec.terms.laxer_than(opened.terms)
    if laxer:
        named = spec.terms.policy or "none"
        raise AccountMismatch(
            f"account.policy={named}: account {opened.name} is held to {opened.terms.source}, and "
            f"the settings would weaken it: {'; '.join(laxer)}. Terms of an account may become "
            "stricter, and no laxer.",
            hint="Set account.policy, limits, public_size and approval back; start a run again "
            "that began before they were tightened. What was a mistake, whoever answers for "
            "privacy takes back, on record, with Ledger.accounts.loosen.",
        )


def check_known(connection: sa.Connection, account: str, releases: Collection[str]) -> None:
    """Refuse a ledger that lacks known releases: its balance would be too high."""
    if not releases:
        return
    recorded = entries.release_ids(connection, account)
    missing = sorted(set(releases) - recorded)
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise AccountMismatch(
            f"account.name={account}: the ledger does not know release {missing[0]}{more}, charged "
            "to this account by certificate: it was lost or replaced, and going on would forget "
            "what is spent.",
            hint="Restore the ledger from its backup. A new account.name starts from nothing, on "
            "top of what these releases have spent.",
        )
