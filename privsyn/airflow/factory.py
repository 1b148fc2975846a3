"""The DAG of a method, and the tasks of one release for DAGs of one's own.

All methods share the shape of their DAG; params.yaml sets the rest. In a DAG of one's own::

    @release_task("invisible_ink", params_path="/srv/portal/params.yaml")
    def train(release):
        model.fit(release.frame())

    train()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, PartitionedAssetTimetable, TaskGroup, TriggerRule, task

from privsyn.airflow.base import OWNER, PLAN, START, StageOperator, broken_dag
from privsyn.airflow.budget import PlanOperator, ReserveBudgetOperator, SettleBudgetOperator
from privsyn.airflow.failures import Alert, retry_arguments
from privsyn.airflow.generate import (
    CertifyOperator,
    GenerateShardOperator,
    PartitionOperator,
    PreflightOperator,
    TrainOperator,
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
    EvaluateStudentOperator,
    PublishOperator,
    PublishStudentOperator,
    ValidateOperator,
)
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

_TRAINING = """\
Before it `train` trains the model, in the same pool; a killed try goes on from its checkpoint.
"""
_TEACHING = """\
`distill` trains a student on the texts, at no cost; `evaluate_student` measures it;
`publish_student` publishes it. By hand: `privsyn distill`; settings: `methods.distill`.
"""


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
        start_date=START,
        # Each missed date would be a release, and a charge, at once.
        catchup=False,
        is_paused_upon_creation=True,  # a schedule must not spend before someone has looked
        max_active_runs=1,
        tags=project.tags | {method, f"dataset:{config.dataset.name}"},
        default_args={
            "owner": OWNER,
            "params_path": str(project.params),
            "version_from": schedule.version,
        }
        | retry_arguments(schedule.retries)
        | alert_arguments(config, project),
        params=form(config, method),
        render_template_as_native_obj=True,
    ) as dag:
        arguments = partial(task_arguments, schedule, project.dvc_pool)
        approval = approval_of(config.account, project.root)
        chain = release_chain(
            method,
            approval,
            params_path=str(project.params),
            version_from=schedule.version,
            arguments=arguments,
            outlets=[Asset(project.asset(config.dataset.name, method))],
            audit_blocks=config.evaluate.audit == "block",
        )
        if teaches(method):
            asset = Asset(project.asset(config.dataset.name, STUDENTS))
            student_chain(chain, approval, arguments, asset)
    return dag


def schedule_of(schedule: ScheduleConfig) -> Any:
    """Airflow's schedule of a DAG: a cron expression, an asset, or none."""
    if schedule.asset is None:
        return schedule.cron
    if schedule.version == PARTITION_KEY:
        return PartitionedAssetTimetable(assets=Asset(schedule.asset))
    return [Asset(schedule.asset)]


Arguments = Callable[[Task], dict[str, Any]]
_LOADS_MODELS = ("preflight", "train", "generate", "distill")
_RUNS_DVC = ("publish", "publish_student")


