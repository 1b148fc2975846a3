"""The append-only history: each row's hash covers the row before it.

The history is what happened; the tables of accounts and entries are its newest values and can be
computed from it. ``project`` is the one place that says how, for writing and for auditing alike.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from privsyn.errors import VerificationError
from privsyn.ledger import sa, schema
from privsyn.ledger.entries import Change, State, canonical, moment, source_key, stamp

OPENED = "OPENED"
DERIVED = "DERIVED"
VALIDATED = "VALIDATED"
ANNOUNCED = "ANNOUNCED"
TERMS = "TERMS"
"""Changes that are no state: an account is opened; a release has offspring; a validation was
written; an asset of Airflow had its event; an account got other terms."""

REQUESTED, APPROVED, REJECTED = "REQUESTED", "APPROVED", "REJECTED"
DECISIONS = (APPROVED, REJECTED)
"""Somebody asked for an approval; somebody decided. They charge nothing and change no table."""

NOTES = (DERIVED, VALIDATED, ANNOUNCED)
"""Those of them that follow a commit. They charge nothing and change no table."""

GENESIS = "0" * 64
SALT_BYTES = 16
LONGEST_REASON = 500
SKEW = timedelta(minutes=1)
"""A clock that is behind by less is not worth a word."""

BEFORE: Mapping[str, tuple[State | None, ...]] = {
    State.RESERVED: (None, State.VOID),
    State.BEGUN: (State.RESERVED,),
    State.COMMITTED: (State.BEGUN,),
    State.LOST: (State.BEGUN,),
    State.VOID: (State.RESERVED,),
}
"""State -> the states it may follow; None is a release the ledger has not seen."""

UNBEGUN: Mapping[str, None] = dict.fromkeys(
    ("scratch", "host", "nonce", "artifact_sha256", "certificate_sha256", "reason", "reserved_by")
)


def digest(
    seq: int,
    at: str,
    account: str,
    release_id: str | None,
    change: str,
    body: str,
    previous: str,
) -> str:
    """Hash of a history row: of its canonical JSON, with the body's text as it is stored."""
    # The trigger of postgres_roles.py computes the same from the same text.
    before = canonical({"account": account, "at": at})
    after = canonical({"change": change, "release_id": release_id, "seq": seq})
    text = f'{before[:-1]},"body":{body},{after[1:]}'
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


def key_digest(key: bytes) -> str:
    """Digest of a partition key, which the history holds so that a swapped key is found."""
    return hashlib.sha256(b"privsyn partition key\n" + key).hexdigest()


def lock(connection: sa.Connection) -> tuple[int, str]:
    """Lock the head until the transaction ends: one writer at a time.

    Raises:
        VerificationError: Somebody deleted it.
    """
    row = connection.execute(
        sa.select(schema.head.c.seq, schema.head.c.hash)
        .where(schema.head.c.id == 1)
        .with_for_update()  # SQLite's BEGIN IMMEDIATE has the lock already and ignores this
    ).one_or_none()
    if row is None:
        raise broken("its head is gone")
    return row.seq, row.hash


def length(connection: sa.Connection) -> int | None:
    """Rows of the history by its head; None where that is gone."""
    return connection.execute(sa.select(schema.head.c.seq)).scalar()


CHANGED = "Restore the ledger from a backup and find out who changed it."
OTHER_BUILD = (
    "Another version or build of privsyn wrote it: use that one. If none did: " + CHANGED.lower()
)


def broken(what: str, hint: str = CHANGED) -> VerificationError:
    """The error of a ledger that somebody edited, or that another version wrote."""
    return VerificationError(f"ledger: {what}.", hint=hint)


def last_at(connection: sa.Connection) -> str:
    """Time of the last row; empty where there is none."""
    query = sa.select(schema.history.c.at).order_by(schema.history.c.seq.desc()).limit(1)
    return connection.execute(query).scalar() or ""


def behind(connection: sa.Connection, clock: datetime) -> str:
    """What to say of a clock that is well behind the last row; empty where it is not."""
    last = last_at(connection)
    if not last or moment(last) - clock < SKEW:
        return ""
    return (
        f"The last row of the ledger has the time {moment(last):%Y-%m-%d %H:%M} UTC, and the clock "
        f"of this machine says {clock:%Y-%m-%d %H:%M}: one of the two clocks is wrong. New rows "
        "get the time of the last row, and what ends now leaves a period's window as if it had "
        "ended then."
    )


