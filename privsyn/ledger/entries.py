"""What the ledger records of a release: its entry, source, refusals, and every change of state."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from pydantic_core import to_jsonable_python

from privsyn.dp.adjacency import Guarantee
from privsyn.dp.events import Event, dump
from privsyn.errors import BudgetError, ReleaseLost
from privsyn.ledger import sa, schema

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
SHA256 = re.compile(r"[0-9a-f]{64}")


class State(StrEnum):
    """Where a release stands. Everything but VOID counts as spent.

    RESERVED -> BEGUN -> COMMITTED or LOST; RESERVED -> VOID -> RESERVED.
    """

    RESERVED = "RESERVED"
    BEGUN = "BEGUN"
    COMMITTED = "COMMITTED"
    LOST = "LOST"
    VOID = "VOID"


def canonical(value: Any) -> str:
    """JSON with one spelling: sorted keys, no spaces, ASCII, no NaN."""
    # Hashes are over this text: a change of spelling would break every chain there is.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


ENDED = (State.COMMITTED, State.LOST, State.VOID)
"""Of these nothing can be drawn any more: their intermediates are of no use to anybody."""


@dataclass(frozen=True)
class Entry:
    """One release in the ledger.

    Attributes:
        number: Number of its reservation, from 1 on over all accounts; what lineage quotes.
        release_id: Name of the release.
        account: Account that pays.
        method: Method that draws.
        state: Where it stands.
        event: The privacy event, as ``privsyn.dp.events.dump`` writes it.
        loss: Renyi loss (nats) at the account's order; pure epsilon where the account's delta is 0.
        mu_squared: Squared mu of its Gaussian DP; None in an account without such a filter.
        epsilon: Guarantee of this release alone.
        delta: Guarantee of this release alone.
        reserved_at: When its cost was set aside (UTC).
        changed_at: Last change of state (UTC). A finished release leaves the period cap's window
            by it; one that may still draw is always inside.
        scratch: Where a begun release draws.
        host: Machine that began it, for people to read; no part of its identity.
        nonce: Random text in that scratch folder, which pins the release to it.
        artifact_sha256: Digest of the synthetic file, once committed.
        certificate_sha256: Digest of the certificate, once committed.
        reason: Why it is void or lost.
        reserved_by: Who set its cost aside: user, driver, and of Airflow DAG and run.
    """

    number: int
    release_id: str
    account: str
    method: str
    state: State
    event: Mapping[str, Any]
    loss: float
    epsilon: float
    delta: float
    reserved_at: datetime
    changed_at: datetime
    scratch: str | None = None
    host: str | None = None
    nonce: str | None = field(default=None, repr=False)
    artifact_sha256: str | None = None
    certificate_sha256: str | None = None
    reason: str | None = None
    mu_squared: float | None = None
    reserved_by: Mapping[str, str] | None = None

    @cached_property
    def event_text(self) -> str:
        """The event, as the ledger stores it."""
        return canonical(self.event)

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) of this release alone."""
        return Guarantee(self.epsilon, self.delta)

    @property
    def is_charged(self) -> bool:
        """Whether its cost counts."""
        return self.state is not State.VOID

    @property
    def open(self) -> bool:
        """Whether it may still draw."""
        return self.state in (State.RESERVED, State.BEGUN)

    @property
    def standing(self) -> str:
        """Name and state in words, for a list."""
        return f"{self.release_id} ({self.state} since {self.changed_at:%Y-%m-%d %H:%M})"

    def as_dict(self) -> dict[str, Any]:
        """For JSON: no nonce, times as ISO text."""
        return as_plain(self, "nonce")


@dataclass(frozen=True)
class Cost:
    """What a release asks of its account.

    Attributes:
        account: Name of the account that pays.
        release_id: Name of the release.
        method: Name of the method, for the record.
        event: What the release does to the data; its loss is what is charged.
        guarantee: (epsilon, delta) of the release alone, for the record.
    """

    account: str
    release_id: str
    method: str
    event: Event
    guarantee: Guarantee

    @property
    def body(self) -> dict[str, Any]:
        """As rows of the history have it."""
        epsilon, delta = self.guarantee.epsilon, self.guarantee.delta
        return {
            "method": self.method, "event": dump(self.event), "epsilon": epsilon, "delta": delta
        }  # fmt: skip

    @property
    def digest(self) -> str:
        """What an approval to spend is about: this release at this cost, and no other."""
        cost = {"account": self.account, "release_id": self.release_id, **self.body}
        # The prefix keeps a digest of a cost from being one of a certificate.
        return hashlib.sha256(b"privsyn cost\n" + canonical(cost).encode()).hexdigest()


