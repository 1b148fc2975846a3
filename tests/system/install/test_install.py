"""What a user installs: the wheel with the newest and the oldest of what pyproject.toml allows.

Each in an environment of its own, with a release of every method by the command line, and one by
the DAG, of what a query gives, with approvals; by the newest Airflow also from an environment
without torch. Older versions of Airflow are installed by their constraints files, for one by the
DAG. Run it by ``make install-test``. torch is as in constraints.txt: another one is some gigabytes.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
import yaml

from privsyn.models.references import BUILTIN
from tests.integration.e2e.small_project import METHODS, rows

ROOT = Path(__file__).parents[3]
RESOLUTION = {"newest": "highest", "oldest": "lowest-direct"}
OLDER = {
    file.name.split("-")[1]: file
    for file in sorted((ROOT / "privsyn" / "constraints").glob("airflow-3.[12].*-python3.11.txt"))
}
"""Version of Airflow -> constraints file, of one Python."""
PYTHON = os.environ.get("PRIVSYN_INSTALL_PYTHON", sys.executable)
AIRFLOW = os.environ.get("PRIVSYN_INSTALL_AIRFLOW", "")
"""Another version of Airflow than the one that the end of the bounds takes."""
BY_DAG = "keyphrase_seeding"
POSTGRES = "PRIVSYN_TEST_POSTGRES_URL"


def attempt(*command: str | Path, cwd: Path, **environment: str) -> tuple[int, str]:
    """Exit code of a command, and what it printed."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    ended = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env=inherited | {"OMP_NUM_THREADS": "1"} | environment,
    )
    return ended.returncode, ended.stdout + ended.stderr


def done(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What a command printed; an error with the end of it where it failed."""
    code, printed = attempt(*command, cwd=cwd, **environment)
    assert code == 0, f"{command} ended {code}: {printed[-4000:]}"
    return printed


@pytest.fixture(scope="module", params=[*RESOLUTION, *OLDER])
def installed(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Where the commands of an installation lie."""
    root = tmp_path_factory.mktemp(request.param)
    uv = [sys.executable, "-m", "uv"]
    done(*uv, "venv", "--python", PYTHON, root / "venv", cwd=root)
    install = (*uv, "pip", "install", "--python", root / "venv")
    package = f"privsyn[airflow,query-postgresql] @ {wheel.as_uri()}"
    if older := OLDER.get(request.param):
        python = done(PYTHON, "-c", "import sys; print(sys.version_info[1])", cwd=root).strip()
        held = older.with_name(f"airflow-{request.param}-python3.{python}.txt")
        done(*install, "--constraint", held, package, cwd=root)
        return root / "venv" / "bin"
    held, oldest = root / "held.txt", request.param == "oldest"
    # Airflow 3.1 before 3.1.8 fails with the newest of what it leaves open.
    lowest = "apache-airflow>=3.1.8\n" if oldest else ""
    held.write_text((ROOT / "constraints.txt").read_text() + lowest)
    if AIRFLOW:
        held.write_text(held.read_text() + f"apache-airflow=={AIRFLOW}\n")
    done(
        *(*install, "--resolution", RESOLUTION[request.param], "--constraint", held),
        # Of the wheel alone every bound would be indirect, and its newest end taken both times.
        *("--requirements", ROOT / "pyproject.toml", "--extra", "airflow"),
        *("--extra", "query-postgresql", package),
        cwd=root,
    )
    frozen = done(*uv, "pip", "freeze", "--python", root / "venv", cwd=root)
    declared = (ROOT / "pyproject.toml").read_text()
    bound = re.search(r'"pandas>=([0-9.]+)', declared)
    assert bound
    assert (f"pandas=={bound[1]}." in frozen) == oldest, frozen
    # An older Airflow may leave open what the newest bounds, and break by what it then gets.
    newest = re.search(r'"apache-airflow>=[0-9.]+,<3\.([0-9]+)"', declared)
    assert newest
    if not oldest and not AIRFLOW:
        assert f"apache-airflow==3.{int(newest[1]) - 1}." in frozen, frozen
    return root / "venv" / "bin"


def new_project(installed: Path, root: Path, method: str) -> Path:
    """A project as `privsyn init` makes it, for one small release."""
    done(installed / "privsyn", "init", root, cwd=root.parent)
    settings = yaml.safe_load((root / "params.yaml").read_text())
    settings |= {
        "dataset": {
            "name": "letters",
            "path": "private.jsonl",
            "label": "label",
            "labels": ["Billing", "Symptoms"],
            "unit": "unit",
            "max_records_per_unit": 2,
            "holdout": 0.25,
        },
        "account": {
            "name": "letters",
            "unit": "person",
            "adjacency": "add_remove",
            "epsilon": 20.0,
            "delta": 1e-5,
        },
        "privacy": {"epsilon": 8.0, "delta": 1e-6},
        "methods": {method: METHODS[method]},
        "pipeline": [method],
        "models": {"language": str(BUILTIN)},
        "validation": {"min_share": 0.0},
        "schedule": {},
    }
    (root / "params.yaml").write_text(yaml.safe_dump(settings))
    records = "".join(json.dumps(row) + "\n" for row in rows(120, 60))
    (root / "private.jsonl").write_text(records)
    return root


def by_command(installed: Path, root: Path, method: str) -> Path:
    project = new_project(installed, root, method)
    path = f"{installed}{os.pathsep}{os.environ['PATH']}"
    done(installed / "privsyn", "run", "--method", method, cwd=project, PATH=path)
    return project


@pytest.fixture(scope="module")
def clinic() -> Iterator[str | None]:
    """A URL of PostgreSQL, in whose own schema the records are."""
    if POSTGRES not in os.environ:
        yield None
        return
    url = sa.make_url(os.environ[POSTGRES])
    engine, schema = sa.create_engine(url), f"install_{secrets.token_hex(6)}"
    filled = sa.text(f"insert into {schema}.notes values (:unit, :label, :text)")  # noqa: S608
    with engine.begin() as connection:
        connection.exec_driver_sql(f"create schema {schema}")
        connection.exec_driver_sql(
            f"create table {schema}.notes (unit text, label text, text text)"
        )
        connection.execute(filled, rows(120, 60))
    own = url.set(drivername="postgres", query={"options": f"-csearch_path={schema}"})
    yield own.render_as_string(hide_password=False)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"drop schema {schema} cascade")
    engine.dispose()


