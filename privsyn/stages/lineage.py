"""What a release writes to MLflow: one run, a nested run per stage, and what to attach to which.

The release's run holds public facts: parameters, cost, certificate, validation. The nested runs are
internal: at least their durations depend on the data, and evaluate's numbers do altogether.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from privsyn.ledger import Entry, State
from privsyn.release import Plan
from privsyn.stages.base import Context
from privsyn.tracking.base import CLASS_TAG

P = ParamSpec("P")
R = TypeVar("R")


def traced(
    stage: Callable[Concatenate[Context, Plan, P], R],
) -> Callable[Concatenate[Context, Plan, P], R]:
    """Run a stage inside its nested run. A store that is down never stops a stage.

    Parallel shards of generate have runs of their own. A stage that finds its work done, because
    the release exists, leaves the lineage of the run that made it as it is.
    """

    @functools.wraps(stage)
    def run(ctx: Context, plan: Plan, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if _done(ctx, plan, stage.__name__):
            return stage(ctx, plan, *args, **kwargs)
        shard = kwargs.get("shard", args[0] if args else None)
        name = stage.__name__ if shard is None else f"{stage.__name__}-{shard}"
        with ctx.lineage.stage_run(plan.id, name):
            return stage(ctx, plan, *args, **kwargs)

    return run


DRAWING = ("partition", "train", "generate", "certify")
"""Stages with nothing left to do once a release is committed; the others once it is published."""


def _done(ctx: Context, plan: Plan, stage: str) -> bool:
    if stage in DRAWING:
        return ctx.ledger.entry(plan.id).state is State.COMMITTED
    return ctx.workspace.pointer(plan.id).is_file()


def open_release(ctx: Context, plan: Plan, entry: Entry) -> None:
    """Describe a reserved release: what it is, what it costs, who runs it."""
    run = ctx.lineage.release_run(plan.id)
    ctx.lineage.log_params(run, _flat(plan))
    ctx.lineage.log_dataset(run, plan.dataset.name, plan.dataset.version)
    ctx.lineage.set_tags(
        run,
        {
            "privsyn.ledger_entry": entry.number,
            "privsyn.account": plan.account,
        },
    )
    if entry.state is not State.COMMITTED:  # else these say who made it, and certify set its class
        origin = {f"privsyn.{key}": value for key, value in ctx.origin.items()}
        ctx.lineage.set_tags(run, {CLASS_TAG: "reserved"} | origin)
    ctx.lineage.log_metrics(run, {"epsilon": plan.epsilon, "delta": plan.delta})


def _flat(plan: Plan) -> dict[str, Any]:
    """Public facts of a plan as parameters."""
    return {
        "method": plan.method,
        **{key: value for key, value in plan.settings.items() if not isinstance(value, dict)},
        **plan.derived,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "rho": plan.rho,
        "adjacency": plan.adjacency.value,
        "unit": plan.unit,
        "max_records_per_unit": plan.max_records_per_unit,
        "dataset": plan.dataset.name,
        "dataset_version": plan.dataset.version,
        "draw": plan.draw,
        "rows": plan.rows_said,
        **{f"model.{role}": use.source for role, use in plan.models.items()},
        **{f"model.{role}.revision": use.revision for role, use in plan.models.items()},
    }
