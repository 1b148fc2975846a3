"""Airflow operators and DAG factory: thin drivers of the stage functions in privsyn.stages."""
