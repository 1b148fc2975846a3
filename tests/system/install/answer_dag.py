"""Run a DAG of a project in this process, on any Airflow; an officer approves what it asks."""

import asyncio
import sys
import threading
import time
from importlib import import_module

import airflow
from airflow.api_fastapi.app import init_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api.routes.public.hitl import task_instances_hitl_router
from airflow.models.hitl import HITLDetail
from airflow.providers.standard.triggers import hitl
from airflow.sdk.execution_time import supervisor
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import select

from privsyn.airflow.approval import AskOperator
from privsyn.airflow.versions import TaskAwaitingInput

folder, dag_id = sys.argv[1:]
PARKED = "awaiting_input"  # from 3.3 on
server = FastAPI()
server.include_router(task_instances_hitl_router)
client, auth = TestClient(server), init_auth_manager()
token = auth.generate_jwt(SimpleAuthManagerUser(username="officer", role="admin"))


def approve(asked):
    """As the page of required actions does, through the server's own route."""
    ti = asked.task_instance
    place = f"/dags/{ti.dag_id}/dagRuns/{ti.run_id}/taskInstances/{ti.task_id}/{ti.map_index}"
    done = client.patch(
        f"{place}/hitlDetails",
        json={"chosen_options": ["Approve"], "params_input": {"comment": "as agreed"}},
        headers={"Authorization": f"Bearer {token}"},
    )
    assert done.status_code == 200, done.text
    print("approved:", ti.task_id, "while", ti.state, flush=True)


def answer():
    while True:
        time.sleep(1)
        with create_session() as session:
            for asked in session.scalars(
                select(HITLDetail).where(HITLDetail.responded_at.is_(None))
            ):
                # Of a task that is deferred dag.test() leaves the state as it was.
                if PARKED not in list(TaskInstanceState) or asked.task_instance.state == PARKED:
                    approve(asked)


# dag.test() of Airflow 3.2 asks its own server before that has begun, and drops it while a task
# asks it.
submit, begin, servers = asyncio.run_coroutine_threadsafe, supervisor.in_process_api_server, []


def submit_and_wait(what, loop):
    done = submit(what, loop)
    done.result(60)
    return done


asyncio.run_coroutine_threadsafe = submit_and_wait
supervisor.in_process_api_server = lambda: servers.append(begin()) or servers[-1]

# Before 3.3 a trigger waits for the answer; dag.test() runs it in this process, and it can ask
# nobody.
hitl.get_hitl_detail_content_detail = lambda ti_id: (
    supervisor.InProcessTestSupervisor._api_client().hitl.get_detail_response(ti_id=ti_id)
)

# And drops what the task handed on to itself, which a triggerer gives back with the answer.
execute, complete, kept = AskOperator.execute, AskOperator.execute_complete, {}


def park(self, context):
    try:
        return execute(self, context)
    except TaskAwaitingInput as parked:
        kept[self.task_id] = parked.kwargs
        raise


def resume(self, context, event, **given):
    return complete(self, context, event, **kept[self.task_id] | given)


AskOperator.execute, AskOperator.execute_complete = park, resume
place = "models" if airflow.__version__ < "3.2" else "dag_processing"
bag = import_module(f"airflow.{place}.dagbag").DagBag(folder)
assert not bag.import_errors, bag.import_errors
threading.Thread(target=answer, daemon=True).start()
print("ended:", bag.dags[dag_id].test().state, flush=True)
