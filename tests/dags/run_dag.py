"""Run the project's DAG several times in this process and write down what came of each run."""

import json
import logging
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

from privsyn.config import load_config
from tools.local.environment import airflow_environment, prepare

root = Path(sys.argv[1])
runs = json.loads(sys.argv[2])
home = root / "airflow"
environment = airflow_environment(root, home)
os.environ |= environment
prepare(home, environment, load_config(root / "params.yaml"), root / "prepare.log")

from airflow.dag_processing.dagbag import DagBag  # noqa: E402
from airflow.models.asset import AssetEvent  # noqa: E402
from airflow.models.xcom import XComModel  # noqa: E402
from airflow.utils.session import create_session  # noqa: E402
from sqlalchemy import select  # noqa: E402

from privsyn.airflow.factory import method_dag  # noqa: E402

logging.getLogger("privsyn.airflow").setLevel(logging.INFO)


def kill_while_drawing() -> list[int]:
    """SIGKILL the first generate process that has a draw in its journal."""
    killed: list[int] = []

    def watch() -> None:
        while not killed:
            time.sleep(0.002)
            journals = (root / ".privsyn" / "scratch").glob("*/journal-*")
            if not any(file.stat().st_size > 200 for file in journals):
                continue
            for stat in Path("/proc").glob("[0-9]*/stat"):
                try:
                    parent = stat.read_text().rpartition(")")[2].split()[1]
                    command = (stat.parent / "cmdline").read_bytes()
                except OSError:
                    continue
                if parent == str(os.getpid()) and b"generate" in command:
                    killed.append(int(stat.parent.name))
                    os.kill(killed[0], signal.SIGKILL)
                    break

    threading.Thread(target=watch, daemon=True).start()
    return killed


def outcome(run) -> dict:
    with create_session() as session:
        events = session.scalars(select(AssetEvent).where(AssetEvent.source_run_id == run.run_id))
        rows = session.scalars(select(XComModel).where(XComModel.run_id == run.run_id))
        return {
            "state": str(run.state),
            "tasks": {
                f"{ti.task_id}[{ti.map_index}]" if ti.map_index >= 0 else ti.task_id: [
                    str(ti.state),
                    ti.try_number,
                ]
                for ti in run.get_task_instances(session=session)
            },
            "assets": [[event.asset.uri, event.extra] for event in events],
            "xcoms": {f"{row.task_id}/{row.key}": row.value for row in rows},
        }


def dag_of(order: dict):
    """A DAG of privsyn, or the one in a user's file."""
    if "file" not in order:
        return method_dag(order.get("method", "invisible_ink"))
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{root / '.privsyn' / 'mlflow.db'}"
    bag = DagBag(shutil.copy(order["file"], root / "dags"))
    assert not bag.import_errors, bag.import_errors
    (dag,) = bag.dags.values()
    return dag


answers, dags = [], []
for order in runs:
    killed = kill_while_drawing() if order.get("kill") else []
    os.environ["PRIVSYN_OVERRIDES"] = json.dumps(order.get("set", []))
    dag = dag_of(order)
    conf = order.get("conf", {})
    if conf.get("release") == "the first":
        conf["release"] = answers[0]["xcoms"]["plan/return_value"]["release_id"]
    run = dag.test(run_conf=conf)
    dags.append(dag.dag_id)
    answers.append(outcome(run) | {"killed": len(killed)})
(root / "answer.json").write_text(json.dumps(answers))


def pages(dag_id: str, release_id: str) -> dict:
    """What the report page answers to a stranger and to a user."""
    from airflow.api_fastapi.app import init_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from fastapi.testclient import TestClient

    from privsyn.airflow.plugin import reports_app

    client = TestClient(reports_app())
    page = f"/{dag_id}/reports/{release_id}"
    token = init_auth_manager().generate_jwt(SimpleAuthManagerUser(username="admin", role="admin"))
    header = {"Authorization": f"Bearer {token}"}
    seen = client.get(page, headers=header)
    others = [
        client.get(f"/{other}/reports/{release_id}", headers=header).status_code
        for other in ("privsyn_ledger", "privsyn_private_evolution")
    ]
    unknown = client.get(page[:-16] + "0" * 16, headers=header)
    return {
        "stranger": client.get(page).status_code,
        "user": [seen.status_code, seen.text, seen.headers["content-security-policy"]],
        "unknown": unknown.status_code,
        "others": others,
    }


release_id = answers[0]["xcoms"]["plan/return_value"]["release_id"]
(root / "pages.json").write_text(json.dumps(pages(dags[0], release_id)))
