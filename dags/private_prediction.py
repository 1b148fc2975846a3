"""Airflow DAG privsyn_private_prediction: one release of private prediction, by hand or a schedule.

Schedule, account and the defaults of the trigger form come from params.yaml.
"""

from operators.factory import method_dag

dag = method_dag("private_prediction")
