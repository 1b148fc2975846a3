"""Shared by further records and students: a finished release as parent, and publication."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privsyn import layout
from privsyn.data.artifacts import ArtifactRef
from privsyn.errors import ConfigError
from privsyn.methods.base import Record
from privsyn.modalities.registry import modality_of
from privsyn.publishing import DvcPublisher, DvcRevision
from privsyn.release import certificate
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.report import verification
from privsyn.stages.audit import refuse_unapproved, refuse_withheld
from privsyn.stages.base import Context
from privsyn.stages.folder import seal, sign


@dataclass(frozen=True)
class Parent:
    """A verified release.

    Attributes:
        folder: Where it is.
        facts: Facts of its certificate.
    """

    folder: Path
    facts: ReleaseFacts

    @property
    def plan(self) -> Plan:
        """The plan in its certificate."""
        return self.facts.plan


def open_parent(ctx: Context, release_id: str) -> Parent:
    """Find a finished release and check it against its certificate and the ledger.

    Raises:
        DataError: The release is not here.
        VerificationError: It differs from its certificate.
        ConfigError: It is itself made from a release.
    """
    folder = ctx.workspace.locate(release_id)
    if folder is None:
        raise ctx.workspace.missing(release_id)
    verification.raise_on_failure(folder, verification.verify(folder, ctx.ledger))
    facts = ReleaseFacts.read(folder)
    if facts.is_derived:
        raise ConfigError(
            f"{release_id} is itself made from a release.", hint=f"Name {facts.release_id}."
        )
    return Parent(folder, facts)


def read_rows(parent: Parent) -> list[Record]:
    """Label and content of every synthetic record of a release."""
    modality = modality_of(parent.plan.dataset)
    with (parent.folder / layout.ARTIFACT).open(encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    return [(row.get("label"), modality.read_released(parent.folder, row)) for row in rows]


def derive(
    ctx: Context,
    parent: Parent,
    folder: Path,
    how: Mapping[str, Any],
    write: Callable[[Path], ArtifactRef],
) -> None:
    """Write what is made from a release, with a certificate that contains the release's.

    Args:
        ctx: Ledger and workspace.
        parent: The release.
        folder: Where the result will be; its name is that of the result.
        how: What was made, for the certificate.
        write: Writes the artifact into a folder.
    """
    building = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(building, ignore_errors=True)
    artifact, root = write(building), ctx.workspace.root
    origin, name = parent.facts.certificate, folder.name
    sealed = certificate.derive(origin, artifact, name=name, how=how, root=root)
    # The ledger first: then it knows every folder that exists.
    ctx.ledger.releases.derive(parent.plan.id, artifact.sha256, certificate.digest(sealed))
    seal(building, sealed, folder)


def publish_folder(ctx: Context, parent: Plan, folder: Path) -> DvcRevision:
    """Version a result with DVC and push it.

    Raises:
        ApprovalNeeded: The account requires an approval of exactly this certificate.
        VerificationError: The folder differs from its certificate.
        PublishError: DVC or its remote refused.
        ValidationFailed: The disclosure audit of the parent withholds it.
    """
    refuse_withheld(ctx, parent.id)
    # An approval is for a certificate, so the folder must still match that certificate.
    verification.raise_on_failure(folder, verification.verify(folder, ctx.ledger))
    refuse_unapproved(ctx, folder)
    sign(ctx, folder, published=True)
    return DvcPublisher(ctx.workspace.root).publish(folder)
