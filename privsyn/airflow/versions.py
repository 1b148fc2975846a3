"""What Airflow 3.1 and 3.2 lack, and what takes its place there.

The one file that knows versions of Airflow: others import from here. docs/airflow.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import Asset

from privsyn.errors import ConfigError

try:
    from airflow.sdk.configuration import conf
    from airflow.sdk.exceptions import (
        AirflowFailException,
        AirflowSensorTimeout,
        AirflowSkipException,
        AirflowTaskTimeout,
        TaskDeferred,
    )
except ImportError:  # 3.1
    from airflow.configuration import conf
    from airflow.exceptions import (
        AirflowFailException,
        AirflowSensorTimeout,
        AirflowSkipException,
        AirflowTaskTimeout,
        TaskDeferred,
    )
try:
    from airflow.sdk import RetryDecision, RetryPolicy
    from airflow.sdk.exceptions import TaskAwaitingInput
    from airflow.sdk.observability.stats import gauge

    HAS_POLICIES = True
except ImportError:  # before 3.3
    from airflow.stats import Stats

    HAS_POLICIES = False
    RetryDecision = RetryPolicy = object
    TaskAwaitingInput = TaskDeferred
    gauge = Stats.gauge

__all__ = [
    "HAS_POLICIES",
    "AirflowFailException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "AirflowTaskTimeout",
    "RetryDecision",
    "RetryPolicy",
    "TaskAwaitingInput",
    "conf",
    "deadline_alert",
    "end_of",
    "gauge",
    "partitioned",
    "task_store",
]


class FinalFailure(AirflowFailException):  # type: ignore[misc]
    """Ends a task at once where Airflow has no retry policies; it prints the stack of it, too.

    Attributes:
        failure: The failure, which Airflow would try again.
    """

    def __init__(self, failure: Any) -> None:
        super().__init__(str(failure))
        self.failure = failure


def end_of(failure: Any) -> BaseException:
    """What a task raises that failed: the failure itself, where a policy decides on retries."""
    ends: BaseException = failure
    return FinalFailure(failure) if failure.final and not HAS_POLICIES else ends


def task_store(context: Mapping[str, Any]) -> Any:
    """What outlives a try of the task, by ``get`` and ``set``; None before 3.3."""
    return context.get("task_state_store")


def partitioned(asset: str) -> Any:
    """The schedule of a DAG with a run for each partition of an asset.

    Raises:
        ConfigError: Airflow has none.
    """
    try:
        from airflow.sdk import PartitionedAssetTimetable
    except ImportError:  # 3.1
        raise ConfigError(
            "schedule: version=partition_key needs Airflow 3.2 or later.",
            hint="Use extra.KEY of the asset's event.",
        ) from None
    return PartitionedAssetTimetable(assets=Asset(asset))


def deadline_alert(interval: timedelta, late: Callable[..., Any], params_path: str) -> Any:
    """Airflow's alert on a run that has not ended so long after it was queued.

    Args:
        interval: How long.
        late: The coroutine that the triggerer awaits, with Airflow's ``context``: that of an
            executor needs 3.2, and one of the executors that can.
        params_path: Its other argument.
    """
    from airflow.sdk.definitions import deadline

    return deadline.DeadlineAlert(
        reference=deadline.DeadlineReference.DAGRUN_QUEUED_AT,
        interval=interval,
        callback=deadline.AsyncCallback(late, {"params_path": params_path}),
    )
