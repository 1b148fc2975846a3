"""Airflow reads its settings at its first import, so they are set before any test imports it."""

import atexit
import os
import shutil
import tempfile

HOME = tempfile.mkdtemp(prefix="privsyn-airflow-")
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
os.environ["AIRFLOW_HOME"] = HOME
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
