"""The task that publishes a release with DVC and tells its asset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Asset

from operators.base import StageOperator
from operators.links import REPORT, MlflowRunLink, ValidationReportLink

if TYPE_CHECKING:
    from privsyn.stages.base import Context as StageContext

EXTRA = ("release_id", "epsilon", "delta", "certificate_sha256", "class")
"""What the asset event tells whoever schedules on the release."""


def release_asset(dataset: str, method: str) -> Asset:
    """The asset that every published release of a method on a dataset updates."""
    return Asset(f"privsyn://{dataset}/{method}")


class PublishOperator(StageOperator):
    """Versions a validated release with DVC, pushes it and updates the task's assets."""

    ui_color: ClassVar[str] = "#e6e0f2"
    stage: ClassVar[str] = "publish"
    operator_extra_links = (ValidationReportLink(), MlflowRunLink())

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.stages.publish import publish

        planned = self.planned()
        self.report_url = REPORT.format(dag_id=context["ti"].dag_id, release_id=planned.id)
        self.note_lineage(ctx, planned)
        answer = publish(ctx, planned)
        for asset in self.outlets:
            context["outlet_events"][asset].extra = {key: answer[key] for key in EXTRA}
        return answer, f"{planned.id} is DVC revision {answer['dvc_revision']}"
