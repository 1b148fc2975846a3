"""Airflow DAG privsyn_ledger: every day the balances, and the releases that never finished."""

from privsyn.airflow.ledger import ledger_report_dags

globals().update(ledger_report_dags())
