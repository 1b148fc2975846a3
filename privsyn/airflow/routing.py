"""Where Airflow runs the tasks of a release: queue, pool, executor, pod template, by task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from privsyn.config import ScheduleConfig

_LOADS_MODELS = ("preflight", "train", "generate", "distill", "baseline")
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
        pool = self.schedule.gpu_pool if task in _LOADS_MODELS else None
        arguments = {
            "queue": (task_config and task_config.queue) or self.schedule.queue,
            "pool": (task_config and task_config.pool)
            or (self.dvc_pool if task in _RUNS_DVC else pool),
            "executor": (task_config and task_config.executor) or None,
            "executor_config": {"pod_template_file": str(task_config.pod_template)}
            if task_config and task_config.pod_template
            else None,
        }
        # An argument that is None would override the DAG's default.
        return {name: value for name, value in arguments.items() if value is not None}
