"""Verify a ledger: the chain, the tables against it, the cost of every event, the caps.

Finds an edited, missing, added or re-ordered row, a cut-off end, and a release that was let in
against the cap. It does not find a ledger that was replaced as a whole by an older copy of itself:
certificates hold the number and hash of their rows for that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NoReturn

from privsyn.dp.adjacency import Guarantee
from privsyn.dp.calibration import rooms_epsilon
from privsyn.dp.events import load
from privsyn.dp.filters import filter_budget, gaussian_budget
from privsyn.errors import BudgetError
from privsyn.ledger import sa, schema
from privsyn.ledger.caps import begins, check_kind, filters_of, limits_of
from privsyn.ledger.chain import (
    BEFORE,
    DECISIONS,
    DERIVED,
    GENESIS,
    NOTES,
    OPENED,
    OTHER_BUILD,
    REQUESTED,
    SKEW,
    TERMS,
    broken,
    digest,
    key_digest,
    project,
    read,
)
from privsyn.ledger.decisions import Decision, What, of_spend
from privsyn.ledger.entries import Change, Cost, Entry, State, entry_of, moment
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


def verify(connection: sa.Connection) -> LedgerAudit:
    """Go through the whole ledger.

    Raises:
        VerificationError: Names the first row that does not agree.
    """
    history = _check(connection, None, costs=True)
    accounts, entries = len(history.accounts), len(history.entries)
    return LedgerAudit(history.seq, accounts, entries, history.head, history.late, history.behind)


def check_account(connection: sa.Connection, name: str | None) -> None:
    """Check what a balance is computed from: the whole chain, and the tables of an account, or all.

    Costs are not recomputed: that they were right when they were written is ``verify``'s to say.
    The chain is gone through each time, 10,000 rows in about .4 s: a mark of how far it was checked
    could be edited by whoever edits rows.

    Raises:
        VerificationError: Names the first row that does not agree.
    """
    _check(connection, name, costs=False)


def _check(connection: sa.Connection, name: str | None, *, costs: bool) -> _History:
    history = _replay(connection, costs=costs)
    accounts = {key: row for key, row in history.accounts.items() if name in (None, key)}
    _compare("account", accounts, _rows_by_key(connection, schema.accounts, "name", name))
    entries = {key: row for key, row in history.entries.items() if name in (None, row["account"])}
    _compare("release", entries, _rows_by_key(connection, schema.entries, "account", name))
    return history


@dataclass
class _History:
    """Accounts and entries as the history gives them, row by row.

    Attributes:
        costs: Whether the filters are computed again for every row.
        requests: Digest of a cost that was asked for -> account and release.
        certificates: Digest of a certificate -> account and release.
        decisions: What people decided, by release.
        charged: Releases by account, where the caps are asked again.
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
    charged: dict[str, dict[str, Entry]] = field(default_factory=dict)


def _replay(connection: sa.Connection, *, costs: bool) -> _History:
    history, linked = _History(costs), 0
    try:
        for stored in connection.execute(sa.select(schema.history).order_by(schema.history.c.seq)):
            _check_link(stored, history.seq, history.head)
            linked = stored.seq
            row = read(stored)
            _check_time(row, history)
            if row.change == OPENED:
                _open(row, history)
            elif row.account not in history.accounts:
                _fail(row, f"account {row.account} was never opened")
            elif row.change == TERMS:
                _hold_to(row, history.accounts)
            elif row.change == REQUESTED:
                history.requests[row.body["digest"]] = (row.account, str(row.release_id))
            elif row.change in DECISIONS:
                _decide(row, history)
            elif row.change in NOTES:
                _derive(row, history)
            else:
                _move(row, history)
            history.seq, history.head, history.at = row.seq, row.hash, row.at
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        number = history.seq + 1
        what = f"history row {number} cannot be read ({type(error).__name__})"
        if linked == number:  # what another version writes has a hash that holds
            raise broken(f"{what}, and its hash holds", OTHER_BUILD) from None
        raise broken(what) from None  # what follows from an edited value
    heads = connection.execute(sa.select(schema.head.c.seq, schema.head.c.hash)).all()
    if [tuple(row) for row in heads] != [(history.seq, history.head)]:
        last = heads[0].seq if heads else "nothing"
        raise broken(
            f"the history ends at row {history.seq}, its head says {last}: rows are missing at the "
            "end"
        )
    return history


def _fail(row: Change | sa.Row[Any], what: str) -> NoReturn:
    raise broken(f"history row {row.seq}: {what}")


