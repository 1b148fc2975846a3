"""The DAG of a method, and the tasks of one release for DAGs of one's own.

All methods share the shape of their DAG; params.yaml sets the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jinja2
import pendulum
from airflow.sdk import DAG, Asset, TaskGroup, TriggerRule

from privsyn.airflow.base import OWNER, PLAN, START, StageOperator, broken_dag
from privsyn.airflow.budget import PlanOperator, ReserveBudgetOperator, SettleBudgetOperator
from privsyn.airflow.failures import RETRIES, Alert, retry_arguments, tell_late
from privsyn.airflow.generate import (
    CertifyOperator,
    GenerateShardOperator,
    PartitionOperator,
    PreflightOperator,
    TrainOperator,
    WaitOperator,
)
from privsyn.airflow.params import form
from privsyn.airflow.project import (
    GPU_POOL,
    Project,
    dag_id,
    kind_of,
    params_file,
    projects,
    teaches,
    trains,
)
from privsyn.airflow.publish import (
    DistillOperator,
    EvaluateOperator,
    PublishOperator,
    ValidateOperator,
)
from privsyn.airflow.versions import deadline_alert, partitioned
from privsyn.config import (
    PARTITION_KEY,
    Config,
    ScheduleConfig,
    Task,
    environment_overrides,
    load_config,
)
from privsyn.errors import ConfigError
from privsyn.ledger.settings import ApprovalConfig, approval_of
from privsyn.methods.registry import load_method
from privsyn.methods.shared.distill import STUDENTS
from privsyn.release.advice import definition, settings_advice, writers_of
from privsyn.release.plan import label_shares

_PAGE = jinja2.Template(
    Path(__file__).with_name("dag.md.jinja").read_text("utf-8"), undefined=jinja2.StrictUndefined
)
"""The DAG's page."""


def method_dags(method: str) -> dict[str, DAG]:
    """The DAGs of a method by id: one a project.

    Raises:
        ConfigError: The params.yaml of the only project does not load, or there is no project;
            Airflow shows it as the file's import error. Of several projects the one that does not
            load gets a DAG that says so, and the others theirs.
    """
    dags = []
    for project in projects():
        try:
            dags.append(method_dag(method, project))
        except ConfigError as error:
            dags.append(broken_dag(project, kind_of(method), error))
    return {dag.dag_id: dag for dag in dags}


def method_dag(method: str, project: Project | None = None) -> DAG:
    """The DAG of a method, its schedule, trigger form and asset from params.yaml.

    A method that trains a model has a task ``train`` before its shards. Where a release brings the
    model that wrote it, a student is trained on its texts once it is valid, checked, measured and
    published.

    Raises:
        ConfigError: params.yaml does not load; Airflow shows it as the DAG's import error.
    """
    project = project or Project(params_file())
    config = load_config(project.params, environment_overrides())
    schedule = config.schedule.get(method, ScheduleConfig())
    with DAG(
        dag_id=dag_id(method, project),
        description=f"Synthetic {config.dataset.name} by {load_method(method).title}",
        doc_md=_doc(config, method, schedule, project.dvc_pool),
        schedule=schedule_of(schedule),
        start_date=START.replace(tzinfo=pendulum.timezone(schedule.dag.get("timezone", "UTC"))),
        # Each missed date would be a release, and a charge, at once.
        catchup=False,
        is_paused_upon_creation=True,  # a schedule must not spend before someone has looked
        tags=project.tags | {method, f"dataset:{config.dataset.name}"},
        default_args={"owner": OWNER}
        | {name: schedule.dag[name] for name in schedule.dag if name in _OF_TASKS}
        | {"params_path": str(project.params), "version_from": schedule.version}
        | retry_arguments(schedule.dag.get("retries", RETRIES))
        | alert_arguments(config, project),
        params=form(config, method),
        render_template_as_native_obj=True,
        **dag_arguments(schedule, str(project.params)),
    ) as dag:
        arguments = partial(task_arguments, config, method, project.dvc_pool)
        approval = approval_of(config.account, project.root)
        chain = release_chain(
            method,
            approval,
            params_path=str(project.params),
            version_from=schedule.version,
            arguments=arguments,
            outlets=[Asset(project.asset(config.dataset.name, method))],
            audit_blocks=config.evaluate.audit == "block",
            wait=schedule.wait,
        )
        if teaches(method):
            asset = Asset(project.asset(config.dataset.name, STUDENTS))
            student_chain(chain, approval, arguments, asset)
    return dag


