"""Releases: each is reserved, begins and ends once, and what it began to draw stays paid."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isclose, isfinite
from typing import TYPE_CHECKING, Any

from privsyn.data.records import Private
from privsyn.dp.events import Event
from privsyn.errors import (
    ApprovalNeeded,
    BudgetError,
    DataError,
    LeaseHeld,
    LedgerUnavailable,
    PaidBefore,
    VerificationError,
)
from privsyn.ledger import audit, balances, chain, entries, leases, sa, schema
from privsyn.ledger.approvals import Approvals
from privsyn.ledger.caps import check_kind, limits_of
from privsyn.ledger.chain import LONGEST_REASON
from privsyn.ledger.database import Database
from privsyn.ledger.entries import (
    SHA256,
    Change,
    Cost,
    DatasetSource,
    Entry,
    Fill,
    Refusal,
    State,
    check_name,
    check_state,
    entry_row,
    lost,
    stamp,
)
from privsyn.ledger.leases import Lease
from privsyn.ledger.spec import ReleaseRequest, account_row, find_account, spec_of

if TYPE_CHECKING:
    from privsyn.dp.adjacency import Guarantee


class Releases:
    """The releases of a ledger. One that it does not know is a ``BudgetError``.

    Guarantee: an account's charged releases, chosen adaptively, together cost no more than its cap
    (epsilon, delta), whatever runs at once or crashes - given that each costs no more than its
    event says, and that no record is read before ``begin``.
    """

    def __init__(self, database: Database, approvals: Approvals) -> None:
        self._database = database
        self._approvals = approvals

    def reserve(
        self,
        account: str,
        release_id: str,
        event: Event,
        *,
        method: str,
        guarantee: Guarantee,
        source: DatasetSource | None = None,
        settings_digest: str | None = None,
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
            settings_digest: SHA-256 of what was asked for, the same in every version of privsyn.
                Another release of it is one that an upgrade makes anew.

        Raises:
            BudgetExceeded: It does not fit the account's cap or period cap. Nothing is charged.
            PaidBefore: Another release was charged for the same settings.
            PolicyBroken: The account's terms do not allow it.
            ApprovalNeeded: It costs more than may be spent unasked, and nobody has approved it;
                the request is then on record.
            BudgetError: The account does not take events of this kind; or another account has paid
                for the file.
            DataError: The file changed under its version, or is that of another version.
            VerificationError: The release is known with another cost, method or account; or the
                chain or the account's rows were edited, so that no balance can be trusted.
        """
        check_name("release id", release_id)
        cost = Cost(account, release_id, method, event, guarantee)
        self._price(cost)
        request = {"method": method, "epsilon": guarantee.epsilon, "delta": guarantee.delta}
        try:
            with (
                self._database.record_refusals(release_id, account, **request),
                self._database.write() as connection,
            ):
                row = account_row(connection, account)
                # An edited row could make room: nothing is charged on a broken chain.
                audit.check_account(connection, account)
                spec = spec_of(row)
                check_kind(spec, event)
                charge = limits_of(row)[0].cap.charge(event)
                entry = entries.find_entry(connection, release_id)
                if entry is not None:
                    # Retries reserve again. The same id at another cost is another plan.
                    check_entry(entry, account, method, charge.loss)
                if source is not None and (entry is None or entry.state is not State.BEGUN):
                    check_source(connection, account, entry, source)
                if entry is not None and entry.is_charged:
                    self._note_source(connection, entry, source)
                    return entry
                earlier = entries.made_before(connection, account, release_id, settings_digest)
                if earlier is not None:
                    raise paid_before(release_id, earlier)
                wish = ReleaseRequest.of(spec, cost)
                # The order of messages: rules of the account before its balance.
                spec.refuse(f"release {release_id}", wish)
                now = self._database.clock()
                releases = entries.entries_of(connection, account)
                late = chain.behind(connection, now)
                # Read and spent under the head's lock: two that fit alone may not fit together.
                balances.check_fits(row, releases, release_id, event, guarantee, now, late)
                self._approvals.check_spend(connection, spec, wish, cost)
                # Infinity, which a filter never admits, is none in JSON.
                mu_squared = charge.mu_squared
                if mu_squared is not None and not isfinite(mu_squared):
                    mu_squared = None
                body = {**cost.body, "loss": charge.loss, "mu_squared": mu_squared}
                if settings_digest is not None:
                    body["settings_digest"] = settings_digest
                self._database.append(connection, account, release_id, State.RESERVED, body)
                entry = entry_row(connection, release_id)
                self._note_source(connection, entry, source)
                return entry
        except ApprovalNeeded:
            self._approvals.request(cost)
            raise

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
        host, now = platform.node(), self._database.clock()
        with self._database.record_refusals(release_id), self._database.write() as connection:
            entry = entry_row(connection, release_id)
            # The last check before records are opened: from here the cost cannot be taken back.
            audit.check_account(connection, entry.account)
            if entry.state is State.RESERVED:
                row = account_row(connection, entry.account)
                # A clock that ran ahead may have let it in: this clock looks again.
                balances.check_begins(row, entries.entries_of(connection, row["name"]), entry, now)
                body = {"scratch": scratch, "host": host, "nonce": nonce}
                self._database.append(connection, entry.account, release_id, State.BEGUN, body)
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
            leases.check_idle(connection, release_id, now, but_mine=False)
            body = {"reason": "scratch was replaced: its draws are gone"}
            self._database.append(connection, entry.account, release_id, State.LOST, body)
        # Outside the block: inside it the exception would roll back the row that says LOST.
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
        with self._database.write() as connection:
            entry = entry_row(connection, release_id)
            # A process that died after its commit repeats it: that must succeed.
            if entry.state is State.COMMITTED:
                if any(getattr(entry, name) != value for name, value in body.items()):
                    raise VerificationError(
                        f"release {release_id} is committed with another artifact or certificate.",
                        hint=f"Bring the committed one back: privsyn restore {release_id}",
                    )
                return entry
            check_state(entry, State.BEGUN)
            if lease is not None:
                leases.check(connection, lease)
            # Another process that still draws would write draws into a release that has ended.
            leases.check_idle(connection, release_id, self._database.clock(), but_mine=True)
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
        return self._note(release_id, chain.DERIVED, _digests(artifact_sha256, certificate_sha256))

    def note_announced(self, release_id: str, name: str, asset: str) -> Change:
        """Note that an asset of Airflow has had its event of a release. Costs nothing.

        Airflow deletes old events (``airflow db clean``); the release must not be told again then.

        Args:
            release_id: The release that was paid for.
            name: The release, or what was made from it, that was announced.
            asset: The asset's URI.

        Raises:
            BudgetError: The release is not committed.
        """
        return self._note(release_id, chain.ANNOUNCED, {"name": name, "asset": asset})

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
        body = {"name": name, "certificate_sha256": certificate_sha256, "reports": dict(reports)}
        # Only the newest note counts: a report may change and change back.
        return self._note(release_id, chain.VALIDATED, body, newest_of=name)

    def void(self, release_id: str, reason: str) -> Entry:
        """Give an untouched reservation back.

        Raises:
            BudgetError: The release has begun: its cost stands.
        """
        return self._end(release_id, State.RESERVED, State.VOID, reason)

    def lose(self, release_id: str, reason: str) -> Entry:
        """Declare a begun release spent without an artifact: final.

        Args:
            release_id: A begun release.
            reason: Why, in words that hold no record text.

        Raises:
            BudgetError: The release has not begun, or is committed.
        """
        return self._end(release_id, State.BEGUN, State.LOST, reason)

    def give_up(self, release_id: str, reason: str) -> Entry:
        """End a release that nobody will finish: a started one is lost, a reserved one void.

        Raises:
            BudgetError: It is committed.
        """
        entry = self.get(release_id)
        # It may begin in between; then the call below says that its cost stands.
        if entry.state in (State.RESERVED, State.VOID):
            return self.void(release_id, reason)
        return self.lose(release_id, reason)

    @contextmanager
    def lock(self, release_id: str) -> Iterator[Entry | None]:
        """The entry of a release, which nobody can change while the block lasts: keep it short."""
        with self._database.write() as connection:
            yield entries.find_entry(connection, release_id)

    def find(self, release_id: str) -> Entry | None:
        """The entry of a release, or None."""
        with self._database.read() as connection:
            return entries.find_entry(connection, release_id)

    def get(self, release_id: str) -> Entry:
        """The entry of a release."""
        with self._database.read() as connection:
            return entry_row(connection, release_id)

    def all(self, account: str | None = None) -> list[Entry]:
        """The releases of an account, or of all, oldest first."""
        with self._database.read() as connection:
            return entries.entries_of(connection, account)

    def reservation(self, release_id: str) -> tuple[Change, Fill]:
        """The row that set a release's cost aside, and how full its account was with it then.

        The lifetime cap alone: a period's window moves when other releases end, which depends on
        their records.
        """
        with self._database.read() as connection:
            entry = entry_row(connection, release_id)
            row = account_row(connection, entry.account)
            history = list(chain.walk(connection))
        wanted = (release_id, State.RESERVED)
        last = next((one for one in history[::-1] if (one.release_id, one.change) == wanted), None)
        if last is None:
            raise chain.broken(f"release {release_id} is in its table and not in the history")
        values: dict[str, dict[str, Any]] = {}
        # Replays the chain up to that row: tables hold the newest values, not those of then.
        for one in history[: last.seq]:
            if one.account == entry.account and one.change in chain.BEFORE:
                name = str(one.release_id)
                values[name] = {"release_id": name} | values.get(name, {}) | chain.project(one)
        releases = sorted(map(entries.entry_of, values.values()), key=lambda one: one.number)
        return last, balances.lifetime_fill(row, releases)

    def refusals(self, account: str | None = None) -> list[Refusal]:
        """What an account, or any, was asked for and refused, oldest first."""
        with self._database.read() as connection:
            return entries.refusals_of(connection, account)

    def sources(
        self, *, account: str | None = None, fingerprint: str | None = None
    ) -> Sequence[sa.Row[Any]]:
        """The private files behind charged releases, of an account or with a fingerprint."""
        with self._database.read() as connection:
            return entries.sources(connection, account=account, fingerprint=fingerprint)

    def source_key(self) -> Private[bytes]:
        """The secret that fingerprints of private files are made with: one for all accounts.

        Raises:
            LedgerUnavailable: There is no ledger yet: it comes with its first account.
        """
        with self._database.read() as connection:
            key = entries.source_key(connection)
        if key is None:
            raise LedgerUnavailable(f"ledger {self._database.where} does not exist.")
        return Private(bytes.fromhex(key))

    def _price(self, cost: Cost) -> None:
        """What is dear to compute, and kept in memory, before others wait for the lock."""
        # The results are cached. Under the lock every other writer would wait for them.
        with self._database.read() as connection:
            row = find_account(connection, cost.account)
        if row is not None:
            limits_of(row)[0].cap.charge(cost.event)
            ReleaseRequest.of(spec_of(row), cost)

    def _note_source(
        self, connection: sa.Connection, entry: Entry, source: DatasetSource | None
    ) -> None:
        """Note the source of a release that is about to begin."""
        if source is None or entry.state is not State.RESERVED:
            return
        table = schema.sources
        # A void release that is reserved anew may be of another file: the newest one stands.
        connection.execute(sa.delete(table).where(table.c.release_id == entry.release_id))
        connection.execute(
            sa.insert(table).values(
                release_id=entry.release_id,
                account=entry.account,
                version=source.version,
                fingerprint=source.fingerprint,
                noted_at=stamp(self._database.clock()),
            )
        )

    def _note(
        self, release_id: str, change: str, body: Mapping[str, Any], newest_of: str | None = None
    ) -> Change:
        """A row about a committed release, unless one, or the newest of a name, says the same."""
        with self._database.write() as connection:
            entry = entry_row(connection, release_id)
            check_state(entry, State.COMMITTED)
            rows = list(chain.walk(connection, release_id, (change,)))
            if newest_of is not None:
                rows = [row for row in rows if row.body["name"] == newest_of][-1:]
            for row in rows:
                if body.items() <= row.body.items():
                    return row
            return self._database.append(connection, entry.account, release_id, change, body)

    def _end(self, release_id: str, before: State, after: State, reason: str) -> Entry:
        with self._database.write() as connection:
            entry = entry_row(connection, release_id)
            # Ending twice is no error: the caller may not know that its first call went through.
            if entry.state is after:
                return entry
            check_state(entry, before)
            return self._move(connection, entry, after, {"reason": reason[:LONGEST_REASON]})

    def _move(
        self, connection: sa.Connection, entry: Entry, state: State, body: Mapping[str, Any]
    ) -> Entry:
        self._database.append(connection, entry.account, entry.release_id, state, body)
        return entry_row(connection, entry.release_id)


