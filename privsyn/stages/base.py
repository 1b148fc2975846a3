"""What every stage gets: a context."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from datetime import date as Date
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from privsyn.address import Source, Stream
from privsyn.config import Config, load_config
from privsyn.data.artifacts import check_place, wipe
from privsyn.data.object_store import local_folder
from privsyn.data.public_files import PublicFiles, ReadsFiles
from privsyn.data.readers.arrow import PrivateCopy
from privsyn.data.readers.formats import fingerprint_of, source_of
from privsyn.data.readers.streams import there
from privsyn.data.readers.tables import newest
from privsyn.data.records import Cell
from privsyn.data.settings import TABLE, DatasetConfig, of_any_day
from privsyn.dp.events import Event
from privsyn.dp.noise import NoiseSource, OpenDPNoise
from privsyn.errors import ConfigError, DataError, PrivsynError, VerificationError
from privsyn.files import OnDisk, values
from privsyn.ledger.accounts import Account
from privsyn.ledger.entries import Entry, State
from privsyn.ledger.ledger import Ledger
from privsyn.ledger.spec import AccountSpec, terms_of
from privsyn.methods.base import Mechanism, Method
from privsyn.methods.registry import load_method
from privsyn.methods.shared.distill import STUDENTS
from privsyn.modalities.registry import Modality, modality_of
from privsyn.models import model_store
from privsyn.progress import Progress
from privsyn.release.plan import Plan
from privsyn.release.workdir import VaultWorkdir, Workdir
from privsyn.release.workspace import Workspace
from privsyn.tracking import MlflowTracker
from privsyn.vault import Vault

WHO = ("user", "driver", "dag_id", "run_id", "dag_version", "bundle", "bundle_version")
"""What of the origin the ledger keeps with every row."""
CHECK = "check.json"
"""Counts of the private file, in a folder of internal numbers."""
PARAMS_FILE = "params.yaml"
"""What dvc.yaml tracks; a project of another name shares its folder with others."""
EXPERIMENT_COPY = "/.dvc/tmp/exps"
"""Where DVC copies a project for experiments outside the workspace."""


def os_user() -> str:
    """Name of the user this process runs as; the number where it has none, as in containers."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Context:
    """What the drivers share: config, project folder, ledger, tracker, clock, noise.

    Attributes:
        config: The validated config.
        workspace: Paths of the project.
        day: The run's logical date, for ``{date:...}`` in dataset.version and dataset.path.
        origin: Facts of the driver for lineage, such as the user, the DAG and the run id.
        as_filed: Whether params.yaml alone, without overrides, describes this run.
        on_progress: Receives counts of finished outputs; None: nobody does.
        clock: Time of ledger entries and leases.
        noise: Makes the noise source of a generate stage. Anything but OpenDP taints the release.
    """

    config: Config
    workspace: Workspace
    day: Date = field(default_factory=lambda: _now().date())
    origin: Mapping[str, str] = field(default_factory=dict)
    as_filed: bool = True
    on_progress: Progress | None = None
    clock: Callable[[], datetime] = _now
    noise: Callable[[], NoiseSource] = OpenDPNoise

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger of the project.

        Raises:
            ConfigError: The project is a copy that ``dvc exp run --temp`` made, which has no ledger
                of its own: a fresh one would forget what is spent. Or the ledger is an Airflow
                connection's, and this is no task of Airflow.
        """
        services = self.config.services
        if services.ledger is None and "ledger" in services.connections:
            raise ConfigError(
                "services.connections.ledger names the ledger for Airflow's tasks, and "
                "services.ledger is not set: a new ledger here would forget what is spent.",
                hint="Set services.ledger to the same database, such as by PRIVSYN_OVERRIDES.",
            )
        if services.ledger is None and EXPERIMENT_COPY in self.workspace.root.as_posix():
            raise ConfigError(
                "services.ledger is not set, and this is a temporary copy of the project: a new "
                "ledger here would forget what is spent.",
                hint="Set services.ledger to an absolute URL, or run without --temp and --queue.",
            )
        return Ledger(
            services.ledger or self.workspace.ledger_url,
            clock=self.clock,
            requester=self._who,
        )

    @property
    def _who(self) -> dict[str, str]:
        """Who asks, as the driver says; beside it whom this process runs as, where that differs."""
        person = {key: self.origin[key] for key in WHO if self.origin.get(key)}
        mine = os_user()
        return person | ({"os_user": mine} if person and mine != person.get("user") else {})

    @property
    def ledger_at_hand(self) -> Ledger | None:
        """The ledger, where one is named or lies in the state folder; else there is none to ask."""
        named = self.config.services.ledger is not None
        return self.ledger if named or (self.workspace.state / "ledger.db").exists() else None

    @cached_property
    def tracker(self) -> MlflowTracker:
        """The MLflow tracker of the project: a store that is down is a warning."""
        services = self.config.services
        return MlflowTracker(
            uri=services.mlflow or self.workspace.mlflow_uri,
            artifact_root=None if services.mlflow else self.workspace.mlflow_artifacts,
            ui=services.mlflow_ui,
            strict=False,
        )

    @cached_property
    def vault(self) -> Vault | None:
        """The vault of the settings; None where private intermediates stay on this machine.

        Raises:
            ConfigError: It lies in a folder of the project whose content is published.
        """
        url, key = self.config.services.vault, self.config.services.vault_key
        if url is None:
            return None
        folder = local_folder(url)
        if folder is not None:
            check_place(folder, self.workspace.public_folders, "services.vault")
        return Vault(url, None if key is None else self.path(key))

    def progress(self, stage: str, done: int, total: int, things: str = "") -> None:
        """Pass counts on to whoever receives them."""
        if self.on_progress is not None:
            self.on_progress(stage, done, total, things)

    @property
    def account(self) -> AccountSpec:
        """The account the config names."""
        return AccountSpec.of(self.config, terms_of(self.config.account, self.workspace.root))

    def open_account(self) -> Account:
        """The account the config names, opened if it is new.

        Raises:
            BudgetError: The project holds releases the ledger does not know: a fresh one would
                forget what is spent.
        """
        spec = self.account
        return self.ledger.accounts.open(spec, known_releases=self._charged_releases(spec.name))

    def find_account(self) -> Account | None:
        """The account the config names, where it is open. Writes nothing.

        Raises:
            BudgetError: As ``open_account``: who asks what is left must not hear of a lost ledger
                that nothing is spent.
        """
        name = self.config.account.name
        known = self._charged_releases(name)
        return self.ledger.accounts.find(name, known_releases=known)

    def charged_account(self) -> Account:
        """The account the config names, which a release was charged to before.

        Terms that have become stricter since bind the next release. A run that goes on with the
        settings it began with is no attempt to weaken them.

        Raises:
            BudgetError: The account is unknown, or has another cap, unit or adjacency.
        """
        spec = self.account
        return self.ledger.accounts.charged_to(
            spec, known_releases=self._charged_releases(spec.name)
        )

    def _charged_releases(self, account: str | None) -> list[str]:
        """Releases that lie, are published or are stored, charged to an account or to any."""
        here, store = self.workspace.known_releases(account), self.workspace.store
        if store is None:
            return here
        ledger = self.ledger_at_hand
        paid = () if ledger is None else (entry.release_id for entry in ledger.releases.all())
        return sorted({*here, *store.charged_releases(account, {*paid})})

    def check_releases(self) -> None:
        """Check that the ledger knows the releases that lie or are published here.

        Raises:
            VerificationError: It does not: what they spent is in no balance.
        """
        known = {entry.release_id for entry in self.ledger.releases.all()}
        unknown = [name for name in self._charged_releases(None) if name not in known]
        if unknown:
            raise VerificationError(
                f"ledger {self.ledger.where} does not know {len(unknown)} of the releases here, "
                f"{unknown[0]} among them: it was lost or replaced, or did not pay for them.",
                hint="Check services.ledger, or restore the ledger from its backup.",
            )

    @property
    def cache(self) -> Path | None:
        """Where digests of files are kept: without a state folder, beside the user's models."""
        return self.workspace.cache if self.workspace.state.is_dir() else model_store.digests()

    @cached_property
    def files(self) -> PublicFiles:
        """The door to the public files that settings name."""
        return PublicFiles(self.workspace.root, self.private_places)

    @property
    def private_places(self) -> list[tuple[str, Source]]:
        """Places that no setting may name as public, each with what it holds."""
        root, dataset, services = self.workspace.root, self.config.dataset, self.config.services
        places: list[tuple[str, Source | None]] = [
            ("the state folder", self.workspace.state),
            ("Airflow's home", root / ".airflow"),
            ("the vault (services.vault)", local_folder(services.vault or "")),
        ]
        keys = {
            "the signing key (signing.key)": self.config.signing.file,
            "the vault's key": services.vault_key,
        }
        places += [(name, self.path(file)) for name, file in keys.items() if file is not None]
        with suppress(RuntimeError):  # a user without a home has none of Airflow's in it
            home = Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()
            places.append(("Airflow's home (AIRFLOW_HOME)", home))
        stores = {"services.ledger": services.ledger, "services.mlflow": services.mlflow}
        for name, url in stores.items():
            if url is not None and url.startswith("sqlite:///"):
                places.append((name, root / url.removeprefix("sqlite:///")))
        read = {
            "the private file (dataset.path)": dataset.path,
            "the held-out records (dataset.test_path)": dataset.test_path,
        }
        for name, path in read.items():
            if path is not None:
                places += [(name, file) for file in of_any_day(self.source_path(path))]
        return [(name, place) for name, place in places if place is not None]

    def settings(self, name: str) -> Any:
        """Settings of a section of ``methods``, reading their files through the door.

        Raises:
            ConfigError: See Config.method.
        """
        settings = self.config.method(name)
        reads = isinstance(settings, ReadsFiles)
        return settings.through(self.files, f"methods.{name}") if reads else settings

    def public_files(self, method: str) -> Iterator[tuple[str, str, OnDisk]]:
        """Setting, value and mark of all that a release of a method reads from disk."""
        sections: list[tuple[str, Any]] = [
            (f"methods.{method}.", self.config.method(method)),
            ("models.", self.config.models),
            ("validation.", self.config.validation),
        ]
        for prefix, section in sections:
            yield from values(section, prefix)

    def check_files(self, method: str) -> None:
        """Refuse files and model folders that a release must not read.

        Raises:
            ConfigError: A file is, is in, or holds a private place.
        """
        for setting, value, _ in self.public_files(method):
            self.files.check(setting, value)

    def fingerprint(self, dataset: DatasetConfig) -> str:
        """Keyed fingerprint of a private source, by the ledger's key. Internal: readers/streams.py.

        Raises:
            DataError: It cannot be read.
            LedgerUnavailable: There is no ledger yet: open the account first.
        """
        return fingerprint_of(dataset, self.ledger.releases.source_key().reveal())

    @cached_property
    def dataset(self) -> DatasetConfig:
        """The dataset of this run, with its dates and, where it is the version, its snapshot.

        Raises:
            ConfigError: The version is that of a table, and there is none.
            DataError: The table cannot be read.
        """
        dataset = self.config.dataset
        if dataset.version == TABLE and dataset.path is not None:
            path = self.source_path(dataset.with_dates(dataset.dates(self.day)).path)
            snapshot = dataset.snapshot or newest(path)
            dataset = dataset.model_copy(update={"version": snapshot, "snapshot": snapshot})
        return dataset.resolved(self.day)

    def source_path(self, path: Any) -> Any:
        """Where records are read from: an address, or a path relative to the project folder."""
        return self.path(path) if isinstance(path, Path) else path

    def path(self, path: Path) -> Path:
        """A config path, relative to the project folder."""
        return path if path.is_absolute() else self.workspace.root / path


