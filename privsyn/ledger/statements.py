"""What the ledger tells of an account: balances, previews, refusals, audits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from privsyn.dp.events import load
from privsyn.ledger.accounts import AccountSpec
from privsyn.ledger.decisions import Decision
from privsyn.ledger.entries import Entry, as_plain

if TYPE_CHECKING:
    from privsyn.dp.accountant import Guarantee
    from privsyn.ledger.caps import Filter


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

    def figures(self) -> dict[str, Any]:
        """Cap, losses and room under the names that plans and certificates give them."""
        return {
            "cap": {"epsilon": self.cap.epsilon, "delta": self.cap.delta},
            "order": self.order,
            "budget": self.budget,
            "spent": self.spent,
            "left": self.left,
            "share": self.share,
            "left_epsilon": self.left_epsilon,
        }


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

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return as_plain(self)


@dataclass(frozen=True)
class Preview:
    """Outcome of reserving a release now; nothing is written.

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
        """How many more releases like this one fit the lifetime cap, one after the other.

        0 where a single one is more than a whole period may spend.
        """
        lifetime = self.filters[0]
        if not all(one.cap.fits([], one.asked) for one in self.filters):
            return 0
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
        decisions: What people approved or rejected, oldest first.
    """

    spec: AccountSpec
    key_id: str
    opened_at: datetime
    balance: Balance
    releases: tuple[Entry, ...]
    refusals: tuple[Refusal, ...] = ()
    decisions: tuple[Decision, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "account": asdict(self.spec) | {"terms": self.spec.terms.dump()},
            "key_id": self.key_id,
            "opened_at": self.opened_at.isoformat(),
            "balance": self.balance.as_dict(),
            "releases": [entry.as_dict() for entry in self.releases],
            "refusals": [refusal.as_dict() for refusal in self.refusals],
            "decisions": [decision.as_dict() for decision in self.decisions],
        }


@dataclass(frozen=True)
class Step:
    """How full an account was before and after a release. Parts of the whole cap, 0 to 1.

    Attributes:
        entry: The release, charged.
        before: Spent by the releases reserved before it that are charged now.
        after: Spent by these and by it.
    """

    entry: Entry
    before: float
    after: float


@dataclass(frozen=True)
class Audit:
    """What ``verify`` went through and found in order.

    Attributes:
        rows: Rows of the history.
        accounts: Accounts.
        entries: Releases.
        head: Hash of the last row.
        late: Rows that a clock wrote which was well behind the row before.
        behind: The most that such a clock was behind.
    """

    rows: int
    accounts: int
    entries: int
    head: str
    late: int = 0
    behind: timedelta = timedelta()
