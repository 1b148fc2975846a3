"""What further records and students share: a finished release as their parent, and publication."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privsyn.errors import ConfigError
from privsyn.modalities.registry import modality_of
from privsyn.publishing.dvc import DvcPublisher, DvcRevision
from privsyn.release import certificate, layout, verification
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
        sealed: Its certificate.
        plan: Its plan, from the certificate.
    """

    folder: Path
    sealed: dict[str, Any]
    plan: Plan


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
    _, sealed = certificate.read(folder)
    if "derived" in sealed:
        raise ConfigError(
            f"{release_id} is itself made from a release.",
            hint=f"Name {certificate.origin(sealed)['plan']['release_id']}.",
        )
    return Parent(folder, sealed, Plan.from_certificate(sealed))


def read_rows(parent: Parent) -> list[tuple[str | None, str | bytes]]:
    """Label and content of every synthetic record of a release."""
    rows: list[tuple[str | None, str | bytes]] = []
    modality = modality_of(parent.plan.dataset)
    with (parent.folder / layout.ARTIFACT).open(encoding="utf-8") as stream:
        for line in stream:
            row = json.loads(line)
            rows.append((row.get("label"), modality.released(parent.folder, row)))
    return rows


def publish_folder(ctx: Context, parent: Plan, folder: Path) -> tuple[DvcRevision, dict[str, Any]]:
    """Version what was made from a release with DVC and push it.

    Returns:
        The version and the certificate.

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
    revision = DvcPublisher(ctx.workspace.root, remote=services.dvc_remote).publish(
        folder, git_commit=services.git_commit
    )
    _, sealed = certificate.read(folder)
    return revision, sealed
