"""StageOperator: what all tasks share. Opens the context, runs a stage, maps its errors."""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from datetime import date as Date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator, BaseOperatorLink

from privsyn.airflow.connections import connection_environment, open_project
from privsyn.airflow.failures import StageFailed, TaskRetries, address
from privsyn.airflow.params import overrides
from privsyn.airflow.project import REPORT, Project, dag_id, params_file, project_at, projects
from privsyn.airflow.versions import (
    HAS_POLICIES,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
    end_of,
)
from privsyn.config import PARTITION_KEY, as_overrides, environment_overrides
from privsyn.errors import ConfigError, MissingExtra, PrivsynError
from privsyn.section import NAME

if TYPE_CHECKING:
    from privsyn.release.plan import Plan
    from privsyn.stages.base import Context as StageContext

log = logging.getLogger(__name__)

StageFunction = Callable[["StageContext", Mapping[str, Any]], tuple[Any, str]]
"""What a task runs: it returns the XCom and a line for the log."""

OWNER = "privsyn"
START = datetime(2025, 1, 1, tzinfo=UTC)
UNCHANGED = "unchanged"
"""XCom of a task that had nothing to publish."""
PLAN = "{{ ti.xcom_pull(task_ids='plan') }}"
"""The plan as the task named ``plan`` left it: public, small, and no edge to every task."""


