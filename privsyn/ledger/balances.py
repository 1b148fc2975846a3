"""How full an account is, whether a release fits, and how a refusal reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from privsyn.dp.accountant import Guarantee
from privsyn.dp.events import Event, load
from privsyn.errors import BudgetError, BudgetExceeded
from privsyn.ledger.caps import (
    Cap,
    Charge,
    Filter,
    caps_of,
    charge_again,
    check_kind,
    policy_period,
)
from privsyn.ledger.chain import canonical
from privsyn.ledger.decisions import Decision
from privsyn.ledger.entries import Entry, Refusal, State, as_plain
from privsyn.ledger.schema import moment
from privsyn.ledger.spec import NONE, SHARES, AccountSpec, Row, spec_of


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
        loss: Loss of the release at the account's order; inf for an event the account refuses.
        takes: Part of the whole cap it takes, by the filter it weighs least in; the larger part of
            lifetime and period cap.
        fits: Whether ``reserve`` would succeed.
        exists: Whether the account is in the ledger.
        key_id: Public id of the account's partition key, if it exists.
        entry: The release's own entry, if it is already charged: it then costs nothing more.
        earlier: Another release that is charged for the same settings, if this one is not: an
            upgrade would make it anew.
        filters: The caps, with what is charged to them and what the release asks.
    """

    balance: Balance
    loss: float
    takes: float
    fits: bool
    exists: bool
    key_id: str | None = None
    entry: Entry | None = None
    filters: tuple[Filter, ...] = field(default=(), repr=False)
    earlier: Entry | None = None

    @property
    def charges(self) -> bool:
        """Whether reserving it charges the account: it fits, and is not paid for."""
        return self.fits and self.entry is None

    @property
    def share_after(self) -> float:
        """Spent part of the account, 0 to 1, once it is reserved; of its fullest cap."""
        request = [one.request for one in self.filters] if self.charges else []
        return max(
            one.cap.share((*one.charges, *request[n : n + 1])) for n, one in enumerate(self.filters)
        )

    @property
    def room(self) -> float:
        """Epsilon, at the cap's delta, of the largest release of this kind that fits now."""
        return min(one.cap.room(one.charges, load(one.request.event)) for one in self.filters)

    @property
    def copies(self) -> int:
        """How many more releases like this one fit the lifetime cap in sequence.

        0 where a single one is more than a whole period may spend.
        """
        lifetime = self.filters[0]
        # A release too large for an empty account never fits, whatever is left.
        if not all(one.cap.fits([], one.request) for one in self.filters):
            return 0
        return lifetime.cap.copies(lifetime.charges, lifetime.request)


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
        row: The account's terms as they are stored, without its key.
    """

    spec: AccountSpec
    key_id: str
    opened_at: datetime
    balance: Balance
    releases: tuple[Entry, ...]
    refusals: tuple[Refusal, ...] = ()
    decisions: tuple[Decision, ...] = ()
    row: Row = field(default_factory=dict, repr=False, compare=False)

    def usage(self, most: int) -> list[Step]:
        """How the account was filled: the newest of its charged releases, at most so many."""
        lifetime, _ = caps_of(self.row)
        charged = [entry for entry in self.releases if entry.is_charged]
        shares = lifetime.shares([Charge.of(entry) for entry in charged])
        return list(map(Step, charged, shares[:-1], shares[1:]))[-most:]

    def preview(self, event: Event, now: datetime) -> Preview:
        """Outcome of reserving another release of this event; whoever asks checks the chain."""
        return preview(self.row, self.releases, event, None, now)

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


def new_caps(spec: AccountSpec) -> tuple[Cap, Cap | None]:
    """The caps an account of this spec gets at its creation."""
    lifetime = Cap.of(spec.epsilon, spec.delta, spec.split, spec.rooms)
    if spec.period_epsilon is None:
        return lifetime, None
    return lifetime, Cap.of(spec.period_epsilon, spec.delta, spec.split)


def new_row(spec: AccountSpec) -> Row:
    """An account row as it would be created, without a key."""
    lifetime, period = new_caps(spec)
    return {
        "name": spec.name,
        "dataset": spec.dataset,
        "unit": spec.unit,
        "unit_column": spec.unit_column,
        "adjacency": spec.adjacency,
        "epsilon": spec.epsilon,
        "delta": spec.delta,
        "renyi_order": lifetime.order,
        "budget": lifetime.budget,
        "period_days": spec.period_days,
        "period_epsilon": spec.period_epsilon,
        "period_order": period.order if period else None,
        "period_budget": period.budget if period else None,
        **(asdict(lifetime.split) if lifetime.split else dict.fromkeys(SHARES)),
        "gaussian_budget": lifetime.gaussian_budget,
        "period_gaussian_budget": period.gaussian_budget if period else None,
        "rooms": canonical(asdict(spec.rooms)) if spec.rooms else None,
        "key_id": None,
        "terms": canonical(spec.terms.dump()) if spec.terms != NONE else None,
    }


def balance(row: Row, entries: Sequence[Entry], now: datetime) -> Balance:
    """How full an account is.

    Args:
        row: The account.
        entries: Its releases, in any state.
        now: End of the period cap's window.
    """
    lifetime, period = caps_of(row)
    # RESERVED counts, too: otherwise two reservations could share what one of them needs.
    charged = [entry for entry in entries if entry.is_charged]
    fill = _fill(lifetime, [Charge.of(entry) for entry in charged])
    window = None
    if period is not None:
        recent = _recent(row["period_days"], charged, now)
        window = Window(
            days=row["period_days"],
            entries=len(recent),
            **_fill(period, [Charge.of(entry, period=True) for entry in recent]),
        )
        # What is left now is what both caps leave.
        fill["left_epsilon"] = min(fill["left_epsilon"], window.left_epsilon)
    return Balance(account=row["name"], entries=len(charged), period=window, **fill)


def lifetime_fill(row: Row, entries: Sequence[Entry]) -> Fill:
    """How full an account's lifetime cap is: the same whenever its releases end."""
    charges = [Charge.of(entry) for entry in entries if entry.is_charged]
    return Fill(**_fill(caps_of(row)[0], charges))


