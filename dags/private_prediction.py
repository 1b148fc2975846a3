"""Airflow DAG privsyn_private_prediction: one release of private prediction, by hand or a schedule.

Schedule, account and the defaults of the trigger form come from params.yaml.
"""

from privsyn.airflow.factory import method_dags

globals().update(method_dags("private_prediction"))
