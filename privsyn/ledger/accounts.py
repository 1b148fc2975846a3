"""What the ledger answers with: specs, accounts, entries, balances. Frozen values, no database."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from privsyn.data.records import Private
from privsyn.dp.events import load
from privsyn.errors import ConfigError

if TYPE_CHECKING:
    from privsyn.config import Config
    from privsyn.dp.accountant import Guarantee
    from privsyn.ledger.balances import Filter


class State(StrEnum):
    """Where a release stands. Everything but VOID counts as spent.

    RESERVED -> BEGUN -> COMMITTED or LOST; RESERVED -> VOID -> RESERVED.
    """

    RESERVED = "RESERVED"
    BEGUN = "BEGUN"
    COMMITTED = "COMMITTED"
    LOST = "LOST"
    VOID = "VOID"


@dataclass(frozen=True)
class Split:
    """How an account's delta is shared by its filters: fixed at its creation.

    Attributes:
        renyi: For any mixture of releases.
        gaussian: For releases with Gaussian noise or of the exponential mechanism.
        repeats: For releases of one and the same event, such as trained models of one recipe.
    """

    renyi: float = 0.2
    gaussian: float = 0.4
    repeats: float = 0.4

    def __post_init__(self) -> None:
        shares = (self.renyi, self.gaussian, self.repeats)
        if not all(0 <= share <= 1 for share in shares) or math.fsum(shares) > 1 + 1e-12:
            raise ValueError(f"shares={shares} must be at least 0 and add up to at most 1")
        if self.renyi == 0:
            raise ValueError("renyi=0: no filter would be left for a mixture of releases")

    @classmethod
    def declared(cls, sampled: Collection[bool]) -> Split:
        """The split for methods of which each samples its units (a trained model), or does not."""
        if set(sampled) == {True}:
            return cls(renyi=0.08, gaussian=0.02, repeats=0.9)
        if set(sampled) == {False}:
            return cls(renyi=0.08, gaussian=0.9, repeats=0.02)
        return cls()


@dataclass(frozen=True)
class AccountSpec:
    """What an account promises: fixed at its creation for the life of the dataset.

    Attributes:
        name: Account name.
        dataset: Lineage: the dataset over all its versions. One account each.
        unit: Name of the privacy unit. How many of its records a release uses is the release's.
        adjacency: When two datasets are neighbours.
        epsilon: Lifetime cap.
        delta: Lifetime cap's delta; 0 admits pure events only.
        period_days: Length of the optional second filter's sliding window, in days.
        period_epsilon: Cap within the window, at the account's delta.
        unit_column: Column that holds the unit's id: what the unit is, whatever it is called.
            None where every row is its own unit.
        split: Shares of delta of a new account's filters; None: the default. An account that is
            open keeps what it was opened with.
    """

    name: str
    dataset: str
    unit: str
    adjacency: str
    epsilon: float
    delta: float
    period_days: int | None = None
    period_epsilon: float | None = None
    unit_column: str | None = None
    split: Split | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for key in ("name", "dataset", "unit", "adjacency", "unit_column"):
            if getattr(self, key) == "":
                raise ConfigError(f"{SETTINGS[key]} must not be empty.")
        object.__setattr__(self, "adjacency", str(self.adjacency))
        if not 0 < self.epsilon < math.inf:
            raise ConfigError(f"account.epsilon={self.epsilon} must be above 0 and finite.")
        if not 0 <= self.delta < 1:
            raise ConfigError(f"account.delta={self.delta} must be at least 0 and below 1.")
        if (self.period_days is None) != (self.period_epsilon is None):
            raise ConfigError("account.period needs both days and epsilon.")
        if self.period_days is not None and self.period_days < 1:
            raise ConfigError(f"account.period.days={self.period_days} must be at least 1.")
        if self.period_epsilon is not None and not 0 < self.period_epsilon < math.inf:
            raise ConfigError(
                f"account.period.epsilon={self.period_epsilon} must be above 0 and finite."
            )

    @classmethod
    def of(cls, config: Config, sampled: Collection[bool] = ()) -> AccountSpec:
        """The spec a config asks for.

        Args:
            config: The project's.
            sampled: Of each of account.methods, whether it samples its units.
        """
        account, period = config.account, config.account.period
        return cls(
            name=account.name,
            dataset=config.dataset.name,
            unit=account.unit,
            adjacency=account.adjacency.value,
            epsilon=account.epsilon,
            delta=account.delta,
            period_days=period.days if period else None,
            period_epsilon=period.epsilon if period else None,
            unit_column=config.dataset.unit,
            split=Split.declared(sampled),
        )


SETTINGS: Mapping[str, str] = {
    "name": "account.name",
    "dataset": "dataset.name",
    "unit": "account.unit",
    "adjacency": "account.adjacency",
    "epsilon": "account.epsilon",
    "delta": "account.delta",
    "period_days": "account.period.days",
    "period_epsilon": "account.period.epsilon",
    "unit_column": "dataset.unit",
}
"""Field of a spec -> the setting a user knows it by."""


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


@dataclass(frozen=True)
class Entry:
    """One release in the ledger.

    Attributes:
        number: Row of the history that reserved it; the ledger entry id that lineage quotes.
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
        host: Machine that began it: for people, not a part of what it is.
        nonce: What pins it to that scratch.
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
        from privsyn.dp.accountant import Guarantee

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
        return _plain(self, "nonce")


