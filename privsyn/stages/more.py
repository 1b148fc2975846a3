"""more: further records from a finished release, at no cost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from privsyn import certificate
from privsyn.errors import ConfigError, ValidationFailed
from privsyn.methods.base import METHODS, Offspring, content_field, load_method
from privsyn.publishing.dvc import DvcPublisher
from privsyn.stages.base import Context
from privsyn.stages.certify import seal, write_records
from privsyn.stages.generate import check_models, load_models
from privsyn.stages.parent import open_parent, records
from privsyn.stages.validate import PAGE, examine, move


def more(ctx: Context, release_id: str, count: int, *, published: bool = True) -> Path:
    """Make ``count`` further records from a release, with a certificate that names its parent.

    Guarantee: the parent's. The release's own records and public models are all that is read, so
    this is post-processing and charges nothing.

    Args:
        ctx: Config and ledger.
        release_id: A finished release of a method that can do so.
        count: New records.
        published: Version and push them with DVC.

    Returns:
        The folder ``releases/<release id>.more-<number>``.

    Raises:
        DataError: The release is not here.
        VerificationError: It is not what was certified.
        ConfigError: Its method makes no more.
        ValidationFailed: The new records fail the suite; they lie in quarantine/.
    """
    if count < 1:
        raise ConfigError(f"--n={count} must be at least 1.")
    opened = open_parent(ctx, release_id)
    parent, sealed, plan = opened.folder, opened.sealed, opened.plan
    method, settings = plan.load_method()
    if not isinstance(method, Offspring):
        able = [name for name in METHODS if isinstance(load_method(name), Offspring)]
        raise ConfigError(
            f"release {release_id} is of {plan.method}, which makes no more without the data.",
            hint=f"Methods that do: {', '.join(able)}. Here a fresh draw is a new charge: "
            f"privacy.draw={plan.draw + 1}.",
        )
    backends = load_models(ctx, plan)
    check_models(plan, backends)
    name = _free_name(ctx, release_id)
    rows: list[dict[str, Any]] = []
    for label, content in method.more(
        settings,
        backends,
        records(parent),
        count,
        trained if (trained := parent / certificate.MODEL).is_dir() else None,
        lambda done, total: ctx.progress("more", done, total),
    ):
        row = {"id": f"{name}-{len(rows):06d}"} | ({} if label is None else {"label": label})
        rows.append(row | content_field(content))
    folder = ctx.workspace.release(name)
    building = folder.with_name(f".{name}.new")
    shutil.rmtree(building, ignore_errors=True)
    artifact = write_records(building, rows)
    derived = certificate.derive(
        sealed, artifact, name=name, how={"more": count}, root=ctx.workspace.root
    )
    seal(building, derived, folder)
    ctx.ledger.derive(plan.id, artifact.sha256, certificate.digest(derived))
    result, _ = examine(ctx, plan, folder, (count, count))
    run = ctx.lineage.release_run(plan.id)
    ctx.lineage.log_artifact(run, folder / certificate.CERTIFICATE, f"more/{name}")
    if not result.success:
        quarantine = move(folder, ctx.workspace.quarantine(name))
        failed = ", ".join(sorted({item.name for item in result.failed}))
        raise ValidationFailed(
            f"{name} fails its suite: {failed}.", hint=f"See {quarantine / PAGE}."
        )
    if published:
        DvcPublisher(ctx.workspace.root, remote=ctx.config.services.dvc_remote).publish(
            folder, git_commit=ctx.config.services.git_commit
        )
    return folder


def _free_name(ctx: Context, release_id: str) -> str:
    number = 1
    while any(
        place.exists()
        for place in (
            ctx.workspace.release(f"{release_id}.more-{number}"),
            ctx.workspace.quarantine(f"{release_id}.more-{number}"),
            ctx.workspace.pointer(f"{release_id}.more-{number}"),
        )
    ):
        number += 1
    return f"{release_id}.more-{number}"