def task_arguments(schedule: ScheduleConfig, dvc_pool: str, task: Task) -> dict[str, Any]:
    """Name and place of a task: its pool, and what ``schedule.<method>.tasks`` sets in its place.

    Args:
        schedule: Of the method.
        dvc_pool: Pool of what runs DVC.
        task: Its name.
    """
    pool = GPU_POOL if task in _LOADS_MODELS else dvc_pool if task in _RUNS_DVC else None
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
    implementation = load_method(method)
    cited = implementation.cites(config.method(method), config.dataset.labels)
    training = _TRAINING if trains(method) else ""
    teaching = _TEACHING if teaches(method) else ""
    account, privacy = config.account, config.privacy
    when = f"on the schedule `{schedule.cron}`" if schedule.cron else "by hand only"
    if schedule.asset:
        when = f"when the asset `{schedule.asset}` is updated"
    period = (
        f", and epsilon {account.period.epsilon:g} in any {account.period.days} days"
        if account.period
        else ""
    )
    given = config.method(method)
    cautions = settings_advice(config, given, writers_of(config))
    if shares := label_shares(method, given.model_dump(), config.dataset.labels):
        cautions += (f"The release holds {shares}.",)
    notes = "".join(f"\n- {caution}" for caution in cautions) + "\n" if cautions else ""
    defined = definition(privacy.epsilon, privacy.delta, account.unit, account.adjacency)
    return f"""\
### {implementation.title}: synthetic records in place of `{config.dataset.name}`

Writes synthetic records, certifies them, validates them and publishes them as an asset. Runs
{when}.

**Guarantee.** {defined}. That holds
for one release whose form leaves epsilon and delta as they are; of all releases together the
account's cap says so. It bounds what a release adds to what is known of one {account.unit}; it
does not hide what many have in common.
{notes}
**Cost.** A release costs at most epsilon {privacy.epsilon:g} at delta {privacy.delta:g} per
{account.unit} ({account.adjacency.value}), charged once to the account `{account.name}`, whose
lifetime cap is ({account.epsilon:g}, {account.delta:g}){period}. A run whose data version, settings
and draw are those of an earlier release finds that release and costs nothing; so do retries and
cleared tasks. A fresh sample is `draw` + 1, and a new charge. When the account cannot pay,
`reserve` fails at once and nothing is spent.

**Tasks.** `plan` computes the cost without data. `reserve` sets it aside; `settle` returns an
unused reservation and deletes private temporary files. `preflight` checks models, grammar and
folders on public inputs, before anything is charged. `partition` opens the records. `generate`
draws, one mapped task per shard, in the pool `{GPU_POOL}`; a killed one resumes from its
journal.
{training}{teaching}`certify` commits the digests to the ledger. `validate` runs the Great
Expectations suite; a failed release stays in quarantine. `evaluate` is internal. `publish` pushes
to DVC, in the pool `{dvc_pool}`.

**Look.** Buttons on `validate` and `publish` open the validation report and the MLflow run;
MLflow is at {config.services.mlflow_ui}. Method: {cited}.
"""


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
    if approval.spend_above is not None:
        from privsyn.airflow.approval import ApproveSpendOperator

        spend = ApproveSpendOperator(**arguments("approve_spend"), hours=approval.hours, **shared)
        # Before reserve: a rejection must leave nothing set aside.
        plan >> spend >> reserve
    if approval.publish:
        from privsyn.airflow.approval import ApprovePublishOperator

        approve = ApprovePublishOperator(
            **arguments("approve_publish"), hours=approval.hours, trigger_rule=measured, **shared
        )
        [validate, evaluate] >> approve >> publish
    else:
        [validate, evaluate] >> publish
    plan >> reserve.as_setup() >> preflight >> partition >> generate >> certify
    certify >> validate >> evaluate
    publish >> settle.as_teardown(setups=reserve, on_failure_fail_dagrun=True)
    if trains(method):
        train = TrainOperator(**arguments("train"), **shared)
        partition >> train >> generate
    return Chain(validate, evaluate, publish, settle, approve)


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
    measure = EvaluateStudentOperator(**arguments("evaluate_student"), trigger_rule=rule)
    publish = PublishStudentOperator(
        **arguments("publish_student"), outlets=[asset], trigger_rule=rule
    )
    chain.validate >> distill >> chain.evaluate
    # Measured before it is published; the trigger rule of publish says whether a failed
    # measurement holds it back.
    distill >> measure >> (chain.approve_publish or chain.publish)
    chain.publish >> publish >> chain.settle
    distill >> publish
    if chain.approve_publish is not None:
        from privsyn.airflow.approval import ApproveStudentOperator

        approve = ApproveStudentOperator(
            **arguments("approve_student"), hours=approval.hours, trigger_rule=rule
        )
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
    with TaskGroup(group_id=group_id, default_args=retry_arguments(schedule.retries)):
        chain = release_chain(
            method,
            approval_of(config.account, project.root),
            params_path=str(project.params),
            arguments=partial(task_arguments, schedule, project.dvc_pool),
            outlets=outlets,
            own_dag=False,
            overrides=settings or {},
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

        # Airflow shows the user's name and documentation for the task, not this wrapper's.
        consume.__name__, consume.__doc__ = name, function.__doc__

        def make() -> Any:
            facts = release_group(
                method, params_path=params_path, **{"group_id": f"{name}_release", **group}
            )
            return task(task_id=name)(consume)(facts)

        return make

    return decorate
