"""Let Airflow's scheduler run DAGs on assets, dates and answers; write down what came of it.

Each order is a list of what happens before the scheduler runs until nothing is left to do but to
wait for people: an event of an asset, a run by hand, a backfill, an answer, a task that is cleared
or marked, an XCom that is written over.
"""

import json
import os
import sys
from importlib import import_module
from pathlib import Path

from privsyn.stages.base import Context
from privsyn.tracking import MlflowTracker
from tools.local.environment import airflow_environment, prepare

root, orders = Path(sys.argv[1]), json.loads(sys.argv[2])
home, place = root / "airflow", Path(os.environ["PRIVSYN_PARAMS"])
bundles = [
    {
        "name": "committed",
        "classpath": "tests.system.dags.bundle_of_commits.CommitBundle",
        "kwargs": {"repository": str(root / "repository")},
    },
    {
        "name": "folder",
        "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "kwargs": {"path": str(root / "folder")},
    },
]
environment = airflow_environment(root, home) | {
    "PRIVSYN_PARAMS": str(place),
    "AIRFLOW__CORE__EXECUTOR": "tests.system.dags.executor_beside.ExecutorBeside",
    "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
    "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": str(home / "bundles"),
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.05",
}
os.environ |= environment
prepare(home, environment, root / "prepare.log")

from airflow.api_fastapi.app import create_app, get_auth_manager  # noqa: E402
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser  # noqa: E402
from airflow.cli.cli_parser import get_parser  # noqa: E402
from airflow.dag_processing.bundles.manager import DagBundlesManager  # noqa: E402
from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db  # noqa: E402
from airflow.exceptions import AirflowException  # noqa: E402
from airflow.jobs.job import Job, run_job  # noqa: E402
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner  # noqa: E402
from airflow.models.dagrun import DagRun  # noqa: E402
from airflow.models.xcom import XComModel  # noqa: E402
from airflow.utils.session import create_session  # noqa: E402
from fastapi.testclient import TestClient  # noqa: E402
from sqlalchemy import select  # noqa: E402

TURNS = 20
for heavy in ("opendp.prelude", "privsyn.stages.approval", "privsyn.stages.reserve"):
    import_module(heavy)  # tasks are forks of this process: each would import them anew
Context.tracker = MlflowTracker("")  # MLflow is another test's, and slow


def parse():
    """As the DAG processor does at every turn."""
    manager = DagBundlesManager()
    manager.sync_bundles_to_db()
    for bundle in manager.get_all_dag_bundles():
        bundle.initialize()
        bag = BundleDagBag(bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)
        assert not bag.import_errors, bag.import_errors
        for dag in bag.dags.values():
            dag.is_paused_upon_creation = False  # as somebody who unpauses it
        current = bundle.get_current_version()
        sync_bag_to_db(bag, bundle.name, current.version if current else None)


def schedule():
    """The scheduler, until no task is to run."""
    for _ in range(TURNS):
        runner = SchedulerJobRunner(Job(), num_runs=4, only_idle=True)
        run_job(job=runner.job, execute_callable=runner._execute)
        with create_session() as session:
            active = session.scalars(select(DagRun).where(DagRun.state.in_(("queued", "running"))))
            if all("awaiting_input" in states(run, session).values() for run in active):
                runner._mark_backfills_complete()  # which it does every half minute
                return
    raise RuntimeError(f"tasks are still to run after {TURNS} turns of the scheduler")


def call(method, path, body=None, user="ada"):
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=user, role="ADMIN"))
    header = {"Authorization": f"Bearer {token}"}
    answer = client.request(method, f"/api/v2/{path}", json=body, headers=header)
    return answer.status_code, answer.json()


def happen(what, **said):
    """Something that people and other DAGs do, through Airflow's own doors."""
    if what == "backfill":
        return backfill(said["words"])
    if what == "event":
        _, found = call("GET", f"assets?uri_pattern={said.pop('asset')}")
        (asset,) = found["assets"]
        return call("POST", "assets/events", {"asset_id": asset["id"], **said})
    dag = f"dags/{said.pop('dag')}"
    if what == "trigger":
        return call("POST", f"{dag}/dagRuns", {"logical_date": None, **said})
    if what == "clear":
        tasks = {"task_ids": said["tasks"], "only_failed": False, "dry_run": False}
        return call("POST", f"{dag}/clearTaskInstances", tasks)
    _, found = call("GET", f"{dag}/dagRuns?order_by=-id&limit=1")
    task = f"{dag}/dagRuns/{found['dag_runs'][0]['dag_run_id']}/taskInstances/{said['task']}"
    if what == "mark":
        return call("PATCH", task, {"new_state": "success"})
    if what == "write over":
        entry = f"{task}/xcomEntries/return_value"
        _, found = call("GET", f"{entry}?deserialize=true")
        value = found["value"] if isinstance(found["value"], dict) else json.loads(found["value"])
        return call("PATCH", entry, {"value": value | said["by"]})
    body = {"chosen_options": [said["option"]], "params_input": {"comment": ""}}
    return call("PATCH", f"{task}/-1/hitlDetails", body, said["user"])


def backfill(words):
    arguments = get_parser().parse_args(["backfill", "create", *words])
    try:
        arguments.func(arguments)
    except AirflowException as error:
        return type(error).__name__, str(error)
    return 0, None


def states(run, session):
    return {ti.task_id: str(ti.state) for ti in run.get_task_instances(session=session)}


def outcome(run, session):
    rows = session.scalars(select(XComModel).where(XComModel.run_id == run.run_id))
    xcoms = {f"{row.task_id}/{row.key}": row.value for row in rows if row.dag_id == run.dag_id}
    return {
        "dag": run.dag_id, "type": str(run.run_type), "key": run.partition_key,
        "state": str(run.state), "version": run.bundle_version,
        "plan": xcoms.get("plan/return_value"), "tasks": states(run, session),
    }  # fmt: skip


parse()
client = TestClient(create_app("core"))
answers = []
for order in orders:
    said = [happen(**one) for one in order]
    schedule()
    with create_session() as session:
        runs = [
            outcome(run, session) for run in session.scalars(select(DagRun).order_by(DagRun.id))
        ]
    answers.append({"said": said, "runs": runs})
(root / "answer.json").write_text(json.dumps(answers))