_OF_TASKS = ("execution_timeout", "owner", "priority_weight", "weight_rule")
"""Of ``schedule.<method>.dag``, what Airflow asks of tasks."""


def dag_arguments(schedule: ScheduleConfig, params_path: str) -> dict[str, Any]:
    """Airflow's arguments of a DAG that ``schedule.<method>.dag`` sets."""
    apart = (*_OF_TASKS, "timezone", "retries", "deadline")
    given = {str(name): value for name, value in schedule.dag.items() if name not in apart}
    if "deadline" in schedule.dag:
        given["deadline"] = deadline_alert(schedule.dag["deadline"], tell_late, params_path)
    return {"max_active_runs": 1} | given


def schedule_of(schedule: ScheduleConfig) -> Any:
    """Airflow's schedule of a DAG: a cron expression, an asset, or none."""
    if schedule.asset is None:
        return schedule.cron
    if schedule.version == PARTITION_KEY:
        return partitioned(schedule.asset)
    return [Asset(schedule.asset)]


Arguments = Callable[[Task], dict[str, Any]]
Asks = Literal["approve_spend", "approve_publish", "approve_student"]
_LOADS_MODELS = ("preflight", "train", "generate", "distill")
_RUNS_DVC = ("publish", "publish_student")


def task_arguments(config: Config, method: str, dvc_pool: str, task: Task) -> dict[str, Any]:
    """Name and place of a task: its pool, and what ``schedule.<method>.tasks`` sets in its place.

    Args:
        config: Of the project.
        method: Which.
        dvc_pool: Pool of what runs DVC.
        task: Its name.
    """
    schedule = config.schedule.get(method, ScheduleConfig())
    loads = task in _LOADS_MODELS or (task == "partition" and config.dataset.questions)
    pool = GPU_POOL if loads else dvc_pool if task in _RUNS_DVC else None
    arguments: dict[str, Any] = {"task_id": task} | ({"pool": pool} if pool else {})
    return arguments | {str(name): value for name, value in schedule.tasks.get(task, {}).items()}


def alert_arguments(config: Config, project: Project) -> dict[str, Any]:
    """Airflow's arguments of tasks that send alerts; empty without notifiers."""
    if not config.alerts:
        return {}
    alert = Alert(str(project.params))
    return {"on_failure_callback": [alert], "on_success_callback": [alert]}