@dataclass(frozen=True)
class OpenPlan:
    """A plan with all that it stands for on this machine, opened once and handed on.

    Each part is made when it is first read: settings may open public files, and a plan is not
    trusted with that before it is checked (``stages/reserve.py:_check_plan``).

    Attributes:
        ctx: Config and ledger.
        plan: The plan.
        copy: What was read of its query or table, and takes their place.
    """

    ctx: Context
    plan: Plan
    copy: PrivateCopy | None = None

    @property
    def id(self) -> str:
        """The release id."""
        return self.plan.id

    @cached_property
    def method(self) -> Method[Any]:
        """The method."""
        return load_method(self.plan.method)

    @cached_property
    def settings(self) -> Any:
        """The method's settings. The plan says what their files are; the config, where they lie.

        Raises:
            ConfigError: See Config.method.
        """
        settings = self.plan.settings_of(self.method)
        if isinstance(settings, ReadsFiles):
            section, config = f"methods.{self.plan.method}", self.ctx.config
            settings = settings.through(self.ctx.files, section, config.method(self.plan.method))
        return settings

    @cached_property
    def mechanism(self) -> Mechanism:
        """What the release draws with, and is priced by."""
        return self.plan.rebuild(self.method, self.settings)

    @property
    def event(self) -> Event:
        """The event of all that will be drawn."""
        return self.mechanism.whole

    @property
    def journal_header(self) -> dict[str, Any]:
        """What the draws of a release belong to: another model or noise source may not go on."""
        return {
            "release": self.id,
            "noise": self.ctx.noise().kind,
            "models": {role: use.revision for role, use in self.plan.models.items()},
        }

    @cached_property
    def cells(self) -> list[Cell]:
        """The public cells of the partition, in output order."""
        return self.method.cells(self.settings, self.plan.dataset.labels)

    @cached_property
    def modality(self) -> Modality:
        """What kind of records the release holds."""
        return modality_of(self.plan.dataset)

    @cached_property
    def source(self) -> DatasetConfig:
        """The private source as the plan describes it; from the config comes where it is alone."""
        ctx, plan = self.ctx, self.plan
        today = ctx.config.dataset.dates(ctx.day)
        # A plan may be carried out on another day than it was made for: by hand, or past midnight.
        dates = plan.dates if len(plan.dates) == len(today) else today
        dataset = ctx.config.dataset.with_dates(dates)
        source = DatasetConfig(
            path=ctx.source_path(dataset.path),
            query=dataset.query,
            snapshot=plan.dataset.version if dataset.version == TABLE else dataset.snapshot,
            test_path=ctx.source_path(dataset.test_path),
            max_records_per_unit=plan.max_records_per_unit,
            **plan.dataset.model_dump(),
        )
        if self.copy is None:
            return source
        return source.model_copy(update={"query": self.copy, "path": None})


