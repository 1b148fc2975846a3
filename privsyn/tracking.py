"""Lineage of a release in MLflow, and what happens if it cannot be written.

There is one run per release, found by its release id, with one nested run per stage. A retry, in
any process, continues the same runs. The store is inside the trust boundary: runs have start and
end times and internal metrics, so it is never published.

**If MLflow is down.** Before a release begins a driver calls ``check()`` and refuses, so nothing is
spent. From then on a store that is down is one warning, and the release continues. Every entry is
keyed by the release, so a stage that runs again, or ``privsyn lineage sync``, adds what is missing.
The record of what was spent is in the certificate and the ledger, not in the tracker.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from privsyn.errors import (
    NO_HOME,
    SET_HOME,
    ConfigError,
    MissingExtra,
    PrivsynError,
    TrackingUnavailable,
    is_homeless,
)
from privsyn.files import file_lock, make_whole

log = logging.getLogger(__name__)
Call = TypeVar("Call", bound=Callable[..., Any])

RELEASE_TAG = "privsyn.release_id"
STAGE_TAG = "privsyn.stage"
CLASS_TAG = "privsyn.class"


MAX_PARAM, MAX_TAG, MAX_DIGEST, MAX_BATCH = 6000, 5000, 36, 100
"""MLflow's limits: characters of a parameter, a tag and a digest, and entries per call."""


def as_key(name: str) -> str:
    """A name without the punctuation that MLflow refuses."""
    # MLflow refuses keys of more than 250 characters, too.
    return re.sub(r"[^\w.\-/ ]", "_", name)[:250]


def shortened(value: object, limit: int) -> str:
    """A value as text of at most ``limit`` characters."""
    text = str(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def quoted(value: str) -> str:
    """A quoted value for a filter of MLflow, which has no escape for quotes.

    Raises:
        ConfigError: It holds a quote.
    """
    # Refused and not removed: a filter for another name would find another release's run.
    if "'" in value:
        raise ConfigError(f"the name of a release, stage or model may not hold a quote: {value!r}.")
    return f"'{value}'"


_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # MLflow's defaults let a call to a dead server hang for minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
_CONNECT_SECONDS = 5


def connect(uri: str) -> Any:
    """An MlflowClient for a tracking URI. The first call imports MLflow, in about four seconds."""
    _silence()
    _reach(uri)
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri)


def _silence() -> None:
    """Before MLflow is imported, at which it starts its telemetry."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # It logs every table it makes, and pages of SQL before it raises an error.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def _reach(uri: str) -> None:
    """Reach a database or fail quickly: MLflow itself would retry for two minutes."""
    from sqlalchemy import create_engine, text  # late: most commands reach no MLflow
    from sqlalchemy.pool import NullPool

    if not uri.startswith(("sqlite:", "postgresql", "mysql", "mssql")):
        return
    arguments: dict[str, Any] = {}
    if uri.startswith("sqlite:"):
        arguments = {"timeout": _CONNECT_SECONDS}
    elif uri.startswith("postgresql"):
        arguments = {"connect_timeout": _CONNECT_SECONDS}
    engine = create_engine(uri, poolclass=NullPool, connect_args=arguments)
    with engine.connect() as connection:
        # A write lock: a read would also succeed on a read-only file.
        connection.execute(text("BEGIN IMMEDIATE" if uri.startswith("sqlite:") else "SELECT 1"))


def make_databases(store: Path, users: Path) -> None:
    """Make the SQLite files of an MLflow server with a login, before it starts.

    Args:
        store: Of runs and models.
        users: Of the login.
    """
    with file_lock(_lock_of(store), timeout=_LOCK_SECONDS):
        make_whole(store, _make_tables)
        make_whole(users, _make_users)


def _make_tables(file: Path) -> None:
    """MLflow's tables in an empty SQLite file. A kill between two of its 67 steps is for good."""
    _silence()
    from mlflow.store.db.utils import _initialize_tables, create_sqlalchemy_engine

    engine = create_sqlalchemy_engine(f"sqlite:///{file}")
    _initialize_tables(engine)
    engine.dispose()


