"""How full an account is, whether a release fits, and how a refusal reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from privsyn.dp.adjacency import Guarantee
from privsyn.dp.events import Event, load
from privsyn.dp.risk import FAMILY
from privsyn.errors import BudgetError, BudgetExceeded
from privsyn.ledger.caps import (
    Cap,
    Charge,
    Filter,
    Limit,
    begins,
    check_kind,
    filters_of,
    limits_of,
)
from privsyn.ledger.decisions import Decision
from privsyn.ledger.entries import Entry, Fill, Refusal, State, as_plain, canonical
from privsyn.ledger.spec import NONE, SETTINGS, AccountSpec, Row, spec_of


@dataclass(frozen=True, kw_only=True)
class Balance(Fill):
    """How full an account is. ``left_epsilon`` respects the caps of periods as well.

    Attributes:
        account: Account name.
        period: The fullest cap of a period, where the account or its policy has one.
    """

    account: str
    period: Fill | None = None

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
        more = 1 if self.charges else 0
        return max(
            one.limit.cap.share((*one.charges, *[one.request] * more)) for one in self.filters
        )

    @property
    def room(self) -> float:
        """Epsilon, at the cap's delta, of the largest release of this kind that fits now."""
        return min(one.limit.cap.room(one.charges, load(one.request.event)) for one in self.filters)

    @property
    def copies(self) -> int:
        """How many more releases like this one fit the lifetime cap in sequence.

        0 where a single one is more than a whole period may spend.
        """
        lifetime = self.filters[0]
        # A release too large for an empty account never fits, whatever is left.
        if not all(one.limit.cap.fits([], one.request) for one in self.filters):
            return 0
        return lifetime.limit.cap.copies(lifetime.charges, lifetime.request)


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
        lifetime = limits_of(self.row)[0]
        charged = [entry for entry in self.releases if entry.is_charged]
        shares = lifetime.cap.shares([lifetime.charge(entry) for entry in charged])
        return list(map(Step, charged, shares[:-1], shares[1:]))[-most:]

    def preview(self, event: Event, now: datetime) -> Preview:
        """Outcome of reserving another release of this event; whoever asks checks the chain."""
        return preview(self.row, self.releases, event, None, now)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **as_plain(self, "spec", "row"),
            "account": asdict(self.spec) | {"terms": self.spec.terms.dump()},
            "releases": [entry.as_dict() for entry in self.releases],
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


def new_row(spec: AccountSpec) -> Row:
    """An account row as it would be created, without a key.

    Raises:
        ConfigError: A cap is so extreme that it cannot be computed.
    """
    lifetime = Cap.of(spec.epsilon, spec.delta, spec.split, spec.rooms)
    row = {
        **{name: getattr(spec, name) for name in SETTINGS},
        "renyi_order": lifetime.order,
        "budget": lifetime.budget,
        "split": canonical(asdict(lifetime.split)) if lifetime.split else None,
        "gaussian_budget": lifetime.gaussian_budget,
        "rooms": canonical(asdict(spec.rooms)) if spec.rooms else None,
        "key_id": None,
        "terms": canonical(spec.terms.dump()) if spec.terms != NONE else None,
    }
    limits_of(row)
    return row


def balance(row: Row, entries: Sequence[Entry], now: datetime) -> Balance:
    """How full an account is.

    Args:
        row: The account.
        entries: Its releases, in any state.
        now: End of the windows of periods.
    """
    lifetime, *periods = (_fill(one, one.charges(entries, now)) for one in limits_of(row))
    # What is left now is what all caps leave.
    lifetime["left_epsilon"] = min(one["left_epsilon"] for one in (lifetime, *periods))
    period = max((Fill(**one) for one in periods), key=lambda one: one.share, default=None)
    return Balance(account=row["name"], period=period, **lifetime)


def lifetime_fill(row: Row, entries: Sequence[Entry]) -> Fill:
    """How full an account's lifetime cap is: the same whenever its releases end."""
    lifetime = limits_of(row)[0]
    charges = [lifetime.charge(entry) for entry in entries if entry.is_charged]
    return Fill(**_fill(lifetime, charges))


