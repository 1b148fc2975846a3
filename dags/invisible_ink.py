"""Airflow DAG privsyn_invisible_ink: one release of InvisibleInk, on demand or on a schedule.

Schedule, account and the defaults of the trigger form come from params.yaml.
"""

from privsyn.airflow.factory import method_dags

globals().update(method_dags("invisible_ink"))
