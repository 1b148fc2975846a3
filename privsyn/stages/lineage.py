"""What a release writes to MLflow: one run, a nested run per stage, and what to attach to which.

The release's run holds public facts: parameters, cost, certificate, validation. The nested runs are
internal: at least their durations depend on the data, and evaluate's numbers do altogether.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsyn import layout
from privsyn.evaluation.metrics import numbers_of, read_evaluation
from privsyn.ledger.entries import Entry, State
from privsyn.release import signature
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.stages.audit import withheld
from privsyn.stages.base import Context
from privsyn.tracking import CLASS_TAG

if TYPE_CHECKING:
    from privsyn.publishing import DvcRevision

VALIDATION_TAG, SIGNED_TAG = "privsyn.validation", "privsyn.signed_by"


def open_release(ctx: Context, plan: Plan, entry: Entry) -> None:
    """Describe a reserved release: what it is, what it costs, who runs it."""
    run = ctx.tracker.release_run(plan.id)
    ctx.tracker.log_params(run, _flat(plan))
    ctx.tracker.log_dataset(run, plan.dataset.name, plan.dataset.version)
    ctx.tracker.set_tags(
        run, {"privsyn.ledger_entry": entry.number, "privsyn.account": plan.account}
    )
    if entry.state is not State.COMMITTED:  # else these say who made it, and certify set its class
        origin = {f"privsyn.{key}": value for key, value in ctx.origin.items() if value}
        page = {
            "mlflow.user": ctx.origin.get("user"),
            "mlflow.source.name": ctx.origin.get("url") or ctx.origin.get("driver", "privsyn"),
            "mlflow.source.type": "JOB",
        }
        shown = {name: value for name, value in page.items() if value}
        ctx.tracker.set_tags(run, {CLASS_TAG: "reserved"} | origin | shown)
    ctx.tracker.log_metrics(run, {"epsilon": plan.epsilon, "delta": plan.delta})


def log_certificate(ctx: Context, plan: Plan, folder: Path) -> None:
    """Write what a certified release is: digests, counts of the draw, certificate."""
    facts = ReleaseFacts.read(folder)
    run = ctx.tracker.release_run(plan.id)
    commit = facts.software.get("git")
    ctx.tracker.set_tags(
        run, digests(facts) | ({"mlflow.source.git.commit": commit} if commit else {})
    )
    log_synthetic(ctx, facts)
    ctx.tracker.log_metrics(run, {f"drawn.{k}": v for k, v in facts.draw_counts.items()})
    names = ("value", "low", "high", "noise_low", "noise_high", "epsilon")
    paid = {f"paid_accuracy.{name}": facts.accuracy.get(name) for name in names}
    ctx.tracker.log_metrics(run, {name: one for name, one in paid.items() if one is not None})
    ctx.tracker.log_artifact(run, folder / layout.CERTIFICATE)


def log_synthetic(ctx: Context, facts: ReleaseFacts) -> None:
    """Record what a release wrote as a dataset of its run, by name and digest."""
    digest = facts.sha256[:36]  # as much as MLflow keeps
    ctx.tracker.log_dataset(ctx.tracker.release_run(facts.name), facts.name, digest, "synthetic")


def log_validation(ctx: Context, plan: Plan, folder: Path, *, passed: bool) -> None:
    """Write how a release did in its suite.

    Of one that failed the verdict alone: its report, exhibits and numbers stay in quarantine. The
    same of one that an audit that blocks has not let through, or not yet.
    """
    run = ctx.tracker.release_run(plan.id)
    ctx.tracker.set_tags(run, {VALIDATION_TAG: "passed" if passed else "failed"})
    facts = ReleaseFacts.read(folder)
    if not passed or withheld(ctx, plan):
        return
    if (name := signature.signed_by(folder)) is not None:
        ctx.tracker.set_tags(run, {SIGNED_TAG: name})
        ctx.tracker.log_artifact(run, folder / layout.SIGNATURE)
    ctx.tracker.log_metrics(run, json.loads((folder / layout.QUALITY).read_bytes()))
    for name in (layout.VALIDATION, layout.page_of(folder).name, layout.REPORT_JSON):
        if (folder / name).is_file():
            ctx.tracker.log_artifact(run, folder / name)
    for name in facts.exhibits:
        ctx.tracker.log_artifact(run, folder / layout.EXHIBITS / name, "exhibits")


def log_measures(ctx: Context, plan: Plan) -> None:
    """Write what a release was measured to be, from its internal folder, if it was.

    Into the nested run of ``evaluate``, which ends anew. The audit's numbers stay in the folder.
    """
    folder = ctx.workspace.internal(plan.id)
    if not (measured := read_evaluation(folder)):
        return
    values = numbers_of(measured)
    with ctx.tracker.stage_run(plan.id, "evaluate") as run:
        numbers = {name: value for name, value in values.items() if not name.startswith("audit.")}
        ctx.tracker.log_metrics(run, numbers)
        for name in (layout.INSIDE_PAGE, layout.INSIDE_NUMBERS):
            if (folder / name).is_file():
                ctx.tracker.log_artifact(run, folder / name)


def log_revision(ctx: Context, name: str, revision: DvcRevision) -> None:
    """Write where a release or a student is to be had."""
    ctx.tracker.set_tags(
        ctx.tracker.release_run(name),
        {"privsyn.dvc_revision": revision.md5, "privsyn.dvc_pointer": revision.pointer},
    )


def end_run(ctx: Context, name: str) -> None:
    """End the run of a release, by where the release lies."""
    released = ctx.workspace.release(name).is_dir()
    ctx.tracker.finish(ctx.tracker.release_run(name), "FINISHED" if released else "FAILED")


def digests(facts: ReleaseFacts) -> dict[str, object]:
    """Class of a release and digests of its certificate and its artifact."""
    return {
        CLASS_TAG: facts.kind,
        "privsyn.certificate_sha256": facts.certificate_sha256,
        "privsyn.artifact_sha256": facts.sha256,
    }


def _flat(plan: Plan) -> dict[str, Any]:
    """Public facts of a plan as parameters."""
    return {
        "method": plan.method,
        **{key: value for key, value in plan.settings.items() if not isinstance(value, dict)},
        **plan.derived,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "rho": plan.rho,
        "mu": plan.mu,
        "adjacency": plan.adjacency.value,
        "unit": plan.unit,
        "max_records_per_unit": plan.max_records_per_unit,
        "dataset": plan.dataset.name,
        "dataset_version": plan.dataset.version,
        "draw": plan.draw,
        "rows": plan.rows_said,
        **({} if plan.paid_epsilon is None else {"paid_epsilon": plan.paid_epsilon}),
        **{f"model.{role}": use.source for role, use in plan.models.items()},
        **{f"model.{role}.revision": use.revision for role, use in plan.models.items()},
    }
