"""How full an account is, whether a release fits, and how a refusal reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from privsyn.dp.events import Event
from privsyn.errors import BudgetError, BudgetExceeded
from privsyn.ledger.accounts import (
    AccountSpec,
    Balance,
    Entry,
    Preview,
    Statement,
    Window,
    moment,
)
from privsyn.ledger.caps import Cap, check_kind
from privsyn.ledger.rows import Row, caps_of, spec_of

if TYPE_CHECKING:
    from privsyn.dp.accountant import Guarantee


def new_caps(spec: AccountSpec) -> tuple[Cap, Cap | None]:
    """The caps an account of this spec gets at its creation."""
    period = None if spec.period_epsilon is None else Cap.of(spec.period_epsilon, spec.delta)
    return Cap.of(spec.epsilon, spec.delta), period


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
        "key_id": None,
    }


def balance(row: Row, entries: Sequence[Entry], now: datetime) -> Balance:
    """How full an account is.

    Args:
        row: The account.
        entries: Its releases, in any state.
        now: End of the period cap's window.
    """
    lifetime, period = caps_of(row)
    charged = [entry for entry in entries if entry.charged]
    fill = _fill(lifetime, [entry.loss for entry in charged])
    window = None
    if period is not None:
        recent = _recent(row, charged, now)
        window = Window(
            days=row["period_days"],
            entries=len(recent),
            **_fill(period, [entry.period_loss or 0.0 for entry in recent]),
        )
        fill["left_epsilon"] = min(fill["left_epsilon"], window.left_epsilon)
    return Balance(account=row["name"], entries=len(charged), period=window, **fill)


def _fill(cap: Cap, losses: Sequence[float]) -> dict[str, Any]:
    from privsyn.dp.accountant import Guarantee

    spent = cap.total(losses)
    left = max(0.0, cap.budget - spent)
    return {
        "cap": Guarantee(cap.epsilon, cap.delta),
        "order": cap.order,
        "budget": cap.budget,
        "spent": spent,
        "left": left,
        "spent_epsilon": cap.spent_epsilon(spent),
        "left_epsilon": cap.room_epsilon(left),
    }


def _recent(row: Row, charged: Sequence[Entry], now: datetime) -> list[Entry]:
    """The charged releases inside the period cap's window, oldest first."""
    start = now - timedelta(days=row["period_days"])
    inside = [entry for entry in charged if entry.reserved_at > start]
    return sorted(inside, key=lambda entry: entry.reserved_at)


def preview(
    row: Row, entries: Sequence[Entry], event: Event, entry: Entry | None, now: datetime
) -> Preview:
    """What reserving ``event`` would meet; ``entry`` is the release's own, if it is known."""
    asked = caps_of(row)[0].loss(event)
    known = entry if entry is not None and entry.charged else None
    return Preview(
        balance=balance(row, entries, now),
        asked=asked,
        fits=known is not None or _fits(row, entries, event, now),
        exists=row["key_id"] is not None,
        key_id=row["key_id"],
        entry=known,
    )


def _fits(row: Row, entries: Sequence[Entry], event: Event, now: datetime) -> bool:
    try:
        check_kind(spec_of(row), event)
    except BudgetError:
        return False
    return not any(short for *_, short in _filters(row, entries, event, now))


def _filters(
    row: Row, entries: Sequence[Entry], event: Event, now: datetime
) -> list[tuple[Cap, list[float], float, bool]]:
    """Per filter: the cap, what counts against it, what is asked, and whether it is refused."""
    lifetime, period = caps_of(row)
    charged = [entry for entry in entries if entry.charged]
    asked = [(lifetime, [entry.loss for entry in charged], lifetime.loss(event))]
    if period is not None:
        recent = [entry.period_loss or 0.0 for entry in _recent(row, charged, now)]
        asked.append((period, recent, period.loss(event)))
    return [(cap, losses, loss, not cap.fits(losses, loss)) for cap, losses, loss in asked]


def check_fits(
    row: Row,
    entries: Sequence[Entry],
    release_id: str,
    event: Event,
    guarantee: Guarantee,
    now: datetime,
) -> None:
    """Refuse a release that either filter cannot pay.

    Raises:
        BudgetExceeded: Says asked, left and short by, and what would fit.
    """
    filters = _filters(row, entries, event, now)
    for name, (cap, losses, asked, refused) in zip(("lifetime", "period"), filters, strict=False):
        if not refused:
            continue
        left = max(0.0, cap.budget - cap.total(losses))
        short = asked - left
        unit = "epsilon" if cap.order is None else f"Renyi loss at order {cap.order:.4g}"
        room = cap.room_epsilon(left)
        if name == "lifetime":
            what = f"account {row['name']}"
            hint = (
                f"Lower privacy.epsilon to about {_floor(room)} or less."
                if room > 0
                else ("The account is used up; that is final for this dataset.")
            )
        else:
            what = f"account {row['name']} in {row['period_days']} days"
            hint = _when(row, entries, cap, asked, now)
        raise BudgetExceeded(
            f"{what} cannot pay for release {release_id} (epsilon={guarantee.epsilon:.4g}, "
            f"delta={guarantee.delta:.4g}): asked {asked:.4g}, left {left:.4g} of "
            f"{cap.budget:.4g}, short by {short:.4g} ({unit}; cap epsilon={cap.epsilon:g}, "
            f"delta={cap.delta:g}). Nothing was spent.",
            asked=asked,
            left=left,
            short=short,
            hint=hint,
        )


def _floor(value: float) -> str:
    """Three digits, rounded down: a hint must not name what will be refused again."""
    digits = 2 - math.floor(math.log10(value))
    return f"{math.floor(value * 10**digits) / 10**digits:g}"


def _when(row: Row, entries: Sequence[Entry], cap: Cap, asked: float, now: datetime) -> str:
    """When the window will have room."""
    if not cap.fits([], asked):
        return f"It is more than the whole of account.period.epsilon={cap.epsilon:g}."
    recent = _recent(row, [entry for entry in entries if entry.charged], now)
    while recent:
        oldest = recent.pop(0)
        if cap.fits([entry.period_loss or 0.0 for entry in recent], asked):
            day = oldest.reserved_at + timedelta(days=row["period_days"])
            return f"It fits from {day:%Y-%m-%d %H:%M} UTC on."
    return ""


def statement(row: Row, entries: Sequence[Entry], now: datetime) -> Statement:
    """An account and its releases."""
    return Statement(
        spec=spec_of(row),
        key_id=row["key_id"],
        opened_at=moment(row["opened_at"]),
        balance=balance(row, entries, now),
        releases=tuple(entries),
    )
