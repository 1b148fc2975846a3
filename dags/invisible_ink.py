"""Airflow DAG privsyn_invisible_ink: one release of InvisibleInk, on demand or on a schedule.

Schedule, account and the defaults of the trigger form come from params.yaml.
"""

from operators.factory import method_dag

dag = method_dag("invisible_ink")