def _doc(config: Config, method: str, schedule: ScheduleConfig, dvc_pool: str) -> str:
    """The DAG's page: what it does, what it costs, where to look. All from params.yaml."""
    implementation, settings = load_method(method), config.method(method)
    account, privacy, labels = config.account, config.privacy, config.dataset.labels
    cautions = settings_advice(config, settings, writers_of(config))
    if shares := label_shares(method, settings.model_dump(), labels):
        cautions += (f"The release holds {shares}.",)
    page: str = _PAGE.render(
        title=implementation.title,
        cited=implementation.cites(settings, labels),
        config=config,
        account=account,
        schedule=schedule,
        defined=definition(privacy.epsilon, privacy.delta, account.unit, account.adjacency),
        cautions=cautions,
        trains=trains(method),
        teaches=teaches(method),
        gpu_pool=GPU_POOL,
        dvc_pool=dvc_pool,
    )
    return page


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
    arguments: Arguments,
    outlets: Sequence[Asset] = (),
    version_from: str | None = None,
    own_dag: bool = True,
    overrides: Mapping[str, Any] | None = None,
    audit_blocks: bool = False,
    wait: float | None = None,
) -> Chain:
    """The tasks of a release of a method, in the DAG or task group that is being made.

    Args:
        method: Which.
        approval: What waits for a person.
        params_path: params.yaml of the project.
        arguments: Airflow's, of a task: see task_arguments.
        outlets: What publishing updates.
        version_from: See StageOperator.
        own_dag: The DAG is this release's: its tasks are named as they are, and it renders
            templates as native objects.
        overrides: See StageOperator.
        audit_blocks: ``evaluate.audit`` is ``block``: what was not measured is not published.
        wait: Hours to wait for the private file. None: it must be there.
    """
    shared: dict[str, Any] = {
        "params_path": params_path, "version_from": version_from, "overrides": overrides
    }  # fmt: skip

    plan = PlanOperator(**arguments("plan"), method=method, **shared)
    shared["plan"] = PLAN if own_dag else plan.output
    reserve = ReserveBudgetOperator(**arguments("reserve"), **shared)
    preflight = PreflightOperator(**arguments("preflight"), **shared)
    partition = PartitionOperator(**arguments("partition"), **shared)
    generate = GenerateShardOperator.partial(
        **arguments("generate"),
        map_index_template="shard {{ task.shard }}",
        **shared,  # partial takes none but Airflow's own from the DAG
    ).expand(shard=partition.output)
    # Where the release exists already, generate has no shard and is skipped.
    certify = CertifyOperator(
        **arguments("certify"), trigger_rule=TriggerRule.NONE_FAILED, **shared
    )
    validate = ValidateOperator(**arguments("validate"), **shared)
    evaluate = EvaluateOperator(**arguments("evaluate"), **shared)
    # A release that is valid and paid for is published though measuring it failed or was killed.
    # The stage refuses one that an audit has not let through; the rule saves it the asking.
    measured = TriggerRule.ALL_SUCCESS if audit_blocks else TriggerRule.ALL_DONE_MIN_ONE_SUCCESS
    publish = PublishOperator(
        **arguments("publish"),
        outlets=list(outlets),
        trigger_rule=TriggerRule.ALL_SUCCESS if approval.publish else measured,
        **shared,
    )
    settle = SettleBudgetOperator(**arguments("settle"), **shared)
    approve: StageOperator | None = None
    spend: StageOperator | None = None
    if approval.spend_above is not None:
        spend = ask("approve_spend", approval, arguments, **shared)
        # Before reserve: a rejection must leave nothing set aside.
        plan >> spend >> reserve
    if approval.publish:
        approve = ask("approve_publish", approval, arguments, trigger_rule=measured, **shared)
        [validate, evaluate] >> approve >> publish
    else:
        [validate, evaluate] >> publish
    if wait is not None:  # before somebody is asked to approve
        waits = WaitOperator(**arguments("wait"), hours=wait, **shared)
        plan >> waits >> reserve
        if spend is not None:
            waits >> spend
    plan >> reserve.as_setup() >> preflight >> partition >> generate >> certify
    certify >> validate >> evaluate
    publish >> settle.as_teardown(setups=reserve, on_failure_fail_dagrun=True)
    if trains(method):
        train = TrainOperator(**arguments("train"), **shared)
        partition >> train >> generate
    return Chain(validate, evaluate, publish, settle, approve)


def ask(
    stage: Asks,
    approval: ApprovalConfig,
    arguments: Arguments,
    **more: Any,
) -> StageOperator:
    """The task at which a run waits for a person; see AskOperator."""
    from privsyn.airflow.approval import AskOperator  # few DAGs need what it imports

    return AskOperator(**arguments(stage), stage=stage, hours=approval.hours, **more)


def student_chain(
    chain: Chain, approval: ApprovalConfig, arguments: Arguments, asset: Asset
) -> None:
    """The tasks of a student, who is trained on a release's texts once they are valid.

    Args:
        chain: Tasks of the release, in the DAG that is being made.
        approval: What waits for a person.
        arguments: As of ``release_chain``.
        asset: What publishing the student updates.
    """
    distill = DistillOperator(**arguments("distill"))
    rule = TriggerRule.NONE_FAILED
    measure = EvaluateOperator(**arguments("evaluate_student"), student=True, trigger_rule=rule)
    publish = PublishOperator(
        **arguments("publish_student"), student=True, outlets=[asset], trigger_rule=rule
    )
    chain.validate >> distill >> chain.evaluate
    # Measured before it is published; the trigger rule of publish says whether a failed
    # measurement holds it back.
    distill >> measure >> (chain.approve_publish or chain.publish)
    chain.publish >> publish >> chain.settle
    distill >> publish
    if chain.approve_publish is not None:
        approve = ask("approve_student", approval, arguments, trigger_rule=rule)
        chain.publish >> approve >> publish


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
    arguments = retry_arguments(schedule.dag.get("retries", RETRIES))
    with TaskGroup(group_id=group_id, default_args=arguments):
        chain = release_chain(
            method,
            approval_of(config.account, project.root),
            params_path=str(project.params),
            arguments=partial(task_arguments, config, method, project.dvc_pool),
            outlets=outlets,
            own_dag=False,
            overrides=settings or {},
            audit_blocks=config.evaluate.audit == "block",
            wait=schedule.wait,
        )
    return chain.publish.output
