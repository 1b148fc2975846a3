"""settle runs whatever happens, and tells a run that published from one that did not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.airflow
TASKS = ("certify", "validate", "evaluate", "publish")
WHOLE = dict.fromkeys(TASKS, "success")


def undone(states, unchanged=(), tasks=TASKS):
    from privsyn.airflow.budget import _undone

    ti = SimpleNamespace(
        dag_id="d",
        task_id="settle",
        run_id="r",
        get_task_states=lambda dag_id, run_ids: {run_ids[0]: states},
        xcom_pull=lambda task_ids, key: task_ids in unchanged or None,
    )
    return _undone(ti, tasks)


def test_a_run_that_published_or_had_nothing_to_publish_is_whole():
    assert undone(WHOLE) == []
    assert undone(WHOLE | {"publish": "skipped"}, unchanged=("publish",)) == []


@pytest.mark.parametrize(
    ("states", "left"),
    [
        ({"publish": "skipped"}, ["publish"]),  # marked failed by hand before it began
        ({"evaluate": "skipped", "publish": "skipped"}, ["evaluate", "publish"]),
        ({"validate": "failed", "publish": "upstream_failed"}, ["validate", "publish"]),
        ({"certify": None}, ["certify"]),
        ({"distill": "failed"}, ["distill"]),
    ],
)
def test_one_that_was_ended_is_not(states, left):
    assert undone(WHOLE | states) == left


def test_what_was_found_unchanged_does_not_hide_another_failure():
    states = {"distill": "failed", "publish": "skipped"}
    assert undone(WHOLE | states, unchanged=("publish",)) == ["distill"]


@pytest.mark.parametrize("state", ["failed", "upstream_failed"])
def test_a_published_release_that_could_not_be_measured_is_whole(state):
    measures = {"evaluate": state, "evaluate_student": state}
    assert undone(WHOLE | measures) == []
    assert undone(WHOLE | measures | {"publish": "skipped"}, unchanged=("publish",)) == []
    assert undone(WHOLE | measures | {"publish": "upstream_failed"}) == [
        "evaluate",
        "publish",
        "evaluate_student",
    ]


def test_a_part_that_failed_is_named_as_the_task_to_clear():
    """Airflow reports the parts of a mapped task as tasks of their own, which none can clear."""
    states = {"generate_0": "failed", "generate_1": "failed", "certify": "upstream_failed"}
    assert undone(WHOLE | states, tasks=(*TASKS, "generate")) == ["certify", "generate"]


def test_a_student_that_is_not_published_is_seen():
    tasks = (*TASKS, "publish_student")
    for state in ("failed", "upstream_failed", "skipped", None):
        assert undone(WHOLE | {"publish_student": state}, tasks=tasks) == ["publish_student"]
    done = undone(WHOLE | {"publish_student": "skipped"}, ("publish_student",), tasks)
    assert done == []