def _fill(limit: Limit, charges: Sequence[Charge]) -> dict[str, Any]:
    cap = limit.cap
    spent = cap.total(charge.loss for charge in charges)
    spent_epsilon = cap.spent_epsilon(charges)
    return {
        "cap": Guarantee(cap.epsilon, cap.delta),
        "order": cap.order,
        "budget": cap.budget,
        "spent": spent,
        "left": max(0.0, cap.budget - spent),
        "share": cap.share(charges),
        "spent_epsilon": spent_epsilon,
        "right": cap.right(charges, spent_epsilon),
        "family_right": cap.right(charges, spent_epsilon, FAMILY),
        "left_epsilon": cap.room_epsilon(charges),
        "entries": len(charges),
        "days": limit.days,
    }


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
        now: End of the windows of periods.
        planned: Releases that would be charged before this one, in that order.
    """
    charged_entry = entry if entry is not None and entry.is_charged else None
    filters = [
        replace(one, charges=(*one.charges, *(earlier.filters[n].request for earlier in planned)))
        for n, one in enumerate(filters_of(limits_of(row), entries, event, now))
    ]
    try:
        check_kind(spec_of(row), event)
        fits = charged_entry is not None or all(one.fits for one in filters)
    except BudgetError:
        fits = charged_entry is not None
    return Preview(
        balance=balance(row, entries, now),
        loss=filters[0].request.loss,
        # The fullest filter decides how soon the account is used up.
        takes=max(one.limit.cap.share([one.request]) for one in filters),
        fits=fits,
        key_id=row["key_id"],
        entry=charged_entry,
        filters=tuple(filters),
    )


def check_fits(
    row: Row,
    entries: Sequence[Entry],
    release_id: str,
    event: Event,
    guarantee: Guarantee,
    now: datetime,
    late: str = "",
) -> None:
    """Refuse a release that a cap cannot pay.

    Args:
        row: The account.
        entries: Its releases, in any state.
        release_id: What the release is called in the message.
        event: What it does to the data.
        guarantee: (epsilon, delta) of the release alone.
        now: End of the windows. A clock that is behind leaves more in them.
        late: What to say of a clock that is behind the ledger's time.

    Raises:
        BudgetExceeded: Says asked, left and short by, and what would fit.
    """
    release = f"release {release_id} (epsilon={guarantee.epsilon:.4g}, delta={guarantee.delta:.4g})"
    for one in filters_of(limits_of(row), entries, event, now):
        if one.fits:
            continue
        room, window = one.limit.cap.room(one.charges, event), ""
        if one.limit.days is not None:
            window = f" in {one.limit.days} days"
            hint = f"{_when(one, entries, now)} {late}".strip()
        elif room > 0:
            hint = f"Lower privacy.epsilon to {_floor(room)} or less."
        else:
            hint = "The account is used up; that is final for this dataset."
        what = f"account {row['name']}{window} cannot pay for {release}"
        raise _excess_error(one, room, what, hint)


def check_begins(row: Row, entries: Sequence[Entry], entry: Entry, now: datetime) -> None:
    """Refuse to begin a reserved release while other drawn releases fill the cap of a period.

    ``reserve`` admits no release that could end here, unless the clock was ahead at that time.
    Other reservations draw nothing before they begin, and are checked then.

    Raises:
        BudgetExceeded: As check_fits. The release stays reserved.
    """
    for one in begins(limits_of(row), entries, entry, now):
        if not one.fits:
            raise _excess_error(
                one,
                one.limit.cap.room_epsilon(one.charges),
                f"account {row['name']} in {one.limit.days} days has no room to begin release "
                f"{entry.release_id}",
                _when(one, [other for other in entries if other.state is not State.RESERVED], now),
            )


def _excess_error(one: Filter, room: float, what: str, hint: str) -> BudgetExceeded:
    cap = one.limit.cap
    left = max(0.0, cap.budget - cap.total(charge.loss for charge in one.charges))
    short = one.request.loss - left
    unit = "epsilon" if cap.order is None else f"Renyi loss at order {cap.order:.4g}"
    return BudgetExceeded(
        f"{what}: there is room for epsilon={_floor(room)} of its kind. Nothing was spent. "
        f"(In {unit}: asked {one.request.loss:.4g}, left {left:.4g} of {cap.budget:.4g}, short by "
        f"{short:.4g}; cap epsilon={cap.epsilon:g}, delta={cap.delta:g}.)",
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
    limit, days = one.limit, one.limit.days or 0
    # Waiting does not help: even an empty window is too small.
    if not limit.cap.fits([], one.request):
        return f"It is more than the whole of {limit.setting}={limit.cap.epsilon:g}."
    for gone, first in enumerate(limit.inside(entries, now), 1):
        if not limit.cap.fits(one.charges[gone:], one.request):
            continue
        if first.open:
            return (
                f"It fits {days} days after release {first.release_id}, which is "
                f"{first.state} and may still draw, has ended."
            )
        day = first.changed_at + timedelta(days=days)
        return f"It fits from {day:%Y-%m-%d %H:%M} UTC on."
    return ""
