"""Refusals: what an account, a release or a name must be for a call to go on."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from math import isclose
from typing import Any

from sqlalchemy.engine import Connection

from privsyn.errors import AccountMismatch, BudgetError, DataError, ReleaseLost, VerificationError
from privsyn.ledger import rows
from privsyn.ledger.accounts import SETTINGS, AccountSpec
from privsyn.ledger.entries import DatasetSource, Entry, Source, State

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
SHA256 = re.compile(r"[0-9a-f]{64}")


def matching(connection: Connection, spec: AccountSpec) -> Mapping[str, Any] | None:
    """The row of a spec's account; None if neither name nor dataset has one."""
    row = rows.find_account(connection, spec.name)
    if row is not None:
        opened = rows.spec_of(row)
        check_same(spec, opened)
        check_terms(spec, opened)
        return row
    other = rows.find_lineage(connection, spec.dataset)
    if other is not None:
        raise AccountMismatch(
            f"account.name={spec.name}: dataset {spec.dataset} already has the account "
            f"{other['name']}, and all its versions share people.",
            hint=f"Set account.name={other['name']}.",
        )
    return None


def check_same(spec: AccountSpec, opened: AccountSpec) -> None:
    """Refuse a spec that is not the account's, naming the first setting that differs."""
    for item in fields(AccountSpec):
        value, fixed = getattr(spec, item.name), getattr(opened, item.name)
        if value == fixed or not item.compare:
            continue
        if item.name == "unit_column":
            value, fixed = value or "null", fixed or "null"
            raise AccountMismatch(
                f"dataset.unit={value}: account {opened.name} was opened with "
                f"dataset.unit={fixed}. Another column is another unit, and the cap would hold for "
                "neither.",
                hint=f"Set dataset.unit back to {fixed}. If the file only calls that column "
                "something else now, record it with Ledger.rename_unit_column.",
            )
        raise AccountMismatch(
            f"{SETTINGS[item.name]}={value}: account {opened.name} was opened with {fixed}, "
            "which is fixed for its life.",
            hint=f"Set {SETTINGS[item.name]} back to {fixed}.",
        )


def check_terms(spec: AccountSpec, opened: AccountSpec) -> None:
    """Refuse terms that are laxer than those the account is held to."""
    laxer = spec.terms.laxer_than(opened.terms)
    if laxer:
        named = spec.terms.policy or "none"
        raise AccountMismatch(
            f"account.policy={named}: account {opened.name} is held to {opened.terms.source}, and "
            f"the settings would weaken it: {'; '.join(laxer)}. Terms of an account may become "
            "stricter, and no laxer.",
            hint="Set account.policy, limits, public_size and approval back. What was a mistake, "
            "whoever answers for privacy takes back, on record, with Ledger.loosen.",
        )


def check_known(connection: Connection | None, account: str, releases: Collection[str]) -> None:
    """Refuse a ledger that lacks known releases: its balance would be too high."""
    if not releases:
        return
    recorded = rows.release_ids(connection, account) if connection else set()
    missing = sorted(set(releases) - recorded)
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise AccountMismatch(
            f"account.name={account}: the ledger does not know release {missing[0]}{more}, charged "
            "to this account by certificate: it was lost or replaced, and going on would forget "
            "what is spent.",
            hint="Restore the ledger from its backup. A new account.name starts from nothing, on "
            "top of what these releases have spent.",
        )


def account_row(connection: Connection | None, name: str) -> Mapping[str, Any]:
    """The row of an account that must exist."""
    row = rows.find_account(connection, name) if connection else None
    if row is None:
        raise BudgetError(f"account {name} is not in the ledger.", hint="See: privsyn ledger show")
    return row


def entry_row(connection: Connection | None, release_id: str) -> Entry:
    """The entry of a release that must exist."""
    entry = rows.find_entry(connection, release_id) if connection else None
    if entry is None:
        raise BudgetError(
            f"release {release_id} is not in the ledger.", hint="See: privsyn ledger entries"
        )
    return entry


