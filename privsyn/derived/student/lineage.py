"""What a student writes to MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privsyn.derived.kinds import STUDENTS
from privsyn.derived.parent import planned_by
from privsyn.derived.student.plan import StudentPlan
from privsyn.release import certificate, layout
from privsyn.stages import lineage
from privsyn.stages.base import Context

PARENT_TAG = "privsyn.parent"


def trace_student(ctx: Context, planned: StudentPlan, folder: Path) -> None:
    """Write what a certified student is: a run of its own, all of it public."""
    _, sealed = certificate.read(folder)
    run = ctx.lineage.release_run(planned.id)
    models = {f"model.{role}": use.source for role, use in planned.models.items()}
    ctx.lineage.log_params(run, {"method": STUDENTS} | planned.settings | models)
    ctx.lineage.set_tags(run, lineage.digests(sealed) | {PARENT_TAG: planned.parent.id})
    lineage.log_synthetic(ctx, planned.id, sealed)
    made = sealed["derived"][STUDENTS]["student"]
    said = (
        f"A language model of {made['parameters']:,} parameters, trained on the texts of "
        f"`{planned.parent.id}` at no further cost."
    )
    ctx.lineage.set_tags(run, {lineage.NOTE: said})
    ctx.lineage.log_metrics(run, {f"student.{name}": float(n) for name, n in made.items()})
    ctx.lineage.log_artifact(run, folder / layout.CERTIFICATE)


def sync_student(ctx: Context, folder: Path, sealed: Mapping[str, Any]) -> None:
    """Write the missing lineage of a student that lies here, from its certificate."""
    made = sealed["derived"][STUDENTS]
    parent = planned_by(certificate.origin(sealed))
    planned = StudentPlan(parent=parent, settings=made["settings"], models=made["models"])
    trace_student(ctx, planned, folder)
    if layout.passed(folder):
        register_student(ctx, planned, folder)


def register_student(ctx: Context, planned: StudentPlan, folder: Path) -> None:
    """A student that passed its checks becomes a version of the dataset's student model.

    Where people are to approve what is published, once they have: see stages.lineage.register.
    """
    _, sealed = certificate.read(folder)
    tags = {PARENT_TAG: planned.parent.id}
    lineage.register(ctx, planned.id, planned.parent, planned.method, folder, sealed, tags)
    ctx.lineage.finish(ctx.lineage.release_run(planned.id))
