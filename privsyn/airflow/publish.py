"""Tasks after the records are drawn: check by the suite, measure, publish; and a student's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowSkipException

from privsyn.airflow.base import UNCHANGED, MlflowRunLink, ReleaseReportLink, StageOperator
from privsyn.airflow.failures import StageFailed
from privsyn.airflow.generate import ChildOperator
from privsyn.methods.shared.distill import STUDENTS

if TYPE_CHECKING:
    from privsyn.stages.base import Context as StageContext


class ValidateOperator(StageOperator):
    """Runs the suite. A release that fails goes to quarantine, the task fails, the cost stays."""

    stage: ClassVar[str] = "validate"
    operator_extra_links = (ReleaseReportLink(), MlflowRunLink())

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.stages.validate import validate

        planned = self.read_plan()
        # Noted first: the page is there, and most wanted, when the suite fails.
        self.note_report(planned)
        self.note_lineage(ctx, planned)
        folder = validate(ctx, planned)
        return str(folder), f"passed; the page is in {folder}"


class EvaluateOperator(StageOperator):
    """Trains on synthetic and tests on held-out real records. Internal: nothing of it is XCom.

    Fails where the release could not be measured, which is published all the same. Clear the task
    to measure it.
    """

    stage: ClassVar[str] = "evaluate"
    operator_extra_links = (MlflowRunLink(),)

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.stages.evaluate import evaluate, failure_reason, log_line

        planned = self.read_plan()
        self.note_lineage(ctx, planned)
        folder = evaluate(ctx, planned, retried=True)
        if reason := failure_reason(folder):
            raise StageFailed(
                f"not measured: {reason}. The release is published anyway.",
                advice="Fix the cause and clear this task, or run: privsyn report --measure "
                f"{planned.id}. No budget is used.",
                final=True,
            )
        return None, log_line(folder)


EXTRA = ("release_id", "parent", "version", "epsilon", "delta", "certificate_sha256", "class")
"""What the asset event tells whoever schedules on the release."""


class PublishOperator(StageOperator):
    """Versions a validated release with DVC, pushes it and updates the task's assets.

    Skipped where an earlier run has announced the release: its consumers would only run on the same
    records again.
    """

    ui_color: ClassVar[str] = "#e6e0f2"
    stage: ClassVar[str] = "publish"
    operator_extra_links = (ReleaseReportLink(), MlflowRunLink())

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.stages.publish import publish

        planned = self.read_plan()
        self.note_report(planned)
        self.note_lineage(ctx, planned)
        answer = publish(ctx, planned)
        announce(self.outlets, context, answer)
        return answer, f"{planned.id} is DVC revision {answer['dvc_revision']}"


def announce(
    outlets: Sequence[Asset], context: Mapping[str, Any], answer: Mapping[str, Any]
) -> None:
    """Put the release into the event of every asset of a task, and remember by which run.

    The task is skipped if the release is announced to every asset, by another run or before a
    clearing. A retry of the task that did goes on: it may have ended before Airflow heard of it.
    """
    ti, name = context["ti"], answer["release_id"]
    runs = [context["asset_state_store"][asset].get(name) for asset in outlets]
    # A new asset has no run on file, and its consumers have not heard of the release yet.
    if runs and None not in runs and _asked_by(ti) not in runs:
        ti.xcom_push(UNCHANGED, True)
        raise AirflowSkipException(f"{name} is already announced, by run {runs[0]['run_id']}.")
    for asset in outlets:
        event = context["outlet_events"][asset]
        # privacy: these keys alone; an event is kept by Airflow and sent on.
        event.extra = {key: answer[key] for key in EXTRA if key in answer}
        context["asset_state_store"][asset].set(name, _asked_by(ti))


def _asked_by(ti: Any) -> dict[str, Any]:
    """A run, and which clearing of it: each raises ``max_tries``, a retry does not."""
    return {"run_id": str(ti.run_id), "max_tries": int(ti.max_tries)}


class DistillOperator(ChildOperator):
    """Trains a student on the texts of the release. Costs nothing; an existing one is kept."""

    stage: ClassVar[str] = "distill"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator. Returns the student's name."""
        from privsyn.students.release import plan_student

        planned = self.read_plan()
        student = plan_student(ctx, planned)
        with self.environment(ctx, context) as environment:
            # Published and measured by tasks of their own, which can be retried alone.
            self.run_child(environment, STUDENTS, planned.id, "--no-publish", "--no-evaluate")
        return student.id, f"{student.id} is trained, certified and checked"


class EvaluateStudentOperator(StageOperator):
    """Next-token accuracy of student and public model. Internal: nothing of it is XCom."""

    stage: ClassVar[str] = "evaluate_student"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.stages.evaluate import log_line
        from privsyn.students.evaluate import evaluate_student
        from privsyn.students.release import plan_student

        folder = evaluate_student(ctx, plan_student(ctx, self.read_plan()).id)
        return None, log_line(folder)


class PublishStudentOperator(StageOperator):
    """Versions the checked student with DVC, pushes it and updates the task's assets.

    Skipped as PublishOperator is.
    """

    ui_color: ClassVar[str] = "#e6e0f2"
    stage: ClassVar[str] = "publish_student"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.students.release import plan_student, publish_student

        planned = plan_student(ctx, self.read_plan())
        answer = publish_student(ctx, planned)
        facts = {"epsilon": planned.parent.epsilon, "delta": planned.parent.delta}
        announce(self.outlets, context, answer | facts)
        return answer, f"{answer['release_id']} is DVC revision {answer['dvc_revision']}"
