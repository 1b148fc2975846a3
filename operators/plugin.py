"""Airflow plugin: serves the reports of releases that may leave the room on the Airflow server.

Registered through the entry point ``airflow.plugins``. Every Airflow process loads plugins, the
parsers among them, so the web framework is imported at the first request.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from fastapi import FastAPI

PREFIX = "/privsyn"
RELEASE_ID = re.compile(r"[a-z0-9_]+-[0-9a-f]{16}")
HEADERS = {
    # The page holds model output and is served on the origin of the Airflow session.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}

Message = MutableMapping[str, Any]


class _Lazy:
    """An ASGI app that is built when it is first asked."""

    def __init__(self, build: Callable[[], FastAPI]) -> None:
        self._build = build
        self._app: FastAPI | None = None

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        if self._app is None:
            self._app = self._build()
        await self._app(scope, receive, send)


def reports_app() -> FastAPI:
    """The pages of a DAG's own releases, for users who may read the DAG."""
    from airflow.api_fastapi.core_api.security import requires_access_dag
    from fastapi import Depends, FastAPI, HTTPException
    from fastapi.responses import HTMLResponse

    from privsyn.airflow.links import report_page
    from privsyn.airflow.project import project_of
    from privsyn.release.workspace import Workspace

    app = FastAPI(title="privsyn reports", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/{dag_id}/reports/{release_id}", dependencies=[Depends(requires_access_dag("GET"))])
    def report(dag_id: str, release_id: str) -> HTMLResponse:
        page = None
        if RELEASE_ID.fullmatch(release_id) and (project := project_of(dag_id)) is not None:
            page = report_page(Workspace(project.root), dag_id, release_id, project)
        if page is None:
            raise HTTPException(404, "This DAG has no validated release of that name here.")
        return HTMLResponse(page.read_text(encoding="utf-8"), headers=HEADERS)

    return app


class PrivsynPlugin(AirflowPlugin):  # type: ignore[misc]
    """The reports."""

    name = "privsyn"
    fastapi_apps: ClassVar[list[dict[str, Any]]] = [
        {"app": _Lazy(reports_app), "url_prefix": PREFIX, "name": "privsyn reports"}
    ]
