"""python -m tools.local.services up | down: this project's Airflow and MLflow servers.

Airflow's components are started one by one, as ``airflow standalone`` does, but without the
servers of logs, which would listen on every address: the pages read logs from this disk. Each
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
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from privsyn.airflow.project import PARAMS
from privsyn.config import Config, environment_overrides, load_config
from privsyn.errors import PrivsynError
from privsyn.release.workspace import Workspace
from tools.local.environment import (
    ADMIN,
    HOST,
    admin_password,
    airflow_environment,
    mlflow_environment,
    prepare,
)
from tools.local.running import TOKEN, Running
from tools.local.sample import write_sample_if_asked

START_SECONDS = 180.0
GRACE_SECONDS = 15.0


class ServiceError(Exception):
    """The servers cannot be started or ended; the message says why and what to do."""


@dataclass(frozen=True)
class Part:
    """A server of ours.

    Attributes:
        name: Also of its log.
        command: What starts it.
        healthy: Whether it answers, or reports to one that does.
        port: Port it listens on; None for one that listens on none.
        environment: Of this server alone.
        folder: Where it starts; None: where its log is.
    """

    name: str
    command: list[str]
    healthy: Callable[[], bool]
    port: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None


def up(root: Path, *, airflow_port: int = 8080, mlflow_port: int = 5000) -> dict[str, str]:
    """Start what is missing of the servers and wait until all answer.

    Of what runs nothing is ended: a server's tasks run on while another is started.

    Returns:
        Addresses and login, by name, and what was started if not all of it was.

    Raises:
        ServiceError: A port is taken, or a server does not answer.
        ConfigError: params.yaml does not load.
    """
    config = load_config(root / "params.yaml", environment_overrides())
    home = root / ".airflow"
    running = Running.load(home)
    if running is None:
        ports = {"Airflow": airflow_port}
        if not (config.services.mlflow or "").startswith("http"):
            ports["MLflow"] = mlflow_port
        running = Running(secrets.token_hex(16), ports)
    environment = airflow_environment(root, home, running.ports["Airflow"])
    if (named := os.environ.get(PARAMS)) and Path(named).is_dir():
        environment[PARAMS] = str(Path(named).resolve())  # a folder of projects
    if "MLflow" in running.ports:
        environment |= mlflow_environment(home, f"http://{HOST}:{running.ports['MLflow']}")
    password = admin_password(home)
    parts = airflow_parts(running)
    if (mlflow := running.ports.get("MLflow")) is not None:
        parts.append(mlflow_part(root, home, config, mlflow))
    whole = not running.parts
    refuse_taken_ports(running, parts)
    write_sample_if_asked(config, root)
    running.save(home)
    try:
        prepare(home, environment, home / "airflow.log")
        started = keep_up(home, running, parts, environment | {TOKEN: running.token})
        deadline = time.monotonic() + START_SECONDS
        while not has_dags(running.ports["Airflow"], password):
            if time.monotonic() > deadline:
                raise ServiceError(f"Airflow shows no DAG; see {home}/dag-processor.log")
            time.sleep(0.5)
    except BaseException:
        if whole:
            down(root)
        raise
    answer = _addresses(home, running, config)
    if started and not whole:
        answer["started"] = f"{', '.join(started)}; the rest was running"
    return answer


def airflow_parts(running: Running) -> list[Part]:
    """Airflow's servers, without what runs its tasks where that is not the scheduler."""
    port = running.ports["Airflow"]
    airflow = [sys.executable, "-m", "airflow"]

    def reports(component: str) -> Callable[[], bool]:
        """Whether a component has reported since it was started: a dead one is healthy a while."""
        name = component.replace("_", "-")

        def reported() -> bool:
            said = _health(port).get(component, {})
            beat = said.get(f"latest_{component}_heartbeat")
            began = running.sessions[str(running.parts[name])]
            fresh = beat is not None and datetime.fromisoformat(beat).timestamp() > began
            return said.get("status") == "healthy" and fresh

        return reported

    return [
        Part("api-server", [*airflow, "api-server"], lambda: bool(_health(port)), port),
        Part("scheduler", [*airflow, "scheduler", "--skip-serve-logs"], reports("scheduler")),
        Part("dag-processor", [*airflow, "dag-processor"], reports("dag_processor")),
        Part("triggerer", [*airflow, "triggerer", "--skip-serve-logs"], reports("triggerer")),
    ]


def mlflow_part(root: Path, home: Path, config: Config, port: int) -> Part:
    """The MLflow server of a project."""
    address = f"http://{HOST}:{port}/health"
    return Part(
        "mlflow", _mlflow(root, home, config, port), lambda: _get(address) is not None, port
    )


