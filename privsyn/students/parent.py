"""What further records and students share: a finished release as their parent, and publication."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from privsyn.errors import ConfigError
from privsyn.modalities.registry import modality_of
from privsyn.publishing.dvc import DvcPublisher, DvcRevision
from privsyn.release import layout, verification
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.stages.approval import refuse_unapproved
from privsyn.stages.audit import refuse_withheld
from privsyn.stages.base import Context
from privsyn.stages.certify import sign


@dataclass(frozen=True)
class Parent:
    """A release that verifies.

    Attributes:
        folder: Where it is.
        facts: What its certificate says.
    """

    folder: Path
    facts: ReleaseFacts

    @property
    def plan(self) -> Plan:
        """Its plan, from the certificate."""
        return self.facts.plan


def open_parent(ctx: Context, release_id: str) -> Parent:
    """Find a finished release and check it against its certificate and the ledger.

    Raises:
        DataError: The release is not here.
        VerificationError: It is not what was certified.
        ConfigError: It is itself made from a release.
    """
    folder = ctx.workspace.locate(release_id)
    if folder is None:
        raise ctx.workspace.missing(release_id)
    verification.raise_failed(folder, verification.verify(folder, ctx.ledger))
    facts = ReleaseFacts.read(folder)
    if facts.is_derived:
        raise ConfigError(
            f"{release_id} is itself made from a release.", hint=f"Name {facts.release_id}."
        )
    return Parent(folder, facts)


def read_rows(parent: Parent) -> list[tuple[str | None, str | bytes]]:
    """Label and content of every synthetic record of a release."""
    rows: list[tuple[str | None, str | bytes]] = []
    modality = modality_of(parent.plan.dataset)
    with (parent.folder / layout.ARTIFACT).open(encoding="utf-8") as stream:
        for line in stream:
            row = json.loads(line)
            rows.append((row.get("label"), modality.released(parent.folder, row)))
    return rows


def publish_folder(ctx: Context, parent: Plan, folder: Path) -> DvcRevision:
    """Version what was made from a release with DVC and push it.

    Raises:
        ApprovalNeeded: The account requires that somebody approves exactly this certificate first.
        VerificationError: The folder is not what was certified and committed.
        PublishError: DVC or its remote refused.
        ValidationFailed: The disclosure audit of the parent holds it back.
    """
    refuse_withheld(ctx, parent)
    # An approval names a certificate: the folder must still be what that certificate describes.
    verification.raise_failed(folder, verification.verify(folder, ctx.ledger))
    refuse_unapproved(ctx, folder)
    services = ctx.config.services
    sign(ctx, folder)
    return DvcPublisher(ctx.workspace.root, remote=services.dvc_remote).publish(
        folder, git_commit=services.git_commit
    )
