"""Where Airflow runs the tasks of a release."""

from __future__ import annotations

from typing import get_args

import pytest

from privsyn.airflow.factory import method_dag
from privsyn.airflow.project import Project
from privsyn.config import Task
from privsyn.errors import ConfigError
from tests.integration.e2e.small_project import METHODS, build_project

pytestmark = pytest.mark.airflow


def dag_of(root, method="invisible_ink", **schedule):
    project = build_project(
        root,
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
        },
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


def test_a_task_that_no_dag_has_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="genrate"):
        dag_of(tmp_path / "project", tasks={"genrate": {"queue": "gpu"}})
