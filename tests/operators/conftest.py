"""Airflow reads its settings at its first import, so they are set before any test imports it."""

import os
import tempfile

os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="privsyn-airflow-")
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