@dataclass(frozen=True)
class DatasetSource:
    """The private file behind a version of a dataset. Internal: see data/source.py.

    Attributes:
        version: The dataset's version.
        fingerprint: Keyed hash of its content, with the ledger's source key.
        same: Whether one with the content of another version may be paid for again.
        strict: Whether one that another account has paid for is refused.
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
class Refusal:
    """A release that was asked for and refused. Nothing was spent.

    Attributes:
        number: 1-based position among all refusals.
        at: When (UTC).
        account: Account that was asked.
        release_id: Release that was asked for; None where an account was.
        method: Its method.
        epsilon: Its guarantee.
        delta: Its guarantee.
        error: Class of the error.
        message: What was said.
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
        return _plain(self)


@dataclass(frozen=True)
class Change:
    """A row of the append-only history: one change of state, chained to the row before it.

    Attributes:
        seq: 1-based position.
        at: Time (UTC), as written into the hash.
        account: Account it concerns.
        release_id: Release it concerns; None for a change of the account itself.
        change: ``OPENED`` or ``RENAMED`` for an account, ``UPGRADED`` for the ledger itself, else
            the release's new state or ``DERIVED``.
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
        return _plain(self)


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
        spent_epsilon: Epsilon, at the cap's delta, proved for what is spent.
        left_epsilon: Epsilon, at the cap's delta, of the largest release of Gaussian noise that
            fits now.
    """

    cap: Guarantee
    order: float | None
    budget: float
    spent: float
    left: float
    share: float
    spent_epsilon: float
    left_epsilon: float


@dataclass(frozen=True, kw_only=True)
class Window(Fill):
    """How full the period cap is.

    Attributes:
        days: Length of the sliding window.
        entries: Charged releases inside it.
    """

    days: int
    entries: int


@dataclass(frozen=True, kw_only=True)
class Balance(Fill):
    """How full an account is. ``left_epsilon`` respects the period cap as well.

    Attributes:
        account: Account name.
        entries: Charged releases.
        period: The period cap, where the account has one.
    """

    account: str
    entries: int
    period: Window | None = None

    def figures(self) -> dict[str, Any]:
        """Cap, losses and room under the names that plans and certificates give them."""
        return {
            "cap": {"epsilon": self.cap.epsilon, "delta": self.cap.delta},
            "order": self.order,
            "budget": self.budget,
            "spent": self.spent,
            "left": self.left,
            "left_epsilon": self.left_epsilon,
        }

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return _plain(self)


@dataclass(frozen=True)
class Preview:
    """What a release would meet, without writing anything.

    Attributes:
        balance: The account now; an empty one if it does not exist.
        asked: Loss of the release at the account's order; inf for an event the account refuses.
        takes: Part of the whole cap it takes, by the filter it weighs least in; the larger part of
            lifetime and period cap.
        fits: Whether ``reserve`` would succeed.
        exists: Whether the account is in the ledger.
        key_id: Public id of the account's partition key, if it exists.
        entry: The release's own entry, if it is already charged: it then costs nothing more.
        filters: The caps, with what is charged to them and what the release asks.
    """

    balance: Balance
    asked: float
    takes: float
    fits: bool
    exists: bool
    key_id: str | None = None
    entry: Entry | None = None
    filters: tuple[Filter, ...] = field(default=(), repr=False)

    @property
    def room(self) -> float:
        """Epsilon, at the cap's delta, of the largest release of this kind that fits now."""
        return min(one.cap.room(one.held, load(one.asked.event)) for one in self.filters)

    @property
    def copies(self) -> int:
        """How many more releases like this one fit the lifetime cap, one after the other."""
        lifetime = self.filters[0]
        return lifetime.cap.copies(lifetime.held, lifetime.asked)


@dataclass(frozen=True)
class Statement:
    """An account and its releases: what ``privsyn ledger show`` prints.

    Attributes:
        spec: What the account promises.
        key_id: Public id of its partition key.
        opened_at: Time of creation (UTC).
        balance: Cap, spent share, left.
        releases: Its entries, oldest first.
        refusals: What it was asked for and refused, oldest first.
    """

    spec: AccountSpec
    key_id: str
    opened_at: datetime
    balance: Balance
    releases: tuple[Entry, ...]
    refusals: tuple[Refusal, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "account": asdict(self.spec),
            "key_id": self.key_id,
            "opened_at": self.opened_at.isoformat(),
            "balance": self.balance.as_dict(),
            "releases": [entry.as_dict() for entry in self.releases],
            "refusals": [refusal.as_dict() for refusal in self.refusals],
        }


@dataclass(frozen=True)
class Audit:
    """What ``verify`` went through and found in order.

    Attributes:
        rows: Rows of the history.
        accounts: Accounts.
        entries: Releases.
        head: Hash of the last row.
    """

    rows: int
    accounts: int
    entries: int
    head: str


TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


def stamp(at: datetime) -> str:
    """A time as the ledger writes it: UTC, of fixed width, so that text order is time order."""
    return at.astimezone(UTC).strftime(TIME)


def moment(text: str) -> datetime:
    """The inverse of ``stamp``."""
    return datetime.strptime(text, TIME).replace(tzinfo=UTC)


def _plain(value: Any, *without: str) -> dict[str, Any]:
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
            content = _plain(content)
        out[item.name] = content
    return out
