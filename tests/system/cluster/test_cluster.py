"""A release on two Celery workers that share no folder, one of which dies in the middle.

Real Airflow, PostgreSQL, Redis and an S3 server: what `make cluster-up` starts.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import sqlalchemy as sa

from privsyn import layout
from privsyn.data.artifacts import sha256_file
from privsyn.ledger.ledger import Ledger
from tests.integration.e2e.small_project import CANARY, METHODS, Project, build_project, rows
from tests.integration.vault.s3_server import free_port
from tools.local.cluster import Cluster
from tools.local.environment import ADMIN, admin_password
from tools.local.running import Running

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

POSTGRES = "PRIVSYN_TEST_POSTGRES_URL"
DAG = "privsyn_invisible_ink"
PATIENCE = 1800.0
"""Seconds after which a run hangs."""
AWAY = 10.0
"""Seconds for which the broker is away, and for which it is back before the next fault."""


class Broker:
    """A Redis server that keeps nothing on disk: once lost, it comes back empty.

    Attributes:
        url: Of its database.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        import redis

        command = ["redis-server", "--port", str(self._port), "--bind", "127.0.0.1"]
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--save", "", "--appendonly", "no"], cwd=self._folder, stdout=log
            )
        for _ in range(600):
            with suppress(redis.ConnectionError), redis.Redis.from_url(self.url) as asked:
                if asked.ping():
                    return
            assert self._process.poll() is None, "Redis did not start"
            time.sleep(0.1)
        raise AssertionError("Redis does not answer")

    def lose(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@dataclass
class Machines:
    """A running cluster, and Airflow's interface to it."""

    cluster: Cluster
    project: Project
    ports: dict[str, int]
    broker: Broker

    @property
    def running(self) -> Running:
        found = Running.load(self.cluster.home("control"))
        assert found is not None
        return found

    def call(self, path: str, body: Any = None, *, method: str | None = None) -> Any:
        return json.loads(self.read(path, body, method=method))

    def read(self, path: str, body: Any = None, *, method: str | None = None) -> bytes:
        base = f"http://127.0.0.1:{self.ports['Airflow']}"
        headers = {"Content-Type": "application/json"}
        if path != "/auth/token":
            login = {"username": ADMIN, "password": admin_password(self.cluster.home("control"))}
            token = self.call("/auth/token", login)["access_token"]
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(  # noqa: S310
            base + path,
            data=None if body is None else json.dumps(body).encode(),
            headers=headers,
            method=method,
        )
        while True:
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                    return bytes(answer.read())
            except TimeoutError:
                continue  # a busy machine answers late

    def start(self) -> str:
        self.call(f"/api/v2/dags/{DAG}", {"is_paused": False}, method="PATCH")
        started = self.call(f"/api/v2/dags/{DAG}/dagRuns", {"logical_date": None})
        return str(started["dag_run_id"])

    def state(self, run: str) -> str:
        return str(self.call(f"/api/v2/dags/{DAG}/dagRuns/{run}")["state"])

    def tasks(self, run: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for task in self.call(f"/api/v2/dags/{DAG}/dagRuns/{run}/taskInstances")["task_instances"]:
            found.setdefault(task["task_id"], []).append(task["state"])
        return found

    def drawing(self, machine: str) -> list[psutil.Process]:
        """Processes of a machine that draw a shard."""
        root, found = str(self.cluster.checkout(machine)), []
        for process in psutil.process_iter(["cmdline"]):
            line = process.info["cmdline"] or []
            if "generate" in line and any(part.startswith(root) for part in line):
                found.append(process)
        return found

    def entries(self) -> int:
        engine = sa.create_engine(self.cluster.database("ledger"), poolclass=sa.NullPool)
        with engine.connect() as connection:
            return int(connection.execute(sa.text("select count(*) from ledger_draw")).scalar_one())

    def kill(self, part: str) -> None:
        """SIGKILL to all of a machine at once, as where its power fails."""
        processes = self.running.left_by(part)
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        # One that is still dying counts as alive, and would not be started again.
        psutil.wait_procs(processes, timeout=30)

    def until(self, what: Callable[[], Any], *, run: str | None = None) -> None:
        deadline = time.monotonic() + PATIENCE
        while not what():
            assert time.monotonic() < deadline, "it hangs"
            assert run is None or self.state(run) != "failed", self.tasks(run)
            time.sleep(1)


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """Two workers; records that hold a canary are on the first alone."""
    postgres = os.environ.get(POSTGRES)
    if not postgres:
        pytest.skip(f"{POSTGRES} is not set")
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server on the path")
    root = tmp_path_factory.mktemp("cluster")
    project = build_project(
        root / "project",
        methods={"invisible_ink": METHODS["invisible_ink"] | {"max_tokens": 32}},
    )
    project.write([row | {"text": f"{row['text']} {CANARY}"} for row in rows(120, 60)])
    server = sa.make_url(postgres).set(database=None).render_as_string(hide_password=False)
    name = f"test_{secrets.token_hex(4)}"
    broker = Broker(root)
    cluster = Cluster(project.root, root / "machines", server, broker.url, name)
    ports = {what: free_port() for what in ("Airflow", "MLflow", "S3")}
    broker.start()
    try:
        cluster.start(ports)
        yield Machines(cluster, project, ports, broker)
    finally:
        cluster.stop()
        broker.lose()
        engine = sa.create_engine(
            sa.make_url(server).set(database="postgres"),
            isolation_level="AUTOCOMMIT",
            poolclass=sa.NullPool,
        )
        with engine.connect() as connection:
            for of in ("airflow", "ledger"):
                connection.exec_driver_sql(f'drop database if exists "{name}_{of}" with (force)')


@pytest.fixture(scope="module")
def released(machines):
    """A release: worker 2 dies in mid-shard, then the broker, later the scheduler.

    The broker comes back empty while worker 1 and the scheduler wait for it.
    """
    run = machines.start()
    machines.until(lambda: machines.drawing("worker-2") and machines.entries() > 8, run=run)
    machines.kill("worker-2")
    machines.broker.lose()
    time.sleep(AWAY)
    machines.broker.start()
    time.sleep(AWAY)
    machines.kill("scheduler")
    machines.cluster.start(machines.ports)  # what is gone: the scheduler, and the worker
    machines.until(lambda: machines.state(run) == "success", run=run)
    (entry,) = Ledger(machines.cluster.database("ledger")).releases.all()
    assert entry.state == "COMMITTED"
    return entry.release_id


def test_an_auditor_with_the_store_alone_verifies(machines, released, tmp_path, monkeypatch):
    for key, value in store_environment(machines).items():
        monkeypatch.setenv(key, value)
    where = f"{machines.cluster.stores(machines.running)}/releases"
    done = Project(tmp_path).cli("verify", released, "--releases", where)
    assert "artifact is unchanged" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["releases"]
    reported = tmp_path / "releases" / released / layout.REPORT_PAGE
    assert reported.is_file()


def test_the_api_server_shows_the_report_to_readers_of_its_dag_alone(machines, released):
    """What ran on other machines, and what they noted of it, it has from the store."""
    control = machines.cluster.checkout("control")
    assert not (control / ".privsyn" / "internal").exists()
    page = machines.read(f"/privsyn/{DAG}/reports/{released}")
    assert released.encode() in page
    with pytest.raises(urllib.error.HTTPError, match="404"):
        machines.read(f"/privsyn/privsyn_dp_lora/reports/{released}")


def test_the_store_holds_what_the_release_s_folder_holds(machines, released):
    folder = machines.cluster.checkout("worker-1") / "releases" / released
    files = {sha256_file(path) for path in folder.rglob("*") if path.is_file()}
    of = f"releases/releases/{released}"
    wanted = [f"{of}/manifest.json", *(f"{of}/files/{sha}" for sha in files)]
    assert sorted(listed(machines, of)) == sorted(wanted)
    assert listed(machines, "releases/quarantine") == []


def test_name_cost_and_rows_are_those_of_one_machine(machines, released, tmp_path):
    """The same config on one machine, planned in the account's own ledger."""
    alone = machines.project.copy(tmp_path / "alone")
    ledger = machines.cluster.database("ledger")
    said = alone.cli("plan", "--json", "-S", f"services.ledger={ledger}")
    planned = json.loads(said.stdout)
    sealed = json.loads(
        machines.cluster.checkout("worker-1")
        .joinpath("releases", released, layout.CERTIFICATE)
        .read_bytes()
    )
    assert planned["release_id"] == released == sealed["plan"]["release_id"]
    assert planned["epsilon"] == sealed["plan"]["epsilon"]
    drawn = sealed["artifact"]["rows"]
    assert drawn == METHODS["invisible_ink"]["texts_per_label"] * 2  # type: ignore[operator]


def test_the_machines_shared_no_folder(machines, released):
    """The second never had the records; what it drew went through the vault."""
    second = machines.cluster.checkout("worker-2")
    assert not (second / "private.jsonl").exists()
    scratch = second / ".privsyn" / "scratch"
    assert not [path for path in scratch.rglob("*") if path.is_file() and path.stat().st_size]


def test_nothing_private_is_left_and_none_was_in_clear(machines, released):
    """Neither in the object store, nor in the databases, nor in the broker, nor in a log."""
    import redis

    needle = CANARY.encode()
    objects = listed(machines, "")
    assert objects
    assert not [name for name in objects if name.startswith("vault/")]
    assert all(needle not in fetched(machines, name) for name in objects)

    for of in ("airflow", "ledger"):
        engine = sa.create_engine(machines.cluster.database(of), poolclass=sa.NullPool)
        with engine.connect() as connection:
            for table in sa.inspect(connection).get_table_names():
                whole = sa.text(f'select t::text from "{table}" t')  # noqa: S608
                for (row,) in connection.execute(whole):
                    assert CANARY not in row, table
                    assert needle.hex() not in row, table  # as bytea is shown
            if of == "ledger":
                left = "select (select count(*) from ledger_draw) + count(*) from ledger_vault"
                assert connection.execute(sa.text(left)).scalar_one() == 0

    broker = redis.Redis.from_url(machines.cluster.redis)
    read = {
        b"string": broker.get,
        b"list": lambda key: broker.lrange(key, 0, -1),
        b"set": broker.smembers,
        b"zset": lambda key: broker.zrange(key, 0, -1),
        b"hash": broker.hgetall,
    }
    for key in broker.keys("*"):
        held = str(read[broker.type(key)](key))
        assert CANARY not in held
        for packed in re.findall(r"[A-Za-z0-9+/]{40,}={0,2}", held):  # Celery's messages
            with suppress(binascii.Error):
                assert needle not in base64.b64decode(packed)

    home = machines.cluster.home("control")
    logs = [*machines.cluster.place.glob("logs/**/*.log"), *home.glob("*.log")]
    assert len(logs) > 10
    assert all(needle not in log.read_bytes() for log in logs)


def store_environment(machines: Machines) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "cluster",
        "AWS_SECRET_ACCESS_KEY": "cluster",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{machines.ports['S3']}",
    }


def bucket(machines: Machines) -> Any:
    from obstore.store import S3Store

    return S3Store(
        "privsyn",
        endpoint=f"http://127.0.0.1:{machines.ports['S3']}",
        access_key_id="cluster",
        secret_access_key="cluster",
        region="us-east-1",
        client_options={"allow_http": True},
    )


def listed(machines: Machines, prefix: str) -> list[str]:
    import obstore

    return [str(item["path"]) for chunk in obstore.list(bucket(machines), prefix) for item in chunk]


def fetched(machines: Machines, name: str) -> bytes:
    import obstore

    return bytes(obstore.get(bucket(machines), name).bytes())
