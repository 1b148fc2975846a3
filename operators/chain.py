"""The tasks of one release, for the DAGs that are shipped and for DAGs of one's own.

In a DAG of one's own::

    @release_task("invisible_ink", params_path="/srv/portal/params.yaml")
    def train(release):
        model.fit(release.frame())

    train()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, TaskGroup, TriggerRule, task

from privsyn.airflow.base import PLAN, StageOperator
from privsyn.airflow.budget import PlanOperator, ReserveBudgetOperator, SettleBudgetOperator
from privsyn.airflow.failures import patience
from privsyn.airflow.generate import (
    CertifyOperator,
    GenerateShardOperator,
    PartitionOperator,
    PreflightOperator,
    TrainOperator,
)
from privsyn.airflow.project import Project, params_file, trains
from privsyn.airflow.publish import PublishOperator
from privsyn.airflow.quality import EvaluateOperator, ValidateOperator
from privsyn.airflow.routing import Routing
from privsyn.config import ScheduleConfig, environment_overrides, load_config
from privsyn.ledger.settings import ApprovalConfig, asks_approval


@dataclass(frozen=True)
class Chain:
    """Tasks of a release that others may be put between or behind.

    Attributes:
        validate: The release is checked.
        evaluate: It is measured. Internal.
        publish: It is published; its XCom are public facts.
        settle: The run's end, whatever happens.
        approve_publish: Where publishing waits for a person; None where it does not.
    """

    validate: ValidateOperator
    evaluate: EvaluateOperator
    publish: PublishOperator
    settle: SettleBudgetOperator
    approve_publish: StageOperator | None


def release_chain(
    method: str,
    approval: ApprovalConfig,
    *,
    params_path: str,
    routing: Routing,
    reannounce: bool = False,
    outlets: Sequence[Asset] = (),
    version_from: str | None = None,
    own_dag: bool = True,
    asked: Mapping[str, Any] | None = None,
    audit_blocks: bool = False,
) -> Chain:
    """The tasks of a release of a method, in the DAG or task group that is being made.

    Args:
        method: Which.
        approval: What waits for a person.
        params_path: params.yaml of the project.
        routing: Where the tasks run.
        reannounce: See PublishOperator.
        outlets: What publishing updates.
        version_from: See StageOperator.
        own_dag: The DAG is this release's: its tasks are named as they are, and it renders
            templates as native objects.
        asked: See StageOperator.
        audit_blocks: ``evaluate.audit`` is ``block``: what was not measured is not published.
    """
    shared: dict[str, Any] = {
        "params_path": params_path, "version_from": version_from, "asked": asked
    }  # fmt: skip

    def at(task: str) -> dict[str, Any]:
        return {"task_id": task, **routing.of(task)}

    plan = PlanOperator(**at("plan"), method=method, **shared)
    shared["plan"] = PLAN if own_dag else plan.output
    reserve = ReserveBudgetOperator(**at("reserve"), **shared)
    preflight = PreflightOperator(**at("preflight"), **shared)
    partition = PartitionOperator(**at("partition"), **shared)
    generate = GenerateShardOperator.partial(
        **at("generate"),
        map_index_template="shard {{ task.shard }}",
        **shared,  # partial takes none but Airflow's own from the DAG
    ).expand(shard=partition.output)
    # Where the release exists already, generate has no shard and is skipped.
    certify = CertifyOperator(**at("certify"), trigger_rule=TriggerRule.NONE_FAILED, **shared)
    validate = ValidateOperator(**at("validate"), **shared)
    evaluate = EvaluateOperator(**at("evaluate"), **shared)
    # A release that is valid and paid for is published though measuring it failed or was killed.
    # The stage refuses one that an audit has not let through; the rule saves it the asking.
    measured = TriggerRule.ALL_SUCCESS if audit_blocks else TriggerRule.ALL_DONE_MIN_ONE_SUCCESS
    publish = PublishOperator(
        **at("publish"),
        reannounce=reannounce,
        outlets=list(outlets),
        trigger_rule=TriggerRule.ALL_SUCCESS if approval.publish else measured,
        **shared,
    )
    settle = SettleBudgetOperator(**at("settle"), **shared)
    approve: StageOperator | None = None
    if approval.spend_above is not None:
        from privsyn.airflow.approval import ApproveSpendOperator

        spend = ApproveSpendOperator(**at("approve_spend"), hours=approval.hours, **shared)
        plan >> spend >> reserve
    if approval.publish:
        from privsyn.airflow.approval import ApprovePublishOperator

        approve = ApprovePublishOperator(
            **at("approve_publish"), hours=approval.hours, trigger_rule=measured, **shared
        )
        [validate, evaluate] >> approve >> publish
    else:
        [validate, evaluate] >> publish
    plan >> reserve.as_setup() >> preflight >> partition >> generate >> certify
    certify >> validate >> evaluate
    publish >> settle.as_teardown(setups=reserve, on_failure_fail_dagrun=True)
    if trains(method):
        train = TrainOperator(**at("train"), **shared)
        partition >> train >> generate
    return Chain(validate, evaluate, publish, settle, approve)


def release_group(
    method: str,
    *,
    params_path: str | None = None,
    settings: Mapping[str, Any] | None = None,
    outlets: Sequence[Asset] = (),
    group_id: str = "release",
) -> Any:
    """The tasks of a release as a group in a DAG of one's own.

    They are those of the shipped DAGs: the same stages, account and certificate. A run whose
    release exists finds it and costs nothing.

    Args:
        method: Which.
        params_path: params.yaml of the project. None: see privsyn.airflow.project.
        settings: On top of params.yaml, by dotted name: ``{"privacy.epsilon": 4}``.
        outlets: Assets that publishing updates. Where there are some, a release that is announced
            already is not published again, and what follows is skipped.
        group_id: Name of the group.

    Returns:
        The public facts of the release (release_id, epsilon, delta, class, certificate_sha256,
        dvc_revision, rows), for tasks that follow.

    Raises:
        ConfigError: params.yaml does not load.
    """
    project = Project(Path(params_path) if params_path else params_file())
    config = load_config(project.params, environment_overrides())
    schedule = config.schedule.get(method, ScheduleConfig())
    with TaskGroup(group_id=group_id, default_args=patience(schedule)):
        chain = release_chain(
            method,
            asks_approval(config.account, project.root),
            params_path=str(project.params),
            routing=Routing(schedule, project.dvc_pool),
            reannounce=schedule.reannounce,
            outlets=outlets,
            own_dag=False,
            asked=settings or {},
            audit_blocks=config.evaluate.audit == "block",
        )
    return chain.publish.output


def release_task(
    method: str, *, params_path: str | None = None, **group: Any
) -> Callable[[Callable[..., Any]], Callable[[], Any]]:
    """Make a function a task that gets a release, after the tasks that make it.

    The function is called with a ``privsyn.Release``; what it returns is its XCom.

    Args:
        method: Which.
        params_path: params.yaml of the project. None: see privsyn.airflow.project.
        group: See ``release_group``; the group is called as the function, with ``_release`` behind.
    """

    def decorate(function: Callable[..., Any]) -> Callable[[], Any]:
        name = function.__name__

        def consume(made: Mapping[str, Any]) -> Any:
            from privsyn.api.released import Release

            workspace = Project(Path(params_path) if params_path else params_file()).workspace
            folder = workspace.locate(made["release_id"])
            return function(Release.open(folder or workspace.release(made["release_id"])))

        consume.__name__, consume.__doc__ = name, function.__doc__

        def make() -> Any:
            facts = release_group(
                method, params_path=params_path, **{"group_id": f"{name}_release", **group}
            )
            return task(task_id=name)(consume)(facts)

        return make

    return decorate