def _digests(artifact_sha256: str, certificate_sha256: str) -> dict[str, str]:
    """Both digests as a history row holds them; ValueError where one is none."""
    body = {"artifact_sha256": artifact_sha256, "certificate_sha256": certificate_sha256}
    for name, value in body.items():
        if not SHA256.fullmatch(value):
            raise ValueError(f"{name}={value!r} is not 64 lower-case hex digits")
    return body


def check_entry(entry: Entry, account: str, method: str, loss: float) -> None:
    """Refuse a release whose id is known with another account, method or cost.

    Costs are compared and not events, because two machines may solve for a parameter to within a
    rounding of each other.
    """
    for name, value, recorded in (
        ("account", account, entry.account),
        ("method", method, entry.method),
        ("cost", loss, entry.loss),
    ):
        if value == recorded:
            continue
        if isinstance(value, float) and isinstance(recorded, float) and isclose(value, recorded):
            continue
        raise VerificationError(
            f"release {entry.release_id} is in the ledger with {name} {recorded}, not {value}.",
            hint="The plan was edited, or made by another version of privsyn: plan again.",
        )


def check_source(
    connection: sa.Connection, account: str, entry: Entry | None, source: DatasetSource
) -> None:
    """Refuse a private file that its account knows otherwise, or that another has paid for.

    Args:
        connection: A transaction.
        account: The account that pays.
        entry: The release, if it is known: its source can be replaced until it begins, by one that
            a new release could be made from.
        source: The file and its version.

    Raises:
        DataError: It is another file under a version, or a version's file under another.
        BudgetError: Another account has paid for it.
    """
    for earlier in entries.sources(connection, account=account):
        # A version names one file: the ids of its releases rest on that.
        if earlier.version == source.version and earlier.fingerprint != source.fingerprint:
            if entry is not None and entry.release_id == earlier.release_id and entry.open:
                continue
            raise DataError(
                f"dataset.version={source.version}: the private file is not the one that release "
                f"{earlier.release_id} was made from under this version.",
                hint="Give the new file a dataset.version of its own, which is a new charge, or "
                "put the earlier file back.",
            )
    if entry is not None and counts_for_rules(connection, entry, source):
        return
    for earlier in entries.sources(connection, fingerprint=source.fingerprint):
        # Two accounts on one file would each admit a whole cap of the same people's privacy.
        if earlier.account != account:
            raise BudgetError(
                f"the private file of account {account} is one that account {earlier.account} has "
                f"paid for (release {earlier.release_id}): the budgets of both would be spent on "
                "the same data, and their losses add up.",
                hint=f"Set account.name={earlier.account} and its dataset.name. Nothing was spent.",
            )
        if earlier.version != source.version:
            raise DataError(
                f"dataset.version={source.version}: the private file has the same content as "
                f"version {earlier.version}, of which release {earlier.release_id} was made.",
                hint=f"Wait for new data, or set dataset.version={earlier.version}; with a higher "
                "privacy.draw to pay for the same data again.",
            )


def paid_before(release_id: str, earlier: Entry) -> PaidBefore:
    """The error of a release that another version of privsyn has charged."""
    name = earlier.release_id
    ways = {
        State.COMMITTED: f"Use that one: privsyn restore {name}",
        State.LOST: "Its cost stands",
        State.BEGUN: "Finish it with the version that began it, or give it up: privsyn ledger lose "
        f"{name}, then privsyn sweep",
        State.RESERVED: f"Give its cost back: privsyn ledger lose {name}",
    }
    return PaidBefore(
        f"release {release_id} is release {name} ({earlier.state}) under another id: another "
        "version of privsyn made it from the same settings.",
        hint=f"{ways[earlier.state]}. To pay once more, raise privacy.draw by one. Nothing was "
        "spent.",
    )


def counts_for_rules(connection: sa.Connection, entry: Entry, source: DatasetSource) -> bool:
    """Whether a release is charged, and not about to begin with another file than was noted."""
    if not entry.is_charged or entry.state is not State.RESERVED:
        return entry.is_charged
    noted = entries.sources(connection, account=entry.account, fingerprint=source.fingerprint)
    return entry.release_id in {earlier.release_id for earlier in noted}
