"""Airflow DAG privsyn_audit: canaries in throw-away releases of each method. By hand alone."""

from privsyn.airflow.audit import audit_dags

globals().update(audit_dags())
