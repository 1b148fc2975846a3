"""The DAG of a method, and the tasks of one release for DAGs of one's own.

All methods share the shape of their DAG; params.yaml sets the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jinja2
import pendulum
from airflow.sdk import DAG, Asset, TaskGroup, TriggerRule

from privsyn.airflow.base import OWNER, PLAN, START, StageOperator, dags_of
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
    return dags_of(kind_of(method), partial(method_dag, method))


def method_dag(method: str, project: Project | None = None) -> DAG:
    """The DAG of a method, its schedule, trigger form and asset from params.yaml.

    A method that trains a model has a task ``train`` before its shards. Where a release brings the
    model that wrote it, a student is trained on its texts once it is valid, checked, measured and
    published.

    Raises:
        ConfigError: params.yaml does not load; Airflow shows it as the DAG's import error.
    """
    setup = Setup.read(method, project or Project(params_file()))
    project, config, schedule = setup.project, setup.config, setup.schedule
    params_path = str(project.params)
    with DAG(
        dag_id=dag_id(method, project),
        description=f"Synthetic {config.dataset.name} by {load_method(method).title}",
        doc_md=_doc(setup),
        schedule=schedule_of(schedule),
        start_date=START.replace(tzinfo=pendulum.timezone(schedule.dag.get("timezone", "UTC"))),
        # Each missed date would be a release, and a charge, at once.
        catchup=False,
        is_paused_upon_creation=True,  # a schedule must not spend before someone has looked
        tags=project.tags | {method, f"dataset:{config.dataset.name}"},
        default_args={"owner": OWNER}
        | {name: schedule.dag[name] for name in schedule.dag if name in _OF_TASKS}
        | {"params_path": params_path, "version_from": schedule.version}
        | setup.retries
        | alert_arguments(config, project),
        params=form(config, method),
        render_template_as_native_obj=True,
        **dag_arguments(schedule, params_path),
    ) as dag:
        # partial takes none but Airflow's own arguments from the DAG
        shared = {"plan": PLAN, "params_path": params_path, "version_from": schedule.version}
        outlet = Asset(project.asset(config.dataset.name, method))
        chain = release_chain(setup, [outlet], shared)
        if teaches(method):
            student_chain(setup, chain, Asset(project.asset(config.dataset.name, STUDENTS)))
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


Asks = Literal["approve_spend", "approve_publish", "approve_student"]
_LOADS_MODELS = ("preflight", "train", "generate", "distill")
_RUNS_DVC = ("publish", "publish_student")


@dataclass(frozen=True)
class Setup:
    """A method of a project, as its params.yaml has it."""

    method: str
    project: Project
    config: Config

    @classmethod
    def read(cls, method: str, project: Project) -> Setup:
        """Read params.yaml.

        Raises:
            ConfigError: It does not load.
        """
        return cls(method, project, load_config(project.params, environment_overrides()))

    @property
    def schedule(self) -> ScheduleConfig:
        """When it runs, and what its DAG and tasks set otherwise."""
        return self.config.schedule.get(self.method, ScheduleConfig())

    @property
    def approval(self) -> ApprovalConfig:
        """What waits for a person."""
        return approval_of(self.config.account, self.project.root)

    @property
    def retries(self) -> dict[str, Any]:
        """Airflow's arguments of tasks by which they are tried again."""
        return retry_arguments(self.schedule.dag.get("retries", RETRIES))

    def task(self, name: Task) -> dict[str, Any]:
        """Name and pool of a task, and what ``schedule.<method>.tasks`` sets for it."""
        pools = dict.fromkeys(_LOADS_MODELS, GPU_POOL)
        pools |= dict.fromkeys(_RUNS_DVC, self.project.dvc_pool)
        if self.config.dataset.questions:
            pools["partition"] = GPU_POOL
        given = {str(key): value for key, value in self.schedule.tasks.get(name, {}).items()}
        return {"task_id": name} | ({"pool": pools[name]} if name in pools else {}) | given

    def ask(self, stage: Asks, **more: Any) -> StageOperator:
        """The task at which a run waits for a person; see AskOperator."""
        from privsyn.airflow.approval import AskOperator  # few DAGs need what it imports

        return AskOperator(**self.task(stage), stage=stage, **more)


def alert_arguments(config: Config, project: Project) -> dict[str, Any]:
    """Airflow's arguments of tasks that send alerts; empty without notifiers."""
    if not config.alerts:
        return {}
    alert = Alert(str(project.params))
    return {"on_failure_callback": [alert], "on_success_callback": [alert]}


