"""python -m tools.local.cluster up | down: several machines, played by processes of this one.

Airflow with its Celery executor, two workers with home folders of their own and no project folder
in common, an S3 server, MLflow. PostgreSQL and Redis are the machine's (CLUSTER_POSTGRES,
CLUSTER_REDIS). What deploy/compose.yaml does with containers, without them:

    .cluster/control/     api-server, scheduler, DAG processor, triggerer, MLflow; params.yaml, dags
    .cluster/worker-1/    queues default, private, publish, gpu; the private file, DVC's repository
    .cluster/worker-2/    queues default, gpu; neither

The S3 server keeps its objects in memory: for trying, not for keeping. CLUSTER_S3=s3://bucket/prefix
names a real one, with its credentials in the environment.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import secrets
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from privsyn.airflow.project import PARAMS
from privsyn.config import Config, load_config
from privsyn.section import OVERRIDES
from privsyn.vault import VARIABLE
from tools.local.environment import (
    ADMIN,
    HOST,
    admin_password,
    airflow_environment,
    mlflow_environment,
    prepare,
    secret,
)
from tools.local.running import TOKEN, Running
from tools.local.sample import write_sample_if_asked
from tools.local.services import (
    START_SECONDS,
    Part,
    ServiceError,
    airflow_parts,
    controlled,
    down,
    has_dags,
    keep_up,
    mlflow_part,
    refuse_taken_ports,
)

BUCKET = "privsyn"
WORKERS: Mapping[str, str] = {
    "worker-1": "default,private,publish,gpu",
    "worker-2": "default,gpu",
}
"""Queues of each worker."""

ROUTES: Mapping[str, str] = {
    "reserve": "private", "partition": "private", "evaluate": "private",
    "evaluate_student": "private", "publish": "publish", "publish_student": "publish",
    "train": "gpu", "generate": "gpu", "distill": "gpu",
}  # fmt: skip
"""Queue of each task that cannot run anywhere: they open the private file, DVC's repository, or a
model."""

CHECKOUT = ("params.yaml", "dvc.yaml", "dags", ".dvc/config", ".dvcignore")
"""What a machine has of the project, as from git."""


@dataclass(frozen=True)
class Cluster:
    """Where a cluster is and what it uses.

    Attributes:
        project: Folder of params.yaml, which is copied and otherwise left alone.
        place: Folder of the machines.
        postgres: URL of a PostgreSQL server, without a database.
        redis: URL of a Redis database of its own.
        name: Of the databases: NAME_airflow and NAME_ledger.
        s3: URL of a bucket. None: a server of this cluster's own.
    """

    project: Path
    place: Path
    postgres: str = "postgresql+psycopg://postgres@127.0.0.1:5432"
    redis: str = "redis://127.0.0.1:6379/0"
    name: str = "privsyn"
    s3: str | None = None

    @property
    def control(self) -> Path:
        """Home of Airflow's servers."""
        return self.place / "control"

    def database(self, of: str) -> str:
        """URL of a database of this cluster."""
        url = make_url(self.postgres).set(database=f"{self.name}_{of}")
        return url.render_as_string(hide_password=False)

    def checkout(self, machine: str) -> Path:
        """The project on a machine."""
        return self.place / machine / "project"

    def home(self, machine: str) -> Path:
        """AIRFLOW_HOME of a machine."""
        return self.place / machine / ".airflow"

    def start(self, ports: Mapping[str, int]) -> dict[str, str]:
        """Start what is missing of the servers and wait until all answer.

        Returns:
            Addresses and login, by name.

        Raises:
            ServiceError: A port is taken, or a server does not answer.
            ConfigError: params.yaml does not load.
        """
        config = load_config(self.project / "params.yaml")
        home = self.home("control")
        running = Running.load(home) or Running(secrets.token_hex(16), dict(ports))
        self._lay_out(config)
        environment = self.environment(running)
        parts = self.parts(config, running)
        refuse_taken_ports(running, parts)
        running.save(home)
        try:
            for of in ("airflow", "ledger"):
                _make_database(self.postgres, self.database(of))
            prepare(home, environment, home / "airflow.log", devices=len(WORKERS))
            keep_up(home, running, parts, environment | {TOKEN: running.token})
            self._wait(home, running)
        except BaseException:
            if not running.parts:
                self.stop()
            raise
        airflow = running.ports["Airflow"]
        return {
            "Airflow": f"http://{HOST}:{airflow}",
            "MLflow": f"http://{HOST}:{running.ports['MLflow']}",
            "login": f"{ADMIN} / {admin_password(home)} (both)",
            "S3": self.stores(running),
            "machines": str(self.place),
        }

    def stop(self) -> int:
        """End every process that ``start`` started; returns how many."""
        return down(self.place / "control")

    def stores(self, running: Running) -> str:
        """URL that vault and releases lie under."""
        return self.s3 or f"s3://{BUCKET}"

    def environment(self, running: Running) -> dict[str, str]:
        """What all machines have in common, but the key of the vault."""
        home = self.home("control")
        found = airflow_environment(self.checkout("control"), home, running.ports["Airflow"])
        found |= mlflow_environment(home, f"http://{HOST}:{running.ports['MLflow']}")
        connection, stores = self.database("airflow"), self.stores(running)
        found[OVERRIDES] = json.dumps(
            [
                *json.loads(found[OVERRIDES]),
                f"services.ledger={self.database('ledger')}",
                f"services.vault={stores}/vault",
                f"services.releases={stores}/releases",
                *(f"schedule.tasks.{task}.queue={queue}" for task, queue in ROUTES.items()),
            ]
        )
        if self.s3 is None:
            found |= {
                "AWS_ACCESS_KEY_ID": "cluster",
                "AWS_SECRET_ACCESS_KEY": "cluster",
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": f"http://{HOST}:{running.ports['S3']}",
            }
        return found | {
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__CORE__PARALLELISM": "16",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://{HOST}:{running.ports['Airflow']}"
            "/execution/",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": connection,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": connection,
            "AIRFLOW__CELERY__BROKER_URL": self.redis,
            "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{connection}",
            "AIRFLOW__CELERY__WORKER_ENABLE_REMOTE_CONTROL": "True",
            # A worker that is gone takes its tasks along: others have them within two minutes.
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
            "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "60",
            "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "20",
            # One disk here, so that the pages show the logs of all machines.
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.place / "logs"),
        }

    def parts(self, config: Config, running: Running) -> list[Part]:
        """All servers, in the order in which they start."""
        found = [self._s3(running.ports["S3"])] if self.s3 is None else []
        found += airflow_parts(running)
        found.append(
            mlflow_part(
                self.checkout("control"), self.home("control"), config, running.ports["MLflow"]
            )
        )
        key = secret(
            self.home("control") / "vault_key",
            lambda: base64.b64encode(secrets.token_bytes(32)).decode(),
        )
        return found + [
            self._worker(name, queues, running, key) for name, queues in WORKERS.items()
        ]

    def _worker(self, name: str, queues: str, running: Running, key: str) -> Part:
        project, home = self.checkout(name), self.home(name)
        ready = home / "worker.pid"
        command = [
            *(sys.executable, "-m", "airflow", "celery", "worker", "--skip-serve-logs"),
            *("--queues", queues, "--concurrency", "1", "--celery-hostname", f"{name}@%h"),
            *("--pid", str(ready)),
        ]
        return Part(
            name,
            command,
            self._listening(name, running),
            environment={
                "AIRFLOW_HOME": str(home),
                "AIRFLOW__CORE__DAGS_FOLDER": str(project / "dags"),
                PARAMS: str(project / "params.yaml"),
                VARIABLE: key,
            },
            folder=project,
        )

    def _listening(self, name: str, running: Running) -> Callable[[], bool]:
        """Whether a worker has said that it takes tasks, since it was started."""
        log = self.home("control") / f"{name}.log"
        said = log.stat().st_size if log.exists() and not running.alive(name) else 0

        def ready() -> bool:
            with log.open("rb") as stream:
                stream.seek(said)
                return b" ready." in stream.read()

        return ready

    def _s3(self, port: int) -> Part:
        command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]

        def healthy() -> bool:
            request = urllib.request.Request(f"http://{HOST}:{port}/{BUCKET}", method="PUT")
            try:
                with urllib.request.urlopen(request, timeout=5):  # noqa: S310
                    return True
            except urllib.error.HTTPError as answer:
                return answer.code == 409  # the bucket is there
            except OSError:
                return False

        return Part("s3", command, healthy, port)

    def _lay_out(self, config: Config) -> None:
        """Give every machine its checkout, and the first worker the private file."""
        write_sample_if_asked(config, self.project)
        for machine in ("control", *WORKERS):
            project = self.checkout(machine)
            self.home(machine).mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in CHECKOUT:
                source, target = self.project / name, project / name
                target.parent.mkdir(parents=True, exist_ok=True)
                if source.is_dir():
                    ignored = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(source, target, dirs_exist_ok=True, ignore=ignored)
                elif source.is_file():
                    shutil.copyfile(source, target)
        (private,) = [name for name, queues in WORKERS.items() if "private" in queues]
        for path in (config.dataset.path, config.dataset.test_path):
            if path is None or path.is_absolute():
                continue
            target = self.checkout(private) / path
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if (self.project / path).is_dir():
                shutil.copytree(self.project / path, target, dirs_exist_ok=True)
            else:
                shutil.copyfile(self.project / path, target)
                target.chmod(0o600)

    def _wait(self, home: Path, running: Running) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not has_dags(running.ports["Airflow"], admin_password(home)):
            if time.monotonic() > deadline:
                raise ServiceError(f"Airflow shows no DAG; see {home}/dag-processor.log")
            time.sleep(0.5)