class MlflowRunLink(BaseOperatorLink):  # type: ignore[misc]
    """Button to the run of the release in the MLflow UI.

    Airflow 3 asks a link for its address in the worker, right after the task, and keeps the answer
    in XCom, where the API server reads it. So a link returns what its operator noted while it ran.
    """

    name = "MLflow run"
    xcom_key = "link_mlflow_run"
    noted = "mlflow_url"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Address the operator noted; empty before it knows one."""
        return getattr(operator, self.noted, None) or ""


class ReleaseReportLink(MlflowRunLink):
    """Button to the outward report of the release."""

    name, xcom_key, noted = "Release report", "link_release_report", "report_url"


class StageOperator(BaseOperator):  # type: ignore[misc]
    """Runs one stage function of privsyn on the plan of a release.

    Subclasses implement ``run_stage``. Our errors fail the task at once unless their class is
    retryable; see privsyn.airflow.failures. Of a foreign exception only type and place reach the
    log: its message may hold record text.

    Args:
        plan: The plan, as PlanOperator returned it. Default: pulled from the task ``plan``; the DAG
            must render templates as native objects.
        params_path: params.yaml of the project. Default: see privsyn.airflow.project.
        version_from: Where the dataset's version is; see version_of.
        overrides: Settings on top of params.yaml by dotted name, in a DAG of one's own. None: those
            of the run's trigger form.
    """

    template_fields: Sequence[str] = ("plan",)
    stage: str

    def __init__(
        self,
        *,
        plan: Any = PLAN,
        params_path: str | None = None,
        version_from: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # Else Airflow would retry a refusal.
        if HAS_POLICIES and getattr(self, "retry_policy", None) is None:
            self.retry_policy = TaskRetries(self.retries, self.retry_delay)
        self.plan = plan
        self.params_path = params_path
        self.version_from = version_from
        self.overrides = overrides
        self.mlflow_url: str | None = None
        self.report_url: str | None = None

    def execute(self, context: Mapping[str, Any], stage: StageFunction | None = None) -> Any:
        """Run the stage in a context of its own.

        Args:
            context: Airflow's.
            stage: What is run in place of ``run_stage``, by a task that runs in two halves.

        Returns:
            The task's XCom: public, small, JSON.

        Raises:
            StageFailed: The stage failed; in our words.
        """
        log.info("%s: started", self.stage, extra={"event": "started", "stage": self.stage})
        try:
            ctx = self.open(context)
            with connection_environment(ctx.config):
                result, summary = (stage or self.run_stage)(ctx, context)
        except AirflowSkipException as skip:
            log.info("%s: %s", self.stage, skip, extra={"event": "done", "stage": self.stage})
            raise
        except StageFailed as error:
            # Only kept here, and raised at the end, outside of every except block.
            failure = error
        except PrivsynError as error:
            failure = StageFailed.of(error)
        except AirflowTaskTimeout:
            # privacy: it strikes anywhere, also where an error that quotes a record is being
            # handled, and Airflow would print that with the stack.
            failure = StageFailed(
                f"{self.stage} took longer than its execution_timeout, {self.execution_timeout}.",
                advice="Raise it, or try again: what was drawn costs nothing more.",
            )
        except Exception as error:
            # A missing package is no defect: its message is ours and says what to install.
            missing = MissingExtra.of(error)
            failure = (
                StageFailed.of(missing) if missing else StageFailed(f"{self.stage}: {place(error)}")
            )
        else:
            log.info("%s: %s", self.stage, summary, extra={"event": "done", "stage": self.stage})
            return result
        for number, line in enumerate(failure.lines()):
            event = {"event": "failed", "stage": self.stage, "error": failure.text}
            log.error("%s", line, extra={} if number else event)
        # Outside the except block: the log would print the original as the context of this one.
        raise end_of(failure)

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """Run the stage; return its XCom and a line for the log."""
        raise NotImplementedError

    def open(self, context: Mapping[str, Any]) -> StageContext:
        """The stage context of this task: the run's settings, day and origin."""
        return open_project(
            Path(self.params_path) if self.params_path else params_file(),
            self.settings(context),
            day=_day(context),
            origin=_origin(context),
            progress=self.progress,
        )

    def settings(self, context: Mapping[str, Any]) -> list[str]:
        """The deployment's overrides, then the run's form and the version of its asset.

        In a DAG of one's own, what was asked for takes the form's place.
        """
        if self.overrides is not None:
            return [*environment_overrides(), *as_overrides(self.overrides)]
        form = context["dag"].params
        known = {key: form.get_param(key) for key in form}
        version = version_of(context, self.version_from)
        dated = [] if version is None else [f"dataset.version={json.dumps(version)}"]
        return [*environment_overrides(), *overrides(context["params"], known), *dated]

    def read_plan(self) -> Plan:
        """The plan of the release.

        Raises:
            ConfigError: The task ``plan`` left none, or one of another version.
        """
        from privsyn.release.plan import Plan

        with suppress(TypeError, ValueError):
            # A DAG that does not render templates as native objects hands on a text.
            return Plan.model_validate(dict(self.plan))
        raise ConfigError(
            "the run has no plan that this version of privsyn reads.",
            hint="Clear the task `plan` and the tasks after it.",
        )

    def note_lineage(self, ctx: StageContext, planned: Plan) -> None:
        """Keep the address of the release's MLflow run for the task's link."""
        self.mlflow_url = ctx.tracker.link(ctx.tracker.release_run(planned.id))

    def note_report(self, planned: Plan) -> None:
        """Keep the address of the release's report, which the DAG of its method shows."""
        project = project_at(Path(self.params_path) if self.params_path else params_file())
        self.report_url = REPORT.format(
            dag_id=dag_id(planned.method, project), release_id=planned.id
        )

    def progress(self, stage: str, done: int, total: int, things: str = "") -> None:
        """Counts of what is done, into the task log."""
        event = {"event": "progress", "stage": self.stage}
        log.info("%s: %d of %d %s", stage, done, total, things, extra=event)


