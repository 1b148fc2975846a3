"""Tasks after a teacher's release: a student on its texts, the baselines, their accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowSkipException

from privsyn.airflow.base import Flow, StageOperator
from privsyn.airflow.generate import ChildOperator
from privsyn.airflow.publish import announce, refuse_repetition
from privsyn.students.settings import STUDENTS

if TYPE_CHECKING:
    from privsyn.stages.base import Context as StageContext


class DistillOperator(ChildOperator):
    """Trains a student on the texts of the release. Costs nothing; an existing one is kept."""

    stage: ClassVar[str] = "distill"
    flow: ClassVar[Flow] = Flow(reads=True)

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator. Returns the student's name."""
        from privsyn.students.release import plan_student

        planned = self.planned()
        student = plan_student(ctx, planned)
        with self.environment(ctx, context) as environment:
            # Published and measured by tasks of their own, which can be retried alone.
            self.run_child(environment, STUDENTS, planned.id, "--no-publish", "--no-evaluate")
        return student.id, f"{student.id} is trained, certified and checked"


class BaselineOperator(ChildOperator):
    """Trains the same student on the records by DP-SGD: a release of its own, with its own charge.

    Skipped unless ``methods.distill.baselines`` names ``private``.
    """

    stage: ClassVar[str] = "baseline"
    flow: ClassVar[Flow] = Flow(private=True, paid=False)  # its own charge is told by no task
    trains: ClassVar[bool] = True

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.students.release import private_baseline

        config = ctx.config.method(STUDENTS)
        if "private" not in config.baselines:
            raise AirflowSkipException("methods.distill.baselines does not name private.")
        method, changes = private_baseline(ctx.config, self.planned(), config.student)
        extra = [f"methods.{method}.{name}={value}" for name, value in changes.items()]
        with self.environment(ctx, context, extra) as environment:
            self.run_child(environment, "run", "--method", method, "--no-publish")
        return None, "the student is trained on the records, at a charge of its own"


class EvaluateStudentOperator(StageOperator):
    """Next-token accuracy of student and baselines. Internal: nothing of it is XCom."""

    stage: ClassVar[str] = "evaluate_student"
    flow: ClassVar[Flow] = Flow(private=True, reads=True)

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.stages.evaluate import said
        from privsyn.students.evaluate import evaluate_student
        from privsyn.students.release import plan_student

        folder = evaluate_student(ctx, plan_student(ctx, self.planned()).id)
        return None, said(folder)


class PublishStudentOperator(StageOperator):
    """Versions the checked student with DVC, pushes it and updates the task's assets.

    Skipped as PublishOperator is.

    Args:
        reannounce: Publish and announce it again all the same.
    """

    ui_color: ClassVar[str] = "#e6e0f2"
    stage: ClassVar[str] = "publish_student"
    flow: ClassVar[Flow] = Flow(reads=True, writes=True, quality=True)

    def __init__(self, *, reannounce: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reannounce = reannounce

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.publishing.dvc import DvcPublisher
        from privsyn.students.release import plan_student, publish_student

        planned = plan_student(ctx, self.planned())
        self.student = planned.id
        if not self.reannounce and planned.id in DvcPublisher(ctx.workspace.root).published():
            refuse_repetition(self.outlets, context, planned.id)
        answer = publish_student(ctx, planned)
        facts = {"epsilon": planned.parent.epsilon, "delta": planned.parent.delta}
        announce(self.outlets, context, answer | facts)
        return answer, f"{answer['release_id']} is DVC revision {answer['dvc_revision']}"
