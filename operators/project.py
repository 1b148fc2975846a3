"""Where the project of this Airflow is, and the settings its operator pinned for all runs."""

from __future__ import annotations

import os
from pathlib import Path

from privsyn.config import Config

SAMPLE = Path(".privsyn/sample/messages.jsonl")
"""Where the invented messages are written when params.yaml names them."""
PARAMS = "PRIVSYN_PARAMS"
DVC_POOL = "dvc"
"""Pool of one slot: two DVC commands in one workspace collide."""


def params_file() -> Path:
    """params.yaml: named by PRIVSYN_PARAMS, else in the folder above the dags folder."""
    named = os.environ.get(PARAMS)
    if named:
        return Path(named)
    from airflow.sdk.configuration import conf

    return Path(conf.get("core", "dags_folder")).resolve().parent / "params.yaml"


def write_sample_if_asked(config: Config, root: Path) -> None:
    """Write the invented messages if params.yaml names them and they are not there."""
    if config.dataset.path != SAMPLE or (root / SAMPLE).exists():
        return
    from privsyn.data.artifacts import private_folder
    from privsyn.data.sample import write_sample
    from privsyn.workspace import Workspace

    private_folder(Workspace(root).state)
    write_sample(root / SAMPLE)
