"""The checks of a student: what was certified is there, loads, and predicts. Reads public files."""

from __future__ import annotations

from pathlib import Path

from privsyn.data.artifacts import write_json_atomic
from privsyn.derived.kinds import STUDENTS
from privsyn.derived.student.checks import examine_model
from privsyn.derived.student.plan import StudentPlan
from privsyn.errors import DataError, ValidationFailed
from privsyn.release import certificate, layout, verification
from privsyn.stages.base import Context
from privsyn.stages.lineage import VALIDATION_TAG
from privsyn.stages.validate import copy_reports, place, write_report

SCHEMA = "privsyn-model-validation/1"


def validate_student(ctx: Context, planned: StudentPlan, *, filed: bool = False) -> Path:
    """Check a student; keep it in quarantine if it fails. What passed once is not checked again.

    Args:
        ctx: Config and ledger.
        planned: The student.
        filed: Copy the reports to reports/distill/, which dvc.yaml tracks.

    Returns:
        Its folder, with the report, validation.json and quality.json in it.

    Raises:
        DataError: It is not here.
        ValidationFailed: Names the failed checks.
    """
    folder = ctx.workspace.locate(planned.id)
    if folder is None:
        raise DataError(
            f"student {planned.id} is not here.",
            hint=f"Make it with: privsyn distill {planned.parent.id}",
        )
    if not (layout.passed(folder) and verification.covers_reports(folder, ctx.ledger)):
        _examine(ctx, folder)
    holds = layout.passed(folder) is True
    folder = place(ctx, planned.id, folder, released=holds)
    if filed and holds:
        copy_reports(ctx, planned.method, folder)
    run = ctx.lineage.release_run(planned.id)
    ctx.lineage.set_tags(run, {VALIDATION_TAG: "passed" if holds else "failed"})
    if not holds:
        raise ValidationFailed(
            f"student {planned.id} fails its checks.", hint=f"See {layout.page_of(folder)}."
        )
    return folder


def _examine(ctx: Context, folder: Path) -> None:
    """Write the reports of a student into its folder."""
    for report in layout.REPORTS:
        (folder / report).unlink(missing_ok=True)
    checks = verification.verify(folder, ctx.ledger)
    if all(check.passed is not False for check in checks):
        checks += examine_model(folder / layout.MODEL, ctx.config.performance)
    _, sealed = certificate.read(folder)
    student = sealed["derived"][STUDENTS]["student"]
    quality = {f"student.{name}": float(value) for name, value in student.items()}
    write_json_atomic(folder / layout.QUALITY, quality)
    write_json_atomic(
        folder / layout.VALIDATION,
        {
            "schema": SCHEMA,
            "release_id": sealed["name"],
            "success": all(check.passed is not False for check in checks),
            "checks": [check.__dict__ for check in checks],
        },
    )
    write_report(folder)
    certificate.note_reports(folder, ctx.ledger)