def check_entry(
    entry: Entry, account: str, method: str, losses: tuple[float, float | None]
) -> None:
    """Refuse a release whose id is known with another account, method or cost.

    Costs are compared and not events, because two machines may solve for a parameter to within a
    rounding of each other.
    """
    for name, value, recorded in (
        ("account", account, entry.account),
        ("method", method, entry.method),
        ("cost", losses[0], entry.loss),
        ("cost in the period", losses[1], entry.period_loss),
    ):
        if value == recorded:
            continue
        if isinstance(value, float) and isinstance(recorded, float) and isclose(value, recorded):
            continue
        raise VerificationError(
            f"release {entry.release_id} is in the ledger with {name} {recorded}, not {value}.",
            hint="The plan was edited, or made by another version of privsyn: plan again.",
        )


def check_source(
    connection: Connection, account: str, entry: Entry | None, source: DatasetSource
) -> None:
    """Refuse a private file that its account knows under another version, or as another file.

    Args:
        connection: A transaction.
        account: The account that pays.
        entry: The release, if it is known: its source can be replaced until it begins, by one that
            a new release could be made from.
        source: The file and its version.

    Raises:
        DataError: As said.
    """
    for earlier in rows.sources(connection, account=account):
        if earlier.version == source.version and earlier.fingerprint != source.fingerprint:
            if entry is not None and entry.release_id == earlier.release_id and entry.open:
                continue
            raise DataError(
                f"dataset.version={source.version}: the private file is not the one that release "
                f"{earlier.release_id} was made from under this version.",
                hint="Give the new file a dataset.version of its own, which is a new charge, or "
                "put the earlier file back.",
            )
    if source.same or (entry is not None and judged(connection, entry, source)):
        return
    for earlier in rows.sources(connection, account=account, fingerprint=source.fingerprint):
        if earlier.version != source.version:
            raise DataError(
                f"dataset.version={source.version}: the private file has the same content as "
                f"version {earlier.version}, of which release {earlier.release_id} was made.",
                hint=f"Wait for new data, set dataset.version={earlier.version}, or set "
                "dataset.same_source=true to pay for the same data again.",
            )


def judged(connection: Connection, entry: Entry, source: DatasetSource | None) -> bool:
    """Whether a release is charged, and not about to begin with another file than was noted."""
    if not entry.charged or entry.state is not State.RESERVED or source is None:
        return entry.charged
    noted = rows.sources(connection, account=entry.account, fingerprint=source.fingerprint)
    return entry.release_id in {earlier.release_id for earlier in noted}


def check_paid_elsewhere(connection: Connection, account: str, source: DatasetSource) -> None:
    """Refuse a private file that another account has paid for, where the source is strict.

    Raises:
        BudgetError: Names that account.
    """
    if not source.strict:
        return
    sources = rows.sources(connection, fingerprint=source.fingerprint)
    others = [earlier for earlier in sources if earlier.account != account]
    if others:
        raise BudgetError(
            f"account.strict=true: {paid_elsewhere(account, others)}.",
            hint=f"Set account.name={others[-1].account} and its dataset.name; or "
            "account.strict=false, where you add up the budgets of both yourself. Nothing was "
            "spent.",
        )


def paid_elsewhere(account: str, others: Sequence[Source]) -> str:
    """Message about a private file that other accounts have paid for."""
    names = ", ".join(sorted({other.account for other in others}))
    return (
        f"the private file of account {account} is one that account {names} has paid for "
        f"(release {others[-1].release_id}): the budgets of both are spent on the same data, and "
        "their losses add up"
    )


def check_state(entry: Entry, expected: State) -> None:
    """Refuse a release in any other state."""
    if entry.state is expected:
        return
    if entry.state is State.LOST:
        raise lost(entry.release_id, entry.reason or "")
    hints = {
        State.RESERVED: "It has not begun: begin it, or void it.",
        State.BEGUN: "It has begun and its cost stands: resume it, or give it up.",
        State.COMMITTED: f"It is finished. Bring it back: privsyn restore {entry.release_id}",
        State.VOID: "Reserve it again.",
    }
    raise BudgetError(
        f"release {entry.release_id} is {entry.state}, not {expected}.", hint=hints[entry.state]
    )


def lost(release_id: str, reason: str) -> ReleaseLost:
    """The error of a release that is spent without an artifact."""
    return ReleaseLost(
        f"release {release_id} is LOST ({reason}): its cost stands and it has no artifact.",
        hint="Another draw is another charge: raise privacy.draw by one.",
    )


def check_name(what: str, value: str) -> None:
    """Refuse a name that could not stand in a file name or a message."""
    if not NAME.fullmatch(value):
        raise ValueError(f"{what}={value!r} must match {NAME.pattern}")
