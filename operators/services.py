"""python -m operators.services up | down: this project's Airflow and MLflow servers.

``airflow standalone`` leaves its children behind when it is ended, and they keep the port. So each
server is started in a session of its own, which its orphans stay in, and with a token in the
environment, which those inherit that open a session themselves; ``down`` ends all of either.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from operators.environment import HOST, admin_password, airflow_environment, prepare
from operators.project import write_sample_if_asked
from operators.running import TOKEN, Running
from privsyn.config import OVERRIDES, Config, environment_overrides, load_config
from privsyn.errors import PrivsynError
from privsyn.workspace import Workspace

START_SECONDS = 180.0
GRACE_SECONDS = 15.0


class ServiceError(Exception):
    """The servers cannot be started or ended; the message says why and what to do."""


def up(root: Path, *, airflow_port: int = 8080, mlflow_port: int = 5000) -> dict[str, str]:
    """Start both servers and wait until they answer. Running already: only says where.

    Returns:
        Addresses and login, by name.

    Raises:
        ServiceError: A port is taken, or a server did not come up; nothing is left running.
        ConfigError: params.yaml does not load.
    """
    config = load_config(root / "params.yaml", environment_overrides())
    home = root / ".airflow"
    running = Running.load(home)
    if running is not None:
        if running.processes() and all(not _free(port) for port in running.ports.values()):
            return _addresses(home, running, config)
        down(root)  # half of it is gone
    ports = {"Airflow": airflow_port}
    if not (config.services.mlflow or "").startswith("http"):
        ports["MLflow"] = mlflow_port
    for name, port in ports.items():
        if not _free(port):
            raise ServiceError(
                f"port {port} on {HOST} is taken, {name} cannot have it. End the program that has "
                f"it, or choose another: make up {name.upper()}_PORT={port + 1}"
            )
    write_sample_if_asked(config, root)
    running = Running(secrets.token_hex(16), ports)
    environment = airflow_environment(root, home, airflow_port) | {TOKEN: running.token}
    if "MLflow" in ports:
        ui = f"services.mlflow_ui=http://{HOST}:{mlflow_port}"
        environment[OVERRIDES] = json.dumps([*environment_overrides(), ui])
    running.save(home)
    try:
        prepare(home, environment, config, home / "airflow.log")
        commands = [[sys.executable, "-m", "airflow", "standalone"]]
        if "MLflow" in ports:
            commands.append(_mlflow(root, config, mlflow_port))
        started = []
        for command in commands:
            started.append(_start(command, environment, home))
            leader = started[-1].pid
            running.sessions[str(leader)] = psutil.Process(leader).create_time()
            running.save(home)
        password = admin_password(home)
        checks = {"Airflow": lambda: _airflow_answers(airflow_port, password)}
        checks["MLflow"] = lambda: _get(f"http://{HOST}:{mlflow_port}/health") is not None
        _wait({name: checks[name] for name in ports}, started, home)
    except BaseException:
        down(root)
        raise
    return _addresses(home, running, config)


def down(root: Path) -> int:
    """End every process ``up`` started, orphans included. Harmless when there is none.

    Returns:
        How many processes were ended.

    Raises:
        ServiceError: A process or a port outlives it.
    """
    home = root / ".airflow"
    running = Running.load(home)
    if running is None:
        return 0
    ended = running.processes()
    for stop in (psutil.Process.terminate, psutil.Process.kill):
        # Again, for what they may have started meanwhile.
        for process in running.processes():
            try:
                stop(process)
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(ended, timeout=GRACE_SECONDS)
        deadline = time.monotonic() + GRACE_SECONDS
        while running.processes() and time.monotonic() < deadline:
            time.sleep(0.2)
    left = running.processes()
    if left:
        raise ServiceError(f"processes {[process.pid for process in left]} do not end.")
    taken = [port for port in running.ports.values() if not _free(port)]
    if taken:
        raise ServiceError(f"ports {taken} are still taken, by programs that `up` did not start.")
    running.forget(home)
    return len(ended)


def _mlflow(root: Path, config: Config, port: int) -> list[str]:
    workspace = Workspace(root)
    workspace.state.mkdir(mode=0o700, exist_ok=True)
    return [
        *(sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port)),
        *("--workers", "1"),
        *("--backend-store-uri", config.services.mlflow or workspace.mlflow_uri),
        *("--default-artifact-root", str(workspace.mlflow_artifacts)),
    ]


def _start(command: list[str], environment: dict[str, str], home: Path) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own, its words in a log of its own."""
    with (home / f"{command[2]}.log").open("ab") as stream:
        return subprocess.Popen(
            command,
            env=os.environ | environment | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait(
    checks: dict[str, Callable[[], bool]], started: list[subprocess.Popen[bytes]], home: Path
) -> None:
    deadline = time.monotonic() + START_SECONDS
    waiting = dict(checks)
    while waiting:
        waiting = {name: check for name, check in waiting.items() if not check()}
        ended = [process for process in started if process.poll() is not None]
        if waiting and (ended or time.monotonic() > deadline):
            raise ServiceError(f"{', '.join(waiting)} did not come up; see {home}/*.log")
        time.sleep(0.5)


def _airflow_answers(port: int, password: str) -> bool:
    """Whether scheduler and DAG processor live and the DAGs are there (or their errors)."""
    base = f"http://{HOST}:{port}"
    health = _get(f"{base}/api/v2/monitor/health")
    if not health or any(
        health[part]["status"] != "healthy" for part in ("scheduler", "dag_processor")
    ):
        return False
    login = _get(f"{base}/auth/token", post={"username": "admin", "password": password})
    if not login:
        return False
    dags = _get(f"{base}/api/v2/dags", token=login["access_token"])
    errors = _get(f"{base}/api/v2/importErrors", token=login["access_token"])
    return bool(dags and errors and (dags["total_entries"] or errors["total_entries"]))


def _get(url: str, *, post: dict[str, str] | None = None, token: str = "") -> Any:
    """JSON of an answer (True where it is none), or None while there is no good one."""
    request = urllib.request.Request(  # noqa: S310
        url,
        data=json.dumps(post).encode() if post else None,
        headers={"Content-Type": "application/json"}
        | ({"Authorization": f"Bearer {token}"} if token else {}),
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
            body = answer.read()
    except (OSError, urllib.error.URLError):
        return None
    try:
        return json.loads(body)
    except ValueError:
        return True


def _addresses(home: Path, running: Running, config: Config) -> dict[str, str]:
    mlflow = running.ports.get("MLflow")
    return {
        "Airflow": f"http://{HOST}:{running.ports['Airflow']}",
        "login": f"admin / {admin_password(home)}",
        "MLflow": f"http://{HOST}:{mlflow}" if mlflow else str(config.services.mlflow),
    }


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def main(argv: list[str] | None = None) -> int:
    """Command line of ``make up`` and ``make down``."""
    parser = argparse.ArgumentParser(prog="python -m operators.services", description=__doc__)
    parser.add_argument("action", choices=("up", "down"))
    parser.add_argument("--project", type=Path, default=Path(), help="folder of params.yaml")
    parser.add_argument(
        "--airflow-port", type=int, default=int(os.environ.get("AIRFLOW_PORT") or 8080)
    )
    parser.add_argument(
        "--mlflow-port", type=int, default=int(os.environ.get("MLFLOW_PORT") or 5000)
    )
    arguments = parser.parse_args(argv)
    root = arguments.project.resolve()
    try:
        if arguments.action == "down":
            ended = down(root)
            print(f"ended {ended} processes" if ended else "nothing was running")
            return 0
        print("starting Airflow and MLflow; this takes up to a minute", flush=True)
        answer = up(root, airflow_port=arguments.airflow_port, mlflow_port=arguments.mlflow_port)
        for name, value in answer.items():
            print(f"{name:8} {value}")
        print("end both with: make down")
    except (ServiceError, RuntimeError, OSError) as error:
        print(f"privsyn: {error}", file=sys.stderr)
        return 1
    except PrivsynError as error:
        print(f"privsyn: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
