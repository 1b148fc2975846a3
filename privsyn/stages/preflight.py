"""preflight: try everything public that a release needs, before its cost is spent.

A release that has begun is charged whether it ends or not. So models make a pass over public
inputs, a schema is compiled, and every folder that will be written is written to, all before begin.
No record is read here.
"""

from __future__ import annotations

import traceback
from pathlib import Path

from privsyn.data.artifacts import check_writable
from privsyn.errors import ModelError, PrivsynError
from privsyn.methods.base import Backends
from privsyn.publishing.dvc import DvcPublisher
from privsyn.release.plan import Plan
from privsyn.stages.base import Context
from privsyn.stages.drawing import check_models, load_models
from privsyn.stages.sign import check_key


def due(ctx: Context, plan: Plan) -> bool:
    """Whether the release has not begun: one that has is resumed as it is, or there already."""
    entry = ctx.ledger.find(plan.id)
    return entry is None or entry.state in ("RESERVED", "VOID")


def preflight(
    ctx: Context, plan: Plan, backends: Backends | None = None, *, published: bool = True
) -> None:
    """Try what is public of a release that has not begun. Does nothing for another one.

    Args:
        ctx: Config and ledger.
        plan: The release.
        backends: Models already loaded; None loads what the config names.
        published: Whether it will be pushed to the DVC remote.

    Raises:
        ModelError: A model cannot do what the method asks of it.
        StorageError: A folder cannot be written.
        ConfigError: A setting turns out to be wrong.
    """
    if not due(ctx, plan):
        return
    check_key(ctx)
    check_places(ctx, plan, published=published)
    method, settings = ctx.planned(plan)
    backends = load_models(ctx, plan) if backends is None else backends
    check_models(plan, backends)
    try:
        method.preflight(settings, plan.privacy_unit, plan.dataset.labels, backends)
    except (PrivsynError, MemoryError, OSError):
        raise
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":
            raise
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise ModelError(
            f"methods.{plan.method} cannot use its models: {type(error).__name__} in "
            f"{Path(where.filename).name}, line {where.lineno}, on a public input.",
            hint="Try other models, or performance.device=cpu.",
        ) from None


def check_places(ctx: Context, plan: Plan, *, published: bool) -> None:
    """Write to every folder that the release will be written to and to the vault; take it back.

    Raises:
        StorageError: One cannot be written.
    """
    workspace = ctx.workspace
    for folder in (
        workspace.scratch(plan.id),
        workspace.internal(plan.id),
        workspace.release(plan.id),
        workspace.quarantine(plan.id),
    ):
        check_writable(folder.parent)
    if ctx.vault is not None:
        ctx.vault.check()
    if ctx.as_filed:
        check_writable(workspace.synthetic(plan.method))
    if published:
        DvcPublisher(workspace.root, remote=ctx.config.services.dvc_remote).check_remote()
