"""Between table rows and the values of accounts.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from privsyn.data.records import Private
from privsyn.errors import VerificationError
from privsyn.ledger import tables
from privsyn.ledger.accounts import Account, AccountSpec, Split
from privsyn.ledger.caps import Cap, policy_cap
from privsyn.ledger.entries import Entry, Source, State, moment
from privsyn.ledger.statements import Refusal
from privsyn.ledger.terms import Terms

KEY_BYTES = 32
"""Length of a partition key."""

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
        split=split_of(row),
        terms=Terms.load(row["terms"]),
    )


SHARES = tuple(item.name for item in fields(Split))
"""Columns of an account that hold its split."""


def split_of(row: Row) -> Split | None:
    """How an account shares its delta; None where that is 0."""
    if row["renyi"] is None:
        return None
    return Split(**{name: row[name] for name in SHARES})


def caps_of(row: Row) -> tuple[Cap, Cap | None]:
    """The lifetime cap and the period cap an account row fixed."""
    split = split_of(row)
    lifetime = Cap(
        row["epsilon"],
        row["delta"],
        row["renyi_order"],
        row["budget"],
        split,
        row["gaussian_budget"],
    )
    if row["period_days"] is None:
        return lifetime, None
    period = Cap(
        row["period_epsilon"],
        row["delta"],
        row["period_order"],
        row["period_budget"],
        split,
        row["period_gaussian_budget"],
    )
    return lifetime, period


def policy_period(row: Row) -> tuple[int, Cap] | None:
    """Days and cap of the period that an account's policy holds it to; None if its own does."""
    terms = Terms.load(row["terms"])
    days, epsilon = terms.period_days, terms.period_epsilon
    if days is None or epsilon is None:
        return None
    if row["period_days"] is not None and (
        row["period_days"] >= days and row["period_epsilon"] <= epsilon
    ):
        return None
    return days, policy_cap(epsilon, row["delta"], split_of(row))


def account_of(row: Row) -> Account:
    """An account row as a value.

    Raises:
        VerificationError: Its partition key is none that the ledger ever drew.
    """
    try:
        key = bytes.fromhex(row["partition_key"])
    except (TypeError, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise VerificationError(
            f"ledger: the partition key of account {row['name']} was edited.",
            hint="Restore the ledger from a backup.",
        )
    return Account(
        spec=spec_of(row),
        key_id=row["key_id"],
        partition_key=Private(key),
        opened_at=moment(row["opened_at"]),
    )


def entry_of(row: Row) -> Entry:
    """An entry row as a value."""
    values = dict(row)
    values["state"] = State(row["state"])
    values["event"] = json.loads(row["event"])
    values["reserved_at"] = moment(row["reserved_at"])
    values["changed_at"] = moment(row["changed_at"])
    values["reserved_by"] = _who(row["reserved_by"])
    return Entry(**values)


def _who(text: str | None) -> dict[str, str] | None:
    return None if text is None else json.loads(text)


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
    """The row of a dataset's account."""
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


def refusals_of(connection: Connection, account: str | None) -> list[Refusal]:
    """The refusals of an account, or of all, oldest first."""
    query = sa.select(tables.refusals).order_by(tables.refusals.c.number)
    if account is not None:
        query = query.where(tables.refusals.c.account == account)
    refusals = []
    for row in connection.execute(query).mappings():
        when, who = moment(row["at"]), _who(row["refused_by"])
        refusals.append(Refusal(**(dict(row) | {"at": when, "refused_by": who})))
    return refusals


def sources(
    connection: Connection, *, account: str | None = None, fingerprint: str | None = None
) -> list[Source]:
    """The files behind charged releases: of an account, with a fingerprint, or all."""
    columns, entries = tables.sources.c, tables.entries.c
    query = (
        sa.select(columns.release_id, columns.account, columns.version, columns.fingerprint)
        .join(tables.entries, entries.release_id == columns.release_id)
        .where(entries.state != State.VOID.value)
        .order_by(entries.number)
    )
    if account is not None:
        query = query.where(columns.account == account)
    if fingerprint is not None:
        query = query.where(columns.fingerprint == fingerprint)
    return [Source(*row) for row in connection.execute(query)]


def source_key(connection: Connection) -> str:
    """The secret that sources are hashed with, in hex."""
    query = sa.select(tables.secrets.c.value).where(tables.secrets.c.name == "source")
    return str(connection.execute(query).scalar_one())
