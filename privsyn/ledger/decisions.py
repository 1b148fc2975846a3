"""Approvals: what is approved by whom, as rows of the ledger's history, and whether one stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from privsyn.errors import ApprovalNeeded
from privsyn.ledger import sa
from privsyn.ledger.chain import APPROVED, DECISIONS, REQUESTED, walk
from privsyn.ledger.entries import Change, Cost, as_plain, moment
from privsyn.ledger.spec import ReleaseRequest, Terms


class What(StrEnum):
    """What is approved: that a cost is reserved, or that a release is published."""

    SPEND = "spend"
    PUBLISH = "publish"


@dataclass(frozen=True)
class Decision:
    """Somebody approved or rejected.

    Attributes:
        seq: Row of the history.
        at: When (UTC).
        account: Account that pays.
        release_id: The release that is paid for.
        what: ``spend`` or ``publish``.
        digest: What it is about: of the cost (``Cost.digest``), or of a certificate.
        name: The release, or what was made from it, that is published.
        approved: Whether it was approved; else rejected.
        approver: Who decided, by the name that Airflow or the machine knows.
        comment: In the approver's words.
        by: Who wrote the row: user, driver, and of Airflow DAG and run.
        people: Every name of who decided.
        hash: Of the row.
    """

    seq: int
    at: datetime
    account: str
    release_id: str
    what: What
    digest: str
    name: str
    approved: bool
    approver: str
    comment: str
    by: Mapping[str, str]
    people: tuple[str, ...]
    hash: str

    @classmethod
    def of(cls, row: Change) -> Decision:
        """A decision from its row."""
        body = row.body
        by = body.get("by") or {}
        # In Airflow the row is written by the run, whose user is the one who asked.
        wrote = () if by.get("driver") == "airflow" else (by.get("user"),)
        names = (body["approver"], body.get("approver_id"), *wrote)
        return cls(
            seq=row.seq,
            at=moment(row.at),
            account=row.account,
            release_id=str(row.release_id),
            what=What(body["what"]),
            approved=row.change == APPROVED,
            **{name: body[name] for name in ("digest", "name", "approver", "comment")},
            by=dict(by),
            people=tuple(dict.fromkeys(name for name in names if name)),
            hash=row.hash,
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return as_plain(self, "people")


def of_release(connection: sa.Connection, release_id: str) -> list[Decision]:
    """The decisions on a release and what was made from it, oldest first."""
    return [Decision.of(row) for row in walk(connection, release_id, DECISIONS)]


def of_account(connection: sa.Connection, account: str) -> list[Decision]:
    """The decisions of an account, oldest first."""
    rows = walk(connection, changes=DECISIONS)
    return [Decision.of(row) for row in rows if row.account == account]


def request_of(
    connection: sa.Connection, release_id: str, digest: str | None = None
) -> Change | None:
    """The newest request to approve a cost, of a release, or with this digest."""
    rows = walk(connection, release_id, (REQUESTED,))
    requests = [row for row in rows if digest in (None, row.body["digest"])]
    return requests[-1] if requests else None


def of_spend(
    decisions: Sequence[Decision],
    terms: Terms,
    request: ReleaseRequest,
    cost: Cost,
    asker: str | None,
) -> Decision | None:
    """The approval of a cost; None where none is asked for. See ``standing``."""
    above, two_people = terms.approvals.spend_above, terms.approvals.two_people
    # The epsilon is priced from the event: what the plan claims cannot keep it below the limit.
    if above is None or request.epsilon <= above:
        return None
    name = cost.release_id
    return standing(
        decisions, What.SPEND, cost.digest, name=name, asker=asker, two_people=two_people
    )


def standing(
    decisions: Sequence[Decision],
    what: What,
    digest: str,
    *,
    name: str,
    asker: str | None,
    two_people: bool,
) -> Decision:
    """The approval that stands for a digest.

    A rejection undoes what was approved before it; where two people are asked for, what the asker
    approved does not count, and neither does any approval where nobody knows who asked.

    Args:
        decisions: On the release, oldest first.
        what: What is to be done.
        digest: Of what exactly.
        name: What it is called.
        asker: Who asked for it.
        two_people: Whether the approver must be another.

    Raises:
        ApprovalNeeded: There is none.
    """
    # An approval is of one digest: another cost or certificate needs its own.
    about = [one for one in decisions if one.what is what and one.digest == digest]
    refused = [number for number, one in enumerate(about) if not one.approved]
    since = about[refused[-1] + 1 :] if refused else about
    # Nobody known asked: then whoever approves may be the one who asked.
    others = [one for one in since if asker is not None and asker not in one.people]
    if stands := others if two_people else since:
        return stands[-1]
    hint = f"Have it approved: privsyn approve {name} --{what}, or in Airflow."
    if not since and refused:
        last, hint = about[refused[-1]], "Another release, or another decision."
        comment = f" ({last.comment})" if last.comment else ""
        why = f": {last.approver} rejected it on {last.at:%Y-%m-%d %H:%M} UTC{comment}."
    elif not since:
        earlier = [one for one in decisions if one.what is what and one.approved]
        why = " before somebody has approved it."
        why += " What was approved before was something else." if earlier else ""
    elif asker is None:
        why = ": two people are asked for, and nobody knows who asked."
    else:
        why = f": {asker} asked for it and approved it, and account.approval.two_people asks for "
        why += "two people."
    doing = f"{name} is not to be {'reserved' if what is What.SPEND else 'published'}"
    raise ApprovalNeeded(f"{doing}{why}", hint=hint)
