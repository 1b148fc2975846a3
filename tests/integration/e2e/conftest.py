"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from privsyn import cli
from privsyn.airflow.project import teaches
from privsyn.ledger import accounts
from privsyn.methods.base import Backends
from privsyn.release.signature import new
from tests import preloaded
from tests.integration.e2e.small_project import (
    BESIDE,
    CANARY,
    DRIVERS,
    EMBEDDED,
    METHODS,
    RUN_DAG,
    STUDENT,
    Driven,
    Project,
    build_project,
    environment,
    rows,
    stand_in,
)
from tests.system.dags.templates import copy_airflow, copy_mlflow, keep_dag


@pytest.fixture(scope="module", autouse=True)  # a session's would reach the tests of other folders
def one_partition_key() -> Iterator[None]:
    """Accounts opened in this process have one key: who is held out is not left to chance.

    A random key holds out none of 20 units with probability .003.
    """
    key = hashlib.sha256(b"the partition key of the tests").digest()
    drawn = SimpleNamespace(token_bytes=lambda size: key[:size], token_hex=secrets.token_hex)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(accounts, "secrets", drawn)
        yield


@pytest.fixture
def make_project(tmp_path: Path) -> Callable[..., Project]:
    """Makes a project under the test's folder."""

    def make(name: str = "project", **changes: object) -> Project:
        return build_project(tmp_path / name, **changes)

    return make


@pytest.fixture(scope="session", params=["invisible_ink", "dp_lora"])  # one that trains
def driven(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Driven]:
    """The same config over the same private data by command line, DVC and Airflow.

    Each starts from a copy of one project whose account is open, so all have one partition key.
    """
    method = str(request.param)
    root = tmp_path_factory.mktemp(f"drivers-{method}")
    new(root / "keys" / "signing.pem")
    base = build_project(
        root / "base",
        methods={method: METHODS[method] | EMBEDDED.get(method, {})}
        | ({"distill": STUDENT} if teaches(method) else {}),
        dataset={"holdout": 0.4, "columns": BESIDE.get(method, {})},
        evaluate={"paid": {"epsilon": 0.5}},
        signing={"key": str(root / "keys" / "signing.pem")},
    )
    # A rare value of a column is searched for as well as words of a text.
    beside = {"age": 31, "channel": CANARY, "visited": "2024-05-17"}
    base.write([row | {"text": f"{row['text']} {CANARY}", **beside} for row in rows(160, 80)])
    base.cli("stage", "plan", "--method", method)
    shutil.rmtree(base.root / "plans")
    copy_mlflow(base.root)
    found = {name: Driven(base.copy(base.root.with_name(name)), "", method) for name in DRIVERS}

    copy_airflow(found["airflow"].project.root)
    keep_dag(found["airflow"].project.root, method)

    pointer = f"plans/{method}.json"
    order = json.dumps([{"method": method}])
    commands: dict[str, list[tuple[str, ...]]] = {
        "cli": [("-m", "privsyn", "run", "--method", method)],
        "dvc": [
            ("-m", "dvc", "config", "--local", "core.no_scm", "true"),
            ("-m", "dvc", "repro", "-vv"),  # what DVC itself can say of a run is searched, too
            ("-m", "privsyn", "stage", "publish", "--plan", pointer),
        ],
        "airflow": [(str(RUN_DAG), str(found["airflow"].project.root), order, "lineage")],
    }

    def drive(name: str) -> None:
        for command in commands[name]:
            done(name, *command)

    def done(name: str, *command: str) -> None:
        project = found[name].project
        ran = subprocess.run(
            [preloaded.python(), *command],
            cwd=project.root,
            capture_output=True,
            text=True,
            check=False,
            env=environment(project),
        )
        found[name].printed += ran.stdout + ran.stderr
        assert ran.returncode == 0, f"{name}: {ran.stdout[-2000:]} {ran.stderr[-3000:]}"

    with ThreadPoolExecutor(len(DRIVERS)) as pool:  # each has a project of its own
        list(pool.map(drive, DRIVERS))
    return found


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Gives a command in a folder, in this process: exit code, standard output and error."""

    def give(where: Path, *arguments: object) -> tuple[int, str, str]:
        monkeypatch.chdir(where)
        monkeypatch.setattr("sys.argv", ["privsyn", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return give


@pytest.fixture
def fake() -> Backends:
    """The toy model in place of the language model."""
    return Backends({"language": stand_in()})
