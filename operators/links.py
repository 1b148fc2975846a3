"""Buttons on a task: the release's MLflow run and its validation report.

Airflow 3 asks a link for its address in the worker, right after the task, and keeps the answer in
XCom, where the API server reads it. So a link returns what its operator noted while it ran, and
needs no class on the server's side.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperatorLink

REPORT = "/privsyn/{dag_id}/reports/{release_id}"
"""Where operators.plugin serves the page, on the Airflow server itself."""


class MlflowRunLink(BaseOperatorLink):  # type: ignore[misc]
    """To the run of the release in the MLflow UI."""

    name = "MLflow run"
    xcom_key = "link_mlflow_run"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Address the operator noted; empty before it knows one."""
        return getattr(operator, "mlflow_url", None) or ""


class ValidationReportLink(BaseOperatorLink):  # type: ignore[misc]
    """To the validation page of the release."""

    name = "Validation report"
    xcom_key = "link_validation_report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Address the operator noted; empty before it knows one."""
        return getattr(operator, "report_url", None) or ""