def by_dag(installed: Path, root: Path, clinic: str, python: Path | None = None) -> Path:
    """A release of what a query gives, by a connection of Airflow; with two approvals.

    Args:
        installed: Where Airflow's commands are.
        root: The new project.
        clinic: URL of the database.
        python: Interpreter of what loads models. None: Airflow's own.
    """
    project = new_project(python.parent if python else installed, root, BY_DAG)
    (project / "private.jsonl").unlink()
    settings = yaml.safe_load((project / "params.yaml").read_text())
    settings["dataset"]["path"] = None
    settings["dataset"]["query"] = {"connection": "clinic", "sql": "select * from notes"}
    settings["account"]["approval"] = {"spend_above": 1, "publish": True}
    (project / "params.yaml").write_text(yaml.safe_dump(settings))
    own = {
        "PATH": f"{installed}{os.pathsep}{os.environ['PATH']}",
        "AIRFLOW_HOME": str(root.with_name(f"airflow-{root.name}")),
        "AIRFLOW__CORE__DAGS_FOLDER": str(project / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PRIVSYN_PARAMS": str(project / "params.yaml"),
        "PRIVSYN_PYTHON": str(python or ""),
    }
    airflow = installed / "airflow"
    done(airflow, "db", "migrate", cwd=project, **own)
    done(airflow, "connections", "add", "clinic", "--conn-uri", clinic, cwd=project, **own)
    command = (installed / "python", Path(__file__).with_name("answer_dag.py"))
    printed = done(*command, project / "dags", f"privsyn_{BY_DAG}", cwd=project, **own)
    assert "ended: success" in printed, printed[-4000:]
    for task in ("approve_spend", "approve_publish"):
        assert f"approved: {task}" in printed
    return project


def without_torch(wheel: Path, root: Path) -> Path:
    """The newest Airflow with what its own tasks need; what loads models runs elsewhere."""
    uv, python = [sys.executable, "-m", "uv"], root / "venv" / "bin" / "python"
    done(*uv, "venv", "--python", PYTHON, root / "venv", cwd=root)
    version = done(PYTHON, "-c", "import sys; print(sys.version_info[1])", cwd=root).strip()
    *_, held = sorted((ROOT / "privsyn/constraints").glob(f"airflow-*-python3.{version}.txt"))
    package = f"privsyn[pipeline,query-postgresql] @ {wheel.as_uri()}"
    install = (*uv, "pip", "install", "--python", python, "--constraint", held)
    done(*install, package, "apache-airflow", cwd=root)
    code, _ = attempt(python, "-c", "import torch", cwd=root)
    assert code
    return python.parent


@pytest.fixture(scope="module")
def made(
    installed: Path, wheel: Path, clinic: str | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Path]]]:
    """The project of each release, by method; two are made at a time."""
    root, environment = tmp_path_factory.mktemp("user"), installed.parent.parent
    commands = [] if environment.name.startswith(tuple(OLDER)) else [*METHODS]
    if commands:  # the first alone: it compiles what is installed
        by_command(installed, root / BY_DAG, BY_DAG)
    with ThreadPoolExecutor(2) as pool:
        runs = {}
        if clinic:
            runs["dag"] = pool.submit(by_dag, installed, root / "dag", clinic)
        if clinic and environment.name.startswith("newest"):
            thin = without_torch(wheel, tmp_path_factory.mktemp("thin"))
            python = installed / "python"
            runs["dag without torch"] = pool.submit(by_dag, thin, root / "thin", clinic, python)
        for method in commands:
            runs[method] = pool.submit(
                lambda one: root / one if one == BY_DAG else by_command(installed, root / one, one),
                method,
            )
        yield runs


@pytest.mark.parametrize("release", [*METHODS, "dag", "dag without torch"])
def test_a_release_is_made_measured_and_published(
    installed: Path, made: dict[str, Future[Path]], release: str
) -> None:
    if release not in made:
        pytest.skip(f"not in this environment, or {POSTGRES} is not set")
    project = made[release].result()
    (pointer,) = (project / "releases").glob("*.dvc")
    (evaluation,) = (project / ".privsyn" / "internal").glob("*/evaluation.json")
    found = json.loads(evaluation.read_text())
    assert found["metrics"]
    assert "failed" not in found
    checked = done(installed / "privsyn", "verify", pointer.stem, cwd=project)
    assert "FAILED" not in checked
    if release == "dp_lora":
        return
    assert (project / "releases" / pointer.stem / "synthetic.jsonl").stat().st_size
