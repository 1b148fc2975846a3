"""Run the project's DAG in this process while people answer, or try to get round it; say what came.

Each order: ``answers`` by task (option, user, comment; or what else befalls it while it waits),
``mark`` (tasks that are marked as successful), ``conf`` (the trigger form), ``method``.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

from tools.local.environment import airflow_environment, prepare

root = Path(sys.argv[1])
orders = json.loads(sys.argv[2])
home = root / "airflow"
environment = airflow_environment(root, home)
os.environ |= environment
prepare(home, environment, root / "prepare.log")

from airflow._shared.timezones import timezone  # noqa: E402
from airflow.api_fastapi.app import init_auth_manager  # noqa: E402
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser  # noqa: E402
from airflow.api_fastapi.core_api.routes.public.hitl import task_instances_hitl_router  # noqa: E402
from airflow.jobs.job import Job  # noqa: E402
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner  # noqa: E402
from airflow.models.hitl import HITLDetail  # noqa: E402
from airflow.models.taskinstance import TaskInstance  # noqa: E402
from airflow.models.xcom import XComModel  # noqa: E402
from airflow.utils.session import create_session  # noqa: E402
from fastapi import FastAPI  # noqa: E402
from fastapi.testclient import TestClient  # noqa: E402
from sqlalchemy import select  # noqa: E402

from privsyn.airflow.factory import method_dag  # noqa: E402

server = FastAPI()
server.include_router(task_instances_hitl_router)
client = TestClient(server)
auth = init_auth_manager()


def answer(waiting, option, user, comment):
    """As the page of required actions does, through the server's own route."""
    token = auth.generate_jwt(SimpleAuthManagerUser(username=user, role="admin"))
    place = f"/dags/{waiting['dag']}/dagRuns/{waiting['run']}/taskInstances/{waiting['task']}"
    done = client.patch(
        f"{place}/-1/hitlDetails",
        json={"chosen_options": [option], "params_input": {"comment": comment}},
        headers={"Authorization": f"Bearer {token}"},
    )
    assert done.status_code == 200, done.text


def let_time_run_out(waiting):
    with create_session() as session:
        ti = session.get(TaskInstance, waiting["ti"])
        ti.trigger_timeout = timezone.utcnow() - ti.trigger_timeout.resolution
    SchedulerJobRunner(Job()).check_awaiting_input_timeouts()


def edit_the_plan(waiting, changes):
    """Write another plan over the XCom that all later tasks read."""
    with create_session() as session:
        row = session.scalars(
            select(XComModel).where(
                XComModel.run_id == waiting["run"],
                XComModel.task_id == "plan",
                XComModel.key == "return_value",
            )
        ).one()
        value = row.value if isinstance(row.value, dict) else json.loads(row.value)
        row.value = value | changes


def waiting_now():
    with create_session() as session:
        query = (
            select(HITLDetail)
            .join(TaskInstance, TaskInstance.id == HITLDetail.ti_id)
            .where(TaskInstance.state == "awaiting_input", HITLDetail.responded_at.is_(None))
        )
        return [
            {
                "ti": detail.ti_id, "dag": detail.task_instance.dag_id,
                "run": detail.task_instance.run_id, "task": detail.task_instance.task_id,
                "subject": detail.subject, "body": detail.body, "options": detail.options,
                "defaults": detail.defaults,
            }
            for detail in session.scalars(query)
        ]  # fmt: skip


def people(answers, asked, done):
    while not done.is_set():
        time.sleep(0.2)
        for waiting in waiting_now():
            if waiting["task"] not in asked:
                asked[waiting["task"]] = {
                    key: waiting[key] for key in ("subject", "body", "options", "defaults")
                }
                # Whom nobody expected is not answered: a run that waits for ever says nothing.
                *tricks, last = answers.get(waiting["task"], ["timeout"])
                for trick in tricks:
                    edit_the_plan(waiting, trick)
                if last == "timeout":
                    let_time_run_out(waiting)
                else:
                    answer(waiting, *last)


outcomes = []
for order in orders:
    os.environ["PRIVSYN_OVERRIDES"] = json.dumps(order.get("set", []))
    asked, done = {}, threading.Event()
    people_of_this = (order.get("answers", {}), asked, done)
    crowd = threading.Thread(target=people, args=people_of_this, daemon=True)
    crowd.start()
    run = method_dag(order.get("method", "invisible_ink")).test(
        run_conf=order.get("conf", {}), mark_success_pattern=order.get("mark")
    )
    done.set()
    crowd.join()
    with create_session() as session:
        rows = session.scalars(select(XComModel).where(XComModel.run_id == run.run_id))
        outcomes.append(
            {
                "state": str(run.state),
                "tasks": {
                    ti.task_id: str(ti.state) for ti in run.get_task_instances(session=session)
                },
                "tries": {
                    ti.task_id: ti.try_number for ti in run.get_task_instances(session=session)
                },
                "asked": asked,
                "xcoms": {f"{row.task_id}/{row.key}": row.value for row in rows},
            }
        )
(root / "answer.json").write_text(json.dumps(outcomes))
