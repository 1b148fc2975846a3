"""Buttons on a task: the release's MLflow run and its report.

Airflow 3 asks a link for its address in the worker, right after the task, and keeps the answer in
XCom, where the API server reads it. So a link returns what its operator noted while it ran, and
needs no class on the server's side.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

from privsyn import layout
from privsyn.airflow.project import Project
from privsyn.airflow.project import dag_id as dag_of
from privsyn.config import environment_overrides, load_config
from privsyn.data.artifacts import private_folder, write_json_atomic
from privsyn.errors import ConfigError
from privsyn.files import read_json
from privsyn.methods.registry import METHODS

if TYPE_CHECKING:
    from privsyn.release.workspace import Workspace

PREFIX = "/privsyn"
"""Where privsyn.airflow.plugin serves pages, on the Airflow server itself."""
REPORT = PREFIX + "/{dag_id}/reports/{release_id}"

SHARED = "shown_by.json"
"""In the internal folder of a release: the runs, by DAG, that validated it and may show it."""


def share_report(workspace: Workspace, release_id: str, dag_id: str, run_id: str) -> None:
    """Note that a run of a DAG made or found a release: here, and in the store for API servers.

    Raises:
        StorageError: Disk full or no permission, or the store cannot be reached.
    """
    folder = workspace.internal(release_id)
    private_folder(folder)
    known = _runs(folder)
    known[dag_id] = sorted({*known.get(dag_id, ()), run_id})
    write_json_atomic(folder / SHARED, known, mode=0o600)
    if workspace.store is not None:
        workspace.store.note_shown(release_id, dag_id)


def report_page(
    workspace: Workspace, dag_id: str, release_id: str, project: Project | None = None
) -> Path | None:
    """The outward report of a release, for readers of a DAG; None unless it is that DAG's.

    A release is a DAG's if one of its runs noted it, or, where no run has, if the DAG makes
    releases of its method; of projects that share a folder, if its account paid for it.
    """
    folder = workspace.locate(release_id)
    if folder is None:
        return None
    # The folder of this machine, then the store: an API server has no folder of the workers.
    known = set(_runs(workspace.internal(release_id)))
    if dag_id not in known and workspace.store is not None:
        known |= set(workspace.store.shown_by(release_id))
    if not known:
        method = release_id.rpartition("-")[0]
        theirs = method in METHODS and (project is None or _paid_by(folder, project))
        known = {dag_of(method, project)} if theirs else set()
    page = layout.page_of(folder)
    # privacy: a link would let whoever can write here show any file of the server.
    return page if dag_id in known and page.is_file() and not page.is_symlink() else None


def _paid_by(folder: Path, project: Project) -> bool:
    """Whether a project's account paid for a release; so of the only project, which shares none."""
    if project.name is None:
        return True
    try:
        account = read_json(folder / layout.CERTIFICATE)["plan"]["account"]
        config = load_config(project.params, environment_overrides())
    except (OSError, ValueError, LookupError, TypeError, ConfigError):
        return False
    return bool(account == config.account.name)


def _runs(folder: Path) -> dict[str, list[str]]:
    try:
        runs = json.loads((folder / SHARED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return runs if isinstance(runs, dict) else {}


class MlflowRunLink(BaseOperatorLink):  # type: ignore[misc]
    """To the run of the release in the MLflow UI."""

    name = "MLflow run"
    xcom_key = "link_mlflow_run"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Address the operator noted; empty before it knows one."""
        return getattr(operator, "mlflow_url", None) or ""


class ReleaseReportLink(BaseOperatorLink):  # type: ignore[misc]
    """To the outward report of the release."""

    name = "Release report"
    xcom_key = "link_release_report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Address the operator noted; empty before it knows one."""
        return getattr(operator, "report_url", None) or ""


def address(ti: Any) -> str:
    """Page of the run on the Airflow server; empty where its address is not configured."""
    from airflow.sdk.configuration import conf

    base = conf.get("api", "base_url", fallback="").rstrip("/")
    # A run's id holds colons and a plus sign, which mean something else in an address.
    path = f"/dags/{quote(str(ti.dag_id))}/runs/{quote(str(ti.run_id), safe='')}"
    return f"{base}{path}" if base.startswith("http") else ""
