"""Between table rows and the values of accounts.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from privsyn.data.records import Private
from privsyn.ledger import tables
from privsyn.ledger.accounts import Account, AccountSpec, Entry, State, moment
from privsyn.ledger.caps import Cap

Row: TypeAlias = Mapping[str, Any]


def spec_of(row: Row) -> AccountSpec:
    """The spec an account row holds."""
    return AccountSpec(
        name=row["name"],
        dataset=row["dataset"],
        unit=row["unit"],
        adjacency=row["adjacency"],
        epsilon=row["epsilon"],
        delta=row["delta"],
        period_days=row["period_days"],
        period_epsilon=row["period_epsilon"],
        unit_column=row["unit_column"],
    )


def caps_of(row: Row) -> tuple[Cap, Cap | None]:
    """The lifetime cap and the period cap an account row fixed."""
    lifetime = Cap(row["epsilon"], row["delta"], row["renyi_order"], row["budget"])
    if row["period_days"] is None:
        return lifetime, None
    period = Cap(row["period_epsilon"], row["delta"], row["period_order"], row["period_budget"])
    return lifetime, period


def account_of(row: Row) -> Account:
    """An account row as a value."""
    return Account(
        spec=spec_of(row),
        key_id=row["key_id"],
        partition_key=Private(bytes.fromhex(row["partition_key"])),
        opened_at=moment(row["opened_at"]),
    )


def entry_of(row: Row) -> Entry:
    """An entry row as a value."""
    values = dict(row)
    values["state"] = State(row["state"])
    values["event"] = json.loads(row["event"])
    values["reserved_at"] = moment(row["reserved_at"])
    values["changed_at"] = moment(row["changed_at"])
    return Entry(**values)


def all_accounts(connection: Connection) -> list[Row]:
    """The rows of all accounts, by name."""
    query = sa.select(tables.accounts).order_by(tables.accounts.c.name)
    return [dict(row) for row in connection.execute(query).mappings()]


def find_account(connection: Connection, name: str) -> Row | None:
    """The row of an account."""
    query = sa.select(tables.accounts).where(tables.accounts.c.name == name)
    row = connection.execute(query).mappings().one_or_none()
    return dict(row) if row else None


def find_lineage(connection: Connection, dataset: str) -> Row | None:
    """The row of the account a dataset has."""
    query = sa.select(tables.accounts).where(tables.accounts.c.dataset == dataset)
    row = connection.execute(query).mappings().one_or_none()
    return dict(row) if row else None


def find_entry(connection: Connection, release_id: str) -> Entry | None:
    """The entry of a release."""
    query = sa.select(tables.entries).where(tables.entries.c.release_id == release_id)
    row = connection.execute(query).mappings().one_or_none()
    return entry_of(dict(row)) if row else None


def release_ids(connection: Connection, account: str) -> set[str]:
    """The releases an account knows, in any state."""
    query = sa.select(tables.entries.c.release_id).where(tables.entries.c.account == account)
    return set(connection.execute(query).scalars())


def entries_of(connection: Connection, account: str | None) -> list[Entry]:
    """The entries of an account, or of all, oldest first."""
    query = sa.select(tables.entries).order_by(tables.entries.c.number)
    if account is not None:
        query = query.where(tables.entries.c.account == account)
    return [entry_of(dict(row)) for row in connection.execute(query).mappings()]
