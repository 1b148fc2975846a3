"""Students as one kind of what is made from a release."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from privsyn.derived.kinds import STUDENTS
from privsyn.derived.student import release
from privsyn.derived.student.evaluate import evaluate_student
from privsyn.derived.student.lineage import sync_student
from privsyn.derived.student.plan import StudentPlan
from privsyn.derived.student.validate import validate_student
from privsyn.release.plan import Plan
from privsyn.stages.base import Context


class Students:
    """Small language models, trained on the texts of a release. See derived.base.Described."""

    name: ClassVar[str] = STUDENTS
    Planned: ClassVar[type[StudentPlan]] = StudentPlan
    own_run: ClassVar[bool] = True
    one_process: ClassVar[bool] = True

    def plan(self, ctx: Context, parent: Plan, **asked: Any) -> StudentPlan:
        """See Derived. All is said by ``methods.distill``."""
        return release.plan_student(ctx, parent)

    def make(self, ctx: Context, planned: StudentPlan) -> Path:
        """See Derived."""
        return release.make_student(ctx, planned)

    def check(self, ctx: Context, planned: StudentPlan) -> Path:
        """See Derived."""
        return release.check_student(ctx, planned)

    def publish(self, ctx: Context, planned: StudentPlan) -> dict[str, Any]:
        """See Derived."""
        return release.publish_student(ctx, planned)

    def trace(self, ctx: Context, folder: Path, sealed: Mapping[str, Any]) -> None:
        """See Derived."""
        sync_student(ctx, folder, sealed)

    def described(self, ctx: Context) -> StudentPlan:
        """See Work. Of the teacher's release, which need not exist yet."""
        return release.plan_with_teacher(ctx)

    def draw(self, ctx: Context, planned: StudentPlan) -> Path:
        """See Work. Its parent first, which is charged unless it is there already."""
        return release.draw_student(ctx, planned)

    def validate(self, ctx: Context, planned: StudentPlan) -> Path:
        """See Work."""
        return validate_student(ctx, planned, filed=ctx.as_filed)

    def evaluate(self, ctx: Context, planned: StudentPlan) -> Path | None:
        """See Work."""
        return evaluate_student(ctx, planned.id)
