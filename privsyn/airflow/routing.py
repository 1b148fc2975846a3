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
        own = self.schedule.tasks.get(task)
        pool = self.schedule.gpu_pool if task in _LOADS_MODELS else None
        found = {
            "queue": (own and own.queue) or self.schedule.queue,
            "pool": (own and own.pool) or (self.dvc_pool if task in _RUNS_DVC else pool),
            "executor": (own and own.executor) or None,
            "executor_config": {"pod_template_file": str(own.pod_template)}
            if own and own.pod_template
            else None,
        }
        return {name: value for name, value in found.items() if value is not None}
