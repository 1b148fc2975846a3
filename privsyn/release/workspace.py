"""Where things lie in a project: the folder that holds params.yaml."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from privsyn import layout
from privsyn.errors import DataError
from privsyn.files import read_file, read_json
from privsyn.section import nearest

if TYPE_CHECKING:
    from privsyn.release.release_store import ReleaseStore


@dataclass(frozen=True)
class Workspace:
    """Paths of a project.

    Attributes:
        root: Folder of params.yaml.
        store: Where finished releases are for all machines, if they are.
    """

    root: Path
    store: ReleaseStore | None = None

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

    @property
    def public_folders(self) -> tuple[Path, ...]:
        """Folders whose content leaves, or lies where it may."""
        names = ("releases", layout.QUARANTINE, "synthetic", "reports", "plans", "records", ".dvc")
        return tuple(self.root / name for name in names)

    def scratch(self, release_id: str) -> Path:
        """Private intermediates of a running release: buckets and journals, wiped at the end."""
        return self.state / "scratch" / release_id

    def scratches(self) -> list[str]:
        """Releases, and students of them, that have a scratch here, in order of name."""
        place = self.state / "scratch"
        return sorted(path.name for path in place.iterdir()) if place.is_dir() else []

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
        """A release whose validation failed, or that its disclosure audit has not let through."""
        return self.root / layout.QUARANTINE / release_id

    def synthetic(self, method: str) -> Path:
        """Copy of the newest release of a method: what dvc.yaml tracks."""
        return self.root / "synthetic" / method

    def reports(self, method: str) -> Path:
        """Validation of the newest release of a method: what dvc.yaml tracks."""
        return self.root / "reports" / method

    def plan(self, method: str) -> Path:
        """The data-free plan of a method: what dvc.yaml depends on in place of the data."""
        return self.root / "plans" / f"{method}.json"

    def known_releases(self, account: str | None = None) -> list[str]:
        """Ids of the releases, of an account or of any, that lie or are published here, sorted."""
        releases: dict[str, str] = {}
        for file in self._certificates():
            with suppress(OSError, ValueError, LookupError, TypeError):
                # What was made from a release has no plan at the top and costs nothing: it is
                # passed over.
                releases[file.parent.name] = read_json(file)["plan"]["account"]
        for pointer in (self.root / "releases").glob("*.dvc"):
            if pointer.stem in releases:  # YAML takes ten times as long to read
                continue
            with suppress(OSError, yaml.YAMLError, LookupError, TypeError, RecursionError):
                releases[pointer.stem] = yaml.safe_load(read_file(pointer))["meta"]["account"]
        return sorted(name for name, charged in releases.items() if account in (None, charged))

    def release_ids(self) -> list[str]:
        """Ids of all releases that lie or are published here, in order of name."""
        pointers = (self.root / "releases").glob("*.dvc")
        # A pointer counts: the release was published, and its folder can be restored.
        return sorted({*self.here(), *(file.stem for file in pointers)})

    def here(self) -> list[str]:
        """Ids of the releases and students whose folders are here, in quarantine too, sorted."""
        return sorted({file.parent.name for file in self._certificates()})

    def _certificates(self) -> list[Path]:
        """Of all finished folders. A hidden one is not: a killed run was building it."""
        places = ("releases", layout.QUARANTINE)
        return [f for place in places for f in (self.root / place).glob("[!.]*/certificate.json")]

    def release_id(self, named: str) -> str:
        """The id of a release of this project that a person names: by id, folder or DVC pointer.

        Raises:
            DataError: A path that leads elsewhere.
        """
        path = Path(named)
        if path.name == named and not path.exists():
            return named
        home = {(self.root / place).resolve() for place in ("releases", layout.QUARANTINE)}
        # Of the folder alone: a release may itself be a link.
        if not path.name or path.absolute().parent.resolve() not in home:
            raise DataError(
                f"{named} is no release of this project.",
                hint=f"Name one by its id, or by its folder in {self.root / 'releases'}.",
            )
        return path.name.removesuffix(".dvc")

    def folder(self, named: str) -> Path:
        """The folder a person names: a path, or the id of a release that lies here or is stored.

        What lies here is taken as it is.
        """
        path = Path(named)
        if path.exists() or path.name != named:
            return path
        return self.here_in(named) or self.locate(named) or path

    def existing(self, named: str) -> Path:
        """See ``folder``, of one that is there.

        Raises:
            DataError: It is not.
        """
        folder = self.folder(named)
        if not folder.exists():
            raise self.missing(named)
        return folder

    def missing(self, named: str) -> DataError:
        """What is said of a release that is not here: one answer for every command."""
        known = self.release_ids()
        if named in known:
            return DataError(
                f"release {named!r} is not here.",
                hint=f"Bring it back with: privsyn restore {named}",
            )
        near = nearest(named, known)
        return DataError(
            f"release {named!r} is not here: it is neither a folder nor a release of this project.",
            hint=f"Did you mean {near}?"
            if near
            else "privsyn ledger entries lists the releases. One made elsewhere is named by its "
            "folder, or comes with git pull.",
        )

    def locate(self, release_id: str) -> Path | None:
        """Folder of a finished release: released, or in quarantine; None if neither is here.

        Where there is a store the folder is made to be what that holds.

        Raises:
            StorageError: The store cannot be reached.
            VerificationError: What it holds is not what was certified.
        """
        stored = None if self.store is None else self.store.fetch(release_id, self.root)
        return stored or self.here_in(release_id)

    def reachable(self) -> list[str]:
        """Ids of the releases and students that are here or in the store, sorted."""
        stored = () if self.store is None else self.store.names()
        return sorted({*self.here(), *stored})

    def here_in(self, release_id: str) -> Path | None:
        """Folder of a finished release on this machine; None if it is not here."""
        for folder in (self.release(release_id), self.quarantine(release_id)):
            if (folder / layout.CERTIFICATE).is_file():
                return folder
        return None
