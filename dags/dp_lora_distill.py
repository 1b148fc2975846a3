"""Airflow DAG privsyn_dp_lora_distill: a DP-LoRA teacher's release and a student on its texts.

Schedule, account and the defaults of the trigger form come from params.yaml.
"""

from privsyn.airflow.factory import method_dags

globals().update(method_dags("dp_lora"))