@dataclass(frozen=True)
class DatasetSource:
    """The private file behind a version of a dataset. Internal: see data/readers/streams.py.

    Attributes:
        version: The dataset's version.
        fingerprint: Keyed hash of its content, with the ledger's source key.
    """

    version: str
    fingerprint: str


@dataclass(frozen=True)
class Refusal:
    """A release that was asked for and refused. Nothing was spent.

    Attributes:
        number: 1-based position among all refusals.
        at: When (UTC).
        account: Account that was to pay, or to be opened.
        release_id: Release that was requested; None where an account was to be opened.
        method: Method of the release.
        epsilon: Guarantee of the release.
        delta: Guarantee of the release.
        error: Class of the error.
        message: Message of the error.
        refused_by: Who asked: user, driver, and of Airflow DAG and run.
    """

    number: int
    at: datetime
    account: str
    release_id: str | None
    method: str | None
    epsilon: float | None
    delta: float | None
    error: str
    message: str
    refused_by: Mapping[str, str] | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return as_plain(self)


@dataclass(frozen=True)
class Change:
    """A row of the append-only history: one change of state, chained to the row before it.

    Attributes:
        seq: 1-based position.
        at: Time (UTC), as written into the hash.
        account: Account it concerns.
        release_id: Release it concerns; None for a change of the account itself.
        change: What changed: a release's new state, or one of those that chain.py names.
        body: What the change recorded.
        previous: Hash of the row before.
        hash: SHA-256 over ``previous`` and this row's canonical JSON.
    """

    seq: int
    at: str
    account: str
    release_id: str | None
    change: str
    body: Mapping[str, Any]
    previous: str
    hash: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return as_plain(self)


def as_plain(value: Any, *without: str) -> dict[str, Any]:
    """A dataclass's fields as JSON values."""
    plain: dict[str, Any] = to_jsonable_python(value, exclude=set(without))
    return plain


def describe_requester(who: Mapping[str, str] | None) -> str:
    """Who asked the ledger, in a few words: the user, and of Airflow the DAG and its run."""
    if not who:
        return ""
    run = "/".join(who[key] for key in ("dag_id", "run_id") if key in who)
    return " ".join(filter(None, (describe_user(who), run or who.get("driver"))))


def describe_user(who: Mapping[str, str]) -> str:
    """The user who asked, and as whom the process ran that said so, where it was another."""
    user, process = who.get("user", ""), who.get("os_user")
    return f"{user} (process of {process})" if process else user


def entry_of(row: Mapping[str, Any]) -> Entry:
    """An entry row as a value."""
    values = dict(row)
    values["state"] = State(row["state"])
    values["event"] = json.loads(row["event"])
    values["reserved_at"] = moment(row["reserved_at"])
    values["changed_at"] = moment(row["changed_at"])
    values["reserved_by"] = _who(row["reserved_by"])
    return Entry(**values)


def _who(text: str | None) -> dict[str, str] | None:
    return None if text is None else json.loads(text)


def find_entry(connection: sa.Connection, release_id: str) -> Entry | None:
    """The entry of a release."""
    query = sa.select(schema.entries).where(schema.entries.c.release_id == release_id)
    row = connection.execute(query).mappings().one_or_none()
    return entry_of(dict(row)) if row else None


def release_ids(connection: sa.Connection, account: str) -> set[str]:
    """The releases an account knows, in any state."""
    query = sa.select(schema.entries.c.release_id).where(schema.entries.c.account == account)
    return set(connection.execute(query).scalars())


def entries_of(connection: sa.Connection, account: str | None) -> list[Entry]:
    """The entries of an account, or of all, oldest first."""
    return list(map(entry_of, _rows(connection, schema.entries, account)))


def refusals_of(connection: sa.Connection, account: str | None) -> list[Refusal]:
    """The refusals of an account, or of all, oldest first."""
    return [
        Refusal(**row | {"at": moment(row["at"]), "refused_by": _who(row["refused_by"])})
        for row in _rows(connection, schema.refusals, account)
    ]


def _rows(connection: sa.Connection, table: sa.Table, account: str | None) -> list[dict[str, Any]]:
    query = sa.select(table).order_by(table.c.number)
    if account is not None:
        query = query.where(table.c.account == account)
    return [dict(row) for row in connection.execute(query).mappings()]


def sources(
    connection: sa.Connection, *, account: str | None = None, fingerprint: str | None = None
) -> Sequence[sa.Row[Any]]:
    """The files behind charged releases: of an account, with a fingerprint, or all. Internal.

    A row has the ``release_id`` that it was noted with, its ``account``, the dataset's ``version``
    and the ``fingerprint``.
    """
    columns, entries = schema.sources.c, schema.entries.c
    query = (
        sa.select(columns.release_id, columns.account, columns.version, columns.fingerprint)
        .join(schema.entries, entries.release_id == columns.release_id)
        # A void release opened no record: its file was not used.
        .where(entries.state != State.VOID.value)
        .order_by(entries.number)
    )
    if account is not None:
        query = query.where(columns.account == account)
    if fingerprint is not None:
        query = query.where(columns.fingerprint == fingerprint)
    return connection.execute(query).all()


