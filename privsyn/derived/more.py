"""more: further records from a finished release, at no cost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count as count_from
from pathlib import Path
from typing import Any

from privsyn.data.artifacts import private_folder
from privsyn.derived.parent import open_parent, records
from privsyn.errors import ConfigError, ValidationFailed
from privsyn.filelock import file_lock
from privsyn.methods.base import METHODS, MakesMore, load_method
from privsyn.modalities.registry import modality_of
from privsyn.publishing.dvc import DvcPublisher
from privsyn.release import certificate, layout
from privsyn.stages.base import Context
from privsyn.stages.certify import seal
from privsyn.stages.drawing import check_models, load_models
from privsyn.stages.lineage import PAGE
from privsyn.stages.validate import examine, place, said


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
    method, settings = ctx.planned(plan)
    if not isinstance(method, MakesMore):
        able = [name for name in METHODS if isinstance(load_method(name), MakesMore)]
        raise ConfigError(
            f"release {release_id} is of {plan.method}, which makes no more without the data.",
            hint=f"Methods that do: {', '.join(able)}. Here a fresh draw is a new charge: "
            f"privacy.draw={plan.draw + 1}.",
        )
    backends = load_models(ctx, plan)
    check_models(plan, backends)
    kind = modality_of(plan.dataset)
    rows: list[dict[str, Any]] = []
    with _free_name(ctx, release_id) as name:
        for label, content in method.more(
            settings,
            backends,
            records(opened),
            count,
            trained if (trained := parent / layout.MODEL).is_dir() else None,
            lambda done, total: ctx.progress("more", done, total),
        ):
            row = {"id": f"{name}-{len(rows):06d}"} | ({} if label is None else {"label": label})
            rows.append(row | kind.entry(content))
        folder = ctx.workspace.release(name)
        building = folder.with_name(f".{name}.new")
        shutil.rmtree(building, ignore_errors=True)
        artifact = kind.write(building, rows)
        derived = certificate.derive(
            sealed, artifact, name=name, how={"more": count}, root=ctx.workspace.root
        )
        seal(building, derived, folder)
    ctx.ledger.derive(plan.id, artifact.sha256, certificate.digest(derived))
    result, _ = examine(ctx, plan, folder, (count, count))
    run = ctx.lineage.release_run(plan.id)
    ctx.lineage.log_artifact(run, folder / layout.CERTIFICATE, f"more/{name}")
    if not result.success:
        quarantine = place(ctx, name, folder, released=False)
        raise ValidationFailed(
            f"{name} fails its suite: {said(result)}.", hint=f"See {quarantine / PAGE}."
        )
    if published:
        DvcPublisher(ctx.workspace.root, remote=ctx.config.services.dvc_remote).publish(
            folder, git_commit=ctx.config.services.git_commit
        )
    return folder


@contextmanager
def _free_name(ctx: Context, release_id: str) -> Iterator[str]:
    """The first name that is free, and no other process's while the block lasts.

    A name whose holder was killed is free again.
    """
    private_folder(ctx.workspace.state)
    locks = ctx.workspace.state / "more"
    for number in count_from(1):
        name = f"{release_id}.more-{number}"
        with ExitStack() as held:
            try:
                held.enter_context(file_lock(locks / f"{name}.lock", timeout=0))
            except TimeoutError:
                continue
            if not _taken(ctx, name):
                yield name
                return


def _taken(ctx: Context, name: str) -> bool:
    workspace = ctx.workspace
    places = (workspace.release(name), workspace.quarantine(name), workspace.pointer(name))
    return any(place.exists() for place in places)
