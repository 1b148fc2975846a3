"""The operators of privsyn by name. Their code is in privsyn/airflow."""

from privsyn.airflow import *  # noqa: F403
