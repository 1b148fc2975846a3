"""Airflow operators and DAGs. The names that other DAGs use are offered here, loaded on demand."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

OLDEST = (3, 1)
"""Airflow before it has no tasks that wait for a person."""


def _refuse_older() -> None:
    """Refuse an Airflow that is too old by name, before an import of it fails.

    Raises:
        ImportError: It is. Airflow shows it as the import error of each DAG file.
    """
    try:
        # By the package's metadata: importing Airflow takes seconds, and every process would pay
        # for it.
        installed = version("apache-airflow-core")
    except PackageNotFoundError:
        return
    if tuple(map(int, installed.split(".")[:2])) < OLDEST:
        raise ImportError(
            f"privsyn.airflow needs Airflow {'.'.join(map(str, OLDEST))} or later, and this is "
            f"{installed}. Upgrade Airflow, or make releases by the command line: privsyn run."
        )


_refuse_older()

_PUBLIC = {
    "release_group": "factory",
    "method_dag": "factory",
    "PlanOperator": "budget",
    "ReserveBudgetOperator": "budget",
    "SettleBudgetOperator": "budget",
    "PreflightOperator": "generate",
    "PartitionOperator": "generate",
    "TrainOperator": "generate",
    "GenerateShardOperator": "generate",
    "CertifyOperator": "generate",
    "ValidateOperator": "publish",
    "EvaluateOperator": "publish",
    "PublishOperator": "publish",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> object:
    """A public name, loaded on demand."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'privsyn.airflow' has no attribute {name!r}")
    return getattr(import_module(f"privsyn.airflow.{_PUBLIC[name]}"), name)