def _make_database(server: str, wanted: str) -> None:
    """Make a database unless it is there.

    Raises:
        ServiceError: PostgreSQL cannot be reached or refuses.
    """
    name = make_url(wanted).database
    engine = create_engine(make_url(server).set(database="postgres"), isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            known = connection.execute(
                text("select 1 from pg_database where datname = :name"), {"name": name}
            ).first()
            if known is None:
                connection.execute(text(f'create database "{name}"'))
    except SQLAlchemyError as error:
        raise ServiceError(
            f"PostgreSQL cannot be used ({type(error).__name__}): start one, and name it with "
            "CLUSTER_POSTGRES=postgresql+psycopg://USER@HOST:5432"
        ) from None
    finally:
        engine.dispose()


def main(argv: list[str] | None = None) -> int:
    """Command line of ``make cluster-up`` and ``make cluster-down``."""
    parser = argparse.ArgumentParser(prog="python -m tools.local.cluster", description=__doc__)
    parser.add_argument("action", choices=("up", "down"))
    parser.add_argument("--project", type=Path, default=Path(), help="folder of params.yaml")
    for name, port in (("airflow", 8080), ("mlflow", 5000), ("s3", 5050)):
        parser.add_argument(
            f"--{name}-port", type=int, default=int(os.environ.get(f"{name.upper()}_PORT") or port)
        )
    arguments = parser.parse_args(argv)
    root = arguments.project.resolve()
    said = {
        key: os.environ[variable]
        for key, variable in (
            ("postgres", "CLUSTER_POSTGRES"),
            ("redis", "CLUSTER_REDIS"),
            ("name", "CLUSTER_NAME"),
            ("s3", "CLUSTER_S3"),
        )
        if os.environ.get(variable)
    }
    cluster = Cluster(root, root / ".cluster", **said)
    ports = {"Airflow": arguments.airflow_port, "MLflow": arguments.mlflow_port}
    ports |= {} if cluster.s3 else {"S3": arguments.s3_port}
    return controlled(
        arguments.action,
        lambda: cluster.start(ports),
        cluster.stop,
        begins="starting Airflow, two workers, S3 and MLflow: two minutes",
        ends="end all with: make cluster-down",
    )


if __name__ == "__main__":
    sys.exit(main())
