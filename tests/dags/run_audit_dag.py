"""Run the DAG of the canary audit in this process, once a conf, and say what came of each."""

import json
import os
import sys
from pathlib import Path

from privsyn.config import load_config
from tools.local.environment import airflow_environment, prepare

root = Path(sys.argv[1])
confs = json.loads(sys.argv[2])
home = root / "airflow"
environment = airflow_environment(root, home)
os.environ |= environment
prepare(home, environment, load_config(root / "params.yaml"), root / "prepare.log")

from airflow.models.xcom import XComModel  # noqa: E402
from airflow.utils.session import create_session  # noqa: E402
from sqlalchemy import select  # noqa: E402

from privsyn.airflow.audit import audit_dag  # noqa: E402

answers = []
for conf in confs:
    run = audit_dag().test(run_conf=conf)
    with create_session() as session:
        rows = session.scalars(select(XComModel).where(XComModel.run_id == run.run_id)).all()
        answers.append(
            {
                "state": str(run.state),
                "tasks": {
                    f"{ti.task_id}[{ti.map_index}]" if ti.map_index >= 0 else ti.task_id: str(
                        ti.state
                    )
                    for ti in run.get_task_instances(session=session)
                },
                "shown": [
                    json.loads(row.value) if isinstance(row.value, str) else row.value
                    for row in rows
                    if row.task_id == "audit" and row.key == "return_value"
                ],
            }
        )
(root / "answer.json").write_text(json.dumps(answers))
