"""Airflow DAG privsyn_ledger: every day the balances, and the releases that never finished."""

from operators.ledger import ledger_report_dag

dag = ledger_report_dag()
