"""Databases of Airflow and MLflow, made once a process and copied into projects.

The migrations of either take seconds for every new file.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from privsyn.tracking import connect
from tools.local.environment import airflow_environment, prepare


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="privsyn-templates-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def _airflow_home() -> Path:
    root = _folder() / "airflow"
    home = root / "home"
    prepare(home, airflow_environment(root, home), root / "log")
    return home


@functools.cache
def _mlflow_file() -> Path:
    file = _folder() / "mlflow.db"
    connect(f"sqlite:///{file}").search_experiments()
    return file


def copy_airflow(root: Path) -> None:
    """Give a project its Airflow, unless it has one. `prepare` adds the pools that it lacks."""
    home = root / "airflow"
    home.mkdir(mode=0o700, exist_ok=True)
    if (home / "airflow.db").exists():
        return
    for name in ("airflow.db", "pools.json", "prepared"):
        shutil.copyfile(_airflow_home() / name, home / name)


def copy_mlflow(root: Path) -> None:
    """Give a project its MLflow, empty, unless it has one."""
    file = root / ".privsyn" / "mlflow.db"
    file.parent.mkdir(mode=0o700, exist_ok=True)
    if not file.exists():
        shutil.copyfile(_mlflow_file(), file)


def keep_dag(root: Path, method: str) -> None:
    """Leave a project the DAG of one method: Airflow writes all that it parses to its database."""
    for file in (root / "dags").glob("*.py"):
        if f'"{method}"' not in file.read_text():
            file.unlink()
