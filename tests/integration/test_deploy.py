"""deploy/ without containers: its commands, the wheel of its image and its databases."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError, ProgrammingError

from tests.integration.ledger.postgres_server import postgres_server
from tests.integration.test_wheel import run
from tests.unit.test_deploy import DEPLOY, ROOT, airflow, context

ENTRYPOINT = str(DEPLOY / "entrypoint.sh")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
VALUES: dict[str, Any] = yaml.safe_load((DEPLOY / "kubernetes" / "values.yaml").read_text())
TOLD = "import json, os, sys; print(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]))"


@pytest.fixture
def programs(tmp_path):
    """A folder with programs that say how they were called, and do nothing."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("airflow", "python", "cp"):
        (folder / name).write_text(f"#!{sys.executable}\n{TOLD}\n")
        (folder / name).chmod(0o755)
    return folder


def enter(programs, *command, **environment):
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        [ENTRYPOINT, *command],
        env=os.environ | {"PATH": path} | environment,
        cwd=programs.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def called(programs, *command):
    done = enter(programs, *command)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", [name for name in airflow(COMPOSE) if name != "setup"])
def test_a_service_starts_what_its_command_says(programs, name):
    service = COMPOSE["services"][name]
    assert "entrypoint" not in service
    assert called(programs, *service["command"]) == [["airflow", *service["command"]]]


def test_mlflow_starts_once_its_databases_are_whole(programs):
    made, started = called(programs, *COMPOSE["services"]["mlflow"]["command"])
    assert made == ["python", "-m", "privsyn.tracking", "/mlflow/mlflow.db", "/mlflow/auth.db"]
    assert started[:4] == ["python", "-m", "mlflow", "server"]
    assert started[started.index("--backend-store-uri") + 1] == "sqlite:////mlflow/mlflow.db"
    assert "sqlite:////mlflow/auth.db" in COMPOSE["configs"]["mlflow_auth"]["content"]


def test_the_workers_of_the_chart_start(programs):
    assert VALUES["workers"]["command"] is None  # else the image's own is left out
    copied, started = called(programs, *VALUES["workers"]["args"])
    assert copied == ["cp", VALUES["env"][0]["value"], "/opt/project/"]
    assert started == ["airflow", "celery", "worker", "--queues", "default"]


LOADS = """
import sys, yaml
from airflow.api_fastapi.app import create_auth_manager
from airflow.cli.cli_parser import get_parser
from airflow.executors.executor_loader import ExecutorLoader
from airflow.observability.metrics.statsd_logger import get_statsd_logger
create_auth_manager()
ExecutorLoader.import_default_executor_cls()
assert len(ExecutorLoader.get_executor_names()) == 2
get_statsd_logger().incr("x")
for command in yaml.safe_load(open(sys.argv[1]))["probes"]:
    get_parser().parse_args(command)
"""


@pytest.mark.slow
def test_the_image_has_what_the_chart_names(tmp_path):
    """Its login, its metrics and both executors are there, and each of its jobs does its work."""
    file = Path(__file__).with_name("airflow_chart.yaml")
    chart = yaml.safe_load(file.read_text())
    settings = chart["config"] | {
        "core": chart["config"]["core"]
        | {"executor": VALUES["executor"], "load_examples": "False"},
        "database": {"sql_alchemy_conn": f"sqlite:///{tmp_path}/airflow.db"},
        "api": {"secret_key": "k" * 32},
        "api_auth": {"jwt_secret": "j" * 64},
    }
    environment = {
        f"AIRFLOW__{section.upper()}__{key.upper()}": str(value)
        for section, found in settings.items()
        for key, value in found.items()
    } | {"AIRFLOW_HOME": str(tmp_path)}
    job = VALUES["createUserJob"]
    (password,) = job["env"]
    assert "secretKeyRef" in password["valueFrom"]
    for command in (*chart["jobs"], job["args"], ["python", "-c", LOADS, str(file)]):
        done = enter(tmp_path / "bin", *command, **environment, **{password["name"]: "a secret"})
        assert done.returncode == 0, (command, done.stderr[-2000:])
    with sqlite3.connect(tmp_path / "airflow.db") as database:
        assert database.execute(
            "select username, password <> 'a secret' from ab_user"
        ).fetchall() == [("admin", 1)]


def test_setup_keeps_the_ledgers_history_from_the_tasks_role(programs):
    if shutil.which("psql") is None:
        pytest.skip("needs psql")
    (programs / "python").unlink()
    shutil.copy(ROOT / "params.yaml", programs.parent)
    with postgres_server() as server:
        address = server.url.replace("+psycopg", "")
        secrets = {
            name: "x" for name in ("AIRFLOW_PASSWORD", "LEDGER_OWNER_PASSWORD", "LEDGER_PASSWORD")
        }
        script = str(DEPLOY / "databases.sql")
        subprocess.run(
            ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", script, address],
            env=os.environ | secrets,
            check=True,
        )

        def url(role, database):
            return address.replace("postgres@", f"{role}@").removesuffix("postgres") + database

        command = [part.replace("$$", "$") for part in COMPOSE["services"]["setup"]["command"]]
        done = enter(programs, *command, LEDGER_OWNER=url("ledger_owner", "ledger"))
        assert done.returncode == 0, done.stderr
        engine = create_engine(url("privsyn_app", "ledger").replace("://", "+psycopg://"))
        with engine.connect() as connection:
            assert connection.scalar(text("select count(*) from ledger_history")) == 0
            with pytest.raises(ProgrammingError, match="permission denied"):
                connection.execute(text("delete from ledger_history"))
        engine.dispose()
        other = create_engine(url("privsyn_app", "airflow").replace("://", "+psycopg://"))
        with pytest.raises(OperationalError, match="permission denied"):
            other.connect()


def test_the_image_gets_the_whole_wheel(tmp_path):
    source = tmp_path / "src"
    for name in context(ROOT):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    build = "from setuptools import build_meta; build_meta.build_wheel('..')"
    done = run(source, "-W", "ignore", "-c", build)
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = tmp_path.glob("*.whl")
    found = set(zipfile.ZipFile(wheel).namelist())
    modules = {file.relative_to(ROOT).as_posix() for file in (ROOT / "privsyn").rglob("*.py")}
    dags = {f"privsyn/template/dags/{file.name}" for file in (ROOT / "dags").glob("*.py")}
    assert found >= modules | dags | {"privsyn/template/params.yaml", "privsyn/template/.gitignore"}


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        # what the Kubernetes executor starts a task's pod by
        (
            ["python", "-m", "airflow.sdk.execution_time.execute_workload", "--json-path", "a b"],
            ["python", "-m", "airflow.sdk.execution_time.execute_workload", "--json-path", "a b"],
        ),
        (["airflow", "version"], ["airflow", "version"]),
        (["version"], ["airflow", "version"]),
        ([], ["airflow"]),
    ],
)
def test_a_command_is_airflows_but_bash_and_python(programs, command, wanted):
    assert called(programs, *command) == [wanted]
