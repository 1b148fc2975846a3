"""publish: version a validated release with DVC and push it; restore brings one back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from privsyn import layout
from privsyn.data.artifacts import atomic_file, write_json_atomic
from privsyn.errors import ConfigError, ValidationFailed
from privsyn.ledger.ledger import Ledger
from privsyn.publishing import DvcPublisher
from privsyn.release.facts import ReleaseFacts
from privsyn.release.metadata import croissant, deployment, markdown, to_json, to_yaml
from privsyn.release.plan import Plan
from privsyn.release.release_store import set_times
from privsyn.release.settings import Stated
from privsyn.report import verification
from privsyn.stages.audit import refuse_unapproved, refuse_withheld
from privsyn.stages.base import Context, trace_stage
from privsyn.stages.folder import export, find, sign, store
from privsyn.stages.lineage import end_run, log_revision


def publish(ctx: Context, plan: Plan) -> dict[str, Any]:
    """Publish a release: pointer file, DVC cache and remote, and dvc.yaml's own outputs.

    Publishing again is harmless. One publish runs at a time.

    Returns:
        Public facts for whoever consumes the release.

    Raises:
        ValidationFailed: The release is in quarantine or was never validated; or
            ``evaluate.audit`` is ``block``, and its audit did not let it through.
        VerificationError: It is not what was certified and committed.
        ApprovalNeeded: The account asks that somebody approves exactly this certificate first.
        PublishError: DVC or its remote refused.
    """
    with trace_stage(ctx, plan.id, "publish"):
        folder = find(ctx, plan)
        refuse_withheld(ctx, plan.id)
        if folder != ctx.workspace.release(plan.id) or not layout.suite_passed(folder):
            raise ValidationFailed(
                f"release {plan.id} has not passed its suite and is not published.",
                hint="Run validate first, or look into quarantine/.",
            )
        # Where validate ran on a machine without the key.
        if sign(ctx, folder, published=True) is not None:
            set_times(folder)
            store(ctx, folder)
        verification.raise_on_failure(folder, verification.verify(folder, ctx.ledger))
        refuse_unapproved(ctx, folder)
        if ctx.as_filed:
            export(ctx, plan)
            write_json_atomic(ctx.workspace.plan(plan.method), plan.model_dump(mode="json"))
        revision = DvcPublisher(ctx.workspace.root).publish(
            folder,
            # dvc.lock says what params.yaml makes: runs with overrides stay out of its files.
            method=plan.method if ctx.as_filed else None,
        )
        facts = ReleaseFacts.read(folder)
        log_revision(ctx, plan.id, revision)
        end_run(ctx, plan.id)
        return {
            "release_id": plan.id,
            "version": plan.dataset.version,
            "epsilon": plan.epsilon,
            "delta": plan.delta,
            "certificate_sha256": facts.certificate_sha256,
            "class": facts.kind,
            "dvc_revision": revision.md5,
            "rows": facts.rows,
        }


def published_revision(ctx: Context, plan: Plan) -> str | None:
    """The DVC revision of a published release; None if it is not published."""
    publisher = DvcPublisher(ctx.workspace.root)
    return publisher.revision(plan.id).md5 if plan.id in publisher.published_ids() else None


def restore(ctx: Context, release_id: str) -> Path:
    """Bring a release back, byte for byte: from the store of releases, else from the DVC remote.

    Raises:
        DataError: It is not stored, and was never published here.
        PublishError: The remote cannot be read.
        StorageError: The store cannot be reached.
        VerificationError: What is stored is not what was certified.
    """
    if ctx.workspace.store is not None:
        stored = verification.locate(ctx.workspace, ctx.ledger, release_id)
        if stored is not None:
            return stored
    publisher = DvcPublisher(ctx.workspace.root)
    if release_id not in publisher.published_ids() and ctx.workspace.here_in(release_id) is None:
        raise ctx.workspace.missing(release_id)
    folder = publisher.restore(release_id)
    set_times(folder)
    return folder


DEPLOYMENT, CROISSANT, CHECKLIST = "deployment.yaml", "croissant.json", "checklist.md"


def record(
    folder: Path, target: Path | None, stated: Stated, ledger: Ledger | None
) -> tuple[ReleaseFacts, list[Path]]:
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
    verification.raise_on_failure(folder, verification.verify(folder, ledger))
    facts = ReleaseFacts.read(folder, stated)
    if layout.suite_passed(folder) is False:
        raise ValidationFailed(
            f"{folder} failed its suite: it is not to be published.",
            hint=f"See {layout.page_of(folder)}.",
        )
    verification.refuse_predictable(folder, facts.certificate)
    target = target or Path("records") / facts.file_name
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
