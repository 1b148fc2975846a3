"""A tracker that writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from privsyn.tracking.base import staged


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
