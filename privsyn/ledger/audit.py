"""Verify a ledger: the chain, the tables against it, the cost of every event, the caps.

Finds an edited, missing, added or re-ordered row, a cut-off end, and a release that was let in
against the cap. It does not find a ledger that was replaced as a whole by an older copy of itself:
certificates hold the number and hash of their rows for that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NoReturn

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from privsyn.dp.events import load
from privsyn.errors import BudgetError, VerificationError
from privsyn.ledger import tables
from privsyn.ledger.accounts import Audit, Change, State, moment, stamp
from privsyn.ledger.caps import Cap, check_kind
from privsyn.ledger.chain import (
    BEFORE,
    DERIVED,
    GENESIS,
    OPENED,
    RENAMED,
    digest,
    key_digest,
    project,
    walk,
)
from privsyn.ledger.rows import caps_of, spec_of

SLACK = 1e-9
"""Relative difference between machines' floating point that is not taken for an edit."""

Rows = dict[str, dict[str, Any]]


def verify(connection: Connection) -> Audit:
    """Go through the whole ledger.

    Raises:
        VerificationError: Names the first row that does not agree.
    """
    accounts: Rows = {}
    entries: Rows = {}
    seq, head = 0, GENESIS
    try:
        for row in walk(connection):
            _check_link(row, seq, head)
            if row.change == OPENED:
                _open(row, accounts)
            elif row.change == RENAMED:
                _rename(row, accounts)
            elif row.change == DERIVED:
                _derive(row, entries)
            else:
                _move(row, accounts, entries)
            seq, head = row.seq, row.hash
    except (KeyError, TypeError, ValueError) as error:  # what follows from an edited value
        _fail(f"history row {seq + 1} cannot be read ({type(error).__name__})")
    found = connection.execute(sa.select(tables.head.c.seq, tables.head.c.hash)).all()
    if [tuple(row) for row in found] != [(seq, head)]:
        last = found[0].seq if found else "nothing"
        _fail(f"the history ends at row {seq}, its head says {last}: rows are missing at the end")
    _compare("account", accounts, _keyed(connection, tables.accounts, "name"))
    _compare("release", entries, _keyed(connection, tables.entries, "release_id"))
    return Audit(rows=seq, accounts=len(accounts), entries=len(entries), head=head)


def _fail(message: str) -> NoReturn:
    raise VerificationError(
        f"ledger: {message}.", hint="Restore the ledger from a backup and find out who changed it."
    )


def _check_link(row: Change, seq: int, head: str) -> None:
    if row.seq != seq + 1:
        _fail(f"history row {seq + 1} is missing")
    if row.previous != head:
        _fail(f"history row {row.seq} does not follow row {seq}: a row was replaced or moved")
    if row.hash != digest(
        row.seq, row.at, row.account, row.release_id, row.change, row.body, row.previous
    ):
        _fail(f"history row {row.seq} was edited")


def _open(row: Change, accounts: Rows) -> None:
    from privsyn.dp.accountant import filter_budget

    values = project(row)
    if row.account in accounts:
        _fail(f"history row {row.seq} opens account {row.account} a second time")
    if any(values["dataset"] == other["dataset"] for other in accounts.values()):
        _fail(f"history row {row.seq} opens a second account on dataset {values['dataset']}")
    for epsilon, order, budget in (
        (values["epsilon"], values["renyi_order"], values["budget"]),
        (values["period_epsilon"], values["period_order"], values["period_budget"]),
    ):
        if epsilon is None:
            continue
        most = filter_budget(epsilon, values["delta"], order or math.inf)
        if budget > most * (1 + SLACK):
            _fail(f"history row {row.seq}: budget={budget} is more than epsilon={epsilon} allows")
    accounts[row.account] = values | {"key_sha256": row.body["key_sha256"]}


def _rename(row: Change, accounts: Rows) -> None:
    if row.account not in accounts:
        _fail(f"history row {row.seq}: account {row.account} was never opened")
    values, was = project(row), row.body["was"]
    if None in (was, values["unit_column"]) or was != accounts[row.account]["unit_column"]:
        _fail(f"history row {row.seq} renames a column that account {row.account} does not have")
    accounts[row.account] |= values


def _derive(row: Change, entries: Rows) -> None:
    parent = entries.get(str(row.release_id))
    if parent is None or parent["state"] != State.COMMITTED or parent["account"] != row.account:
        _fail(f"history row {row.seq}: release {row.release_id} has offspring and no artifact")


def _move(row: Change, accounts: Rows, entries: Rows) -> None:
    name = str(row.release_id)
    before = entries.get(name)
    if (State(before["state"]) if before else None) not in BEFORE[row.change]:
        state = before["state"] if before else "unknown"
        _fail(f"history row {row.seq}: release {name} goes from {state} to {row.change}")
    values = project(row)
    if row.change == State.RESERVED:
        if row.account not in accounts:
            _fail(f"history row {row.seq}: account {row.account} was never opened")
        _check_cost(row, accounts[row.account], entries)
    elif before and row.account != before["account"]:
        _fail(f"history row {row.seq}: release {name} changes its account")
    entries[name] = {"release_id": name} | (before or {}) | values


def _check_cost(row: Change, account: Mapping[str, Any], entries: Rows) -> None:
    """The filter once more, as it stood when the row was written."""
    event, spec = load(row.body["event"]), spec_of(account)
    try:
        check_kind(spec, event)
    except BudgetError as error:
        _fail(f"history row {row.seq}: {error.message.rstrip('.')}")
    lifetime, period = caps_of(account)
    charged = [
        entry
        for entry in entries.values()
        if entry["account"] == row.account and entry["state"] != State.VOID
    ]
    _check_filter(row, lifetime, row.body["loss"], [entry["loss"] for entry in charged], "cap")
    if period is not None:
        start = stamp(moment(row.at) - timedelta(days=account["period_days"]))
        recent = [entry["period_loss"] for entry in charged if entry["reserved_at"] > start]
        _check_filter(row, period, row.body["period_loss"], recent, "period cap")


def _check_filter(row: Change, cap: Cap, loss: float, losses: list[float], name: str) -> None:
    owed = cap.loss(load(row.body["event"]))
    if loss < owed * (1 - SLACK):
        _fail(
            f"history row {row.seq}: release {row.release_id} is charged {loss:.9g}, "
            f"its event costs {owed:.9g}"
        )
    if not cap.fits(losses, loss):
        _fail(f"history row {row.seq}: release {row.release_id} does not fit the {name}")


def _keyed(connection: Connection, table: sa.Table, key: str) -> Rows:
    rows = (dict(row) for row in connection.execute(sa.select(table)).mappings())
    return {row[key]: row for row in rows}


def _compare(kind: str, told: Rows, found: Rows) -> None:
    for name in told.keys() | found.keys():
        if name not in found:
            _fail(f"{kind} {name} is missing from its table")
        if name not in told:
            _fail(f"{kind} {name} is in its table and not in the history")
        row = dict(found[name])
        if kind == "account":
            row["key_sha256"] = _digest_of_hex(row.pop("partition_key"))
        for column, value in told[name].items():
            if row[column] != value:
                shown = "" if column == "key_sha256" else f": {row[column]!r}, was {value!r}"
                _fail(f"{kind} {name} was edited, {column.removesuffix('_sha256')}{shown}")


def _digest_of_hex(key: str) -> str:
    try:
        return key_digest(bytes.fromhex(key))
    except ValueError:
        return "not a key"