class BrokenProjectOperator(BaseOperator):  # type: ignore[misc]
    """Fails with what is wrong with a project.

    Args:
        message: What it is.
    """

    def __init__(self, *, message: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.message = message

    def execute(self, context: Mapping[str, Any]) -> None:
        """Fail."""
        raise AirflowFailException(self.message)


def place(error: Exception) -> str:
    """Type and place of a foreign exception, without its message."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    # privacy: messages of foreign exceptions quote values, such as a line of the private file.
    return f"{type(error).__name__}{where}. Its message is withheld: it may hold private text."


def version_of(context: Mapping[str, Any], source: str | None) -> str | None:
    """The version of the dataset that a run is for; None where the form says it.

    An upstream asset may start runs. What its event says enters the release's name and certificate,
    so whoever updates the asset must say nothing there that depends on records: a month, a number
    of the export. A partition's key is that of the run, which a run by hand may have too. Of
    several events that Airflow has gathered into one run the newest counts: it is of the data that
    is there now.

    Args:
        context: Of the task.
        source: ``schedule.<method>.version``.

    Raises:
        ConfigError: The events say none, or one that is no version.
    """
    if source is None:
        return None
    if source == PARTITION_KEY:
        version = getattr(context["dag_run"], "partition_key", None)
        if version is None:
            return None
    else:
        given = context["triggering_asset_events"]
        events = [event for asset in list(given) for event in given[asset]]
        if not events:
            return None
        newest = max(events, key=lambda event: event.timestamp)
        version = newest.extra.get(source.removeprefix("extra."))
    if not isinstance(version, str) or not re.fullmatch(NAME, version):
        # The version is public by contract, and cut: whoever updates the asset may put anything
        # there.
        shown = f"{version!r:.80}" if isinstance(version, str) else "none"
        raise ConfigError(
            f"the version of the data that {source} of the asset's event gives ({shown}) must "
            f"match {NAME}.",
            hint="Set it where the asset is updated, or trigger the run by hand with "
            "dataset.version.",
        )
    return version


def _day(context: Mapping[str, Any]) -> Date:
    """The logical date of a scheduled run; the day it was asked for of a manual one.

    In the DAG's timezone: the first of a month in Berlin begins on the last in UTC.
    """
    # Runs on assets and by hand have no logical date in Airflow 3.
    moment = context.get("logical_date") or context["dag_run"].run_after
    zone = getattr(context.get("dag"), "timezone", UTC)
    day: Date = moment.astimezone(zone).date()
    return day


def _origin(context: Mapping[str, Any]) -> dict[str, str]:
    from privsyn.stages.base import os_user

    ti = context["ti"]
    run = context.get("dag_run")
    return {
        "driver": "airflow",
        "user": getattr(run, "triggering_user_name", None) or os_user(),  # nobody: a schedule
        "dag_id": str(ti.dag_id),
        "run_id": str(ti.run_id),
        "task_id": str(ti.task_id),
        "try_number": str(ti.try_number),
        **_code(ti),
        "url": address(ti),
    }


def _code(ti: Any) -> dict[str, str]:
    """Which version of the DAG runs, and of what bundle, as far as Airflow knows."""
    bundle = getattr(ti, "bundle_instance", None)
    known = {
        "dag_version": getattr(ti, "dag_version_id", None),
        "bundle": getattr(bundle, "name", None),
        "bundle_version": getattr(bundle, "version", None),
    }
    return {key: str(value) for key, value in known.items() if value}


def dags_of(kind: str, make: Callable[[Project], DAG]) -> dict[str, DAG]:
    """The DAGs of a kind by id: one a project.

    Raises:
        ConfigError: There is no project, or the params.yaml of the only one does not load.
    """
    dags = []
    for project in projects():
        try:
            dags.append(make(project))
        except ConfigError as error:
            dags.append(_broken_dag(project, kind, error))
    return {dag.dag_id: dag for dag in dags}


def _broken_dag(project: Project, kind: str, error: ConfigError) -> DAG:
    """In place of the DAG of a project whose params.yaml does not load: its one task says why.

    Raises:
        ConfigError: It is the only project: then the file has the import error.
    """
    if project.name is None:
        # An import error is where an operator looks first. With several projects it would hide the
        # others.
        raise error
    with DAG(
        dag_id=project.dag_id(kind),
        description=f"BROKEN: {error}",
        doc_md=f"### {project.params.name} of {project.name} does not load\n\n{error}",
        start_date=START,
        is_paused_upon_creation=True,
        tags=project.tags | {"broken"},
        default_args={"owner": OWNER, "retries": 0},
    ) as dag:
        BrokenProjectOperator(task_id="plan", message=str(error))
    return dag