def _make_users(file: Path) -> None:
    _silence()
    from mlflow.server.auth.db.utils import migrate
    from sqlalchemy import create_engine

    engine = create_engine(f"sqlite:///{file}")
    migrate(engine, "head")
    engine.dispose()


def _lock_of(store: Path) -> Path:
    return store.with_name(f"{store.name}.lock")


def reason(error: Exception) -> str:
    """The innermost cause in one line: outer messages of requests and SQLAlchemy are long."""
    while isinstance(error.__context__, Exception):
        error = error.__context__
    lines = without_password(str(error)).strip().splitlines()
    kind = type(error).__name__
    return f"{kind}: {lines[0][:200].rstrip('.')}" if lines else kind


def without_password(text: str) -> str:
    """A text without the user and password of any URL in it."""
    return re.sub(r"//[^/@\s]*:[^/@\s]*@", "//***@", text)


PARENT_TAG = "mlflow.parentRunId"

ROLE_TAG = "privsyn.role"

KIND, TRAINING = "mlflow.experimentKind", "custom_model_development"
"""Kind of an experiment that opens in the view of runs, not of prompts and traces."""

_LOCK_SECONDS = 60.0


def _on_store(call: Call) -> Call:
    """A call on the store: its errors are TrackingUnavailable; without a run it does nothing.

    A tracker that is not strict warns of the first error and does nothing more: an unreachable
    store costs its timeout at every call.
    """

    @wraps(call)
    def guarded(tracker: MlflowTracker, *arguments: Any, **options: Any) -> Any:
        if not tracker.uri or tracker.is_down or arguments[:1] == ("",):
            return ""
        try:
            with tracker._guard():
                return call(tracker, *arguments, **options)
        except PrivsynError as error:
            if tracker.strict:
                raise
            tracker.is_down = True
            log.warning(
                "lineage is not written, the release continues: %s Then: privsyn lineage sync",
                error,
            )
            return ""

    return cast("Call", guarded)


