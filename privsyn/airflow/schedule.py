"""What ``schedule.<method>`` sets: when a DAG runs, for which version, and where its tasks run.

An upstream asset may start runs. What its event says enters the release's name and certificate, so
whoever updates the asset must say nothing there that depends on records: a month, a number of the
export.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Asset, PartitionedAssetTimetable

from privsyn.airflow.project import GPU_POOL
from privsyn.config import PARTITION_KEY, ScheduleConfig
from privsyn.errors import ConfigError
from privsyn.section import NAME


def schedule_of(schedule: ScheduleConfig) -> Any:
    """Airflow's schedule of a DAG: a cron expression, an asset, or none."""
    if schedule.asset is None:
        return schedule.cron
    if schedule.version == PARTITION_KEY:
        return PartitionedAssetTimetable(assets=Asset(schedule.asset))
    return [Asset(schedule.asset)]


def version_of(context: Mapping[str, Any], source: str | None) -> str | None:
    """The version of the dataset that a run is for; None where the form says it.

    A partition's key is that of the run, which a run by hand may have too. Of several events that
    Airflow has gathered into one run the newest counts.

    Args:
        context: Of the task.
        source: ``schedule.<method>.version``.

    Raises:
        ConfigError: The events say none, or one that is no version.
    """
    if source is None:
        return None
    if source == PARTITION_KEY:
        version = context["dag_run"].partition_key
        if version is None:
            return None
    else:
        key = source.removeprefix("extra.")
        given = context["triggering_asset_events"]
        events = [event for asset in list(given) for event in given[asset]]
        if not events:
            return None
        # Airflow gathers the events of a while into one run: the newest is of the data that is
        # there now.
        version = max(events, key=lambda event: event.timestamp).extra.get(key)
    if not isinstance(version, str) or not re.fullmatch(NAME, version):
        # The version is public by contract, and cut: whoever updates the asset may put anything
        # there.
        shown = f"{version!r:.80}" if isinstance(version, str) else "none"
        raise ConfigError(
            f"the version of the data that {source} of the asset's event gives ({shown}) must "
            f"match {NAME}.",
            hint="Set it where the asset is updated, or trigger the run by hand with "
            "dataset.version.",
        )
    return version


_LOADS_MODELS = ("preflight", "train", "generate", "distill")
_RUNS_DVC = ("publish", "publish_student")


@dataclass(frozen=True)
class Routing:
    """Airflow's arguments of a task.

    Attributes:
        schedule: Of the method.
        dvc_pool: Pool of what runs DVC.
    """

    schedule: ScheduleConfig
    dvc_pool: str

    def of(self, task: str) -> dict[str, Any]:
        """Arguments of the operator of a task, by its name. What is not set is Airflow's default.

        A pod template is read by the Kubernetes executor; others ignore it.
        """
        task_config = self.schedule.tasks.get(task)
        pool = GPU_POOL if task in _LOADS_MODELS else None
        arguments = {
            "queue": (task_config and task_config.queue) or None,
            "pool": (task_config and task_config.pool)
            or (self.dvc_pool if task in _RUNS_DVC else pool),
            "executor": (task_config and task_config.executor) or None,
            "executor_config": {"pod_template_file": str(task_config.pod_template)}
            if task_config and task_config.pod_template
            else None,
        }
        # An argument that is None would override the DAG's default.
        return {name: value for name, value in arguments.items() if value is not None}
