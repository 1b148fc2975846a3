"""preflight: try everything public that a release needs, before its cost is spent.

A release that has begun is charged whether it ends or not. So models make a pass over public
inputs, a schema is compiled, and every folder that will be written is written to, all before begin.
No record is read here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from privsyn.data.artifacts import check_writable
from privsyn.errors import ModelError, PrivsynError, kind_and_place
from privsyn.methods.base import Backends
from privsyn.release.plan import Plan
from privsyn.stages.base import Context, OpenPlan, open_plan
from privsyn.stages.check import tracked
from privsyn.stages.draw import load_planned_models
from privsyn.stages.folder import key_id
from privsyn.stages.measure import try_measuring

log = logging.getLogger(__name__)


def due(ctx: Context, plan: Plan) -> bool:
    """Whether the release has not begun: one that has is resumed as it is, or there already."""
    entry = ctx.ledger.releases.find(plan.id)
    return entry is None or entry.state in ("RESERVED", "VOID")


def preflight(
    ctx: Context,
    plan: Plan | OpenPlan,
    backends: Backends | None = None,
) -> None:
    """Try what is public of a release that has not begun. Does nothing for another one.

    Args:
        ctx: Config and ledger.
        plan: The release.
        backends: Models already loaded; None loads what the config names.

    Raises:
        ModelError: A model cannot do what the method or the evaluation asks of it.
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
    backends = load_planned_models(release, backends)
    _try(
        lambda: release.method.preflight(
            release.settings, plan.privacy_unit, plan.dataset.labels, backends
        ),
        f"methods.{plan.method} cannot use its models",
        "Try other models, or performance.device=cpu.",
    )
    check_evaluation(release, backends)


def check_evaluation(release: OpenPlan, backends: Backends) -> None:
    """Try the models that measure the release once it is drawn, where it will be measured.

    A model that does not fit beside those of the release is left to the evaluation, which has the
    memory for itself.

    Raises:
        ModelError: One does not load, or cannot read or write a public text.
    """
    ctx = release.ctx
    if not (ctx.config.evaluate.enabled and release.source.has_holdout):
        return
    hint = "Name another model, or set evaluate.enabled=false."
    try:
        _try(
            lambda: try_measuring(ctx, release.plan, backends),
            "evaluate cannot use its models",
            hint,
        )
    except ModelError as error:
        if error.retryable:
            raise
        raise ModelError(
            f"{error.message} Nothing is spent.",
            hint=hint,
        ) from None
    except Exception as error:
        if not _no_memory(error):
            raise


def _no_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def _try(attempt: Callable[[], None], failed: str, hint: str) -> None:
    """Make a public pass; a foreign error becomes ours, with its class and place.

    Raises:
        ModelError: It raised an error that is not ours, and not of this machine.
    """
    try:
        attempt()
    except (PrivsynError, MemoryError, OSError):
        raise
    except Exception as error:
        if _no_memory(error):
            raise
        raise ModelError(
            f"{failed}: {kind_and_place(error)}, on a public input.",
            hint=hint,
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
