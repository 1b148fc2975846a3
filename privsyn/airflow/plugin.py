"""Airflow plugin: outward reports of releases, and the budget page, on the Airflow server.

Registered through the entry point ``airflow.plugins``. Every Airflow process loads plugins, the
parsers among them, so the web framework is imported at the first request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.plugins_manager import AirflowPlugin

from privsyn.airflow.project import PREFIX

if TYPE_CHECKING:
    from fastapi import FastAPI

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


def _pages() -> FastAPI:
    from privsyn.airflow.pages import pages_app

    return pages_app()


class PrivsynPlugin(AirflowPlugin):  # type: ignore[misc]
    """The pages, and the entry of the menu that leads to the budget."""

    name = "privsyn"
    fastapi_apps: ClassVar[list[dict[str, Any]]] = [
        {"app": _Lazy(_pages), "url_prefix": PREFIX, "name": "privsyn pages"}
    ]
    external_views: ClassVar[list[dict[str, Any]]] = [
        # No url_route: the frame that one would put it in lets no link of the page open.
        {
            "name": "Privacy budget",
            "href": f"{PREFIX.removeprefix('/')}/budget",
            "destination": "nav",
            "category": "browse",
        }
    ]
