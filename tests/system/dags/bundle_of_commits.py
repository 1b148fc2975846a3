"""A DAG bundle with versions: the files of a git repository, each version at its commit.

Airflow's own GitDagBundle is in a provider that the lock does not have; a scheduler, a supervisor
and a task know both by the same interface.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from airflow.dag_processing.bundles.base import BaseDagBundle, BundleVersion


class CommitBundle(BaseDagBundle):
    """The newest commit, or the one that a run was started with."""

    supports_versioning = True

    def __init__(self, *, repository: str, **kwargs) -> None:
        super().__init__(**kwargs)
        self.repository = Path(repository)

    def initialize(self) -> None:
        """Check the files out."""
        if not self.path.is_dir():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._git("worktree", "add", "--detach", str(self.path), self._commit())
        super().initialize()

    @property
    def path(self) -> Path:
        """Where they are checked out."""
        return self.versions_dir / self._commit()

    def get_current_version(self) -> BundleVersion:
        """The commit."""
        return BundleVersion(version=self._commit())

    def refresh(self) -> None:
        """Nothing: every commit has a folder of its own."""

    def _commit(self) -> str:
        return self.version or self._git("rev-parse", "HEAD")

    def _git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.repository), *words],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout.strip()
