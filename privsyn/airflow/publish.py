"""Tasks after the records are drawn: check by the suite, measure, publish; and a student's."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset

from privsyn.airflow.base import UNCHANGED, MlflowRunLink, ReleaseReportLink, StageOperator
from privsyn.airflow.connections import connection_environment
from privsyn.airflow.failures import StageFailed
from privsyn.airflow.generate import ChildOperator
from privsyn.airflow.versions import AirflowSkipException
from privsyn.ledger.chain import ANNOUNCED
from privsyn.methods.shared.distill import STUDENTS

if TYPE_CHECKING:
    from privsyn.stages.base import Context as StageContext

log = logging.getLogger(__name__)


class ValidateOperator(StageOperator):
    """Runs the suite. A release that fails goes to quarantine, the task fails, the cost stays."""

    stage = "validate"
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


class EvaluateOperator(ChildOperator):
    """Trains on synthetic and tests on held-out real records. Internal: nothing of it is XCom.

    Fails where the release could not be measured, which is published all the same. Clear the task
    to measure it.

    Args:
        student: Measure the student in place of the release: its next-token accuracy, and that of
            the public model.
    """

    operator_extra_links = (MlflowRunLink(),)

    def __init__(self, *, student: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.student, self.stage = student, "evaluate_student" if student else "evaluate"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.stages.evaluate import failure_reason, log_line, measures
        from privsyn.students.release import plan_student

        planned = self.read_plan()
        self.note_lineage(ctx, planned)
        folder = measures(ctx, planned)
        if folder is not None:
            what = plan_student(ctx, planned).id if self.student else self.plan_file(ctx)
            self.apart(ctx, context, "stage", "evaluate", "--plan", what)
        if not self.student and (reason := failure_reason(folder)):
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

    Args:
        student: Publish the student in place of the release.
        outlets: The assets.
    """

    operator_extra_links = (ReleaseReportLink(), MlflowRunLink())

    def __init__(
        self, *, student: bool = False, outlets: Sequence[Asset] | None = None, **kwargs: Any
    ) -> None:
        # Also inlets, so that the task may read which events its assets have had.
        super().__init__(outlets=outlets, inlets=outlets, **kwargs)
        self.student, self.stage = student, "publish_student" if student else "publish"
        self.on_success_callback = [*vars(self)["on_success_callback"], note_announced]
        self.announced = ""

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.stages.publish import publish
        from privsyn.students.release import plan_student, publish_student

        planned = self.read_plan()
        self.note_report(planned)
        self.note_lineage(ctx, planned)
        if self.student:
            answer = publish_student(ctx, plan_student(ctx, planned))
            answer |= {"epsilon": planned.epsilon, "delta": planned.delta}
        else:
            answer = publish(ctx, planned)
        name = answer["release_id"]
        notes = [row.body for row in ctx.ledger.history(planned.id) if row.change == ANNOUNCED]
        noted = {note["asset"] for note in notes if note["name"] == name}
        for asset in self.outlets:
            told = [
                (event.extra or {}).get("release_id") for event in context["inlet_events"][asset]
            ]
            if asset.uri not in noted and name in told:
                # Airflow deletes old events, and a run that is cleared then must know of them.
                ctx.ledger.releases.note_announced(planned.id, name, asset.uri)
                noted.add(asset.uri)
        self.announce(context, answer, noted)
        return answer, f"{name} is DVC revision {answer['dvc_revision']}"

    def announce(
        self, context: Mapping[str, Any], answer: Mapping[str, Any], noted: Collection[str]
    ) -> None:
        """Put the release into the event of every asset of the task.

        The ledger's notes and the assets' own events decide, and not what is published here: the
        task is skipped if each has had one of this release, by any run.

        Args:
            context: Airflow's.
            answer: The release's public facts.
            noted: Assets that have had theirs.
        """
        name, ti = answer["release_id"], context["ti"]
        if self.outlets and all(asset.uri in noted for asset in self.outlets):
            ti.xcom_push(UNCHANGED, True)
            raise AirflowSkipException(f"{name} is already announced.")
        for asset in self.outlets:
            # privacy: these keys alone; an event is kept by Airflow and sent on.
            facts = {key: answer[key] for key in EXTRA if key in answer}
            context["outlet_events"][asset].extra = facts
        self.announced = name


def note_announced(context: Mapping[str, Any]) -> None:
    """Note in the ledger what a task has announced. Called when Airflow has the events.

    crash safety: not before. A task that ends without its events announces again when it is tried.
    """
    task = context["task"]
    try:
        ctx, planned = task.open(context), task.read_plan()
        with connection_environment(ctx.config):
            for asset in task.outlets:
                ctx.ledger.releases.note_announced(planned.id, task.announced, asset.uri)
    except Exception as error:  # Airflow's own events still tell; of a foreign one the text may not
        log.error("the ledger does not say what is announced: %s", type(error).__name__)


class DistillOperator(ChildOperator):
    """Trains a student on the texts of the release. Costs nothing; an existing one is kept."""

    stage = "distill"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator. Returns the student's name."""
        from privsyn.students.release import plan_student

        planned = self.read_plan()
        student = plan_student(ctx, planned)
        # Published and measured by tasks of their own, which can be retried alone.
        self.apart(ctx, context, STUDENTS, planned.id, "--no-publish", "--no-evaluate")
        return student.id, f"{student.id} is trained, certified and checked"
