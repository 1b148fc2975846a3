"""What every stage gets: a context."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from datetime import date as Date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from privsyn.config import Config, DatasetConfig, load_config
from privsyn.dp.noise import NoiseSource, OpenDPNoise
from privsyn.errors import ConfigError
from privsyn.ledger import Account, AccountSpec, Ledger, open_ledger
from privsyn.methods.base import SETTINGS
from privsyn.release import Plan
from privsyn.tracking.base import BestEffort, Tracker
from privsyn.workspace import Workspace

if TYPE_CHECKING:
    from privsyn.backends.rank_group import Group

EXPERIMENT_COPY = "/.dvc/tmp/exps"
"""Where DVC copies a project for experiments outside the workspace."""


class Progress(Protocol):
    """Receives public progress counts."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """``done`` of ``total`` outputs of a stage are finished."""


def silent(stage: str, done: int, total: int) -> None:
    """Progress that goes nowhere."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Context:
    """What the drivers share: config, project folder, ledger, tracker, clock, noise.

    Attributes:
        config: The validated config.
        workspace: Paths of the project.
        day: The run's logical date, for ``{date:...}`` in dataset.version.
        origin: Public facts of the driver for lineage, such as the DAG and run id.
        as_filed: Whether params.yaml alone, without overrides, describes this run.
        progress: Receives counts of finished outputs.
        clock: Time of ledger entries and leases.
        noise: Makes the noise source of a generate stage. Anything but OpenDP taints the release.
        group: Processes that torchrun started beside this one, to help the stage train.
    """

    config: Config
    workspace: Workspace
    day: Date = field(default_factory=lambda: _now().date())
    origin: Mapping[str, str] = field(default_factory=dict)
    as_filed: bool = True
    progress: Progress = silent
    clock: Callable[[], datetime] = _now
    noise: Callable[[], NoiseSource] = OpenDPNoise
    group: Group | None = None

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger of the project.

        Raises:
            ConfigError: The project is a copy that ``dvc exp run --temp`` made, which has no ledger
                of its own: a fresh one would forget what is spent.
        """
        if (
            self.config.services.ledger is None
            and EXPERIMENT_COPY in self.workspace.root.as_posix()
        ):
            raise ConfigError(
                "services.ledger is not set, and this is a temporary copy of the project: a new "
                "ledger here would forget what is spent.",
                hint="Set services.ledger to an absolute URL, or run without --temp and --queue.",
            )
        return open_ledger(
            self.config.services.ledger or self.workspace.ledger_url, clock=self.clock
        )

    @cached_property
    def tracker(self) -> Tracker:
        """The MLflow tracker of the project."""
        from privsyn.tracking.mlflow import MlflowTracker

        services = self.config.services
        return MlflowTracker(
            uri=services.mlflow or self.workspace.mlflow_uri,
            experiment=services.experiment,
            artifact_root=None if services.mlflow else self.workspace.mlflow_artifacts,
            ui=services.mlflow_ui,
        )

    @cached_property
    def lineage(self) -> Tracker:
        """The tracker as stages write to it: a store that is down is a warning."""
        return BestEffort(self.tracker)

    @property
    def account(self) -> AccountSpec:
        """The account the config names."""
        return AccountSpec.of(self.config)

    def open_account(self) -> Account:
        """The account the config names, opened if it is new.

        Raises:
            BudgetError: The project holds releases the ledger does not know: a fresh one would
                forget what is spent.
        """
        spec = self.account
        return self.ledger.open_account(
            spec, known_releases=self.workspace.known_releases(spec.name)
        )

    def source(self, plan: Plan) -> DatasetConfig:
        """The private file as a plan describes it; from this config come the paths alone."""
        dataset = self.config.dataset
        test = None if dataset.test_path is None else self.path(dataset.test_path)
        return DatasetConfig(
            path=self.path(dataset.path),
            test_path=test,
            max_records_per_unit=plan.max_records_per_unit,
            **plan.dataset.model_dump(),
        )

    def path(self, path: Path) -> Path:
        """A config path, relative to the project folder."""
        return path if path.is_absolute() else self.workspace.root / path


def open_context(
    params: Path,
    overrides: Sequence[str] = (),
    *,
    day: Date | None = None,
    origin: Mapping[str, str] | None = None,
    progress: Progress = silent,
    group: Group | None = None,
) -> Context:
    """The context of a project, from its params.yaml and ``a.b.c=value`` overrides.

    Raises:
        ConfigError: See privsyn.config.load_config.
    """
    config = load_config(params, overrides)
    return Context(
        config=config,
        workspace=Workspace(params.resolve().parent),
        day=day or _now().date(),
        origin=origin or {},
        as_filed=not overrides or _shapes_output(config) == _shapes_output(load_config(params)),
        progress=progress,
        group=group,
    )


def _shapes_output(config: Config) -> tuple[object, ...]:
    """The sections dvc.yaml tracks."""
    return (
        config.dataset,
        config.account,
        config.privacy,
        config.models,
        config.validation,
        config.evaluate,
        {name: config.method(name) for name in (*config.methods, *SETTINGS)},
    )
