"""Where things lie in a project: the folder that holds params.yaml."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml


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

    def pointer(self, release_id: str) -> Path:
        """The DVC file of a published release."""
        return self.root / "releases" / f"{release_id}.dvc"

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

    def known_releases(self, account: str) -> list[str]:
        """Ids of the releases of an account that lie or are published here, in order of name."""
        found = set()
        for place in ("releases", "quarantine"):
            for file in (self.root / place).glob("*/certificate.json"):
                with suppress(OSError, ValueError, LookupError, TypeError):
                    if json.loads(file.read_text(encoding="utf-8"))["plan"]["account"] == account:
                        found.add(file.parent.name)
        for pointer in (self.root / "releases").glob("*.dvc"):
            with suppress(OSError, yaml.YAMLError, LookupError, TypeError):
                if (
                    yaml.safe_load(pointer.read_text(encoding="utf-8"))["meta"]["account"]
                    == account
                ):
                    found.add(pointer.stem)
        return sorted(found)

    def locate(self, release_id: str) -> Path | None:
        """Folder of a finished release: released, or in quarantine; None if neither is here."""
        for folder in (self.release(release_id), self.quarantine(release_id)):
            if (folder / "certificate.json").is_file():
                return folder
        return None
