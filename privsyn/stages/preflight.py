"""preflight: try everything public that a release needs, before its cost is spent.

A release that has begun is charged whether it ends or not. So models make a pass over public
inputs, a schema is compiled, and every folder that will be written is written to, all before begin.
No record is read here.
"""

from __future__ import annotations

import logging

from privsyn.data.artifacts import check_writable
from privsyn.errors import ModelError, PrivsynError, kind_and_place
from privsyn.methods.base import Backends
from privsyn.release.plan import Plan
from privsyn.stages.base import Context, OpenPlan, open_plan
from privsyn.stages.check import tracked
from privsyn.stages.draw import load_answerer, load_planned_models
from privsyn.stages.folder import key_id
from privsyn.stages.measure import check_models

log = logging.getLogger(__name__)


def due(ctx: Context, plan: Plan) -> bool:
    """Whether the release has not begun: one that has is resumed as it is, or there already."""
    entry = ctx.ledger.releases.find(plan.id)
    return entry is None or entry.state in ("RESERVED", "VOID")


def preflight(ctx: Context, plan: Plan | OpenPlan, backends: Backends | None = None) -> None:
    """Try what is public of a release that has not begun. Does nothing for another one.

    Args:
        ctx: Config and ledger.
        plan: The release.
        backends: Models already loaded; None loads what the config names.

    Raises:
        ModelError: A model cannot do what is asked of it, or one of ``evaluate`` is not here.
        StorageError: A folder cannot be written.
        ConfigError: A setting turns out to be wrong.
    """
    release = open_plan(ctx, plan)
    plan = release.plan
    if not due(ctx, plan):
        return
    for advice in tracked(ctx):
        log.warning("%s", advice)
    key_id(ctx)
    check_places(ctx, plan)
    if ctx.config.evaluate.enabled and release.source.has_holdout:
        check_models(ctx, plan)
    backends = load_planned_models(release, backends)
    answerer = load_answerer(release, backends)
    try:
        for column in plan.dataset.columns.values():
            if answerer is not None and column.ask is not None:
                answerer.check(column)
        release.method.preflight(release.settings, plan.privacy_unit, plan.dataset.labels, backends)
    except (PrivsynError, MemoryError, OSError):
        raise
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":  # torch's, which is not imported for this
            raise
        raise ModelError(
            f"methods.{plan.method} cannot use its models: {kind_and_place(error)}, on a public "
            "input.",
            hint="Try other models, or the CPU (CUDA_VISIBLE_DEVICES=).",
        ) from None


def check_places(ctx: Context, plan: Plan) -> None:
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
