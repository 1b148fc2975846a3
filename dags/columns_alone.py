"""Airflow DAG privsyn_columns_alone: one table of columns alone, by hand or a schedule.

Schedule, account and the defaults of the trigger form come from params.yaml.
"""

from privsyn.airflow.factory import method_dags

globals().update(method_dags("columns_alone"))
