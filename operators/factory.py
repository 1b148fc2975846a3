"""method_dag: the DAG of a method. All methods share its shape; params.yaml sets the rest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, TriggerRule

from operators.budget import PlanOperator, ReserveBudgetOperator, SettleBudgetOperator
from operators.distill import (
    BaselineOperator,
    DistillOperator,
    EvaluateStudentOperator,
    PublishStudentOperator,
)
from operators.generate import (
    CertifyOperator,
    GenerateShardOperator,
    PartitionOperator,
    TrainOperator,
)
from operators.params import form
from operators.project import DVC_POOL, dag_id, params_file, teaches
from operators.publish import PublishOperator, release_asset
from operators.quality import EvaluateOperator, ValidateOperator
from privsyn.config import Config, ScheduleConfig, environment_overrides, load_config
from privsyn.methods.base import load_method

OWNER = "privsyn"
_TEACHING = """\
Before it `train` trains the model, in the same pool; a killed try goes on from its checkpoint.
`distil` trains a student on the texts, at no cost; `baseline`, if asked for, trains it on the
records by DP-SGD, at a charge of its own; `evaluate_student` measures both; `publish_student`
publishes the student. By hand: `privsyn distill`; settings: `methods.distill`.
"""
START = datetime(2025, 1, 1, tzinfo=UTC)


def method_dag(method: str) -> DAG:
    """The DAG of a method, its schedule, trigger form and asset from params.yaml.

    A method that trains a model has a task ``train`` before its shards, and after the release is
    valid a student is trained on its texts, checked, measured and published.

    Raises:
        ConfigError: params.yaml does not load; Airflow shows it as the DAG's import error.
    """
    config = load_config(params_file(), environment_overrides())
    schedule = config.schedule.get(method, ScheduleConfig())
    with DAG(
        dag_id=dag_id(method),
        description=f"Synthetic {config.dataset.name} by {load_method(method).title}",
        doc_md=_doc(config, method, schedule),
        schedule=schedule.cron,
        start_date=START,
        catchup=False,
        max_active_runs=1,
        tags={"privsyn", method, f"dataset:{config.dataset.name}"},
        default_args=_defaults(schedule),
        params=form(config, method),
        render_template_as_native_obj=True,
    ) as dag:
        plan = PlanOperator(task_id="plan", method=method)
        reserve = ReserveBudgetOperator(task_id="reserve")
        partition = PartitionOperator(task_id="partition")
        generate = GenerateShardOperator.partial(
            task_id="generate", pool=schedule.gpu_pool, map_index_template="shard {{ task.shard }}"
        ).expand(shard=partition.output)
        # Where the release exists already, generate has no shard and is skipped.
        certify = CertifyOperator(task_id="certify", trigger_rule=TriggerRule.NONE_FAILED)
        validate = ValidateOperator(task_id="validate")
        evaluate = EvaluateOperator(task_id="evaluate")
        publish = PublishOperator(
            task_id="publish",
            pool=DVC_POOL,
            outlets=[release_asset(config.dataset.name, method)],
        )
        settle = SettleBudgetOperator(task_id="settle")
        plan >> reserve.as_setup() >> partition >> generate >> certify
        certify >> validate >> evaluate >> publish >> settle.as_teardown(setups=reserve)
        if teaches(method):
            pool = schedule.gpu_pool
            train = TrainOperator(task_id="train", pool=pool)
            partition >> train >> generate
            distil = DistillOperator(task_id="distil", pool=pool)
            baseline = BaselineOperator(task_id="baseline", pool=pool)
            measure = EvaluateStudentOperator(
                task_id="evaluate_student", trigger_rule=TriggerRule.NONE_FAILED
            )
            publish_student = PublishStudentOperator(task_id="publish_student", pool=DVC_POOL)
            validate >> distil >> evaluate
            validate >> baseline
            [distil, baseline] >> measure >> publish
            publish >> publish_student >> settle
    return dag


def _defaults(schedule: ScheduleConfig) -> dict[str, Any]:
    return {
        "owner": OWNER,
        "retries": schedule.retries,
        "retry_delay": timedelta(seconds=schedule.retry_delay_seconds),
    }


def _doc(config: Config, method: str, schedule: ScheduleConfig) -> str:
    """The DAG's page: what it does, what it costs, where to look. All from params.yaml."""
    implementation = load_method(method)
    teaching = _TEACHING if teaches(method) else ""
    account, privacy = config.account, config.privacy
    when = f"on the schedule `{schedule.cron}`" if schedule.cron else "by hand only"
    period = (
        f", and epsilon {account.period.epsilon:g} in any {account.period.days} days"
        if account.period
        else ""
    )
    return f"""\
### {implementation.title}: differentially private copies of `{config.dataset.name}`

Writes synthetic texts that reveal next to nothing about any one {account.unit}, certifies them,
validates them and publishes them as an asset. Runs {when}.

**Cost.** A release costs at most epsilon {privacy.epsilon:g} at delta {privacy.delta:g} per
{account.unit} ({account.adjacency.value}), charged once to the account `{account.name}`, whose
lifetime cap is ({account.epsilon:g}, {account.delta:g}){period}. A run whose data version, settings
and draw are those of an earlier release finds that release and costs nothing; so do retries and
cleared tasks. A fresh sample is `draw` + 1, and a new charge. When the account cannot pay,
`reserve` fails at once and nothing is spent.

**Tasks.** `plan` computes the cost without data. `reserve` sets it aside; `settle` gives an
untouched reservation back and wipes the scratch. `partition` opens the records. `generate` draws,
one mapped task per shard, in the pool `{schedule.gpu_pool}`; a killed one resumes from its
journal.
{teaching}`certify` commits the digests to the ledger. `validate` runs the Great Expectations
suite; a failed release stays in quarantine. `evaluate` is internal. `publish` pushes to DVC, in
the pool `{DVC_POOL}`.

**Look.** Buttons on `validate` and `publish` open the validation report and the MLflow run;
MLflow is at {config.services.mlflow_ui}. Method: {implementation.paper}.
"""
