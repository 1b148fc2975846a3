"""How a release ends in the ledger: committed, void or lost; and what is noted of it afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy.engine import Connection

from privsyn.errors import VerificationError
from privsyn.ledger import chain, leases, rows
from privsyn.ledger.checks import SHA256, check_state, entry_row
from privsyn.ledger.drawn import DrawnLedger
from privsyn.ledger.entries import Change, Entry, State
from privsyn.ledger.governance import LONGEST_REASON
from privsyn.ledger.leases import Lease


class EndedLedger(DrawnLedger):
    """A ledger in which releases end."""

    def commit(
        self,
        release_id: str,
        artifact_sha256: str,
        certificate_sha256: str,
        *,
        lease: Lease | None = None,
    ) -> Entry:
        """Close a begun release over its artifact, after that is in its final place.

        Args:
            release_id: A begun release.
            artifact_sha256: Digest of the synthetic file.
            certificate_sha256: Digest of its certificate.
            lease: A lease the caller drew under; refused if it was overtaken.

        Raises:
            LeaseHeld: Another live process still draws it, or ``lease`` was overtaken.
            ReleaseLost: The release is lost.
            VerificationError: It is committed with other digests.
            BudgetError: It has not begun.
        """
        body = _digests(artifact_sha256, certificate_sha256)
        with self._write() as connection:
            entry = entry_row(connection, release_id)
            if entry.state is State.COMMITTED:
                if (entry.artifact_sha256, entry.certificate_sha256) != (
                    artifact_sha256,
                    certificate_sha256,
                ):
                    raise VerificationError(
                        f"release {release_id} is committed with another artifact or certificate.",
                        hint=f"Bring the committed one back: privsyn restore {release_id}",
                    )
                return entry
            check_state(entry, State.BEGUN)
            if lease is not None:
                leases.check(connection, lease)
            leases.check_alone(connection, release_id, self._clock(), but_mine=True)
            return self._move(connection, entry, State.COMMITTED, body)

    def derive(self, release_id: str, artifact_sha256: str, certificate_sha256: str) -> Change:
        """Note an artifact made from a committed release's records alone. Costs nothing.

        Noting the same one again changes nothing.

        Args:
            release_id: The release it was made from.
            artifact_sha256: Digest of the new file.
            certificate_sha256: Digest of its certificate.

        Raises:
            BudgetError: The release is not committed.
        """
        body = _digests(artifact_sha256, certificate_sha256)
        with self._write() as connection:
            entry = entry_row(connection, release_id)
            check_state(entry, State.COMMITTED)
            for row in chain.walk(connection, release_id):
                if row.change == chain.DERIVED and body.items() <= dict(row.body).items():
                    return row
            return self._append(connection, entry.account, release_id, chain.DERIVED, body)

    def note_validation(
        self, release_id: str, name: str, certificate_sha256: str, reports: Mapping[str, str]
    ) -> Change:
        """Note the reports of a validated artifact, so that they are found changed. Costs nothing.

        Noting what the newest note of this artifact says changes nothing.

        Args:
            release_id: The release that was paid for.
            name: The release, or what was made from it, that was validated.
            certificate_sha256: Digest of its certificate.
            reports: SHA-256 of each report, by file name.

        Raises:
            BudgetError: The release is not committed.
        """
        body = {
            "name": name,
            "certificate_sha256": certificate_sha256,
            "reports": dict(reports),
        }
        with self._write() as connection:
            entry = entry_row(connection, release_id)
            check_state(entry, State.COMMITTED)
            notes = [
                row
                for row in chain.walk(connection, release_id)
                if row.change == chain.VALIDATED and row.body["name"] == name
            ]
            if notes and body.items() <= dict(notes[-1].body).items():
                return notes[-1]
            return self._append(connection, entry.account, release_id, chain.VALIDATED, body)

    def void(self, release_id: str, reason: str) -> Entry:
        """Give an untouched reservation back.

        Raises:
            BudgetError: The release has begun: its cost stands.
        """
        return self._end(release_id, State.RESERVED, State.VOID, reason)

    @contextmanager
    def held(self, release_id: str) -> Iterator[Entry | None]:
        """The entry of a release, which nobody can change while the block lasts: keep it short."""
        with self._write() as connection:
            yield rows.find_entry(connection, release_id)

    def lose(self, release_id: str, reason: str) -> Entry:
        """Declare a begun release spent without an artifact: final.

        Args:
            release_id: A begun release.
            reason: Why, in words that hold no record text.

        Raises:
            BudgetError: The release has not begun, or is committed.
        """
        return self._end(release_id, State.BEGUN, State.LOST, reason)

    def _end(self, release_id: str, before: State, after: State, reason: str) -> Entry:
        with self._write() as connection:
            entry = entry_row(connection, release_id)
            if entry.state is after:
                return entry
            check_state(entry, before)
            return self._move(connection, entry, after, {"reason": reason[:LONGEST_REASON]})

    def _move(
        self, connection: Connection, entry: Entry, state: State, body: Mapping[str, Any]
    ) -> Entry:
        self._append(connection, entry.account, entry.release_id, state, body)
        return entry_row(connection, entry.release_id)


def _digests(artifact_sha256: str, certificate_sha256: str) -> dict[str, str]:
    """Both digests as a history row holds them; ValueError where one is none."""
    body = {"artifact_sha256": artifact_sha256, "certificate_sha256": certificate_sha256}
    for name, value in body.items():
        if not SHA256.fullmatch(value):
            raise ValueError(f"{name}={value!r} is not 64 lower-case hex digits")
    return body
