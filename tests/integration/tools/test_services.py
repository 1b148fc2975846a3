"""`make down` ends what `make up` started: orphans, and those that hide their environment."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from types import SimpleNamespace

import psutil
import pytest

from tests import preloaded
from tests.integration.vault.s3_server import free_port
from tools.local import services
from tools.local.environment import admin_password
from tools.local.running import TOKEN, Running
from tools.local.services import Part, ServiceError, down, keep_up, up

pytestmark = pytest.mark.airflow

SERVER = """
import os, socket, subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(120)"]
here = subprocess.Popen(sleep, env={})  # stays in the session, without the token
away = subprocess.Popen(sleep, start_new_session=True)  # leaves the session, with the token
port = socket.socket(); port.bind(("127.0.0.1", int(sys.argv[1]))); port.listen()
open(sys.argv[2], "w").write(f"{here.pid} {away.pid}\\n")
time.sleep(120)
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / ".airflow").mkdir()
    yield tmp_path
    down(tmp_path)


def start(root):
    """A server with two children, as ``up`` starts one; returns all pids and the port."""
    port, pids = free_port(), root / "pids"
    running = Running("token-of-this-test", {"Airflow": port})
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(port), str(pids)],
        env=os.environ | {TOKEN: running.token},
        start_new_session=True,
    ) as server:
        running.sessions[str(server.pid)] = psutil.Process(server.pid).create_time()
        running.save(root / ".airflow")
        while not (pids.exists() and pids.read_text().endswith("\n")):
            time.sleep(0.05)
        os.kill(server.pid, signal.SIGKILL)  # what it started is orphaned and may keep the port
    return [int(pid) for pid in pids.read_text().split()], port


def test_orphans_are_ended_whether_they_left_the_session_or_dropped_the_token(root):
    children, _ = start(root)
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    try:
        assert {process.pid for process in Running.load(root / ".airflow").processes()} == {
            *children
        }
        assert down(root) == 2
        assert not any(psutil.pid_exists(pid) and _alive(pid) for pid in children)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_stranger_with_a_recycled_number_is_left_alone(root):
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(120)"], start_new_session=True
    ) as stranger:
        try:
            Running("t", {}, {str(stranger.pid): 1.0}).save(root / ".airflow")
            assert down(root) == 0
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_taken_port_is_named_and_nothing_starts(root, tmp_path):
    from pathlib import Path

    (tmp_path / "params.yaml").write_text(
        (Path(__file__).parents[3] / "params.yaml").read_text(encoding="utf-8")
    )
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServiceError, match=f"port {port} .* is taken.*AIRFLOW_PORT={port + 1}"):
            up(root, airflow_port=port)
    assert not (root / ".airflow" / "services.json").exists()


def test_secrets_are_readable_by_their_owner_alone_and_survive(root):
    from tools.local.environment import admin_password, airflow_environment

    home = root / "home"
    first = airflow_environment(root, home)
    assert airflow_environment(root, home) == first
    assert len(first["AIRFLOW__API_AUTH__JWT_SECRET"]) >= 64
    assert admin_password(home) == admin_password(home)
    assert {file.stat().st_mode & 0o777 for file in home.iterdir()} == {0o600}
    assert home.stat().st_mode & 0o777 == 0o700


def test_the_lineage_server_lets_nobody_in_without_the_password(root):
    """The real one, under the tracker of a task."""
    from tools.local.environment import mlflow_environment

    home, port = root / ".airflow", free_port()
    address = f"http://127.0.0.1:{port}"
    config = SimpleNamespace(services=SimpleNamespace(mlflow=None))
    environment = mlflow_environment(home, address)
    running = Running("token-of-up", {"MLflow": port})
    server = Part(
        "mlflow",
        services._mlflow(root, home, config, port),
        lambda: services._get(f"{address}/health") is not None,
        port,
    )
    keep_up(home, running, [server], environment | {TOKEN: running.token})
    search = f"{address}/api/2.0/mlflow/experiments/search"
    assert services._get(search, post={"max_results": 5}) is None
    script = (
        "import sys; from privsyn.tracking import MlflowTracker as T; "
        "t = T(sys.argv[1], 'e'); "
        "print(t.release_run('ink-1'))"
    )
    for extra, works in ((environment, True), ({}, False)):
        done = subprocess.run(
            [preloaded.python(), "-c", script, address],
            env=os.environ | extra,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) is works, done.stderr
    assert admin_password(home) not in (home / "mlflow.log").read_text()
    assert (home / "mlflow_auth.ini").stat().st_mode & 0o777 == 0o600


def _alive(pid):
    return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
