"""StageOperator: what all tasks share. Opens the context, runs a stage, maps its errors."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping, Sequence
from datetime import date as Date
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from privsyn.errors import ConfigError, PrivsynError

if TYPE_CHECKING:
    from privsyn.release import Plan
    from privsyn.stages.base import Context as StageContext

log = logging.getLogger(__name__)

PLAN = "{{ ti.xcom_pull(task_ids='plan') }}"
"""The plan as the task named ``plan`` left it: public, small, and no edge to every task."""


class StageOperator(BaseOperator):  # type: ignore[misc]
    """Runs one stage function of privsyn on the plan of a release.

    Subclasses implement ``run_stage`` and nothing else. Our errors fail the task at once unless
    their class is retryable. Of a foreign exception only type and place reach the log: its message
    may hold record text.

    Args:
        plan: The plan, as PlanOperator returned it. Default: pulled from the task ``plan``; the DAG
            must render templates as native objects.
        params_path: params.yaml of the project. Default: see operators.project.
    """

    template_fields: Sequence[str] = ("plan",)
    ui_color: ClassVar[str] = "#e8eef7"
    stage: ClassVar[str]

    def __init__(self, *, plan: Any = PLAN, params_path: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.params_path = params_path
        self.mlflow_url: str | None = None
        self.report_url: str | None = None

    def execute(self, context: Mapping[str, Any]) -> Any:
        """Run the stage. Its result is the task's XCom: public, small, JSON."""
        log.info("%s: started", self.stage, extra={"event": "started", "stage": self.stage})
        failure: AirflowException
        try:
            result, said = self.run_stage(self.open(context), context)
        except AirflowException as error:
            failure = error
        except PrivsynError as error:
            failure = translated(type(error), f"{error}")
        except Exception as error:
            failure = AirflowException(f"{self.stage}: {place(error)}")
        else:
            log.info("%s: %s", self.stage, said, extra={"event": "done", "stage": self.stage})
            return result
        log.error("%s: %s", self.stage, failure, extra={"event": "failed", "stage": self.stage})
        # Outside the except block: the log would print the original as the context of this one.
        raise failure

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """Run the stage; return its XCom and a line for the log."""
        raise NotImplementedError

    def open(self, context: Mapping[str, Any]) -> StageContext:
        """The stage context of this task: the run's settings, day and origin."""
        from operators.project import params_file
        from privsyn.stages.base import open_context

        return open_context(
            Path(self.params_path) if self.params_path else params_file(),
            self.settings(context),
            day=_day(context),
            origin=_origin(context),
            progress=self.progress,
        )

    def settings(self, context: Mapping[str, Any]) -> list[str]:
        """The deployment's overrides, then the run's form."""
        from operators.params import overrides
        from privsyn.config import environment_overrides

        return [*environment_overrides(), *overrides(context["params"], set(context["dag"].params))]

    def planned(self) -> Plan:
        """The plan of the release.

        Raises:
            ConfigError: The task ``plan`` left none.
        """
        from privsyn.release import Plan

        if not isinstance(self.plan, Mapping):
            raise ConfigError("the run has no plan.", hint="Clear the task plan and what follows.")
        return Plan.model_validate(dict(self.plan))

    def note_lineage(self, ctx: StageContext, planned: Plan) -> None:
        """Keep the address of the release's MLflow run for the task's link."""
        self.mlflow_url = ctx.lineage.link(ctx.lineage.release_run(planned.id))

    def progress(self, stage: str, done: int, total: int) -> None:
        """Counts of finished outputs, into the task log."""
        log.info(
            "%s: %d of %d", stage, done, total, extra={"event": "progress", "stage": self.stage}
        )


def translated(kind: type[PrivsynError], text: str) -> AirflowException:
    """The Airflow exception for one of ours: retried only where its class says that helps."""
    mapped = AirflowException if kind.retryable else AirflowFailException
    return mapped(f"{kind.__name__}: {text}")


def place(error: Exception) -> str:
    """Type and place of a foreign exception, without its message."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}. Its message is withheld: it may hold private text."


def _day(context: Mapping[str, Any]) -> Date:
    """The logical date of a scheduled run; the day it was asked for of a manual one."""
    moment = context.get("logical_date") or context["dag_run"].run_after
    day: Date = moment.date()
    return day


def _origin(context: Mapping[str, Any]) -> dict[str, str]:
    ti = context["ti"]
    return {
        "driver": "airflow",
        "dag_id": str(ti.dag_id),
        "run_id": str(ti.run_id),
        "task_id": str(ti.task_id),
        "try_number": str(ti.try_number),
    }
