"""Tasks that look at the synthetic file: Great Expectations, and internal evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from privsyn.airflow.base import Flow, StageOperator
from privsyn.airflow.failures import StageFailed
from privsyn.airflow.links import MlflowRunLink, ReleaseReportLink

if TYPE_CHECKING:
    from privsyn.stages.base import Context as StageContext


class ValidateOperator(StageOperator):
    """Runs the suite. A release that fails goes to quarantine, the task fails, the cost stays."""

    stage: ClassVar[str] = "validate"
    flow: ClassVar[Flow] = Flow(reads=True)
    operator_extra_links = (ReleaseReportLink(), MlflowRunLink())

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.stages.validate import validate

        planned = self.planned()
        # Noted first: the page is there, and most wanted, when the suite fails.
        self.note_report(ctx, context, planned)
        self.note_lineage(ctx, planned)
        folder = validate(ctx, planned)
        return str(folder), f"passed; the page is in {folder}"


class EvaluateOperator(StageOperator):
    """Trains on synthetic and tests on held-out real records. Internal: nothing of it is XCom.

    Fails where the release could not be measured, which is published all the same. Clear the task
    to measure it.
    """

    stage: ClassVar[str] = "evaluate"
    flow: ClassVar[Flow] = Flow(private=True, reads=True)
    operator_extra_links = (MlflowRunLink(),)

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.stages.evaluate import evaluate, not_measured, said

        planned = self.planned()
        self.note_lineage(ctx, planned)
        folder = evaluate(ctx, planned, retried=True)
        if reason := not_measured(folder):
            raise StageFailed(
                f"not measured: {reason}. The release is published all the same.",
                advice="Mend the cause and clear this task, or: privsyn report --measure "
                f"{planned.id}. It costs nothing.",
                final=True,
            )
        return None, said(folder)
