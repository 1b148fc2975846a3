"""What lineage a release leaves, and what happens when it cannot be written.

One run per release, found again by its release id, with one nested run per stage: whatever is
retried, and in whichever process, continues the same runs. The store sits inside the trust
boundary: its runs carry start and end times and internal metrics, and it is never published.

**MLflow down.** Before a private draw a driver calls ``check()`` and refuses: nothing is spent.
From the first draw on it writes through ``BestEffort``: the release goes on and one warning is
logged. Every record is keyed by the release, so a stage that runs again writes what is missing. The
certificate and the ledger, not the tracker, are the record of what was spent.
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
"""Folder of a run's artifacts that holds the files of its registered model."""


class Tracker(Protocol):
    """Writes lineage. Every call may be repeated; all may raise TrackingUnavailable.

    A run is named by its id. The empty id stands for a run that could not be opened: calls on it
    do nothing.
    """

    def check(self) -> None:
        """Reach the store, or say why not."""

    def release_run(self, release_id: str) -> str:
        """Id of the release's run: the one that exists, else a new one."""

    def start_stage(self, release_id: str, stage: str) -> str:
        """Id of the stage's run, nested in the release's and running again."""

    def stage_run(self, release_id: str, stage: str) -> AbstractContextManager[str]:
        """A stage's run that ends with the block: FINISHED, or FAILED with the error's class."""

    def finish(self, run_id: str, status: str = "FINISHED") -> None:
        """End a run as FINISHED, FAILED or KILLED."""

    def log_params(self, run_id: str, params: Mapping[str, object]) -> None:
        """Write parameters once. A later, other value is kept as the tag ``later.<name>``."""

    def log_metrics(self, run_id: str, metrics: Mapping[str, float], step: int = 0) -> None:
        """Write numbers."""

    def set_tags(self, run_id: str, tags: Mapping[str, object]) -> None:
        """Write or replace tags."""

    def log_artifact(self, run_id: str, path: Path, folder: str = "") -> None:
        """Copy a file into the run."""

    def log_dataset(self, run_id: str, name: str, version: str, context: str = "private") -> None:
        """Record a dataset by name and opaque version, without opening it."""

    def register_model(
        self, run_id: str, name: str, folder: Path, tags: Mapping[str, object]
    ) -> str:
        """Number of the registered version of a run's model: the one that exists, else a new one.

        Copies the folder's files into ``MODEL_FOLDER`` of the run, beside what is there. Versions
        are told apart by run and release; empty where there is no run.

        Args:
            run_id: The run, one per model.
            name: The registered model; made if missing.
            folder: The model's files.
            tags: Public facts of the version, ``RELEASE_TAG`` among them.
        """

    def withdraw_model(self, name: str, release_id: str) -> None:
        """Mark the version of a release that fails its suite, and take the alias off it."""

    def link(self, run_id: str) -> str | None:
        """Address of the run in the UI, or None."""

    def overview(self) -> str | None:
        """Address of all releases in the UI, with what they cost, or None."""


@contextmanager
def staged(tracker: Tracker, release_id: str, stage: str) -> Iterator[str]:
    """``Tracker.stage_run`` in terms of the other calls.

    Of an error only the class is recorded: its text might quote a value. An unreachable store never
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
    """A tracker that never raises: it warns once and falls silent.

    Silent, because a store that is down costs its timeout at every call.
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
            log.warning("lineage is not written, the release goes on: %s", error)
            return otherwise

    def check(self) -> None:
        """See Tracker; warns."""
        self._attempt(self._tracker.check, None)

    def release_run(self, release_id: str) -> str:
        """See Tracker; empty when the store is down."""
        return self._attempt(lambda: self._tracker.release_run(release_id), "")

    def start_stage(self, release_id: str, stage: str) -> str:
        """See Tracker; empty when the store is down."""
        return self._attempt(lambda: self._tracker.start_stage(release_id, stage), "")

    def stage_run(self, release_id: str, stage: str) -> AbstractContextManager[str]:
        """See Tracker."""
        return staged(self, release_id, stage)

    def finish(self, run_id: str, status: str = "FINISHED") -> None:
        """See Tracker."""
        self._attempt(lambda: self._tracker.finish(run_id, status), None)

    def log_params(self, run_id: str, params: Mapping[str, object]) -> None:
        """See Tracker."""
        self._attempt(lambda: self._tracker.log_params(run_id, params), None)

    def log_metrics(self, run_id: str, metrics: Mapping[str, float], step: int = 0) -> None:
        """See Tracker."""
        self._attempt(lambda: self._tracker.log_metrics(run_id, metrics, step), None)

    def set_tags(self, run_id: str, tags: Mapping[str, object]) -> None:
        """See Tracker."""
        self._attempt(lambda: self._tracker.set_tags(run_id, tags), None)

    def log_artifact(self, run_id: str, path: Path, folder: str = "") -> None:
        """See Tracker."""
        self._attempt(lambda: self._tracker.log_artifact(run_id, path, folder), None)

    def log_dataset(self, run_id: str, name: str, version: str, context: str = "private") -> None:
        """See Tracker."""
        self._attempt(lambda: self._tracker.log_dataset(run_id, name, version, context), None)

    def register_model(
        self, run_id: str, name: str, folder: Path, tags: Mapping[str, object]
    ) -> str:
        """See Tracker; empty when the store is down."""
        return self._attempt(lambda: self._tracker.register_model(run_id, name, folder, tags), "")

    def withdraw_model(self, name: str, release_id: str) -> None:
        """See Tracker."""
        self._attempt(lambda: self._tracker.withdraw_model(name, release_id), None)

    def link(self, run_id: str) -> str | None:
        """See Tracker; None when the store is down."""
        return self._attempt(lambda: self._tracker.link(run_id), None)

    def overview(self) -> str | None:
        """See Tracker; None when the store is down."""
        return self._attempt(self._tracker.overview, None)


MAX_PARAM, MAX_TAG, MAX_DIGEST, MAX_BATCH = 6000, 5000, 36, 100
"""Longest values, and most of them in a call."""


def as_key(name: str) -> str:
    """A name MLflow accepts: it refuses most punctuation."""
    return re.sub(r"[^\w.\-/ ]", "_", name)[:250]


def shortened(value: object, limit: int) -> str:
    """A value of so many characters at most."""
    text = str(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def quoted(value: str) -> str:
    """A value in quotes, for a filter of MLflow.

    Raises:
        ConfigError: It holds a quote.
    """
    if "'" in value:
        raise ConfigError(f"the name of a release, stage or model may not hold a quote: {value!r}.")
    return f"'{value}'"


class NullTracker:
    """Satisfies Tracker for runs that want no lineage, and for tests of other parts."""

    def check(self) -> None:
        """Nothing to reach."""

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
