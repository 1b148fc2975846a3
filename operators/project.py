"""Where the project of this Airflow is, and the settings its operator pinned for all runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

from privsyn.config import Config
from privsyn.errors import ConfigError

SAMPLE = Path(".privsyn/sample/messages.jsonl")
"""Where the invented messages are written when params.yaml names them."""
PARAMS = "PRIVSYN_PARAMS"
OVERRIDES = "PRIVSYN_OVERRIDES"
DVC_POOL = "dvc"
"""Pool of one slot: two DVC commands in one workspace collide."""


def params_file() -> Path:
    """params.yaml: named by PRIVSYN_PARAMS, else in the folder above the dags folder."""
    named = os.environ.get(PARAMS)
    if named:
        return Path(named)
    from airflow.sdk.configuration import conf

    return Path(conf.get("core", "dags_folder")).resolve().parent / "params.yaml"


def deployment_overrides() -> tuple[str, ...]:
    """``a.b.c=value`` settings from PRIVSYN_OVERRIDES, a JSON list.

    They belong to whoever runs Airflow: dataset, account and services cannot be set in a trigger
    form, since another account or ledger would mean another budget.

    Raises:
        ConfigError: The variable is not a JSON list of strings.
    """
    raw = os.environ.get(OVERRIDES)
    if not raw:
        return ()
    try:
        items = json.loads(raw)
    except ValueError:
        items = None
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ConfigError(f'{OVERRIDES} must be a JSON list such as ["privacy.epsilon=4"].')
    return tuple(items)


def write_sample_if_asked(config: Config, root: Path) -> None:
    """Write the invented messages if params.yaml names them and they are not there."""
    if config.dataset.path != SAMPLE or (root / SAMPLE).exists():
        return
    from privsyn.data.artifacts import private_folder
    from privsyn.data.sample import write_sample
    from privsyn.workspace import Workspace

    private_folder(Workspace(root).state)
    write_sample(root / SAMPLE)
