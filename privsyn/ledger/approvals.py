"""Approvals: people decide what is spent and what is published, on record."""

from __future__ import annotations

from privsyn.errors import ApprovalNeeded, BudgetError
from privsyn.ledger import audit, chain, decisions, entries, sa
from privsyn.ledger.chain import LONGEST_REASON
from privsyn.ledger.database import Database
from privsyn.ledger.decisions import Decision, What
from privsyn.ledger.entries import (
    SHA256,
    Change,
    Cost,
    Entry,
    State,
    check_name,
    check_state,
    entry_row,
)
from privsyn.ledger.spec import AccountSpec, ReleaseRequest, Terms, account_row, spec_of

LONGEST_NAME = 200


class Approvals:
    """Requests for approval, and decisions. They charge nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def request(self, cost: Cost) -> Change:
        """Ask people to approve a cost, once. Charges nothing."""
        account, name = cost.account, cost.release_id
        check_name("release id", name)
        with self._database.write() as connection:
            account_row(connection, account)
            # Every try of a scheduled run asks again: one row a question.
            known = decisions.request_of(connection, name, cost.digest)
            if known is not None:
                return known
            body = {"what": str(What.SPEND), "digest": cost.digest, **cost.body}
            return self._database.append(connection, account, name, chain.REQUESTED, body)

    def decide(
        self,
        release_id: str,
        what: What,
        digest: str,
        *,
        approved: bool,
        approver: str,
        approver_id: str | None = None,
        comment: str = "",
        name: str | None = None,
    ) -> Decision:
        """Record that somebody approved or rejected. Charges nothing.

        Args:
            release_id: The release that is paid for.
            what: To reserve its cost, or to publish it or what was made from it.
            digest: Of the cost, as it was asked for; or of the certificate.
            approved: Whether it was approved.
            approver: Who decided.
            approver_id: Another name the same person is known by.
            comment: In words that hold no record text.
            name: What is published, where it is not the release.

        Raises:
            BudgetError: Nobody asked to spend that; or the release is not committed with that
                certificate, nor is anything that was made from it; or the approver has no name.
            ApprovalNeeded: Who asked approves, and two people are asked for.
            VerificationError: The ledger was edited.
        """
        if not approver.strip():
            raise BudgetError(f"release {release_id}: a decision needs the name of who decides.")
        if not SHA256.fullmatch(digest):
            raise ValueError(f"digest={digest!r} is not 64 lower-case hex digits")
        body = {
            "what": str(what),
            "digest": digest,
            "name": name or release_id,
            "approver": approver[:LONGEST_NAME],
            "comment": " ".join(comment.split())[:LONGEST_REASON],
        } | ({"approver_id": approver_id[:LONGEST_NAME]} if approver_id else {})
        change = chain.APPROVED if approved else chain.REJECTED
        with self._database.write() as connection:
            account, asker = _subject(connection, release_id, what, digest)
            # An approval must not rest on rows that somebody edited.
            audit.check_account(connection, account)
            decision = Decision.of(
                self._database.append(connection, account, release_id, change, body)
            )
            terms = Terms.load(account_row(connection, account)["terms"])
            if approved and terms.approvals.two_people and asker in decision.people:
                raise ApprovalNeeded(  # and the row is not kept
                    f"{body['name']}: {asker} asked for it, and account.approval.two_people asks "
                    f"for another one to approve it (approver {', '.join(decision.people)}).",
                    hint="Ask somebody else.",
                )
            return decision

    def requester(self, release_id: str, digest: str) -> str | None:
        """Who asked for what has a certificate: who made that of a release, or who paid for it."""
        with self._database.read() as connection:
            entry = entry_row(connection, release_id)
            return _maker(connection, entry, digest)

    def check_publication(self, release_id: str, digest: str, *, name: str) -> Decision | None:
        """The approval to publish what has a certificate; None where none is asked for.

        Args:
            release_id: The release that was paid for.
            digest: Of the certificate.
            name: What is to be published.

        Raises:
            ApprovalNeeded: There is none.
            VerificationError: The ledger was edited.
        """
        with self._database.read() as connection:
            entry = entry_row(connection, release_id)
            terms = Terms.load(account_row(connection, entry.account)["terms"])
            if not terms.approvals.publish:
                return None
            audit.check_account(connection, entry.account)
            return decisions.standing(
                decisions.of_release(connection, release_id),
                What.PUBLISH,
                digest,
                name=name,
                asker=_maker(connection, entry, digest),
                two_people=terms.approvals.two_people,
            )

    def check_spend(
        self, connection: sa.Connection, spec: AccountSpec, request: ReleaseRequest, cost: Cost
    ) -> Decision | None:
        """The approval of a cost; None where none is asked for.

        Raises:
            ApprovalNeeded: There is none.
        """
        decided = decisions.of_release(connection, cost.release_id)
        return decisions.of_spend(decided, spec.terms, request, cost, self._database.user)

    def is_due(self, cost: Cost) -> bool:
        """Whether a cost waits for an approval, which ``reserve`` would ask for.

        Raises:
            BudgetError: The account is unknown.
        """
        with self._database.read() as connection:
            spec = spec_of(account_row(connection, cost.account))
            entry = entries.find_entry(connection, cost.release_id)
            if entry is not None and entry.is_charged:
                return False
            try:
                self.check_spend(connection, spec, ReleaseRequest.of(spec, cost), cost)
            except ApprovalNeeded:
                return True
            return False

    def decisions(self, release_id: str) -> list[Decision]:
        """What people approved or rejected of a release, oldest first."""
        with self._database.read() as connection:
            return decisions.of_release(connection, release_id)

    def spend_approval(self, release_id: str) -> Decision | None:
        """The approval that the newest reservation of a release had; None without any."""
        with self._database.read() as connection:
            rows = list(chain.walk(connection, release_id))
        last = max((row.seq for row in rows if row.change == State.RESERVED), default=0)
        before = [row for row in rows if row.seq < last and row.change == chain.APPROVED]
        spends = [one for one in map(Decision.of, before) if one.what is What.SPEND]
        return spends[-1] if spends else None

    def find_request(self, release_id: str) -> Change | None:
        """The newest request to approve the cost of a release, or None."""
        with self._database.read() as connection:
            return decisions.request_of(connection, release_id)


def _subject(
    connection: sa.Connection, release_id: str, what: What, digest: str
) -> tuple[str, str | None]:
    """Account and asker of what a decision is about."""
    if what is What.SPEND:
        request = decisions.request_of(connection, release_id, digest)
        if request is None:
            raise BudgetError(
                f"release {release_id}: nobody has asked to reserve this cost.",
                hint="Run it once: reserve asks.",
            )
        return request.account, (request.body.get("by") or {}).get("user")
    entry = entry_row(connection, release_id)
    check_state(entry, State.COMMITTED)
    # Students and further records are published under certificates of their own.
    made = chain.walk(connection, release_id, (chain.DERIVED,))
    if digest not in {entry.certificate_sha256, *(row.body["certificate_sha256"] for row in made)}:
        raise BudgetError(
            f"release {release_id}: no certificate with the SHA-256 {digest} is its own, or of "
            "anything made from it.",
            hint="Name the release whose certificate it is.",
        )
    return entry.account, _maker(connection, entry, digest)


def _maker(connection: sa.Connection, entry: Entry, digest: str) -> str | None:
    for row in chain.walk(connection, entry.release_id, (chain.DERIVED,)):
        if row.body["certificate_sha256"] == digest:
            return (row.body.get("by") or entry.reserved_by or {}).get("user")
    return (entry.reserved_by or {}).get("user")
