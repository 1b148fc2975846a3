"""Where and when Airflow runs the tasks of a release."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pydoc import locate
from types import SimpleNamespace
from typing import get_args

import pytest
from airflow.sdk.exceptions import AirflowRescheduleException

from privsyn.airflow.base import _day
from privsyn.airflow.factory import method_dag
from privsyn.airflow.failures import tell_late
from privsyn.airflow.project import Project
from privsyn.config import Task
from privsyn.errors import ConfigError
from privsyn.stages.base import open_context
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve
from tests.integration.e2e.small_project import METHODS, build_project

pytestmark = pytest.mark.airflow


def dag_of(root, more=None, *, method="invisible_ink", **schedule):
    project = build_project(
        root,
        **more or {},
        methods={method: METHODS[method]},
        schedule={method: schedule},
        account={"approval": {"spend_above": 1.0, "publish": True}},
    )
    return method_dag(method, Project(project.params))


def test_every_task_goes_where_its_settings_say(tmp_path):
    pod = {"pod_template_file": str(tmp_path / "pod.yaml")}
    dag = dag_of(
        tmp_path / "project",
        method="dp_lora",
        tasks={
            "train": {"queue": "gpu", "pool": "big", "executor_config": pod},
            "partition": {"queue": "private"},
            "certify": {"execution_timeout": "PT30M"},
        },
        wait=12,
        dag={"execution_timeout": "PT2H", "owner": "clinic"},
    )
    # Of a method that teaches, with every approval.
    assert set(dag.task_dict) == set(get_args(Task))
    found = {name: (task.queue, task.pool) for name, task in dag.task_dict.items()}
    cards, plain = ("default", "gpu"), ("default", "default_pool")
    assert found.pop("train") == ("gpu", "big")
    assert found.pop("partition") == ("private", "default_pool")
    for name in ("preflight", "generate", "distill"):
        assert found.pop(name) == cards
    for name in ("publish", "publish_student"):
        assert found.pop(name) == ("default", "dvc")
    assert set(found.values()) == {plain}
    assert dag.task_dict["train"].executor_config == pod
    assert not dag.task_dict["generate"].executor_config
    assert {task.executor for task in dag.tasks} == {None}
    times = {name: task.execution_timeout for name, task in dag.task_dict.items()}
    assert times.pop("certify") == timedelta(minutes=30)
    assert set(times.values()) == {timedelta(hours=2)}
    assert {task.owner for task in dag.tasks} == {"clinic"}
    # Nobody is asked, and nothing is set aside, before the file is there.
    assert {"approve_spend", "reserve"} <= dag.task_dict["wait"].downstream_task_ids
    waits = {"spend": "reserve", "publish": "publish", "student": "publish_student"}
    for asked, then in waits.items():
        assert then in dag.task_dict[f"approve_{asked}"].downstream_task_ids
    assert dag.task_dict["publish"].trigger_rule == "all_success"
    assert dag.task_dict["settle"].on_failure_fail_dagrun


def test_a_partition_that_asks_a_model_is_a_process_on_a_card(tmp_path, monkeypatch):
    urgent = {"values": ["yes", "no"], "ask": "Is it urgent?"}
    dag = dag_of(tmp_path / "project", {"dataset": {"columns": {"urgent": urgent}}})
    task = dag.task_dict["partition"]
    assert task.pool == "gpu"
    assert "has a model\nanswer urgent of each, in the pool `gpu`" in dag.doc_md
    nobody = ("account.approval.spend_above=null", "account.approval.publish=false")
    ctx = open_context(tmp_path / "project" / "params.yaml", nobody)
    planned = plan(ctx, "invisible_ink", open_account=True)
    reserve(ctx, planned)
    task.plan, ran = planned.model_dump(mode="json"), []

    def apart(*args):
        ran.append(args[2:4])
        partition(ctx, planned)

    monkeypatch.setattr(task, "apart", apart)
    shards, _ = task.run_stage(ctx, {})
    assert (ran, shards) == ([("stage", "partition")], [0, 1])


def test_an_audit_that_blocks_lets_nothing_through_that_was_not_measured(tmp_path):
    rules = {}
    for audit in ("report", "block"):
        dag = dag_of(tmp_path / audit, {"evaluate": {"audit": audit}})
        rules[audit] = dag.task_dict["approve_publish"].trigger_rule
    assert rules == {"report": "all_done_min_one_success", "block": "all_success"}


def test_the_dag_s_own_arguments_are_airflow_s(tmp_path):
    said = {"timezone": "Europe/Berlin", "dagrun_timeout": "PT12H", "deadline": "PT6H"}
    keeper = [{"class": "a.B"}]
    dag = dag_of(tmp_path / "project", {"alerts": keeper}, cron="0 0 1 * *", dag=said)
    assert (str(dag.timezone), dag.dagrun_timeout) == ("Europe/Berlin", timedelta(hours=12))
    # Nothing is spent before someone has looked, nor for a date that was missed.
    assert (dag.is_paused_upon_creation, dag.catchup, dag.max_active_runs) == (True, False, 1)
    (alert,) = dag.deadline
    assert alert.interval == timedelta(hours=6)
    assert locate(alert.callback.path) is tell_late
    assert "**Unpausing it starts a run\nfor the last tick at once" in dag.doc_md
    assert "(Europe/Berlin)" in dag.doc_md
    # The first of a month in Berlin begins on the last of another in UTC.
    tick = datetime(2026, 10, 31, 23, tzinfo=UTC)
    assert _day({"dag": dag, "logical_date": tick}) == date(2026, 11, 1)
    with pytest.raises(ConfigError, match="deadline needs alerts to tell of it"):
        dag_of(tmp_path / "quiet", dag={"deadline": "PT6H"})


@pytest.mark.parametrize(
    "said",
    [{"timezone": "Berlin"}, {"deadline": "soon"}, {"execution_timeout": 0}, {"catchup": True}],
)
def test_what_is_no_argument_is_refused_by_name(tmp_path, said):
    with pytest.raises(ConfigError, match=r"schedule\.invisible_ink\.dag"):
        dag_of(tmp_path / "project", dag=said)


def test_a_late_export_is_waited_for_and_is_no_failure_until_the_time_is_up(tmp_path):
    dag = dag_of(tmp_path / "project", wait=0.5)
    wait, file = dag.task_dict["wait"], tmp_path / "project" / "private.jsonl"
    project = Project(tmp_path / "project" / "params.yaml")
    ctx = open_context(project.params)
    wait.open = lambda context: ctx
    wait.plan = plan(ctx, "invisible_ink").model_dump(mode="json")
    begun = datetime.now(UTC)
    ti = SimpleNamespace(get_first_reschedule_date=lambda _: begun, try_number=1, max_tries=1)
    context = {"ti": ti, "task_reschedule_count": 1, "dag": dag}
    file.rename(file.with_name("gone"))
    with pytest.raises(AirflowRescheduleException) as again:
        wait.execute(context)
    assert again.value.reschedule_date > begun
    file.with_name("gone").rename(file)
    wait.execute(context)
    file.unlink()
    begun -= timedelta(hours=1)
    with pytest.raises(SystemExit) as late:
        wait.execute(context)
    assert late.value.final
    assert "no record has come in 0.5 hours. Clear this task when they are there" in late.value.text


def test_a_task_that_no_dag_has_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="genrate"):
        dag_of(tmp_path / "project", tasks={"genrate": {"queue": "gpu"}})
