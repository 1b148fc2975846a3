"""Opening an MLflow store: quickly, quietly, and with errors a user can read."""

from __future__ import annotations

import logging
import os
import re
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # MLflow's defaults let a call to a dead server hang for minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
_CONNECT_SECONDS = 5


def connect(uri: str) -> Any:
    """An MlflowClient of a tracking URI. Imports MLflow: about four seconds the first time."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    _reach(uri)
    from mlflow.tracking import MlflowClient

    # It makes tables aloud, and prints pages of SQL before it raises what we tell in one line.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    return MlflowClient(tracking_uri=uri)


def _reach(uri: str) -> None:
    """Reach a database quickly or fail: MLflow itself would retry for two minutes."""
    if not uri.startswith(("sqlite:", "postgresql", "mysql", "mssql")):
        return
    arguments: dict[str, Any] = {}
    if uri.startswith("sqlite:"):
        arguments = {"timeout": _CONNECT_SECONDS}
    elif uri.startswith("postgresql"):
        arguments = {"connect_timeout": _CONNECT_SECONDS}
    engine = create_engine(uri, poolclass=NullPool, connect_args=arguments)
    with engine.connect() as connection:
        connection.execute(text("BEGIN IMMEDIATE" if uri.startswith("sqlite:") else "SELECT 1"))


def reason(error: Exception) -> str:
    """The innermost cause, on one line: the outer texts of requests and SQLAlchemy are pages."""
    while isinstance(error.__context__, Exception):
        error = error.__context__
    lines = without_password(str(error)).strip().splitlines()
    kind = type(error).__name__
    return f"{kind}: {lines[0][:200].rstrip('.')}" if lines else kind


def without_password(text: str) -> str:
    """A text without the user and password of any URL in it."""
    return re.sub(r"//[^/@\s]*:[^/@\s]*@", "//***@", text)
