"""Where the project of this Airflow is, and the settings its operator pinned for all runs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from privsyn.errors import ConfigError
from privsyn.ledger.settings import POLICIES
from privsyn.methods.base import TrainsModel, as_teacher
from privsyn.methods.registry import load_method

if TYPE_CHECKING:
    from privsyn.release.workspace import Workspace

PARAMS = "PRIVSYN_PARAMS"
PREFIX = "/privsyn"
"""Where privsyn.airflow.plugin serves pages, on the Airflow server itself."""
REPORT = PREFIX + "/{dag_id}/reports/{release_id}"
DVC_POOL, GPU_POOL = "dvc", "gpu"
"""Pools of what runs DVC, one command at a time, and of what loads a model."""

PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,39}")
"""Names of projects: no underscore, which sets the name apart in a DAG's id."""


@dataclass(frozen=True)
class Project:
    """A dataset's project in this Airflow.

    Attributes:
        params: Its params.yaml.
        name: In the ids of its DAGs, assets and pools. None: the only project, which needs none.
    """

    params: Path
    name: str | None = None

    @property
    def root(self) -> Path:
        """Folder of its ledger, scratch and releases."""
        return self.params.resolve().parent

    @property
    def workspace(self) -> Workspace:
        """Its folder and store of releases.

        Raises:
            ConfigError: params.yaml does not load.
        """
        from privsyn.config import environment_overrides, load_config
        from privsyn.stages.base import workspace_of

        return workspace_of(self.params, load_config(self.params, environment_overrides()))

    @property
    def dvc_pool(self) -> str:
        """Its pool of one slot: two DVC commands in one folder collide."""
        # Projects NAME.yaml share a folder, and so DVC's lock and its pool.
        own_folder = self.name is not None and self.params.name == "params.yaml"
        return f"{DVC_POOL}_{self.name}" if own_folder else DVC_POOL

    @property
    def tags(self) -> set[str]:
        """What its DAGs are found by."""
        return {"privsyn"} | (set() if self.name is None else {f"project:{self.name}"})

    def dag_id(self, kind: str) -> str:
        """Id of one of its DAGs."""
        return f"privsyn_{kind}" if self.name is None else f"privsyn_{self.name}_{kind}"

    def asset(self, dataset: str, method: str) -> str:
        """Address of what its releases of a method update."""
        within = "" if self.name is None else f"{self.name}/"
        return f"privsyn://{within}{dataset}/{method}"


def params_file() -> Path:
    """params.yaml, or a folder of projects: PRIVSYN_PARAMS, else above the dags folder."""
    named = os.environ.get(PARAMS)
    if named:
        return Path(named)
    from privsyn.airflow.versions import conf

    return Path(conf.get("core", "dags_folder")).resolve().parent / "params.yaml"


def projects(place: Path | None = None) -> list[Project]:
    """The projects of this Airflow, in order of name.

    Where PRIVSYN_PARAMS is a folder, every ``NAME/params.yaml`` and ``NAME.yaml`` in it is a
    project NAME. Those of the second kind share a ledger and a folder of releases.

    Raises:
        ConfigError: There is no project, a name does not fit into ids, or two are alike.
    """
    place = place or params_file()
    if not place.is_dir():
        return [Project(place)]
    files = {file: file.parent.name for file in place.glob("*/params.yaml")}
    files |= {file: file.stem for file in place.glob("*.yaml") if file.name != POLICIES}
    named = sorted((name, file) for file, name in files.items())
    names = [name for name, _ in named]
    if not names:
        raise ConfigError(
            f"{PARAMS}={place} holds no project.", hint="Add NAME/params.yaml or NAME.yaml."
        )
    for name, file in named:
        if not PROJECT.fullmatch(name) or names.count(name) > 1:
            raise ConfigError(
                f"{file} cannot be a project: its name must match {PROJECT.pattern} and be unique."
            )
    return [Project(file, name) for name, file in named]


def project_at(params: Path) -> Project:
    """The project of a params.yaml, which a DAG of one's own may name."""
    place = params_file()
    known = projects(place) if place.is_dir() else []
    return next((one for one in known if one.params.resolve() == params.resolve()), Project(params))


def project_of(dag_id: str) -> Project | None:
    """The project a DAG belongs to, by its id; None for a DAG of no project."""
    for project in projects():
        # Names have no underscore, so a name cannot be the beginning of another one's id.
        if project.name is None or dag_id.startswith(project.dag_id("")):
            return project
    return None


def trains(method: str) -> bool:
    """Whether a method trains a model, so that its DAG has a task for it."""
    return isinstance(load_method(method), TrainsModel)


def teaches(method: str) -> bool:
    """Whether a method's releases bring the model that wrote them: its DAG goes on to students."""
    return as_teacher(load_method(method)) is not None


def kind_of(method: str) -> str:
    """What a method's DAG is called; a teacher's makes its students too."""
    return f"{method}_distill" if teaches(method) else method


def dag_id(method: str, project: Project | None = None) -> str:
    """The DAG that makes releases of a method, of a project or of the only one."""
    return (project or Project(Path("params.yaml"))).dag_id(kind_of(method))
