"""Verify a ledger: the chain, the tables against it, the cost of every event, the caps.

Finds an edited, missing, added or re-ordered row, a cut-off end, and a release that was let in
against the cap. It does not find a ledger that was replaced as a whole by an older copy of itself:
certificates hold the number and hash of their rows for that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NoReturn

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from privsyn.dp.accountant import Guarantee
from privsyn.dp.event_tree import is_amplified
from privsyn.dp.events import load
from privsyn.dp.filters import filter_budget, gaussian_budget
from privsyn.errors import BudgetError
from privsyn.ledger import schema
from privsyn.ledger.caps import Cap, Charge, caps_of, charge_again, check_kind, policy_period
from privsyn.ledger.chain import (
    BEFORE,
    DECISIONS,
    DERIVED,
    GENESIS,
    NOTES,
    OPENED,
    OTHER_BUILD,
    RENAMED,
    REQUESTED,
    SKEW,
    TERMS,
    broken,
    digest,
    key_digest,
    project,
    read,
)
from privsyn.ledger.decisions import Decision, What, cost_digest, standing
from privsyn.ledger.entries import Change, State
from privsyn.ledger.schema import moment, stamp
from privsyn.ledger.spec import NONE, ReleaseRequest, Terms, rooms_of, spec_of, split_of

SLACK = 1e-9
"""Relative difference of floating point between machines that does not count as an edit."""

Rows = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class LedgerAudit:
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


def verify(connection: Connection) -> LedgerAudit:
    """Go through the whole ledger.

    Raises:
        VerificationError: Names the first row that does not agree.
    """
    history = _replay(connection, costs=True)
    _compare("account", history.accounts, _rows_by_key(connection, schema.accounts, "name"))
    _compare("release", history.entries, _rows_by_key(connection, schema.entries, "release_id"))
    return LedgerAudit(
        rows=history.seq,
        accounts=len(history.accounts),
        entries=len(history.entries),
        head=history.head,
        late=history.late,
        behind=history.behind,
    )


def check_account(connection: Connection, name: str | None) -> None:
    """Check what a balance is computed from: the whole chain, and the tables of an account, or all.

    Costs are not recomputed: that they were right when they were written is ``verify``'s to say.
    The chain is gone through each time, 10,000 rows in about .4 s: a mark of how far it was checked
    could be edited by whoever edits rows.

    Raises:
        VerificationError: Names the first row that does not agree.
    """
    history = _replay(connection, costs=False)
    accounts = {key: row for key, row in history.accounts.items() if name in (None, key)}
    _compare("account", accounts, _rows_by_key(connection, schema.accounts, "name", name=name))
    entries = {key: row for key, row in history.entries.items() if name in (None, row["account"])}
    _compare(
        "release", entries, _rows_by_key(connection, schema.entries, "release_id", account=name)
    )


@dataclass
class _History:
    """Accounts and entries as the history gives them, row by row.

    Attributes:
        costs: Whether the filters are computed again for every row.
        requests: Digest of a cost that was asked for -> account and release.
        certificates: Digest of a certificate -> account and release.
        decisions: What people decided, by release.
        charges: What each charged release takes from lifetime and period cap, by account; where
            the filters are computed again.
        at: Time of the last row.
        reserved: Reservations so far.
        late: Rows that a clock wrote which was well behind the row before.
        behind: The most that such a clock was behind.
    """

    costs: bool
    at: str = ""
    reserved: int = 0
    late: int = 0
    behind: timedelta = timedelta()
    seq: int = 0
    head: str = GENESIS
    accounts: Rows = field(default_factory=dict)
    entries: Rows = field(default_factory=dict)
    requests: dict[str, tuple[str, str]] = field(default_factory=dict)
    certificates: dict[str, tuple[str, str]] = field(default_factory=dict)
    decisions: dict[str, list[Decision]] = field(default_factory=dict)
    charges: dict[str, dict[str, tuple[Charge, Charge]]] = field(default_factory=dict)


def _replay(connection: Connection, *, costs: bool) -> _History:
    history, linked = _History(costs), 0
    try:
        for stored in connection.execute(sa.select(schema.history).order_by(schema.history.c.seq)):
            _check_link(stored, history.seq, history.head)
            linked = stored.seq
            row = read(stored)
            _check_time(row, history)
            if row.change == OPENED:
                _open(row, history)
            elif row.change == RENAMED:
                _rename(row, history.accounts)
            elif row.change == TERMS:
                _hold_to(row, history.accounts)
            elif row.change == REQUESTED:
                _request(row, history)
            elif row.change in DECISIONS:
                _decide(row, history)
            elif row.change in NOTES:
                _derive(row, history)
            else:
                _move(row, history)
            history.seq, history.head, history.at = row.seq, row.hash, row.at
    except (
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        number = history.seq + 1
        what = f"history row {number} cannot be read ({type(error).__name__})"
        if linked == number:  # what another version writes has a hash that holds
            raise broken(f"{what}, and its hash holds", OTHER_BUILD) from None
        _fail(what)  # what follows from an edited value
    heads = connection.execute(sa.select(schema.head.c.seq, schema.head.c.hash)).all()
    if [tuple(row) for row in heads] != [(history.seq, history.head)]:
        last = heads[0].seq if heads else "nothing"
        _fail(
            f"the history ends at row {history.seq}, its head says {last}: rows are missing at the "
            "end"
        )
    return history


def _fail(message: str) -> NoReturn:
    raise broken(message)


def _check_link(row: sa.Row[Any], seq: int, head: str) -> None:
    if row.seq != seq + 1:
        _fail(f"history row {seq + 1} is missing")
    if row.previous != head:
        _fail(f"history row {row.seq} does not follow row {seq}: a row was replaced or moved")
    # The hash covers the row before, so an edit shows at its own row and not at the end.
    if row.hash != digest(
        row.seq, row.at, row.account, row.release_id, row.change, row.body, row.previous
    ):
        _fail(f"history row {row.seq} was edited")


def _check_time(row: Change, history: _History) -> None:
    """Check that times do not decrease, and count the rows of clocks that were behind."""
    if row.at < history.at:
        _fail(f"history row {row.seq} has a time before that of row {history.seq}")
    clock = row.body.get("clock")
    if clock is None:
        return
    late = moment(row.at) - moment(clock)
    if row.at != history.at or late <= timedelta():
        _fail(f"history row {row.seq} names a clock that was not behind")
    if late >= SKEW:
        history.late += 1
        history.behind = max(history.behind, late)


def _open(row: Change, history: _History) -> None:
    values, accounts = project(row), history.accounts
    if row.account in accounts:
        _fail(f"history row {row.seq} opens account {row.account} a second time")
    if any(values["dataset"] == other["dataset"] for other in accounts.values()):
        _fail(f"history row {row.seq} opens a second account on dataset {values['dataset']}")
    # Costs take seconds: balances check the chain alone, ``verify`` prices every row again.
    if history.costs:
        _check_caps(row, values)
    accounts[row.account] = values | {"key_sha256": row.body["key_sha256"]}


def _check_caps(row: Change, values: Mapping[str, Any]) -> None:
    split, delta = split_of(values), values["delta"]
    for epsilon, order, budget, gaussian in (
        (
            values["epsilon"],
            values["renyi_order"],
            values["budget"],
            values["gaussian_budget"],
        ),
        (
            values["period_epsilon"],
            values["period_order"],
            values["period_budget"],
            values["period_gaussian_budget"],
        ),
    ):
        if epsilon is None:
            continue
        # A budget may be smaller than its cap allows, never larger.
        share = delta * split.renyi if split else delta
        most = [(budget, filter_budget(epsilon, share, order or math.inf))]
        if split and gaussian is not None:
            most.append((gaussian, gaussian_budget(epsilon, delta * split.gaussian)))
            rooms = rooms_of(values)
            share = delta * split.gaussian
            if rooms and rooms.epsilon(share, gaussian, rooms.wholes) > epsilon * (1 + SLACK):
                _fail(
                    f"history row {row.seq}: a squared mu of {gaussian} and rooms for {rooms} are "
                    f"more than epsilon={epsilon} allows"
                )
        for stored, limit in most:
            if stored > max(limit, 0.0) * (1 + SLACK):
                _fail(
                    f"history row {row.seq}: budget={stored} is more than epsilon={epsilon} allows"
                )


def _rename(row: Change, accounts: Rows) -> None:
    if row.account not in accounts:
        _fail(f"history row {row.seq}: account {row.account} was never opened")
    values, was = project(row), row.body["was"]
    if None in (was, values["unit_column"]) or was != accounts[row.account]["unit_column"]:
        _fail(f"history row {row.seq} renames a column that account {row.account} does not have")
    accounts[row.account] |= values


def _hold_to(row: Change, accounts: Rows) -> None:
    """Check that terms become stricter, or say why they do not."""
    if row.account not in accounts:
        _fail(f"history row {row.seq}: account {row.account} was never opened")
    laxer = Terms.load(row.body["terms"]).laxer_than(Terms.load(accounts[row.account]["terms"]))
    # A reason is what ``loosen`` demands: without one the row was pushed in.
    if laxer and not row.body.get("reason"):
        _fail(f"history row {row.seq} weakens the terms of account {row.account}: {laxer[0]}")
    accounts[row.account] |= project(row)


def _request(row: Change, history: _History) -> None:
    if row.account not in history.accounts:
        _fail(f"history row {row.seq}: account {row.account} was never opened")
    history.requests[row.body["digest"]] = (row.account, str(row.release_id))


def _decide(row: Change, history: _History) -> None:
    """Check that a decision is about what there was when it was made."""
    decision = Decision.of(row)
    about = (decision.account, decision.release_id)
    if decision.what is What.SPEND:
        known = history.requests.get(decision.digest) == about
    else:
        known = history.certificates.get(decision.digest) == about
    if not known:
        _fail(
            f"history row {row.seq}: a decision to {decision.what} is about nothing of release "
            f"{row.release_id}"
        )
    if not decision.approver:
        _fail(f"history row {row.seq}: nobody made the decision")
    history.decisions.setdefault(decision.release_id, []).append(decision)


def _derive(row: Change, history: _History) -> None:
    parent = history.entries.get(str(row.release_id))
    if parent is None or parent["state"] != State.COMMITTED or parent["account"] != row.account:
        _fail(f"history row {row.seq}: release {row.release_id} has offspring and no artifact")
    if row.change == DERIVED:
        history.certificates[row.body["certificate_sha256"]] = (row.account, str(row.release_id))


def _move(row: Change, history: _History) -> None:
    name, accounts, entries = str(row.release_id), history.accounts, history.entries
    before = entries.get(name)
    if (State(before["state"]) if before else None) not in BEFORE[row.change]:
        state = before["state"] if before else "unknown"
        _fail(f"history row {row.seq}: release {name} goes from {state} to {row.change}")
    values = project(row)
    if row.change == State.RESERVED:
        if row.account not in accounts:
            _fail(f"history row {row.seq}: account {row.account} was never opened")
        if values["number"] != history.reserved + 1:
            _fail(f"history row {row.seq}: release {name} has number {values['number']}")
        history.reserved += 1
        if history.costs:
            _check_cost(row, accounts[row.account], history)
            _check_terms(row, accounts[row.account], history)
    elif before and row.account != before["account"]:
        _fail(f"history row {row.seq}: release {name} changes its account")
    if history.costs and row.change == State.BEGUN and before:
        _check_begins(row, accounts[row.account], history)
    if row.change == State.COMMITTED:
        history.certificates[row.body["certificate_sha256"]] = (row.account, name)
    entries[name] = entry = {"release_id": name} | (before or {}) | values
    if history.costs and row.change == State.RESERVED:
        event = row.body["event"]
        history.charges.setdefault(row.account, {})[name] = (
            Charge(entry["loss"] or 0.0, entry["mu_squared"], event),
            Charge(entry["period_loss"] or 0.0, entry["mu_squared"], event),
        )
    elif history.costs and row.change == State.VOID:
        del history.charges[row.account][name]


def _check_cost(row: Change, account: Mapping[str, Any], history: _History) -> None:
    """Compute the filter of a reservation again, as it stood when the row was written."""
    event, spec = load(row.body["event"]), spec_of(account)
    try:
        check_kind(spec, event)
    except BudgetError as error:
        _fail(f"history row {row.seq}: {error.message.rstrip('.')}")
    lifetime, period = caps_of(account)
    charges = [charge for charge, _ in history.charges.get(row.account, {}).values()]
    _check_filter(row, lifetime, row.body["loss"], charges, "cap")
    if period is not None:
        recent = _recent(row, account, history)
        _check_filter(row, period, row.body["period_loss"], recent, "period cap")


def _check_terms(row: Change, account: Mapping[str, Any], history: _History) -> None:
    """Compare a reservation with the terms its account had, and find the approval it needed."""
    spec, body = spec_of(account), row.body
    terms, event, release = spec.terms, load(body["event"]), str(row.release_id)
    if terms == NONE:
        return
    request = ReleaseRequest(
        body["method"],
        body["epsilon"],
        body["delta"],
        spec.adjacency,
        spec.unit,
        amplified=is_amplified(event),
    )
    if terms.limits_epsilon:
        judged = request.at_price_of(event, spec.delta)
        request = replace(judged, epsilon=max(request.epsilon, judged.epsilon * (1 - SLACK)))
    guarantee = Guarantee(body["epsilon"], body["delta"])
    try:
        terms.refuse(row.account, f"release {release}", request)
        if terms.spend_above is not None and request.epsilon > terms.spend_above:
            standing(
                history.decisions.get(release, []),
                What.SPEND,
                cost_digest(row.account, release, body["method"], body["event"], guarantee),
                name=release,
                asker=(body.get("by") or {}).get("user"),
                two_people=terms.two_people,
            )
    except BudgetError as error:
        _fail(f"history row {row.seq}: {error.message.rstrip('.')}")
    policy = policy_period(account)
    if policy is not None:
        days, cap = policy
        inside = [
            charge_again(cap, history.entries[name]["event"])
            for name in _inside(row, days, history)
        ]
        cap = replace(cap, epsilon=cap.epsilon * (1 + SLACK))
        if not cap.fits(inside, cap.charge(event)):
            _fail(f"history row {row.seq}: release {release} does not fit the policy's period")


def _check_begins(row: Change, account: Mapping[str, Any], history: _History) -> None:
    """A release that begins has room in its window beside all other releases that were drawn."""
    period = caps_of(account)[1]
    if period is None:
        return
    period = replace(period, epsilon=period.epsilon * (1 + SLACK))
    _, request = history.charges[row.account][str(row.release_id)]
    if not period.fits(_recent(row, account, history, begun=True), request):
        _fail(f"history row {row.seq}: release {row.release_id} does not fit the period cap")


def _recent(
    row: Change, account: Mapping[str, Any], history: _History, *, begun: bool = False
) -> list[Charge]:
    """Losses inside the period's window as a row was written, or of what had begun: see balances.

    Of all releases so far, as every row is checked against the earlier ones.
    """
    charges, entries = history.charges.get(row.account, {}), history.entries
    return [
        charges[name][1]
        for name in _inside(row, account["period_days"], history)
        if not begun or entries[name]["state"] != State.RESERVED
    ]


def _inside(row: Change, days: int, history: _History) -> list[str]:
    """By the clock of who wrote the row, which may have been behind the row's own time."""
    start = stamp(moment(row.body.get("clock", row.at)) - timedelta(days=days))
    still = (State.RESERVED, State.BEGUN)
    return [
        name
        for name in history.charges.get(row.account, {})
        if (entry := history.entries[name])["state"] in still or entry["changed_at"] > start
    ]