def _fill(cap: Cap, charges: Sequence[Charge]) -> dict[str, Any]:
    spent = cap.total(charge.loss for charge in charges)
    return {
        "cap": Guarantee(cap.epsilon, cap.delta),
        "order": cap.order,
        "budget": cap.budget,
        "spent": spent,
        "left": max(0.0, cap.budget - spent),
        "share": cap.share(charges),
        "spent_epsilon": cap.spent_epsilon(charges),
        "left_epsilon": cap.room_epsilon(charges),
    }


def _recent(days: int, charged: Sequence[Entry], now: datetime) -> list[Entry]:
    """The charged releases inside a sliding window, in the order in which they leave it.

    A release draws at any time between its reservation and its end, so it counts all that time and
    for a window's length after: whatever was drawn within a window is inside when the window ends.
    """
    start = now - timedelta(days=days)
    inside = [entry for entry in charged if entry.open or entry.changed_at > start]
    return sorted(inside, key=lambda entry: (entry.open, entry.changed_at))


def preview(
    row: Row,
    entries: Sequence[Entry],
    event: Event,
    entry: Entry | None,
    now: datetime,
    planned: Sequence[Preview] = (),
) -> Preview:
    """Outcome of reserving ``event`` now.

    Args:
        row: The account.
        entries: Its releases, in any state.
        event: What is asked for.
        entry: The release's own entry, if it has one.
        now: End of the period's window.
        planned: Releases that would be charged before this one, in that order.
    """
    charged_entry = entry if entry is not None and entry.is_charged else None
    filters = [
        replace(one, charges=(*one.charges, *(earlier.filters[n].request for earlier in planned)))
        for n, one in enumerate(_filters(row, entries, event, now))
    ]
    return Preview(
        balance=balance(row, entries, now),
        loss=filters[0].request.loss,
        # The fullest filter decides how soon the account is used up.
        takes=max(one.takes for one in filters),
        fits=charged_entry is not None or _fits(row, filters, event),
        exists=row["key_id"] is not None,
        key_id=row["key_id"],
        entry=charged_entry,
        filters=tuple(filters),
    )


def _fits(row: Row, filters: Sequence[Filter], event: Event) -> bool:
    try:
        check_kind(spec_of(row), event)
    except BudgetError:
        return False
    return all(one.cap.fits(one.charges, one.request) for one in filters)


def _filters(row: Row, entries: Sequence[Entry], event: Event, now: datetime) -> list[Filter]:
    """The lifetime cap and, where there are such, the period caps of account and policy."""
    lifetime, period = caps_of(row)
    charged = [entry for entry in entries if entry.is_charged]
    charges = tuple(Charge.of(entry) for entry in charged)
    filters = [Filter(lifetime, charges, lifetime.charge(event))]
    if period is not None:
        recent = _recent(row["period_days"], charged, now)
        inside = tuple(Charge.of(entry, period=True) for entry in recent)
        request = period.charge(event)
        filters.append(
            Filter(period, inside, request, row["period_days"], "account.period.epsilon")
        )
    policy = policy_period(row)
    if policy is not None:
        days, cap = policy
        inside = tuple(_charge_of(cap, entry) for entry in _recent(days, charged, now))
        filters.append(Filter(cap, inside, cap.charge(event), days, "the policy's period.epsilon"))
    return filters


def _charge_of(cap: Cap, entry: Entry) -> Charge:
    """What an entry takes from a cap that did not exist when it was charged."""
    return charge_again(cap, canonical(entry.event))