def source_key(connection: sa.Connection) -> str | None:
    """The ledger's secret, in hex: sources are hashed with it; None where there is no ledger.

    It is on no certificate and in no row.
    """
    query = sa.select(schema.secrets.c.value).where(schema.secrets.c.name == "source")
    return connection.execute(query).scalar()


def made_before(
    connection: sa.Connection, account: str, release_id: str | None, settings_digest: str | None
) -> Entry | None:
    """The newest other release that an account is charged with for the same settings."""
    if settings_digest is None:
        return None
    history = schema.history.c
    query = (
        sa.select(history.release_id)
        .where(history.account == account, history.change == State.RESERVED.value)
        # The digest is in no other field's value, and reading each row's JSON would take longer.
        .where(history.body.contains(f'"settings_digest":"{settings_digest}"', autoescape=True))
        .order_by(history.seq.desc())
    )
    for other in connection.execute(query).scalars():
        entry = find_entry(connection, str(other)) if other != release_id else None
        if entry is not None and entry.is_charged:
            return entry
    return None


def entry_row(connection: sa.Connection, release_id: str) -> Entry:
    """The entry of a release that must exist."""
    entry = find_entry(connection, release_id)
    if entry is None:
        raise BudgetError(
            f"release {release_id} is not in the ledger.", hint="See: privsyn ledger entries"
        )
    return entry


def check_state(entry: Entry, expected: State) -> None:
    """Refuse a release in any other state."""
    if entry.state is expected:
        return
    if entry.state is State.LOST:
        raise lost(entry.release_id, entry.reason or "")
    hints = {
        State.RESERVED: "It has not begun: begin it, or void it.",
        State.BEGUN: "It has begun and its cost stands: resume it, or give it up.",
        State.COMMITTED: f"It is finished. Bring it back: privsyn restore {entry.release_id}",
        State.VOID: "Reserve it again.",
    }
    raise BudgetError(
        f"release {entry.release_id} is {entry.state}, not {expected}.", hint=hints[entry.state]
    )


def lost(release_id: str, reason: str) -> ReleaseLost:
    """The error of a release that is spent without an artifact."""
    return ReleaseLost(
        f"release {release_id} is LOST ({reason}): its cost stands and it has no artifact.",
        hint="Another draw is another charge: raise privacy.draw by one.",
    )


def check_name(what: str, value: str) -> None:
    """Refuse a name that could not stand in a file name or a message."""
    if not NAME.fullmatch(value):
        raise ValueError(f"{what}={value!r} must match {NAME.pattern}")


@dataclass(frozen=True, kw_only=True)
class Fill:
    """How full a cap is.

    Attributes:
        cap: (epsilon, delta) that is never exceeded.
        order: Renyi order of the filter; None where delta is 0 and losses are pure epsilons.
        budget: Loss at that order the cap admits (nats).
        spent: Loss charged so far.
        left: ``budget - spent``, at least 0.
        share: Spent part of the cap, 0 to 1, by the filter that is the least full.
        spent_epsilon: The epsilon that all charges together are proved to cost, at the account's
            delta; not the sum of the releases' epsilons.
        right: Chance to name the right one of two equally likely cases from all charges together,
            at most; guessing has .5.
        family_right: The same of ``dp.risk.FAMILY`` units together.
        left_epsilon: Epsilon, at the cap's delta, of the largest release of Gaussian noise that
            fits now.
        entries: Charged releases that count.
        days: Length of its sliding window; None for the lifetime's cap.
    """

    cap: Guarantee
    order: float | None
    budget: float
    spent: float
    left: float
    share: float
    spent_epsilon: float
    right: float
    family_right: float
    left_epsilon: float
    entries: int
    days: int | None = None

    def figures(self) -> dict[str, Any]:
        """Cap, losses and room under the names that plans and certificates give them."""
        return as_plain(
            self, "account", "entries", "days", "period", "spent_epsilon", "right", "family_right"
        )


TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


def stamp(at: datetime) -> str:
    """A time as the ledger writes it: UTC, of fixed width, so that text order is time order."""
    return at.astimezone(UTC).strftime(TIME)


def moment(text: str) -> datetime:
    """The inverse of ``stamp``."""
    return datetime.strptime(text, TIME).replace(tzinfo=UTC)
