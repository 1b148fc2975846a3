"""Tasks around the ledger: plan, reserve as the setup, settle as its teardown."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from privsyn.airflow.base import UNCHANGED, StageOperator
from privsyn.airflow.failures import StageFailed

if TYPE_CHECKING:
    from privsyn.stages.base import Context as StageContext

log = logging.getLogger(__name__)


class PlanOperator(StageOperator):
    """Computes cost and name of the release from the run's settings. Opens no data.

    Args:
        method: Which method.
    """

    template_fields: Sequence[str] = ("method",)
    stage = "plan"

    def __init__(self, *, method: str, **kwargs: Any) -> None:
        super().__init__(plan=None, **kwargs)
        self.method = method

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.dp.accountant import format_epsilon
        from privsyn.stages.plan import plan, refuse_pipeline

        refuse_pipeline(ctx, self.method, scheduled=True)
        planned = plan(ctx, self.method, open_account=True)
        shares = f", {planned.label_shares}" if planned.label_shares else ""
        summary = (
            f"{planned.id}: epsilon {format_epsilon(planned.epsilon)}, delta {planned.delta:g} per "
            f"{planned.unit}, {planned.adjacency}; {planned.rows_said} {planned.things}"
            f"{shares}"
        )
        for caution in planned.warnings:
            log.warning("%s: %s", self.stage, caution)
        return planned.model_dump(mode="json"), summary


class ReserveBudgetOperator(StageOperator):
    """Sets the release's cost aside, once, however often it runs."""

    stage = "reserve"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator. Fails at once when the account cannot pay."""
        from privsyn.stages.plan import preview
        from privsyn.stages.reserve import reserve

        planned = self.read_plan()
        entry = reserve(ctx, planned)
        left = preview(ctx, planned).room
        summary = (
            f"{planned.id} is {entry.state}; account {planned.account} has room for another "
            f"release of this kind up to epsilon {left:.4g}"
        )
        return {"state": str(entry.state), "room_epsilon": left}, summary


class SettleBudgetOperator(StageOperator):
    """Gives an untouched reservation back and wipes the scratch of a finished release.

    Fails, when that is done, if the run did not publish, or a task failed that does not only
    measure: as the teardown it is the one task that runs whatever happens, so it alone can see
    that a run was marked failed by hand, whose waiting tasks Airflow skips. And *clear only failed*
    then runs it again.
    """

    stage = "settle"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.stages.reserve import settle

        planned = self.read_plan()
        state = settle(ctx, planned)
        if undone := _undone(context["ti"], context["dag"].task_ids):
            raise StageFailed(
                f"the run ends without {', '.join(undone)}; release {planned.id} is {state}.",
                advice=f"Settled. Clear {', '.join(undone)}, or run again: what was drawn costs "
                "nothing more."
                if state in ("BEGUN", "COMMITTED")
                else "Settled.",
                final=True,
            )
        return state, f"{planned.id} is {state}"


WHOLE = ("certify", "validate", "evaluate", "publish", "publish_student")
"""Tasks that succeed in a run that comes to its end; the last two may find nothing to do."""
MEASURES = ("evaluate", "evaluate_student")
"""Tasks whose failure holds nothing back, once the release is published."""
FAILED = ("failed", "upstream_failed")


def _undone(ti: Any, tasks: Collection[str]) -> list[str]:
    """What a run has not done of the tasks beside this one: those that failed, and of ``WHOLE``.

    Beside it: of its task group, where it is in one. What else a DAG does is not the release's.
    """
    group = ti.task_id.rpartition(".")[0]
    prefix = f"{group}." if group else ""
    # By the API: a worker of Airflow 3 has no access to the database.
    task_states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id]).get(ti.run_id, {})
    states = {task: state for task, state in task_states.items() if task.startswith(prefix)}

    def is_done(task: str) -> bool:
        # Skipped is fine only where the task said itself that there was nothing new to publish. A
        # task that somebody's mark has skipped did nothing.
        if states.get(task) == "skipped":
            return bool(ti.xcom_pull(task_ids=task, key=UNCHANGED))
        return bool(states.get(task) == "success")

    measures: list[str] = []
    if is_done(f"{prefix}publish"):  # a release is published whether or not it could be measured
        measures = [
            f"{prefix}{task}" for task in MEASURES if states.get(f"{prefix}{task}") in FAILED
        ]
    whole = [f"{prefix}{task}" for task in WHOLE]
    left = [task for task in whole if task in tasks and task not in measures and not is_done(task)]
    failed = {_cleared_by(task, tasks) for task, state in states.items() if state in FAILED}
    return left + sorted(failed - {*left, *measures})


def _cleared_by(task: str, tasks: Collection[str]) -> str:
    """The name to clear a task by: Airflow reports the parts of a mapped one as ``generate_0``."""
    whole, _, number = task.rpartition("_")
    return whole if number.isdigit() and task not in tasks and whole in tasks else task
