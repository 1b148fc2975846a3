"""Airflow DAG privsyn_private_evolution: one release of private evolution, by hand or a schedule.

Images or texts by methods.private_evolution.modality. Schedule, account and the defaults of the
trigger form come from params.yaml.
"""

from operators.factory import method_dag

dag = method_dag("private_evolution")
