"""Where the project of this Airflow is, and the settings its operator pinned for all runs."""

from __future__ import annotations

import os
from pathlib import Path

from privsyn.config import Config

SAMPLE = Path(".privsyn/sample/messages.jsonl")
DIGITS = Path(".privsyn/sample/digits.npz")
"""Where the invented messages and the scans of digits are written when the config names them."""
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
    """Write the sample of texts or of images if the config names it and it is not there."""
    path = config.dataset.path
    if path not in (SAMPLE, DIGITS) or (root / path).exists():
        return
    from privsyn.data.artifacts import private_folder
    from privsyn.data.digits import write_digits
    from privsyn.data.sample import write_sample
    from privsyn.workspace import Workspace

    private_folder(Workspace(root).state)
    if path == DIGITS:
        write_digits(root / DIGITS)
    else:
        write_sample(root / SAMPLE)


def teaches(method: str) -> bool:
    """Whether a method trains a model, so that its DAG goes on to students."""
    from privsyn.methods.base import Trained, load_method

    return isinstance(load_method(method), Trained)


def dag_id(method: str) -> str:
    """The DAG that makes releases of a method; a teacher's makes its students too."""
    return f"privsyn_{method}_distill" if teaches(method) else f"privsyn_{method}"