class MlflowTracker:
    """Writes lineage to an MLflow server or database.

    Every call can be repeated. An empty run id means a run that could not be opened: calls on it do
    nothing and answer an empty text.

    Args:
        uri: Tracking URI: ``http(s)://`` of a server, or a database such as ``sqlite:///...``.
        experiment: Name of the experiment. It is made if missing.
        strict: Whether a store that is down is an error, and not a warning.
        artifact_root: Folder of a new experiment's artifacts. None: the server's choice, or
            ``mlartifacts`` beside a SQLite file.
        ui: Address of the UI, for links.
    """

    def __init__(
        self,
        uri: str,
        experiment: str = "privsyn",
        artifact_root: Path | None = None,
        ui: str = "http://127.0.0.1:5000",
        *,
        strict: bool = True,
    ) -> None:
        self.uri = uri
        self.experiment = experiment
        self.ui = ui.rstrip("/")
        self.strict = strict
        self._file: Path | None = None
        if uri.startswith("sqlite:///"):
            self._file = Path(uri.removeprefix("sqlite:///").partition("?")[0])
        if artifact_root is None and self._file is not None:
            artifact_root = self._file.parent / "mlartifacts"
        self._artifact_root = artifact_root
        self._runs: dict[tuple[str, str], str] = {}

    def check(self) -> None:
        """Reach the store and open the experiment.

        Raises:
            TrackingUnavailable: The store cannot be reached, opened or written.
            ConfigError: The experiment was deleted.
        """
        if self.uri:
            with self._guard():
                _ = self._experiment_id

    @_on_store
    def release_run(self, release_id: str) -> str:
        """Id of the release's run, existing or new."""
        return self._run(release_id, "", release_id, {ROLE_TAG: "release"})

    @_on_store
    def start_stage(self, release_id: str, stage: str) -> str:
        """Id of the stage's run, nested in the release's run; its status becomes RUNNING.

        Nested runs have class internal, at least because of their durations.
        """
        parent = self.release_run(release_id)
        tags = {ROLE_TAG: "stage", STAGE_TAG: stage, PARENT_TAG: parent, CLASS_TAG: "internal"}
        run_id = self._run(release_id, stage, stage, tags)
        self._client.update_run(run_id, status="RUNNING")
        return run_id

    @contextmanager
    def stage_run(self, release_id: str, stage: str) -> Iterator[str]:
        """A stage's run for a block: it ends as FINISHED, or FAILED with the error's class.

        Only the class of an error is recorded: its text might quote a value. An unreachable store
        never hides the error of the block.
        """
        run_id = self.start_stage(release_id, stage)
        try:
            yield run_id
        except BaseException as error:
            with suppress(PrivsynError):
                self.set_tags(run_id, {"privsyn.error": type(error).__name__})
                self.finish(run_id, "FAILED" if isinstance(error, Exception) else "KILLED")
            raise
        self.finish(run_id)

    @_on_store
    def finish(self, run_id: str, status: str = "FINISHED") -> None:
        """End a run as FINISHED, FAILED or KILLED, unless it already has this status."""
        run = self._client.get_run(run_id)
        # Setting a status again would move the end of the run.
        if run.info.status != status:
            self._client.set_terminated(run_id, status, _public_time(run))

    @_on_store
    def log_params(self, run_id: str, params: Mapping[str, object]) -> None:
        """Write parameters that the run does not have yet: they follow from its plan."""
        from mlflow.entities import Param

        known = self._client.get_run(run_id).data.params
        values = {as_key(name): shortened(value, MAX_PARAM) for name, value in params.items()}
        self._log(run_id, "params", [Param(*one) for one in values.items() if one[0] not in known])

    def _log(self, run_id: str, kind: str, items: Sequence[Any]) -> None:
        for start in range(0, len(items), MAX_BATCH):
            self._client.log_batch(run_id, **{kind: items[start : start + MAX_BATCH]})

    @_on_store
    def log_metrics(self, run_id: str, metrics: Mapping[str, float], step: int = 0) -> None:
        """Write metrics that the run does not have yet."""
        from mlflow.entities import Metric

        run = self._client.get_run(run_id)
        now = _public_time(run) or int(time.time() * 1000)
        new = {as_key(k): float(v) for k, v in metrics.items()}
        # MLflow appends: a metric that a repeated stage wrote again would become a curve.
        fresh = [Metric(k, v, now, step) for k, v in new.items() if run.data.metrics.get(k) != v]
        self._log(run_id, "metrics", fresh)

    @_on_store
    def set_tags(self, run_id: str, tags: Mapping[str, object]) -> None:
        """Write or replace tags."""
        from mlflow.entities import RunTag

        items = [RunTag(as_key(k), shortened(v, MAX_TAG)) for k, v in tags.items()]
        self._log(run_id, "tags", items)

    @_on_store
    def log_artifact(self, run_id: str, path: Path, folder: str = "") -> None:
        """Copy a file into the run."""
        self._client.log_artifact(run_id, str(path), folder or None)

    @_on_store
    def log_dataset(self, run_id: str, name: str, version: str, context: str = "private") -> None:
        """Record a dataset by name and opaque version, without opening it.

        MLflow shows the version as digest. A version of more than MLflow's 36 characters is
        replaced by the beginning of its SHA-256.
        """
        from mlflow.entities import Dataset, DatasetInput, InputTag

        digest = version
        if len(version) > MAX_DIGEST:
            # Of the version's name, which is public, and never of the data.
            digest = hashlib.sha256(version.encode()).hexdigest()[:MAX_DIGEST]
        # As mlflow.data.MetaDataset stores it, without importing MLflow's data stack.
        dataset = Dataset(
            name=name,
            digest=digest,
            source_type="code",
            source='{"tags": {"mlflow.source.name": "privsyn"}}',
        )
        tag = InputTag("mlflow.data.context", context)
        self._client.log_inputs(run_id, [DatasetInput(dataset, [tag])])

    @_on_store
    def link(self, run_id: str) -> str:
        """Address of the run in the UI; empty without a run."""
        return f"{self.ui}/#/experiments/{self._experiment_id}/runs/{run_id}"

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Turn all errors of an unreachable store into TrackingUnavailable."""
        try:
            yield
        except (ConfigError, TrackingUnavailable):
            raise
        except Exception as error:  # errors of requests, SQLAlchemy and every database driver
            if is_homeless(error):
                raise ConfigError(NO_HOME, hint=SET_HOME) from None
            raise TrackingUnavailable(
                f"MLflow at {without_password(self.uri)} cannot be used: {reason(error)}.",
                hint=missing.hint
                if (missing := MissingExtra.of(error))
                else "Check services.mlflow: that the server runs, or its folder can be written.",
            ) from None

    @cached_property
    def _client(self) -> Any:
        if self._file is not None:
            with self._lock():
                make_whole(self._file, _make_tables)
        return connect(self.uri)  # without the lock: the import takes seconds

    @cached_property
    def _experiment_id(self) -> str:
        client = self._client
        with self._lock():
            result = client.get_experiment_by_name(self.experiment)
            if result is None:
                result = self._make_experiment()
        if result.lifecycle_stage != "active":
            raise ConfigError(
                f"the experiment {self.experiment!r} was deleted in MLflow.",
                hint="Restore it there.",
            )
        return str(result.experiment_id)

    def _make_experiment(self) -> Any:
        root, tags = self._artifact_root, {KIND: TRAINING}
        location = root.resolve().as_uri() if root is not None else None
        try:
            self._client.create_experiment(self.experiment, artifact_location=location, tags=tags)
        except Exception:
            if self._client.get_experiment_by_name(self.experiment) is None:
                raise  # else another host made it first
        return self._client.get_experiment_by_name(self.experiment)

    def _run(self, release_id: str, stage: str, name: str, tags: Mapping[str, str]) -> str:
        """Find a run by its tags, or make it.

        Processes of one host take turns. With a server or several hosts two runs may be made; then
        all use the oldest, and the other is deleted.
        """
        if (release_id, stage) in self._runs:
            return self._runs[release_id, stage]
        tags, experiment = {RELEASE_TAG: release_id, **tags}, self._experiment_id
        with self._lock():
            run_id = self._oldest(release_id, stage)
            if run_id is None:
                # privacy: a release's own run shows only the day (_public_time)
                day = None if stage else int(time.time()) // 86_400 * 86_400_000
                made = self._client.create_run(experiment, start_time=day, tags=tags, run_name=name)
                run_id = self._oldest(release_id, stage) or made.info.run_id
                if run_id != made.info.run_id:
                    self._client.delete_run(made.info.run_id)
        self._runs[release_id, stage] = run_id
        return run_id

    def _oldest(self, release_id: str, stage: str) -> str | None:
        kind = f"`{STAGE_TAG}` = {quoted(stage)}" if stage else f"`{ROLE_TAG}` = 'release'"
        result = self._client.search_runs(
            [self._experiment_id],
            filter_string=f"tags.`{RELEASE_TAG}` = {quoted(release_id)} AND tags.{kind}",
            max_results=20,
            order_by=["attributes.start_time ASC"],
        )
        runs = sorted((run.info.start_time, run.info.run_id) for run in result)
        return str(runs[0][1]) if runs else None

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Take turns with other processes at a local store; a server does not need it."""
        if self._file is None:
            yield
            return
        turn = file_lock(_lock_of(self._file), timeout=_LOCK_SECONDS)
        try:
            turn.acquire()
        except TimeoutError:
            raise TrackingUnavailable(
                f"MLflow at {self.uri} is busy: another process has locked "
                f"{_lock_of(self._file)} for {_LOCK_SECONDS:g} s.",
                hint="Run again when it is done, or use an MLflow server, which serves many "
                "processes (services.mlflow; make up starts one).",
            ) from None
        try:
            yield
        finally:
            turn.release()

    is_down = False


def _public_time(run: Any) -> int | None:
    """The one time of all entries of a release's own run; None for a nested run, which is internal.

    The time at which a release is finished depends on its records, and this run may be shown to
    others.
    """
    start: int = run.info.start_time
    return start if run.data.tags.get(ROLE_TAG) == "release" else None


if __name__ == "__main__":  # of deploy/compose.yaml
    make_databases(*map(Path, sys.argv[1:]))