def refuse_taken_ports(running: Running, parts: list[Part]) -> None:
    """Look at the ports of the servers that are to be started.

    Raises:
        ServiceError: Another program has one.
    """
    names = {port: name for name, port in running.ports.items()}
    for part in parts:
        if part.port is None or running.alive(part.name) or _free(part.port):
            continue
        if not running.left_by(part.name):
            name = names[part.port]
            raise ServiceError(
                f"port {part.port} on {HOST} is taken, {name} cannot have it. End the program that "
                f"has it, or choose another: make up {name.upper()}_PORT={part.port + 1}"
            )


def keep_up(
    home: Path, running: Running, parts: list[Part], environment: Mapping[str, str]
) -> list[str]:
    """Start the servers that are gone and wait until all answer; what lives is left alone.

    Returns:
        Names of those started.

    Raises:
        ServiceError: One ended again, or does not answer.
    """
    started = []
    for part in parts:
        if running.alive(part.name):
            continue
        if part.port is not None:  # what a dead server left may keep its port; it runs no task
            for process in running.left_by(part.name):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        running.add(part.name, _start(part, environment, home))
        started.append(part.name)
        running.save(home)
    deadline = time.monotonic() + START_SECONDS
    waiting = list(parts)
    while waiting := [part for part in waiting if not part.healthy()]:
        ended = [name for name in started if not running.alive(name)]
        if ended:
            raise ServiceError(f"{', '.join(ended)} did not come up; see {home}/{ended[0]}.log")
        if time.monotonic() > deadline:
            names = ", ".join(part.name for part in waiting)
            raise ServiceError(
                f"{names} runs and does not answer; see {home}/*.log. make down && make up starts "
                "all anew: running tasks end, and resume at no cost when their DAG is run again."
            )
        time.sleep(0.5)
    return started


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


def _mlflow(root: Path, home: Path, config: Config, port: int) -> list[str]:
    workspace = Workspace(root)
    workspace.state.mkdir(mode=0o700, exist_ok=True)
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port)),
        *("--workers", "1", "--app-name", "basic-auth"),
        *("--backend-store-uri", config.services.mlflow or workspace.mlflow_uri),
        *("--default-artifact-root", str(workspace.mlflow_artifacts)),
    ]
    if config.services.mlflow is not None:
        return command
    # Its databases first: MLflow makes them in steps, and cannot go on where it was killed.
    first = '"$3" -m privsyn.tracking "$1" "$2"; shift 2; exec "$@"'
    store, users = workspace.state / "mlflow.db", home / "mlflow_auth.db"
    return ["sh", "-ec", first, "sh", str(store), str(users), *command]


def _start(part: Part, environment: Mapping[str, str], home: Path) -> int:
    """Start a server in a session of its own, its words in a log of its own; returns its pid."""
    with (home / f"{part.name}.log").open("ab") as stream:
        process = subprocess.Popen(
            part.command,
            env={**os.environ, **environment, **part.environment},
            cwd=part.folder or home,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _outliving.append(process)
    return process.pid


_outliving: list[subprocess.Popen[bytes]] = []
"""What this process started and does not wait for."""


def _health(port: int) -> dict[str, Any]:
    """What Airflow says of its components; empty where it does not answer."""
    answer = _get(f"http://{HOST}:{port}/api/v2/monitor/health")
    return answer if isinstance(answer, dict) else {}


def has_dags(port: int, password: str) -> bool:
    """Whether the DAGs are there, or the errors of their files."""
    base = f"http://{HOST}:{port}"
    login = _get(f"{base}/auth/token", post={"username": ADMIN, "password": password})
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
        "MLflow": f"http://{HOST}:{mlflow}" if mlflow else str(config.services.mlflow),
        "login": f"{ADMIN} / {admin_password(home)}{' (both)' if mlflow else ''}",
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
    parser = argparse.ArgumentParser(prog="python -m tools.local.services", description=__doc__)
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
    return controlled(
        arguments.action,
        lambda: up(root, airflow_port=arguments.airflow_port, mlflow_port=arguments.mlflow_port),
        lambda: down(root),
        begins="starting what is missing of Airflow and MLflow: a minute or two",
        ends="end both with: make down",
    )


def controlled(
    action: str,
    up: Callable[[], Mapping[str, str]],
    down: Callable[[], int],
    *,
    begins: str,
    ends: str,
) -> int:
    """Start servers or end them, as a command line does; returns its exit code.

    Args:
        action: ``up`` or ``down``.
        up: Starts them and returns what to tell, by name.
        down: Ends them and returns how many processes there were.
        begins: What is said before the start.
        ends: What is said after it.
    """
    try:
        if action == "down":
            ended = down()
            print(f"ended {ended} processes" if ended else "nothing was running")
            return 0
        print(begins, flush=True)
        for name, value in up().items():
            print(f"{name:8} {value}")
        print("DAGs are paused until you unpause them: a schedule spends budget")
        print(ends)
    except (ServiceError, RuntimeError, OSError) as error:
        print(f"privsyn: {error}", file=sys.stderr)
        return 1
    except PrivsynError as error:
        print(f"privsyn: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
