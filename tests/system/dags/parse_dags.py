"""Parse a project's dags/ as Airflow does and write down what came of it."""

import json
import sys
from pathlib import Path

root = Path(sys.argv[1])
before = set(sys.modules)

from airflow.dag_processing.dagbag import DagBag  # noqa: E402


def shape(dag):
    return {
        "schedule": str(dag.schedule) if dag.schedule else None,
        "catchup": dag.catchup,
        "paused": dag.is_paused_upon_creation,
        "max_active_runs": dag.max_active_runs,
        "tags": sorted(dag.tags),
        "doc": dag.doc_md or "",
        "params": sorted(dag.params),
        "tasks": {
            task.task_id: {
                "operator": task.task_type,
                "owner": task.owner,
                "retries": task.retries,
                "pool": task.pool,
                "mapped": task.is_mapped,
                "setup": task.is_setup,
                "teardown": task.is_teardown,
                "downstream": sorted(task.downstream_task_ids),
                "params_path": (task.partial_kwargs if task.is_mapped else vars(task)).get(
                    "params_path"
                ),
                "outlets": [asset.uri for asset in task.outlets],
            }
            for task in dag.tasks
        },
    }


bag = DagBag(root / "dags")
answer = {
    "errors": bag.import_errors,
    "dags": {name: shape(dag) for name, dag in bag.dags.items()},
    "modules": sorted(set(sys.modules) - before),
}
(root / "answer.json").write_text(json.dumps(answer))