def check_fits(
    row: Row,
    entries: Sequence[Entry],
    release_id: str,
    event: Event,
    guarantee: Guarantee,
    now: datetime,
    late: str = "",
) -> None:
    """Refuse a release that either filter cannot pay.

    Args:
        row: The account.
        entries: Its releases, in any state.
        release_id: What the release is called in the message.
        event: What it does to the data.
        guarantee: (epsilon, delta) of the release alone.
        now: End of the period's window. A clock that is behind leaves more in it.
        late: What to say of a clock that is behind the ledger's time.

    Raises:
        BudgetExceeded: Says asked, left and short by, and what would fit.
    """
    filters = _filters(row, entries, event, now)
    release = f"release {release_id} (epsilon={guarantee.epsilon:.4g}, delta={guarantee.delta:.4g})"
    for one in filters:
        if one.cap.fits(one.charges, one.request):
            continue
        room = one.cap.room(one.charges, event)
        if one.days is None:
            what = f"account {row['name']}"
            hint = (
                f"Lower privacy.epsilon to {_floor(room)} or less."
                if room > 0
                else "The account is used up; that is final for this dataset."
            )
        else:
            what = f"account {row['name']} in {one.days} days"
            hint = " ".join(filter(None, (_when(one, entries, now), late)))
        raise _excess_error(one, room, f"{what} cannot pay for {release}", hint)


def check_begins(row: Row, entries: Sequence[Entry], entry: Entry, now: datetime) -> None:
    """Refuse to begin a reserved release while other drawn releases fill the period cap.

    ``reserve`` admits no release that could end here, unless the clock was ahead at that time.
    Other reservations draw nothing before they begin, and are checked then.

    Raises:
        BudgetExceeded: As check_fits. The release stays reserved.
    """
    period = caps_of(row)[1]
    if period is None:
        return
    others = [other for other in entries if other.is_charged and other.state is not State.RESERVED]
    days = row["period_days"]
    earlier = tuple(Charge.of(other, period=True) for other in _recent(days, others, now))
    request = Charge.of(entry, period=True)
    if not period.fits(earlier, request):
        one = Filter(period, earlier, request, days, "account.period.epsilon")
        raise _excess_error(
            one,
            period.room_epsilon(earlier),
            f"account {row['name']} in {days} days has no room to begin release {entry.release_id}",
            _when(one, others, now),
        )


def _excess_error(one: Filter, room: float, what: str, hint: str) -> BudgetExceeded:
    cap = one.cap
    left = max(0.0, cap.budget - cap.total(charge.loss for charge in one.charges))
    short = one.request.loss - left
    unit = "epsilon" if cap.order is None else f"Renyi loss at order {cap.order:.4g}"
    return BudgetExceeded(
        f"{what}: there is room for epsilon={_floor(room)} of its kind. Nothing was spent. "
        f"(In {unit}: asked {one.request.loss:.4g}, left {left:.4g} of {cap.budget:.4g}, short by "
        f"{short:.4g}; cap epsilon={cap.epsilon:g}, delta={cap.delta:g}.)",
        asked=one.request.loss,
        left=left,
        short=short,
        hint=hint,
    )


def _floor(value: float) -> str:
    """Three digits, rounded down: a hint must not name what will be refused again."""
    if value <= 0:
        return "0"
    digits = 2 - math.floor(math.log10(value))
    return f"{math.floor(value * 10**digits) / 10**digits:g}"


def _when(one: Filter, entries: Sequence[Entry], now: datetime) -> str:
    """When the window will have room."""
    days = one.days or 0
    # Waiting does not help: even an empty window is too small.
    if not one.cap.fits([], one.request):
        return f"It is more than the whole of {one.setting}={one.cap.epsilon:g}."
    recent = _recent(days, [entry for entry in entries if entry.is_charged], now)
    charges = list(one.charges)  # in the same order as ``recent``: one entry, one charge
    while recent:
        first = recent.pop(0)
        charges.pop(0)
        if not one.cap.fits(charges, one.request):
            continue
        if first.open:
            return (
                f"It fits {days} days after release {first.release_id}, which is "
                f"{first.state} and may still draw, has ended."
            )
        day = first.changed_at + timedelta(days=days)
        return f"It fits from {day:%Y-%m-%d %H:%M} UTC on."
    return ""


def statement(
    row: Row,
    entries: Sequence[Entry],
    refusals: Sequence[Refusal],
    decisions: Sequence[Decision],
    now: datetime,
) -> Statement:
    """An account and its releases."""
    return Statement(
        spec=spec_of(row),
        key_id=row["key_id"],
        opened_at=moment(row["opened_at"]),
        balance=balance(row, entries, now),
        releases=tuple(entries),
        refusals=tuple(refusals),
        decisions=tuple(decisions),
        # privacy: whoever shows a statement has no use for the key of the partition
        row={name: value for name, value in row.items() if name != "partition_key"},
    )