def _check_link(row: sa.Row[Any], seq: int, head: str) -> None:
    if row.seq != seq + 1:
        raise broken(f"history row {seq + 1} is missing")
    if row.previous != head:
        _fail(row, f"it does not follow row {seq}: a row was replaced or moved")
    # The hash covers the row before, so an edit shows at its own row and not at the end.
    if row.hash != digest(
        row.seq, row.at, row.account, row.release_id, row.change, row.body, row.previous
    ):
        _fail(row, "it was edited")


def _check_time(row: Change, history: _History) -> None:
    """Check that times do not decrease, and count the rows of clocks that were behind."""
    if row.at < history.at:
        _fail(row, f"its time is before that of row {history.seq}")
    clock = row.body.get("clock")
    if clock is None:
        return
    late = moment(row.at) - moment(clock)
    if row.at != history.at or late <= timedelta():
        _fail(row, "it names a clock that was not behind")
    if late >= SKEW:
        history.late += 1
        history.behind = max(history.behind, late)


def _open(row: Change, history: _History) -> None:
    values, accounts = project(row), history.accounts
    if row.account in accounts:
        _fail(row, f"account {row.account} is opened a second time")
    if any(values["dataset"] == other["dataset"] for other in accounts.values()):
        _fail(row, f"dataset {values['dataset']} gets a second account")
    # Costs take seconds: balances check the chain alone, ``verify`` prices every row again.
    if history.costs:
        _check_caps(row, values)
    accounts[row.account] = values | {"key_sha256": row.body["key_sha256"]}


def _check_caps(row: Change, values: Mapping[str, Any]) -> None:
    split, delta, epsilon = split_of(values), values["delta"], values["epsilon"]
    order, budget, gaussian = (values[key] for key in ("renyi_order", "budget", "gaussian_budget"))
    # A budget may be smaller than its cap allows, never larger.
    share = delta * split.renyi if split else delta
    most = [(budget, filter_budget(epsilon, share, order or math.inf))]
    if split and gaussian is not None:
        share, rooms = delta * split.gaussian, rooms_of(values)
        most.append((gaussian, gaussian_budget(epsilon, share)))
        if rooms and rooms_epsilon(rooms, share, gaussian, rooms.wholes) > epsilon * (1 + SLACK):
            what = f"a squared mu of {gaussian} and rooms for {rooms}"
            _fail(row, f"{what} are more than epsilon={epsilon} allows")
    for stored, limit in most:
        if stored > max(limit, 0.0) * (1 + SLACK):
            _fail(row, f"budget={stored} is more than epsilon={epsilon} allows")


def _hold_to(row: Change, accounts: Rows) -> None:
    """Check that terms become stricter, or say why they do not."""
    laxer = Terms.load(row.body["terms"]).laxer_than(Terms.load(accounts[row.account]["terms"]))
    # A reason is what ``loosen`` demands: without one the row was pushed in.
    if laxer and not row.body.get("reason"):
        _fail(row, f"it weakens the terms of account {row.account}: {laxer[0]}")
    accounts[row.account] |= project(row)


def _decide(row: Change, history: _History) -> None:
    """Check that a decision is about what there was when it was made."""
    decision = Decision.of(row)
    known = history.requests if decision.what is What.SPEND else history.certificates
    if known.get(decision.digest) != (decision.account, decision.release_id):
        what = f"a decision to {decision.what}"
        _fail(row, f"{what} is about nothing of release {row.release_id}")
    if not decision.approver:
        _fail(row, "nobody made the decision")
    history.decisions.setdefault(decision.release_id, []).append(decision)


def _derive(row: Change, history: _History) -> None:
    parent = history.entries.get(str(row.release_id))
    if parent is None or parent["state"] != State.COMMITTED or parent["account"] != row.account:
        _fail(row, f"release {row.release_id} has offspring and no artifact")
    if row.change == DERIVED:
        history.certificates[row.body["certificate_sha256"]] = (row.account, str(row.release_id))