def _check_filter(row: Change, cap: Cap, loss: float, charges: list[Charge], name: str) -> None:
    cost = cap.charge(load(row.body["event"]))
    mu_squared = row.body.get("mu_squared")
    if loss < cost.loss * (1 - SLACK):
        _fail(
            f"history row {row.seq}: release {row.release_id} is charged {loss:.9g}, "
            f"its event costs {cost.loss:.9g}"
        )
    if mu_squared is not None and mu_squared < (cost.mu_squared or 0.0) * (1 - SLACK):
        _fail(
            f"history row {row.seq}: release {row.release_id} is charged a squared mu of "
            f"{mu_squared:.9g}, its event has {cost.mu_squared:.9g}"
        )
    # Rules that price events, and not what is on record, may round otherwise on another machine.
    cap = replace(cap, epsilon=cap.epsilon * (1 + SLACK))
    if not cap.fits(charges, Charge(loss, mu_squared, row.body["event"])):
        _fail(f"history row {row.seq}: release {row.release_id} does not fit the {name}")


def _rows_by_key(connection: Connection, table: sa.Table, key: str, **only: str | None) -> Rows:
    query = sa.select(table)
    for column, value in only.items():
        if value is not None:
            query = query.where(table.c[column] == value)
    rows = (dict(row) for row in connection.execute(query).mappings())
    return {row[key]: row for row in rows}


def _compare(kind: str, history: Rows, table: Rows) -> None:
    for name in history.keys() | table.keys():
        if name not in table:
            _fail(f"{kind} {name} is missing from its table")
        # A row that no history explains is spent or free budget that nobody reserved.
        if name not in history:
            _fail(f"{kind} {name} is in its table and not in the history")
        row = dict(table[name])
        if kind == "account":
            row["key_sha256"] = _digest_of_hex(row.pop("partition_key"))
        for column, value in history[name].items():
            if row[column] != value:
                detail = "" if column == "key_sha256" else f": {row[column]!r}, was {value!r}"
                _fail(f"{kind} {name} was edited, {column.removesuffix('_sha256')}{detail}")


def _digest_of_hex(key: str) -> str:
    try:
        return key_digest(bytes.fromhex(key))
    except (TypeError, ValueError):
        return "not a key"
