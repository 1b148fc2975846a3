"""What a user installs: the wheel with the newest and the oldest of what pyproject.toml allows.

Each in an environment of its own, with a release of every method by the command line, and one by
the DAG. Older versions of Airflow are installed by their constraints files, for one by the DAG. Run
it by ``make install-test``. torch is as in constraints.txt: another one is some gigabytes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
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
    package = f"privsyn[airflow] @ {wheel.as_uri()}"
    if older := OLDER.get(request.param):
        python = done(PYTHON, "-c", "import sys; print(sys.version_info[1])", cwd=root).strip()
        held = older.with_name(f"airflow-{request.param}-python3.{python}.txt")
        done(*install, "--constraint", held, package, cwd=root)
        return root / "venv" / "bin"
    held, oldest = root / "held.txt", request.param == "oldest"
    # Airflow 3.1 before 3.1.8 fails with the newest of what it leaves open; and the newest pydantic
    # would bring an older Airflow, which does not bound it.
    lowest = f"apache-airflow>={'3.1.8' if oldest else '3.3'}\n"
    held.write_text((ROOT / "constraints.txt").read_text() + lowest)
    if AIRFLOW:
        held.write_text(held.read_text() + f"apache-airflow=={AIRFLOW}\n")
    done(
        *(*install, "--resolution", RESOLUTION[request.param], "--constraint", held),
        # Of the wheel alone every bound would be indirect, and its newest end taken both times.
        *("--requirements", ROOT / "pyproject.toml", "--extra", "airflow", package),
        cwd=root,
    )
    frozen = done(*uv, "pip", "freeze", "--python", root / "venv", cwd=root)
    bound = re.search(r'"pandas>=([0-9.]+)', (ROOT / "pyproject.toml").read_text())
    assert bound
    assert (f"pandas=={bound[1]}." in frozen) == oldest, frozen
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
        "performance": {"threads": 1},
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


def by_dag(installed: Path, root: Path, method: str) -> Path:
    project = new_project(installed, root, method)
    own = {
        "PATH": f"{installed}{os.pathsep}{os.environ['PATH']}",
        "AIRFLOW_HOME": str(root.with_name("airflow")),
        "AIRFLOW__CORE__DAGS_FOLDER": str(project / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PRIVSYN_PARAMS": str(project / "params.yaml"),
    }
    done(installed / "airflow", "db", "migrate", cwd=project, **own)
    test = (
        # dag.test() of Airflow 3.2 asks its own server before that has begun, and drops it while a
        # task asks it.
        "import asyncio; submit = asyncio.run_coroutine_threadsafe; "
        "wait = lambda done: (done.result(60), done)[1]; "
        "asyncio.run_coroutine_threadsafe = lambda what, loop: wait(submit(what, loop)); "
        "from airflow.sdk.execution_time import supervisor; "
        "begin, servers = supervisor.in_process_api_server, []; "
        "supervisor.in_process_api_server = lambda: servers.append(begin()) or servers[-1]; "
        "import airflow; from importlib import import_module; "
        "place = 'models' if airflow.__version__ < '3.2' else 'dag_processing'; "
        "DagBag = import_module(f'airflow.{place}.dagbag').DagBag; "
        f"bag = DagBag({str(project / 'dags')!r}); "
        "assert not bag.import_errors, bag.import_errors; "
        f"print('ended:', bag.dags['privsyn_{method}'].test().state)"
    )
    printed = done(installed / "python", "-c", test, cwd=project, **own)
    assert "ended: success" in printed, printed[-4000:]
    return project


@pytest.fixture(scope="module")
def made(
    installed: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Path]]]:
    """The project of each release, by method; two are made at a time."""
    root = tmp_path_factory.mktemp("user")
    if installed.parent.parent.name.startswith(tuple(OLDER)):
        with ThreadPoolExecutor(1) as pool:
            yield {"dag": pool.submit(by_dag, installed, root / "dag", BY_DAG)}
        return
    first = by_command(installed, root / BY_DAG, BY_DAG)  # alone: it compiles what is installed
    with ThreadPoolExecutor(2) as pool:
        runs = {
            "dag": pool.submit(by_dag, installed, root / "dag", BY_DAG),
            **{
                method: pool.submit(by_command, installed, root / method, method)
                for method in METHODS
                if method != BY_DAG
            },
            BY_DAG: pool.submit(lambda: first),
        }
        yield runs


@pytest.mark.parametrize("release", [*METHODS, "dag"])
def test_a_release_is_made_measured_and_published(
    installed: Path, made: dict[str, Future[Path]], release: str
) -> None:
    if release not in made:
        pytest.skip("one release, by the DAG")
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
