"""Airflow DAG privsyn_private_evolution: one release of private evolution, by hand or a schedule.

Images or texts by methods.private_evolution.modality. Schedule, account and the defaults of the
trigger form come from params.yaml.
"""

from privsyn.airflow.factory import method_dags

globals().update(method_dags("private_evolution"))
