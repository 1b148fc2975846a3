"""method_dag: the DAG of a method. All methods share its shape; params.yaml sets the rest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Asset, TriggerRule

from privsyn.airflow.alerts import Alert
from privsyn.airflow.base import BrokenProjectOperator
from privsyn.airflow.chain import release_chain
from privsyn.airflow.distill import (
    BaselineOperator,
    DistillOperator,
    EvaluateStudentOperator,
    PublishStudentOperator,
)
from privsyn.airflow.failures import patience
from privsyn.airflow.params import form
from privsyn.airflow.project import Project, dag_id, kind_of, params_file, projects, teaches, trains
from privsyn.airflow.routing import Routing
from privsyn.airflow.versions import schedule_of
from privsyn.config import Config, ScheduleConfig, environment_overrides, load_config
from privsyn.errors import ConfigError
from privsyn.ledger.settings import asks_approval
from privsyn.methods.registry import load_method
from privsyn.release.warnings import definition, of_account, of_release, of_unit
from privsyn.students.settings import STUDENTS

OWNER = "privsyn"
_TRAINING = """\
Before it `train` trains the model, in the same pool; a killed try goes on from its checkpoint.
"""
_TEACHING = """\
`distill` trains a student on the texts, at no cost; `baseline`, if asked for, trains it on the
records by DP-SGD, at a charge of its own; `evaluate_student` measures both; `publish_student`
publishes the student. By hand: `privsyn distill`; settings: `methods.distill`.
"""
START = datetime(2025, 1, 1, tzinfo=UTC)


def method_dags(method: str) -> dict[str, DAG]:
    """The DAGs of a method by id: one a project.

    Raises:
        ConfigError: The params.yaml of the only project does not load, or there is no project;
            Airflow shows it as the file's import error. Of several projects the one that does not
            load gets a DAG that says so, and the others theirs.
    """
    return by_project(lambda project: method_dag(method, project), lambda: kind_of(method))


def by_project(build: Callable[[Project], DAG], kind: Callable[[], str]) -> dict[str, DAG]:
    """A DAG of each project, by id. See method_dags."""
    made = []
    for project in projects():
        try:
            made.append(build(project))
        except ConfigError as error:
            if project.name is None:
                raise
            made.append(_broken(project, kind(), error))
    return {dag.dag_id: dag for dag in made}


def _broken(project: Project, kind: str, error: ConfigError) -> DAG:
    """In place of the DAG of a project whose params.yaml does not load: its one task says why."""
    with DAG(
        dag_id=project.dag_id(kind),
        description=f"BROKEN: {error}",
        doc_md=f"### {project.params.name} of {project.name} does not load\n\n{error}",
        start_date=START,
        is_paused_upon_creation=True,
        tags=project.tags | {"broken"},
        default_args={"owner": OWNER, "retries": 0},
    ) as dag:
        BrokenProjectOperator(task_id="plan", said=str(error))
    return dag


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
        catchup=False,
        is_paused_upon_creation=schedule.paused,
        max_active_runs=1,
        tags=project.tags | {method, f"dataset:{config.dataset.name}"},
        default_args={
            "owner": OWNER,
            "params_path": str(project.params),
            "version_from": schedule.version,
        }
        | patience(schedule)
        | alerted(config, project),
        params=form(config, method),
        render_template_as_native_obj=True,
    ) as dag:
        approval, routing = (
            asks_approval(config.account, project.root), Routing(schedule, project.dvc_pool)
        )  # fmt: skip
        chain = release_chain(
            method,
            approval,
            params_path=str(project.params),
            version_from=schedule.version,
            routing=routing,
            reannounce=schedule.reannounce,
            outlets=[Asset(project.asset(config.dataset.name, method))],
            audit_blocks=config.evaluate.audit == "block",
        )
        if teaches(method):
            distill = DistillOperator(task_id="distill", **routing.of("distill"))
            baseline = BaselineOperator(task_id="baseline", **routing.of("baseline"))
            measure = EvaluateStudentOperator(
                task_id="evaluate_student",
                trigger_rule=TriggerRule.NONE_FAILED,
                **routing.of("evaluate_student"),
            )
            publish_student = PublishStudentOperator(
                task_id="publish_student",
                **routing.of("publish_student"),
                reannounce=schedule.reannounce,
                outlets=[Asset(project.asset(config.dataset.name, STUDENTS))],
                trigger_rule=TriggerRule.NONE_FAILED,
            )
            chain.validate >> distill >> chain.evaluate
            chain.validate >> baseline
            [distill, baseline] >> measure >> (chain.approve_publish or chain.publish)
            chain.publish >> publish_student >> chain.settle
            distill >> publish_student
            if chain.approve_publish is not None:
                from privsyn.airflow.approval import ApproveStudentOperator

                (
                    chain.publish
                    >> ApproveStudentOperator(
                        task_id="approve_student",
                        hours=approval.hours,
                        trigger_rule=TriggerRule.NONE_FAILED,
                        **routing.of("approve_student"),
                    )
                    >> publish_student
                )
    return dag


def alerted(config: Config, project: Project) -> dict[str, Any]:
    """Airflow's arguments of tasks that tell of their end, where there is anybody to tell."""
    if not config.alerts.told:
        return {}
    alert = Alert(str(project.params))
    return {"on_failure_callback": [alert], "on_success_callback": [alert]}


def _doc(config: Config, method: str, schedule: ScheduleConfig, dvc_pool: str) -> str:
    """The DAG's page: what it does, what it costs, where to look. All from params.yaml."""
    implementation = load_method(method)
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
    nobody = of_unit(config.dataset.unit, by_file=config.dataset.images is not None)
    cautions = nobody + of_release(privacy, account) + of_account(account)
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

**Tasks.** `plan` computes the cost without data. `reserve` sets it aside; `settle` gives an
untouched reservation back and wipes the scratch. `preflight` tries models, grammar and folders on
public inputs, while a mistake still costs nothing. `partition` opens the records. `generate` draws,
one mapped task per shard, in the pool `{schedule.gpu_pool}`; a killed one resumes from its
journal.
{training}{teaching}`certify` commits the digests to the ledger. `validate` runs the Great
Expectations suite; a failed release stays in quarantine. `evaluate` is internal. `publish` pushes
to DVC, in the pool `{dvc_pool}`.

**Look.** Buttons on `validate` and `publish` open the validation report and the MLflow run;
MLflow is at {config.services.mlflow_ui}. Method: {implementation.paper}.
"""
