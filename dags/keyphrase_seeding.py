"""Airflow DAG privsyn_keyphrase_seeding: one release of keyphrase seeding, by hand or a schedule.

Schedule, account and the defaults of the trigger form come from params.yaml.
"""

from operators.factory import method_dag

dag = method_dag("keyphrase_seeding")
