"""Airflow DAG privsyn_keyphrase_seeding: one release of keyphrase seeding, by hand or a schedule.

Schedule, account and the defaults of the trigger form come from params.yaml.
"""

from privsyn.airflow.factory import method_dags

globals().update(method_dags("keyphrase_seeding"))
