"""Airflow operators and DAGs of privsyn, imported as ``privsyn.airflow``.

The folder is called operators; ``privsyn/airflow`` is a link to it, so that a checkout, an editable
install and a wheel know it by one name, and no top-level package ``operators`` stands beside the
one that many Airflow projects have of their own.
"""

if __name__ != "privsyn.airflow":
    raise ImportError(f"{__name__} is imported as privsyn.airflow.")
