"""Where things lie in a project: the folder that holds params.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Workspace:
    """Paths of a project.

    Attributes:
        root: Folder of params.yaml.
    """

    root: Path

    @property
    def state(self) -> Path:
        """Private state: ledger, scratch, internal evaluation. Never published."""
        return self.root / ".privsyn"

    @property
    def ledger_url(self) -> str:
        """Default ledger: SQLite in the state folder."""
        return f"sqlite:///{self.state / 'ledger.db'}"

    @property
    def mlflow_uri(self) -> str:
        """Default MLflow store: SQLite in the state folder."""
        return f"sqlite:///{self.state / 'mlflow.db'}"

    @property
    def mlflow_artifacts(self) -> Path:
        """Default MLflow artifact folder."""
        return self.state / "mlartifacts"

    @property
    def cache(self) -> Path:
        """Digests of public model files."""
        return self.state / "cache"

    def scratch(self, release_id: str) -> Path:
        """Private intermediates of a running release: buckets and journals, wiped at the end."""
        return self.state / "scratch" / release_id

    def internal(self, release_id: str) -> Path:
        """Numbers computed from private records: for the data's owner only."""
        return self.state / "internal" / release_id

    def release(self, release_id: str) -> Path:
        """A finished release: synthetic file, certificate, validation."""
        return self.root / "releases" / release_id

    def quarantine(self, release_id: str) -> Path:
        """A release whose validation failed."""
        return self.root / "quarantine" / release_id

    def synthetic(self, method: str) -> Path:
        """Copy of the newest release of a method: what dvc.yaml tracks."""
        return self.root / "synthetic" / method

    def reports(self, method: str) -> Path:
        """Validation of the newest release of a method: what dvc.yaml tracks."""
        return self.root / "reports" / method

    def plan(self, method: str) -> Path:
        """The data-free plan of a method: what dvc.yaml depends on in place of the data."""
        return self.root / "plans" / f"{method}.json"

    def known_releases(self) -> list[str]:
        """Ids of the releases that lie or are published here, in order of name."""
        found = [folder.stem for folder in (self.root / "releases").glob("*.dvc")]
        for place in ("releases", "quarantine"):
            found += [file.parent.name for file in self.root.glob(f"{place}/*/certificate.json")]
        return sorted(set(found))

    def locate(self, release_id: str) -> Path | None:
        """Folder of a finished release: released, or in quarantine; None if neither is here."""
        for folder in (self.release(release_id), self.quarantine(release_id)):
            if (folder / "certificate.json").is_file():
                return folder
        return None