def append(
    connection: sa.Connection,
    at: datetime,
    account: str,
    release_id: str | None,
    change: str,
    body: Mapping[str, Any],
) -> Change:
    """Add a row to the history, and bring the table it concerns up to date.

    Its time is never before that of the last row: a clock that went back would else take releases
    out of a period's window. Such a clock's own time is noted in the row, as ``clock``.
    """
    seq, previous = lock(connection)
    now = stamp(at)
    time = max(now, last_at(connection))
    body = dict(body)
    if time != now:
        body["clock"] = now
    # Numbers of reservations are in the chain: a deleted entry leaves a gap that verify finds.
    if change == State.RESERVED:
        last = connection.execute(sa.select(sa.func.max(schema.entries.c.number))).scalar()
        body["number"] = (last or 0) + 1
    seq += 1
    # privacy: certificates name rows by hash, and a time has few values to try without the secret
    content = canonical({**body, "at": time, "previous": previous, "seq": seq})
    secret = source_key(connection)
    if secret is None:
        raise broken("its secret is gone")
    salt = hmac.digest(bytes.fromhex(secret), content.encode(), "sha256")
    body["salt"] = salt[:SALT_BYTES].hex()
    text = canonical(body)
    made = digest(seq, time, account, release_id, change, text, previous)
    row = Change(seq, time, account, release_id, change, body, previous, made)
    connection.execute(sa.insert(schema.history).values(**(row.__dict__ | {"body": text})))
    connection.execute(
        sa.update(schema.head).where(schema.head.c.id == 1).values(seq=seq, hash=row.hash)
    )
    if change in (*NOTES, *DECISIONS, REQUESTED):  # charges nothing and changes no table
        return row
    values = project(row)
    if change == TERMS:
        connection.execute(
            sa.update(schema.accounts).where(schema.accounts.c.name == account).values(values)
        )
    elif change != OPENED:  # an account's row holds the secret key, which the history must not
        update = connection.execute(
            sa.update(schema.entries)
            .where(schema.entries.c.release_id == release_id)
            .values(values)
        )
        # An update first: a void release that is reserved anew keeps its row.
        if update.rowcount == 0:
            connection.execute(sa.insert(schema.entries).values(release_id=release_id, **values))
    return row


def project(row: Change) -> dict[str, Any]:
    """The columns that a history row sets in the table of accounts or of entries."""
    body = dict(row.body)
    by = body.pop("by", None)
    # They say how the row was written and what it was asked for, and are no column of any table.
    for name in ("salt", "clock", "settings_digest"):
        body.pop(name, None)
    if row.change == OPENED:
        # The table holds the key itself: audit compares the digest with that.
        del body["key_sha256"]
        return {"name": row.account, "opened_at": row.at, "terms": None, **body}
    if row.change == TERMS:
        return {"terms": canonical(body["terms"])}
    values = {"state": str(row.change), "changed_at": row.at, **body}
    if row.change == State.RESERVED:
        values |= {
            "account": row.account,
            "reserved_at": row.at,
            "event": canonical(body["event"]),
            "mu_squared": body.get("mu_squared"),
            **UNBEGUN,  # a void release is reserved anew with nothing left of its first life
            "reserved_by": None if by is None else canonical(by),
        }
    return values


def walk(
    connection: sa.Connection, release_id: str | None = None, changes: Collection[str] | None = None
) -> Iterator[Change]:
    """The rows of the history, of a release or of some changes if given, oldest first."""
    query = sa.select(schema.history).order_by(schema.history.c.seq)
    if changes is not None:
        query = query.where(schema.history.c.change.in_(changes))
    if release_id is not None:
        query = query.where(schema.history.c.release_id == release_id)
    for row in connection.execute(query):
        yield read(row)


def read(row: sa.Row[Any]) -> Change:
    """A stored row with its body parsed."""
    return Change(**(dict(row._mapping) | {"body": json.loads(row.body)}))
