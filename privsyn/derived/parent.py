"""A finished release as the parent of what is made from it alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privsyn.errors import ConfigError, DataError
from privsyn.modalities.registry import modality_of
from privsyn.release import certificate, layout, verification
from privsyn.release.plan import Plan
from privsyn.stages.base import Context


@dataclass(frozen=True)
class Parent:
    """A release that verifies.

    Attributes:
        folder: Where it lies.
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
        raise DataError(
            f"release {release_id!r} is not here.",
            hint=f"Bring it back with: privsyn restore {release_id}",
        )
    verification.raise_failed(folder, verification.verify(folder, ctx.ledger))
    _, sealed = certificate.read(folder)
    if "derived" in sealed:
        raise ConfigError(
            f"{release_id} is itself made from a release.",
            hint=f"Name {certificate.origin(sealed)['plan']['release_id']}.",
        )
    return Parent(folder, sealed, planned_by(sealed))


def planned_by(sealed: Mapping[str, Any]) -> Plan:
    """The plan of a release, from its certificate."""
    return Plan.model_validate(sealed["plan"] | {"warnings": (), "shards": 1})


def records(parent: Parent) -> list[tuple[str | None, str | bytes]]:
    """Label and content of every record of a release."""
    found: list[tuple[str | None, str | bytes]] = []
    kind, folder = modality_of(parent.plan.dataset), parent.folder
    with (folder / layout.ARTIFACT).open(encoding="utf-8") as stream:
        for line in stream:
            row = json.loads(line)
            found.append((row.get("label"), kind.released(folder, row)))
    return found
