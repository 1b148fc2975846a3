"""Lineage of a release, and what happens if it cannot be written.

There is one run per release, found by its release id, with one nested run per stage. A retry, in
any process, continues the same runs. The store is inside the trust boundary: runs have start and
end times and internal metrics, so it is never published.

**If MLflow is down.** Before a private draw a driver calls ``check()`` and refuses, so nothing is
spent. From the first draw on it writes through ``BestEffort``: the release continues and one
warning is logged. Every entry is keyed by the release, so a stage that runs again adds what is
missing. The record of what was spent is in the certificate and the ledger, not in the tracker.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

from privsyn.errors import ConfigError, PrivsynError

log = logging.getLogger(__name__)
T = TypeVar("T")

RELEASE_TAG = "privsyn.release_id"
STAGE_TAG = "privsyn.stage"
CLASS_TAG = "privsyn.class"
MODEL_FOLDER = "model"
"""Folder of a run's artifacts with the files of its registered model."""


class Tracker(Protocol):
    """Writes lineage. Every call can be repeated; every call may raise TrackingUnavailable.

    An empty run id means a run that could not be opened: calls on it do nothing.
    """

    def check(self) -> None:
        """Check that the store can be reached."""

    def release_run(self, release_id: str) -> str:
        """Id of the release's run, existing or new."""

    def start_stage(self, release_id: str, stage: str) -> str:
        """Id of the stage's run, nested in the release's run; its status becomes RUNNING."""

    def stage_run(self, release_id: str, stage: str) -> AbstractContextManager[str]:
        """A stage's run for a block: it ends as FINISHED, or FAILED with the error's class."""

    def finish(self, run_id: str, status: str = "FINISHED") -> None:
        """End a run as FINISHED, FAILED or KILLED."""

    def log_params(self, run_id: str, params: Mapping[str, object]) -> None:
        """Write parameters once. A later, different value becomes the tag ``later.<name>``."""

    def log_metrics(self, run_id: str, metrics: Mapping[str, float], step: int = 0) -> None:
        """Write metrics."""

    def set_tags(self, run_id: str, tags: Mapping[str, object]) -> None:
        """Write or replace tags."""

    def log_artifact(self, run_id: str, path: Path, folder: str = "") -> None:
        """Copy a file into the run."""

    def log_dataset(self, run_id: str, name: str, version: str, context: str = "private") -> None:
        """Record a dataset by name and opaque version, without opening it."""

    def register_model(
        self, run_id: str, name: str, folder: Path, tags: Mapping[str, object]
    ) -> str:
        """Number of the registered version of a run's model, existing or new; empty without a run.

        Copies the folder's files into ``MODEL_FOLDER`` of the run. Run and release identify a
        version.

        Args:
            run_id: The run, one per model.
            name: The registered model; made if missing.
            folder: The model's files.
            tags: Public facts of the version, including ``RELEASE_TAG``.
        """

    def withdraw_model(self, name: str, release_id: str) -> None:
        """Mark the version of a release that fails its suite, and remove its alias."""

    def link(self, run_id: str) -> str | None:
        """Address of the run in the UI, or None."""

    def overview(self) -> str | None:
        """Address of all releases and their costs in the UI, or None."""


@contextmanager
def staged(tracker: Tracker, release_id: str, stage: str) -> Iterator[str]:
    """``Tracker.stage_run`` by means of the other calls.

    Only the class of an error is recorded: its text might quote a value. An unreachable store never
    hides the error of the block.
    """
    run_id = tracker.start_stage(release_id, stage)
    try:
        yield run_id
    except BaseException as error:
        with suppress(PrivsynError):
            tracker.set_tags(run_id, {"privsyn.error": type(error).__name__})
            tracker.finish(run_id, "FAILED" if isinstance(error, Exception) else "KILLED")
        raise
    tracker.finish(run_id)