def _doc(setup: Setup) -> str:
    """The DAG's page: what it does, what it costs, where to look. All from params.yaml."""
    method, config = setup.method, setup.config
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
        schedule=setup.schedule,
        defined=definition(privacy.epsilon, privacy.delta, account.unit, account.adjacency),
        cautions=cautions,
        trains=trains(method),
        teaches=teaches(method),
        gpu_pool=GPU_POOL,
        dvc_pool=setup.project.dvc_pool,
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


def release_chain(setup: Setup, outlets: Sequence[Asset], shared: dict[str, Any]) -> Chain:
    """The tasks of a release of a method, in the DAG or task group that is being made.

    Args:
        setup: Method and project.
        outlets: What publishing updates.
        shared: Arguments of all stages: see StageOperator. Without ``plan`` it is the output of the
            task that plans, whatever that is called.
    """
    approval, task = setup.approval, setup.task
    without_plan = {name: value for name, value in shared.items() if name != "plan"}
    plan = PlanOperator(**task("plan"), method=setup.method, **without_plan)
    shared = {"plan": plan.output} | shared
    reserve = ReserveBudgetOperator(**task("reserve"), **shared)
    preflight = PreflightOperator(**task("preflight"), **shared)
    partition = PartitionOperator(**task("partition"), **shared)
    generate = GenerateShardOperator.partial(
        **task("generate"),
        map_index_template="shard {{ task.shard }}",
        **shared,
    ).expand(shard=partition.output)
    # Where the release exists already, generate has no shard and is skipped.
    certify = CertifyOperator(**task("certify"), trigger_rule=TriggerRule.NONE_FAILED, **shared)
    validate = ValidateOperator(**task("validate"), **shared)
    evaluate = EvaluateOperator(**task("evaluate"), **shared)
    # A release that is valid and paid for is published though measuring it failed or was killed.
    # The stage refuses one that an audit has not let through; the rule saves it the asking.
    measured = TriggerRule.ALL_DONE_MIN_ONE_SUCCESS
    if setup.config.evaluate.audit == "block":
        measured = TriggerRule.ALL_SUCCESS
    publish = PublishOperator(
        **task("publish"),
        outlets=list(outlets),
        trigger_rule=TriggerRule.ALL_SUCCESS if approval.publish else measured,
        **shared,
    )
    settle = SettleBudgetOperator(**task("settle"), **shared)
    approve: StageOperator | None = None
    spend: StageOperator | None = None
    if approval.spend_above is not None:
        spend = setup.ask("approve_spend", **shared)
        # Before reserve: a rejection must leave nothing set aside.
        plan >> spend >> reserve
    if approval.publish:
        approve = setup.ask("approve_publish", trigger_rule=measured, **shared)
        [validate, evaluate] >> approve >> publish
    else:
        [validate, evaluate] >> publish
    if (hours := setup.schedule.wait) is not None:  # before somebody is asked to approve
        waits = WaitOperator(**task("wait"), hours=hours, **shared)
        plan >> waits >> reserve
        if spend is not None:
            waits >> spend
    plan >> reserve.as_setup() >> preflight >> partition >> generate >> certify
    certify >> validate >> evaluate
    publish >> settle.as_teardown(setups=reserve, on_failure_fail_dagrun=True)
    if trains(setup.method):
        train = TrainOperator(**task("train"), **shared)
        partition >> train >> generate
    return Chain(validate, evaluate, publish, settle, approve)


def student_chain(setup: Setup, chain: Chain, asset: Asset) -> None:
    """The tasks of a student, who is trained on a release's texts once they are valid.

    Args:
        setup: Method and project.
        chain: Tasks of the release, in the DAG that is being made.
        asset: What publishing the student updates.
    """
    distill = DistillOperator(**setup.task("distill"))
    rule = TriggerRule.NONE_FAILED
    measure = EvaluateOperator(**setup.task("evaluate_student"), student=True, trigger_rule=rule)
    publish = PublishOperator(
        **setup.task("publish_student"), student=True, outlets=[asset], trigger_rule=rule
    )
    chain.validate >> distill >> chain.evaluate
    # Measured before it is published; the trigger rule of publish says whether a failed
    # measurement holds it back.
    distill >> measure >> (chain.approve_publish or chain.publish)
    chain.publish >> publish >> chain.settle
    distill >> publish
    if chain.approve_publish is not None:
        approve = setup.ask("approve_student", trigger_rule=rule)
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
    setup = Setup.read(method, Project(Path(params_path) if params_path else params_file()))
    shared = {"params_path": str(setup.project.params), "overrides": settings or {}}
    with TaskGroup(group_id=group_id, default_args=setup.retries):
        return release_chain(setup, outlets, shared).publish.output