def check_machine(release: OpenPlan) -> None:
    """Refuse a worker without the private file, where machines share the stores.

    Raises:
        DataError: It is not here.
    """
    services, source = release.ctx.config.services, source_of(release.source)
    if isinstance(source, Stream) or not (services.vault or services.releases):
        return
    if not there(source):
        raise DataError(
            f"{source} does not exist on this machine.",
            hint="Give reserve, partition and evaluate a queue whose workers have it "
            "(schedule.tasks); if these have, the export is late.",
        )


def open_plan(ctx: Context, plan: Plan | OpenPlan) -> OpenPlan:
    """A plan as stages use it. One that the caller has opened in this context stays open."""
    if isinstance(plan, OpenPlan):
        return plan if plan.ctx is ctx else OpenPlan(ctx, plan.plan)
    return OpenPlan(ctx, plan)


Stage = TypeVar("Stage", bound=Callable[..., Any])


def again_if_finished(stage: Stage) -> Stage:
    """Run a stage once more that failed because another process finished the release meanwhile.

    Of two runs of one release the slower one looks, and what it looked at is committed and wiped
    before it comes to use it. The second time it finds the release finished.
    """

    @wraps(stage)
    def twice(ctx: Context, plan: Plan | OpenPlan, *args: Any, **kwargs: Any) -> Any:
        try:
            return stage(ctx, plan, *args, **kwargs)
        except PrivsynError as error:
            # What may be retried is, by the caller: a store that is down would be waited for twice.
            if error.retryable or not _is_finished(ctx, plan.id):
                raise
        return stage(ctx, plan, *args, **kwargs)

    return cast("Stage", twice)


