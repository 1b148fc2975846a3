"""The pages of privsyn on the Airflow server, behind Airflow's own login. Read-only.

Imported at the first request: plugins are loaded by every process of Airflow.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse

from privsyn.airflow.budget_view import budget_html, readable
from privsyn.airflow.links import PREFIX, report_page
from privsyn.airflow.project import project_of
from privsyn.errors import PrivsynError

RELEASE_ID = re.compile(r"[a-z0-9_]+-[0-9a-f]{16}")
HEADERS = {
    # The pages hold model output and names, and are served on the origin of the Airflow session.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def pages_app() -> FastAPI:
    """Reports of a DAG's own releases, and the budget, for users who may read the DAGs."""
    app = FastAPI(title="privsyn pages", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/{dag_id}/reports/{release_id}", dependencies=[Depends(requires_access_dag("GET"))])
    def report(dag_id: str, release_id: str) -> HTMLResponse:
        page = None
        # A name from the address bar becomes a path only if it can be a release's.
        if RELEASE_ID.fullmatch(release_id) and (project := project_of(dag_id)) is not None:
            try:
                page = report_page(project.workspace, dag_id, release_id, project)
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
