"""An executor whose tasks run one after the other, each in a process of its own.

As LocalExecutor's do, under Airflow's supervisor and from the DAG's bundle; but they reach the
execution API inside this process, so that no server has to be started.
"""

from __future__ import annotations

from airflow.executors.base_executor import BaseExecutor
from airflow.sdk.execution_time.supervisor import InProcessTestSupervisor, supervise_task


class ExecutorBeside(BaseExecutor):
    """Runs what it is handed at once."""

    is_local = True

    def _process_workloads(self, workload_items) -> None:
        for workload in workload_items:
            del self.queued_tasks[workload.key]
            self.running.add(workload.key)
            code = supervise_task(
                ti=workload.ti,
                bundle_info=workload.bundle_info,
                dag_rel_path=workload.dag_rel_path,
                token=workload.token,
                log_path=workload.log_path,
                client=InProcessTestSupervisor._api_client(),
            )
            (self.fail if code else self.success)(workload.key)

    def end(self) -> None:
        """Nothing is left running."""

    def terminate(self) -> None:
        """The same."""