def _is_finished(ctx: Context, release_id: str) -> bool:
    with suppress(PrivsynError):  # the error at hand matters more
        return ctx.ledger.releases.get(release_id).state is State.COMMITTED
    return False


def find_workdir(ctx: Context, entry: Entry) -> Workdir:
    """Where a release keeps its private intermediates, or will: here, or in the vault.

    Nothing is asked of the vault before the workdir is used.

    Args:
        ctx: The project.
        entry: The release, as the ledger has it now.

    Raises:
        ConfigError: It lies in another vault than that of the settings.
    """
    scratch = ctx.workspace.scratch(entry.release_id)
    if entry.scratch is not None and "://" not in entry.scratch:
        return Workdir(ctx.ledger.releases, entry, scratch)
    vault = ctx.vault
    if entry.scratch is not None and (vault is None or not vault.owns(entry.scratch)):
        named = "not set" if vault is None else vault.where
        raise ConfigError(
            f"services.vault is {named}, and release {entry.release_id} lies in {entry.scratch}.",
            hint="Give this machine the setting that the others have.",
        )
    if vault is None:
        return Workdir(ctx.ledger.releases, entry, scratch)
    return VaultWorkdir(ctx.ledger.releases, entry, scratch, vault, ctx.ledger.draws)


def wipe_workdir(ctx: Context, entry: Entry) -> None:
    """Delete the private intermediates of an ended release, here and in the vault.

    Raises:
        StorageError: Something cannot be deleted. Without the release's key, which went with its
            end, nobody can read it.
    """
    wipe(ctx.workspace.scratch(entry.release_id))
    if ctx.vault is not None and ctx.vault.owns(entry.scratch):
        ctx.vault.wipe(entry.release_id)


