"""The environment of this project's own Airflow: `make demo` and `make up` start from it."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

from privsyn.airflow.project import DVC_POOL, GPU_POOL, PARAMS, projects
from privsyn.config import environment_overrides
from privsyn.data.artifacts import atomic_file
from privsyn.files import make_whole
from privsyn.models.gpus import visible_cards
from privsyn.section import OVERRIDES

HOST = "127.0.0.1"
ADMIN = "admin"
USERS = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"
DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"


def airflow_environment(root: Path, home: Path, port: int = 8080) -> dict[str, str]:
    """Variables for an Airflow whose state is ``home`` and whose DAGs are the project's.

    Args:
        root: Project folder.
        home: AIRFLOW_HOME; made if missing, readable by its owner alone.
        port: Port of the web interface.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    binaries = str(Path(sys.executable).parent)  # `airflow standalone` starts `airflow` by name
    return {
        "PATH": os.pathsep.join([binaries, os.environ.get("PATH", os.defpath)]),
        PARAMS: str(root / "params.yaml"),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(root / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "4",
        USERS: os.environ.get(USERS, f"{ADMIN}:admin"),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords_file(home)),
        DATABASE: f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://{HOST}:{port}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__SECRET_KEY": secret(home / "secret_key"),
        "AIRFLOW__API_AUTH__JWT_SECRET": secret(home / "jwt_secret"),
        # A busy machine answers late: no reason to end a task or to use up one of its tries.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": "20",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "GX_ANALYTICS_ENABLED": "False",
        "DVC_NO_ANALYTICS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


def mlflow_environment(home: Path, address: str) -> dict[str, str]:
    """Variables for an MLflow server behind a login, and for the tasks that write to it.

    Lineage holds numbers computed from real records, and whoever reaches the server could delete
    runs and models too, so nobody reads or writes without the password that Airflow has.

    Args:
        home: AIRFLOW_HOME, which keeps the server's users and keys.
        address: Of the server.
    """
    config = home / "mlflow_auth.ini"
    users = f"sqlite:///{home / 'mlflow_auth.db'}"
    _write_private(
        config,
        f"[mlflow]\ndefault_permission = NO_PERMISSIONS\ndatabase_uri = {users}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
        # A password costs a tenth of a second to check, at every call of a page.
        "auth_cache_ttl_seconds = 60\n",
    )
    settings = [f"services.mlflow={address}", f"services.mlflow_ui={address}"]
    return {
        "MLFLOW_AUTH_CONFIG_PATH": str(config),
        "MLFLOW_AUTH_ADMIN_USERNAME": ADMIN,
        "MLFLOW_AUTH_ADMIN_PASSWORD": admin_password(home),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secret(home / "mlflow_key"),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_TRACKING_USERNAME": ADMIN,
        "MLFLOW_TRACKING_PASSWORD": admin_password(home),
        OVERRIDES: json.dumps([*environment_overrides(), *settings]),
    }


def passwords_file(home: Path) -> Path:
    """Where the web interface's passwords lie."""
    return home / "passwords.json"


def admin_password(home: Path) -> str:
    """Password of the user admin, made on first use."""
    file = passwords_file(home)
    if not file.exists():
        _write_private(file, json.dumps({"admin": secrets.token_urlsafe(12)}) + "\n")
    password: str = json.loads(file.read_text(encoding="utf-8"))["admin"]
    return password


def prepare(
    home: Path,
    environment: Mapping[str, str],
    log: Path,
    *,
    devices: int | None = None,
) -> None:
    """Create or upgrade Airflow's database and its pools, once per Airflow version.

    Args:
        home: AIRFLOW_HOME.
        environment: Of Airflow.
        log: Where Airflow's words go.
        devices: Slots of the pool of tasks that draw. None: the GPUs of this machine, or one.

    Raises:
        RuntimeError: Airflow refused; its words are in ``log``.
    """
    pools = home / "pools.json"
    wanted = json.dumps(_pools(environment, devices or max(1, len(visible_cards()))), indent=2)
    stamp = home / "prepared"
    state = f"{version('apache-airflow')}\n{wanted}\n"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == state:
        return
    pools.write_text(wanted, encoding="utf-8")

    def upgrade(database: str = environment[DATABASE]) -> None:
        with log.open("ab") as stream:
            done = subprocess.run(
                [sys.executable, "-c", _UPGRADE, str(pools)],
                env={**os.environ, **environment, DATABASE: database},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            raise RuntimeError(f"`airflow db migrate` or `airflow pools import` failed; see {log}")

    file = home / "airflow.db"
    if environment[DATABASE] == f"sqlite:///{file}" and not file.exists():
        make_whole(file, lambda new: upgrade(f"sqlite:///{new}"))
    else:
        upgrade()
    stamp.write_text(state, encoding="utf-8")


_UPGRADE = """
import sys
from airflow.__main__ import main
for sys.argv in ["airflow", "db", "migrate"], ["airflow", "pools", "import", sys.argv[1]]:
    main()
"""
"""Both commands in one process: an import of Airflow takes longer than either."""


def _pools(environment: Mapping[str, str], devices: int) -> dict[str, dict[str, object]]:
    place = Path(environment[PARAMS])
    named = projects(place) if place.is_dir() else []
    return {
        GPU_POOL: {
            "slots": devices,
            "description": "Generate tasks: one per device",
            "include_deferred": False,
        },
        **{
            name: {
                "slots": 1,
                "description": "One DVC command at a time",
                "include_deferred": False,
            }
            for name in (DVC_POOL, *(project.dvc_pool for project in named))
        },
    }


def secret(file: Path, make: Callable[[], str] = lambda: secrets.token_hex(64)) -> str:
    """A secret that survives restarts, so that sessions do."""
    if not file.exists():
        _write_private(file, make())
    return file.read_text(encoding="utf-8").strip()


def _write_private(file: Path, text: str) -> None:
    with atomic_file(file) as stream:  # half a secret would be kept for good
        stream.write(text.encode())
