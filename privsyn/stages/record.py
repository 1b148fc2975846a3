"""record: a release as registries, catalogues and reviewers want it described. Costs nothing."""

from __future__ import annotations

from pathlib import Path

from privsyn.data.artifacts import atomic_file
from privsyn.errors import ConfigError, ValidationFailed
from privsyn.ledger.store import Ledger
from privsyn.release import certificate, layout, verification
from privsyn.release.metadata.checklist import markdown
from privsyn.release.metadata.croissant import croissant, to_json
from privsyn.release.metadata.deployment import deployment, to_yaml
from privsyn.release.metadata.facts import Facts
from privsyn.release.settings import DeploymentConfig

DEPLOYMENT, CROISSANT, CHECKLIST = "deployment.yaml", "croissant.json", "checklist.md"


def record(
    folder: Path, target: Path | None, stated: DeploymentConfig, ledger: Ledger | None
) -> tuple[Facts, list[Path]]:
    """Write the records of a release: registry entry, Croissant, checklist.

    Guarantee: the certificate and public settings are all that is read.

    Args:
        folder: The release. It is verified first.
        target: Folder to write to. None: ``records/<release id>`` of the working folder.
        stated: What the certificate cannot know.
        ledger: Of the project, to verify with.

    Returns:
        What they are made of, and the files written.

    Raises:
        VerificationError: The release is not what was certified, or not differentially private.
        ValidationFailed: It failed its suite.
        ConfigError: The target is a release's folder.
        StorageError: Disk full or no permission.
    """
    verification.raise_failed(folder, verification.verify(folder, ledger))
    _, sealed = certificate.read(folder)
    if layout.passed(folder) is False:
        raise ValidationFailed(
            f"{folder} failed its suite: it is not to be published.",
            hint=f"See {layout.page_of(folder)}.",
        )
    verification.refuse_predictable(folder, sealed)
    facts = Facts(sealed, stated)
    target = target or Path("records") / facts.name
    if target.resolve() == folder.resolve() or (target / layout.CERTIFICATE).exists():
        raise ConfigError(
            f"--out={target} is the folder of a release, where nothing else may lie.",
            hint="Name another folder.",
        )
    written = {DEPLOYMENT: to_yaml(deployment(facts)), CHECKLIST: markdown(facts)}
    described = croissant(facts)
    if described is not None:
        written[CROISSANT] = to_json(described)
    for name, text in written.items():
        with atomic_file(target / name, mode=0o644) as stream:
            stream.write(text.encode("utf-8", "backslashreplace"))
    return facts, [target / name for name in written]