def open_context(
    params: Path,
    overrides: Sequence[str] = (),
    *,
    day: Date | None = None,
    origin: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Context:
    """The context of a project, from its params.yaml and ``a.b.c=value`` overrides.

    Raises:
        ConfigError: See privsyn.config.load_config.
    """
    config = load_config(params, overrides)
    return Context(
        config=config,
        workspace=workspace_of(params, config),
        day=day or _now().date(),
        origin=origin or {},
        as_filed=params.name == PARAMS_FILE
        and (not overrides or _shapes_output(config) == _shapes_output(load_config(params))),
        on_progress=progress,
    )


def workspace_of(params: Path, config: Config) -> Workspace:
    """The paths of a project, and its store of releases where one is set."""
    from privsyn.release.release_store import ReleaseStore

    url = config.services.releases
    return Workspace(params.resolve().parent, None if url is None else ReleaseStore(url))


def _shapes_output(config: Config) -> tuple[object, ...]:
    """The sections dvc.yaml tracks."""
    return (
        config.dataset,
        config.account,
        config.privacy,
        config.columns,
        config.models,
        config.validation,
        config.evaluate,
        {name: config.method(name) for name in (*config.methods, STUDENTS)},
    )


@contextmanager
def trace_stage(
    ctx: Context, release_id: str, stage: str, shard: int | None = None
) -> Iterator[None]:
    """The nested run of a stage. A store that is down never stops a stage.

    A stage that finds its work done, because the release exists, leaves the nested run of the one
    that did it as it is.

    Args:
        ctx: Ledger and tracker.
        release_id: The release.
        stage: Name of the stage, and of its run.
        shard: Parallel shards have runs of their own, with the number behind the name.
    """
    if stage in ("partition", "train", "generate", "certify"):
        done = ctx.ledger.releases.get(release_id).state is State.COMMITTED
    else:  # these have something to do until it is published
        done = ctx.workspace.pointer(release_id).is_file()
    if done:
        yield
        return
    name = stage if shard is None else f"{stage}-{shard}"
    with ctx.tracker.stage_run(release_id, name):
        yield
