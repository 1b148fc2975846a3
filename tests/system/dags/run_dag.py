"""Run the project's DAG several times in this process and write down what came of each run.

An order: ``conf`` (the trigger form), ``set``, ``method`` or ``file``; ``kill`` (while drawing),
``away`` (what is gone when it is measured) and ``back``, ``clean`` (all of Airflow's old events).
With the word `pages` also what the server answers about the first release.
"""

import json
import logging
import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

from tools.local.environment import airflow_environment, prepare

root = Path(sys.argv[1])
runs = json.loads(sys.argv[2])
home = root / "airflow"
environment = airflow_environment(root, home)
os.environ |= environment
prepare(home, environment, root / "prepare.log")

from airflow.cli.cli_parser import get_parser  # noqa: E402
from airflow.dag_processing.dagbag import DagBag  # noqa: E402
from airflow.models.asset import AssetEvent  # noqa: E402
from airflow.models.xcom import XComModel  # noqa: E402
from airflow.sdk import BaseNotifier  # noqa: E402
from airflow.utils.session import create_session  # noqa: E402
from sqlalchemy import func, select  # noqa: E402

from privsyn.airflow import failures  # noqa: E402
from privsyn.airflow.factory import method_dag  # noqa: E402
from privsyn.airflow.generate import ChildOperator  # noqa: E402

failures.FIRST_PAUSE, failures.FEW = timedelta(0), 9
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
            "run_id": run.run_id,
            "state": str(run.state),
            "tasks": {
                f"{ti.task_id}[{ti.map_index}]" if ti.map_index >= 0 else ti.task_id: [
                    str(ti.state),
                    ti.try_number,
                ]
                for ti in run.get_task_instances(session=session)
            },
            "measured": {
                file.parent.name: file.stat().st_mtime_ns
                for file in (root / ".privsyn" / "internal").glob("*/evaluation.json")
            },
            "assets": [[event.asset.uri, event.extra] for event in events],
            "events": session.scalar(select(func.count(AssetEvent.id))),
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


NOTIFY = "alerts=[{class: __main__.Keeper}]"
alerts: list[dict] = []


class Keeper(BaseNotifier):
    """Keeps what it is sent; named `__main__.Keeper` in the settings."""

    def notify(self, context):
        alerts.append(asdict(context["alert"]))


answers, dags = [], []
killed: list[int] | None = None
run_child, forking = ChildOperator.run_child, sys.executable


def run_one(self, environment, *command):
    """What is to be killed is the process itself, none that asks for a fork (preloaded.py)."""
    real = killed is not None and "generate" in command
    sys.executable = f"{sys.prefix}/bin/python" if real else forking
    run_child(self, environment, *command)


ChildOperator.run_child = run_one
for order in runs:
    killed = kill_while_drawing() if order.get("kill") else None
    if back := order.get("back"):
        (root / back).with_name("gone").rename(root / back)
    if order.get("clean"):
        words = ["--clean-before-timestamp", "2999-01-01", "--tables", "asset_event", "--yes"]
        clean = get_parser().parse_args(["db", "clean", *words])
        clean.func(clean)
    os.environ["PRIVSYN_OVERRIDES"] = json.dumps([NOTIFY, *order.get("set", [])])
    dag = dag_of(order)
    if away := order.get("away"):
        path = root / away
        dag.get_task("evaluate")._pre_execute_hook = lambda _, path=path: path.rename(
            path.with_name("gone")
        )
    conf = order.get("conf", {})
    if conf.get("release") == "the first":
        conf["release"] = answers[0]["xcoms"]["plan/return_value"]["release_id"]
    run = dag.test(run_conf=conf)
    dags.append(dag.dag_id)
    answers.append(outcome(run) | {"killed": len(killed or ()), "alerts": alerts[:]})
    alerts.clear()
(root / "answer.json").write_text(json.dumps(answers))


ROLES = ("VIEWER", "USER", "OP", "ADMIN")


def pages(dag_id: str, release_id: str) -> dict:
    """What Airflow's own server answers to a stranger and to its roles."""
    from airflow.api_fastapi.app import create_app, get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from fastapi.testclient import TestClient

    client = TestClient(create_app("core"))

    def header(role: str) -> dict:
        user = SimpleAuthManagerUser(username=role.lower(), role=role)
        return {"Authorization": f"Bearer {get_auth_manager().generate_jwt(user)}"}

    page, budget = f"/privsyn/{dag_id}/reports/{release_id}", "/privsyn/budget"
    api = f"/api/v2/dags/{dag_id}"
    admin = header("ADMIN")
    seen, account = client.get(page, headers=admin), client.get(budget, headers=admin)
    others = [
        client.get(f"/privsyn/{other}/reports/{release_id}", headers=admin).status_code
        for other in ("privsyn_ledger", "privsyn_private_evolution")
    ]
    unknown = client.get(page[:-16] + "0" * 16, headers=admin)
    tried = {
        "see the budget page": ("GET", budget, None),
        "see a report": ("GET", page, None),
        "see runs": ("GET", f"{api}/dagRuns", None),
        "spend: trigger a run": ("POST", f"{api}/dagRuns", {"logical_date": None}),
        "spend: clear tasks": ("POST", f"{api}/clearTaskInstances", {"dry_run": True}),
        "spend: unpause a schedule": ("PATCH", api, {"is_paused": False}),
        "see variables": ("GET", "/api/v2/variables", None),
        "see connections": ("GET", "/api/v2/connections", None),
        "change pools": ("PATCH", "/api/v2/pools/default_pool?update_mask=slots", {"slots": 128}),
    }
    allowed = {
        what: {
            role: client.request(method, url, json=body, headers=header(role)).status_code
            for role in ROLES
        }
        for what, (method, url, body) in tried.items()
    }
    views = client.get("/api/v2/plugins", headers=admin).json()["plugins"]
    return {
        "stranger": [client.get(page).status_code, client.get(budget).status_code],
        "stale": client.get(budget, headers={"Authorization": "Bearer x"}).status_code,
        "written": client.post(budget, headers=admin).status_code,
        "user": [seen.status_code, seen.text, seen.headers["content-security-policy"]],
        "budget": [account.status_code, account.text, account.headers["content-security-policy"]],
        "unknown": unknown.status_code,
        "others": others,
        "allowed": allowed,
        "menu": [view for plugin in views for view in plugin["external_views"]],
    }


if "pages" in sys.argv[3:]:
    release_id = answers[0]["xcoms"]["plan/return_value"]["release_id"]
    (root / "pages.json").write_text(json.dumps(pages(dags[0], release_id)))
