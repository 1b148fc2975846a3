"""The pages of privsyn on the Airflow server, behind Airflow's own login. Read-only.

Imported at the first request: plugins are loaded by every process of Airflow.

The budget page shows the account of every project the user may read. Accounts of a ledger that no
project names any more are for the command line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse

from privsyn import layout
from privsyn.airflow.project import PREFIX, REPORT, Project, project_of, projects
from privsyn.airflow.project import dag_id as dag_of
from privsyn.config import environment_overrides, load_config
from privsyn.errors import ConfigError, PrivsynError, VerificationError
from privsyn.files import read_json
from privsyn.methods.registry import METHODS

if TYPE_CHECKING:
    from pathlib import Path

    from privsyn.ledger.entries import Entry
    from privsyn.release.workspace import Workspace
    from privsyn.stages.base import Context as StageContext

RELEASE_ID = re.compile(r"[a-z0-9_]+-[0-9a-f]{16}")
HEADERS = {
    # The pages hold model output and names, and are served on the origin of the Airflow session.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def report_page(
    project: Project, workspace: Workspace, dag_id: str, release_id: str
) -> Path | None:
    """The outward report of a release; None unless it is the DAG's to show.

    It is if the DAG makes releases of its method and, of projects that share a folder, if the
    project's account paid for it.
    """
    method, folder = release_id.rpartition("-")[0], workspace.locate(release_id)
    if folder is None or method not in METHODS or dag_id != dag_of(method, project):
        return None
    page = layout.page_of(folder)
    # privacy: a link would let whoever can write here show any file of the server.
    if page.is_symlink() or not page.is_file() or not _paid_by(folder, project):
        return None
    return page


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


def pages_app() -> FastAPI:
    """Reports of a DAG's own releases, and the budget, for users who may read the DAGs."""
    app = FastAPI(title="privsyn pages", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/{dag_id}/reports/{release_id}", dependencies=[Depends(requires_access_dag("GET"))])
    def report(dag_id: str, release_id: str) -> HTMLResponse:
        page = None
        # A name from the address bar becomes a path only if it can be a release's.
        if RELEASE_ID.fullmatch(release_id) and (project := project_of(dag_id)) is not None:
            try:
                page = report_page(project, project.workspace, dag_id, release_id)
            except PrivsynError as error:  # a store that is down, or a release changed in it
                raise HTTPException(503, str(error)) from None
        if page is None:
            # The same answer for a release of another DAG: it does not say which releases exist.
            raise HTTPException(404, "This DAG has no validated release of that name here.")
        return HTMLResponse(page.read_text(encoding="utf-8"), headers=HEADERS)

    @app.get("/budget")
    def budget(request: Request, user: Annotated[Any, Depends(get_user)]) -> HTMLResponse:
        allowed = readable(user)
        if not allowed:
            raise HTTPException(403, "Forbidden")
        # Behind a proxy the UI may lie under a path, which links of the page have to keep.
        base = str(request.scope.get("root_path", "")).removesuffix(PREFIX)
        return HTMLResponse(budget_html(allowed, base), headers=HEADERS)

    return app


REPORTS_OF = "ledger"
"""Whoever may read this DAG of a project may read its budget."""


def readable(user: Any) -> list[Project]:
    """The projects of which a user may read the budget: by Airflow's permission on the DAG."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
    from airflow.models.dag import DagModel

    def may(dag_id: str) -> bool:
        details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
        answer = get_auth_manager().is_authorized_dag(method="GET", details=details, user=user)
        return bool(answer)

    return [project for project in projects() if may(project.dag_id(REPORTS_OF))]


def budget_html(allowed: Collection[Project], base: str) -> str:
    """The page.

    Args:
        allowed: The projects whose budget is shown.
        base: Path of the Airflow UI; empty at the root of its server.
    """
    from privsyn.airflow.connections import open_project
    from privsyn.display.accounts import BudgetPage, crons_of

    page = BudgetPage(datetime.now(UTC))
    # By ledger and name: two projects may share an account, which is shown once.
    accounts: dict[tuple[str, str], tuple[Project, StageContext, list[str]]] = {}
    for project in allowed:
        try:
            ctx = open_project(project.params, [*environment_overrides()])
        except PrivsynError as error:
            page.problem(f"{project.name or 'params.yaml'}: {error}")
            continue
        ledger = ctx.config.services.ledger or ctx.workspace.ledger_url
        for account, crons in crons_of(ctx).items():
            accounts.setdefault((ledger, account), (project, ctx, []))[2].extend(crons)
    for (_, account), (project, ctx, crons) in accounts.items():
        reports = _reports(base, project)
        name, on = project.name, {account: crons}
        try:
            page.add(ctx, runs=base, reports=reports, crons=on, only={account}, project=name)
        except VerificationError:
            pass  # it is on the page
        except PrivsynError as error:
            page.problem(str(error))
    return page.html()


def _reports(base: str, project: Project) -> Callable[[Entry], str | None]:
    """The address of a release's page, where it would be shown."""
    local, store = replace(project.workspace, store=None), project.workspace.store
    # What is stored is fetched when it is asked for.
    stored = set() if store is None else set(store.names())

    def report(entry: Entry) -> str | None:
        if entry.method not in METHODS:
            return None
        dag, name = dag_of(entry.method, project), entry.release_id
        if name not in stored and report_page(project, local, dag, name) is None:
            return None
        return base + REPORT.format(dag_id=dag, release_id=name)

    return report