def _move(row: Change, history: _History) -> None:
    name, accounts, entries = str(row.release_id), history.accounts, history.entries
    before = entries.get(name)
    if (State(before["state"]) if before else None) not in BEFORE[row.change]:
        state = before["state"] if before else "unknown"
        _fail(row, f"release {name} goes from {state} to {row.change}")
    values = project(row)
    if row.change == State.RESERVED:
        if values["number"] != history.reserved + 1:
            _fail(row, f"release {name} has number {values['number']}")
        history.reserved += 1
    elif before and row.account != before["account"]:
        _fail(row, f"release {name} changes its account")
    if row.change == State.COMMITTED:
        history.certificates[row.body["certificate_sha256"]] = (row.account, name)
    entries[name] = {"release_id": name} | (before or {}) | values
    if history.costs:
        charged, entry = history.charged.setdefault(row.account, {}), entry_of(entries[name])
        if row.change == State.RESERVED:
            _check_cost(row, accounts[row.account], entry, charged)
            _check_terms(row, accounts[row.account], history)
        elif row.change == State.BEGUN:
            _check_begins(row, accounts[row.account], entry, charged)
        charged[name] = entry


def _check_cost(
    row: Change, account: Mapping[str, Any], entry: Entry, earlier: Mapping[str, Entry]
) -> None:
    """Ask the caps of a reservation again, as they stood when the row was written."""
    event, release = load(row.body["event"]), f"release {row.release_id}"
    try:
        check_kind(spec_of(account), event)
    except BudgetError as error:
        _fail(row, error.message.rstrip("."))
    lifetime, *periods = filters_of(
        limits_of(account, SLACK), list(earlier.values()), event, _clock(row)
    )
    cost = lifetime.request
    if entry.loss < cost.loss * (1 - SLACK):
        _fail(row, f"{release} is charged {entry.loss:.9g}, its event costs {cost.loss:.9g}")
    mu_squared = entry.mu_squared
    if mu_squared is not None and mu_squared < (cost.mu_squared or 0.0) * (1 - SLACK):
        what = f"{release} is charged a squared mu of {mu_squared:.9g}"
        _fail(row, f"{what}, its event has {cost.mu_squared:.9g}")
    for one in (replace(lifetime, request=lifetime.limit.charge(entry)), *periods):
        if not one.fits:
            _fail(row, f"{release} does not fit {one.limit.setting}")


def _check_terms(row: Change, account: Mapping[str, Any], history: _History) -> None:
    """Compare a reservation with the terms its account had, and find the approval it needed."""
    spec, body, release = spec_of(account), row.body, str(row.release_id)
    if spec.terms == NONE:
        return
    guarantee = Guarantee(body["epsilon"], body["delta"])
    cost = Cost(row.account, release, body["method"], load(body["event"]), guarantee)
    request = ReleaseRequest.of(spec, cost)
    # As cheap as sums of another machine might have made it.
    request = replace(request, epsilon=max(body["epsilon"], request.epsilon * (1 - SLACK)))
    asker = (body.get("by") or {}).get("user")
    try:
        spec.refuse(f"release {release}", request)
        of_spend(history.decisions.get(release, []), spec.terms, request, cost, asker)
    except BudgetError as error:
        _fail(row, error.message.rstrip("."))


def _check_begins(
    row: Change, account: Mapping[str, Any], entry: Entry, charged: Mapping[str, Entry]
) -> None:
    """A release that begins has room in its window beside all other releases that were drawn."""
    others = [other for name, other in charged.items() if name != row.release_id]
    for one in begins(limits_of(account, SLACK), others, entry, _clock(row)):
        if not one.fits:
            what = f"release {row.release_id} does not fit {one.limit.setting}"
            _fail(row, f"{what} where it begins")


def _clock(row: Change) -> datetime:
    """The clock of who wrote a row, which may have been behind the row's own time."""
    return moment(row.body.get("clock", row.at))


def _rows_by_key(connection: sa.Connection, table: sa.Table, column: str, name: str | None) -> Rows:
    query = sa.select(table)
    if name is not None:
        query = query.where(table.c[column] == name)
    (key,) = table.primary_key
    return {row[key.name]: dict(row) for row in connection.execute(query).mappings()}


def _compare(kind: str, history: Rows, table: Rows) -> None:
    for name in history.keys() | table.keys():
        if name not in table:
            raise broken(f"{kind} {name} is missing from its table")
        # A row that no history explains is spent or free budget that nobody reserved.
        if name not in history:
            raise broken(f"{kind} {name} is in its table and not in the history")
        row = dict(table[name])
        if kind == "account":
            row["key_sha256"] = _digest_of_hex(row.pop("partition_key"))
        for column, value in history[name].items():
            if row[column] != value:
                detail = "" if column == "key_sha256" else f": {row[column]!r}, was {value!r}"
                raise broken(f"{kind} {name} was edited, {column.removesuffix('_sha256')}{detail}")


def _digest_of_hex(key: str) -> str:
    try:
        return key_digest(bytes.fromhex(key))
    except (TypeError, ValueError):
        return "not a key"
