"""What the ledger keeps of a release: its entry, its source, and every change of its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from privsyn.dp.accountant import Guarantee


class State(StrEnum):
    """Where a release stands. Everything but VOID counts as spent.

    RESERVED -> BEGUN -> COMMITTED or LOST; RESERVED -> VOID -> RESERVED.
    """

    RESERVED = "RESERVED"
    BEGUN = "BEGUN"
    COMMITTED = "COMMITTED"
    LOST = "LOST"
    VOID = "VOID"


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
        period_loss: Likewise at the order of the period cap; None without one.
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
    period_loss: float | None
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

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) of this release alone."""
        return Guarantee(self.epsilon, self.delta)

    @property
    def charged(self) -> bool:
        """Whether its cost counts."""
        return self.state is not State.VOID

    @property
    def open(self) -> bool:
        """Whether it may still draw."""
        return self.state in (State.RESERVED, State.BEGUN)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: no nonce, times as ISO text."""
        return as_plain(self, "nonce")


@dataclass(frozen=True)
class DatasetSource:
    """The private file behind a version of a dataset. Internal: see data/source.py.

    Attributes:
        version: The dataset's version.
        fingerprint: Keyed hash of its content, with the ledger's source key.
        same: Whether a file with the content of another version may be paid for again.
        strict: Whether a file that another account has paid for is refused.
    """

    version: str
    fingerprint: str
    same: bool = False
    strict: bool = False


@dataclass(frozen=True)
class Source:
    """A fingerprint the ledger holds. Internal.

    Attributes:
        release_id: The release it was noted with.
        account: The account that pays.
        version: The dataset's version.
        fingerprint: Keyed hash of the file's content.
    """

    release_id: str
    account: str
    version: str
    fingerprint: str


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


TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


def stamp(at: datetime) -> str:
    """A time as the ledger writes it: UTC, of fixed width, so that text order is time order."""
    return at.astimezone(UTC).strftime(TIME)


def moment(text: str) -> datetime:
    """The inverse of ``stamp``."""
    return datetime.strptime(text, TIME).replace(tzinfo=UTC)


def as_plain(value: Any, *without: str) -> dict[str, Any]:
    """A dataclass's fields as JSON values."""
    out: dict[str, Any] = {}
    for item in fields(value):
        if item.name in without:
            continue
        content = getattr(value, item.name)
        if isinstance(content, datetime):
            content = content.isoformat()
        elif isinstance(content, Mapping):
            content = dict(content)
        elif hasattr(content, "__dataclass_fields__"):
            content = as_plain(content)
        out[item.name] = content
    return out


def said_who(who: Mapping[str, str] | None) -> str:
    """Who asked the ledger, in a few words: the user, and of Airflow the DAG and its run."""
    if not who:
        return ""
    run = "/".join(who[key] for key in ("dag_id", "run_id") if key in who)
    return " ".join(filter(None, (said_user(who), run or who.get("driver"))))


def said_user(who: Mapping[str, str]) -> str:
    """The user who asked, and as whom the process ran that said so, where it was another."""
    user, process = who.get("user", ""), who.get("os_user")
    return f"{user} (process of {process})" if process else user