class BestEffort:
    """A tracker that never raises: after the first error it warns and does nothing more.

    It stops because an unreachable store costs its timeout at every call.
    """

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._down = False

    def _attempt(self, call: Callable[[], T], otherwise: T) -> T:
        if self._down:
            return otherwise
        try:
            return call()
        except PrivsynError as error:
            self._down = True
            log.warning("lineage is not written, the release continues: %s", error)
            return otherwise

    def check(self) -> None:
        """Check that the store can be reached; warns if not."""
        self._attempt(self._tracker.check, None)

    def release_run(self, release_id: str) -> str:
        """Id of the release's run; empty if the store is down."""
        return self._attempt(lambda: self._tracker.release_run(release_id), "")

    def start_stage(self, release_id: str, stage: str) -> str:
        """Id of the stage's run; empty if the store is down."""
        return self._attempt(lambda: self._tracker.start_stage(release_id, stage), "")

    def stage_run(self, release_id: str, stage: str) -> AbstractContextManager[str]:
        """A stage's run that ends with the block."""
        return staged(self, release_id, stage)

    def finish(self, run_id: str, status: str = "FINISHED") -> None:
        """End a run."""
        self._attempt(lambda: self._tracker.finish(run_id, status), None)

    def log_params(self, run_id: str, params: Mapping[str, object]) -> None:
        """Write parameters."""
        self._attempt(lambda: self._tracker.log_params(run_id, params), None)

    def log_metrics(self, run_id: str, metrics: Mapping[str, float], step: int = 0) -> None:
        """Write metrics."""
        self._attempt(lambda: self._tracker.log_metrics(run_id, metrics, step), None)

    def set_tags(self, run_id: str, tags: Mapping[str, object]) -> None:
        """Write tags."""
        self._attempt(lambda: self._tracker.set_tags(run_id, tags), None)

    def log_artifact(self, run_id: str, path: Path, folder: str = "") -> None:
        """Copy a file into the run."""
        self._attempt(lambda: self._tracker.log_artifact(run_id, path, folder), None)

    def log_dataset(self, run_id: str, name: str, version: str, context: str = "private") -> None:
        """Record a dataset."""
        self._attempt(lambda: self._tracker.log_dataset(run_id, name, version, context), None)

    def register_model(
        self, run_id: str, name: str, folder: Path, tags: Mapping[str, object]
    ) -> str:
        """Number of the model's version; empty if the store is down."""
        return self._attempt(lambda: self._tracker.register_model(run_id, name, folder, tags), "")

    def withdraw_model(self, name: str, release_id: str) -> None:
        """Mark a release's version."""
        self._attempt(lambda: self._tracker.withdraw_model(name, release_id), None)

    def link(self, run_id: str) -> str | None:
        """Address of the run; None if the store is down."""
        return self._attempt(lambda: self._tracker.link(run_id), None)

    def overview(self) -> str | None:
        """Address of all releases; None if the store is down."""
        return self._attempt(self._tracker.overview, None)


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


class NullTracker:
    """A Tracker that writes nothing, for runs without lineage and for tests of other parts."""

    def check(self) -> None:
        """Do nothing."""

    def release_run(self, release_id: str) -> str:
        """No run."""
        return ""

    def start_stage(self, release_id: str, stage: str) -> str:
        """No run."""
        return ""

    def stage_run(self, release_id: str, stage: str) -> AbstractContextManager[str]:
        """A block without a run."""
        return staged(self, release_id, stage)

    def finish(self, run_id: str, status: str = "FINISHED") -> None:
        """Writes nothing."""

    def log_params(self, run_id: str, params: Mapping[str, object]) -> None:
        """Writes nothing."""

    def log_metrics(self, run_id: str, metrics: Mapping[str, float], step: int = 0) -> None:
        """Writes nothing."""

    def set_tags(self, run_id: str, tags: Mapping[str, object]) -> None:
        """Writes nothing."""

    def log_artifact(self, run_id: str, path: Path, folder: str = "") -> None:
        """Writes nothing."""

    def log_dataset(self, run_id: str, name: str, version: str, context: str = "private") -> None:
        """Writes nothing."""

    def register_model(
        self, run_id: str, name: str, folder: Path, tags: Mapping[str, object]
    ) -> str:
        """No version."""
        return ""

    def withdraw_model(self, name: str, release_id: str) -> None:
        """Writes nothing."""

    def link(self, run_id: str) -> str | None:
        """No address."""
        return None

    def overview(self) -> str | None:
        """No address."""
        return None
