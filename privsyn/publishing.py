"""Publish and restore releases with DVC.

A pointer file beside the release folder holds DVC's hash, and digests of the files that must never
change. A killed publish can be repeated: it changes nothing that is published.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import logging
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import yaml

from privsyn import layout
from privsyn.data.artifacts import atomic_file, sha256_file
from privsyn.errors import ConfigError, DataError, MissingExtra, PublishError, VerificationError
from privsyn.files import file_lock, read_file, read_json
from privsyn.section import NAME, nearest

log = logging.getLogger(__name__)
Value = TypeVar("Value")

PROJECT_FILES = {
    ".dvc/.gitignore": "/config.local\n/tmp\n/cache\n",
    ".dvcignore": """\
# Folders DVC never looks into: private state, failed releases, the environment.
.privsyn/
quarantine/
.venv/
.airflow/
""",
    ".dvc/config": """\
[core]
    analytics = false
    check_update = false
    remote = local
['remote "local"']
    url = ../.privsyn/dvc-remote
    verify = true
""",
}
"""Files of a new DVC project. Its remote is a local directory, and DVC verifies what it reads.

crash safety: the config comes last. Where it is, the others are, or a user wants none."""


def in_git(root: Path) -> bool:
    """Whether a folder is in a git working tree."""
    return any((folder / ".git").exists() for folder in (root, *root.parents))


def trackers_of(path: Path) -> list[str]:
    """Whether git or DVC tracks a file, or one in a folder; reads no content.

    Args:
        path: A file or folder; a link is looked at as itself and as what it leads to.
    """
    tools = []
    for place in dict.fromkeys((path, path.resolve())):
        if place.parent.is_dir() and in_git(place.parent):
            if _git(place.parent, "--literal-pathspecs", "ls-files", "--", place.name):
                tools.append("git")
        if any(
            folder.with_name(f"{folder.name}.dvc").is_file()
            for folder in (place, *place.parents)[:-1]
        ):
            tools.append("DVC")
    return sorted({*tools}, reverse=True)


def _git(folder: Path, *arguments: str) -> str:
    """What git prints; empty where there is no git, or it refuses."""
    with suppress(OSError):
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""


def folder_md5(folder: Path) -> str:
    """DVC's hash of a folder: the MD5 of its sorted list of file MD5s.

    It only addresses content; certificates carry SHA-256.
    """
    listing = [
        {"md5": _md5(path.read_bytes()), "relpath": path.relative_to(folder).as_posix()}
        for path in folder.rglob("*")
        if path.is_file()
    ]
    # Order and spelling of this JSON are DVC's: any other bytes would be another hash.
    listing.sort(key=lambda item: item["relpath"])
    return _md5(json.dumps(listing, sort_keys=True).encode()) + ".dir"


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


SEALED_FILES = (layout.ARTIFACT, layout.MODEL_ARTIFACT, layout.CERTIFICATE)
"""Files that never change after publication. A newer suite may replace the reports."""

RELEASE_FILES = frozenset({*SEALED_FILES, *layout.REPORTS, layout.SIGNATURE})
"""Files that a published release may hold, beside folders whose files have digests."""


@dataclass(frozen=True)
class DvcRevision:
    """A published version.

    Attributes:
        md5: DVC's hash of the release folder, as its pointer file holds it.
        pointer: The pointer file, relative to the project.
        stages: Stages of dvc.yaml that were committed and pushed with it.
    """

    md5: str
    pointer: str
    stages: tuple[str, ...] = ()


_TURN_SECONDS, _BUSY_SECONDS = 1800.0, 120.0
"""How long a publish waits for others, and for another DVC command in the project."""


class DvcPublisher:
    """Publishes and restores releases of one project, in one process of a host at a time.

    Releases go to the project's default remote (``dvc remote default``).

    Args:
        root: Folder of params.yaml.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def publish(self, release_dir: Path, *, method: str | None = None) -> DvcRevision:
        """Publish a release folder. Repeating it changes nothing.

        Args:
            release_dir: ``releases/<release id>`` of this project.
            method: Also commit this method's stages of dvc.yaml, if ``synthetic/<method>`` holds
                the release. None if overrides were used: dvc.lock would say that params.yaml alone
                made the release.

        Raises:
            DataError: The folder holds a foreign file, or lacks a file of a release.
            VerificationError: Other content was published under this release id.
            ConfigError: The remote is unknown, or params.yaml lacks a section that dvc.yaml names.
            PublishError: DVC refused. Nothing is lost; publish again.
        """
        release_dir = release_dir.resolve()
        self._check_folder(release_dir)
        pointer, day = self._pointer(release_dir.name), _day(release_dir)
        with self._turn():
            self.prepare()
            # Before `dvc add`, which would write the new hash into the pointer.
            _refuse_other_bytes(release_dir, pointer)
            self._dvc("add", lambda repo: repo.add(str(release_dir)))
            revision = self._seal(release_dir, pointer)
            stages = self.current_stages(method, release_dir) if method else []
            # force: DVC would ask whether changed outputs are meant, and nobody answers.
            self._dvc("commit", lambda repo: [repo.commit(one, force=True) for one in stages])
            if method and not stages:
                log.info("synthetic/%s holds another release: dvc.lock does not change", method)
            self._push(revision, stages)
            # privacy: the time at which a release is finished depends on its records, so only the
            # day shows.
            os.utime(pointer, (day.timestamp(),) * 2)
        return DvcRevision(revision.md5, revision.pointer, tuple(stages))

    def prepare(self) -> None:
        """Make the folder a DVC project if it is not one yet, also without git."""
        if not (self.root / ".dvc" / "config").exists():
            for name, content in PROJECT_FILES.items():
                if not (self.root / name).exists():
                    with atomic_file(self.root / name, mode=0o644) as stream:
                        stream.write(content.encode())
        local = self.root / ".dvc" / "config.local"
        if not in_git(self.root) and not (local.exists() and "no_scm" in local.read_text()):
            from dvc.config import Config

            with Config(str(local.parent)).edit("local") as settings:
                settings.setdefault("core", {})["no_scm"] = True

    def _dvc(self, command: str, call: Callable[[Any], Value]) -> Value:
        """Do something to the project with DVC, and wait for other DVC commands.

        Raises:
            ConfigError: A setting of DVC or params.yaml is wrong.
            PublishError: DVC refused, or another DVC command ran for too long.
        """
        from dvc.lock import LockError
        from dvc.repo import Repo
        from dvc.rwlock import RWLockFileCorruptedError

        for name in ("dvc", "dvc_data", "dvc_objects"):
            # DVC writes to the streams that were there at its import, and fails where they are
            # closed, as a task's are. Its words go where the process logs; it draws no bars.
            logging.getLogger(name).handlers.clear()
            logging.getLogger(name).setLevel(logging.WARNING)
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                # DVC takes the folder of the process for the project's in places.
                with chdir(self.root), Repo(str(self.root)) as repo:
                    return call(repo)
            except RWLockFileCorruptedError:
                # crash safety: DVC writes in place which of its processes use which files. A kill
                # or a full disk leaves half of it, at which every later command would fail.
                (self.root / ".dvc" / "tmp" / "rwlock").unlink(missing_ok=True)
            except LockError as error:
                if time.monotonic() >= deadline:
                    raise _refusal(
                        command, error, "Another DVC command runs in this project: wait for it."
                    ) from None
                time.sleep(0.5)
            except Exception as error:  # of any remote's library
                raise _refusal(command, error) from None

    def current_stages(self, method: str, release_dir: Path) -> list[str]:
        """A method's stages in dvc.yaml, in order, if their files are those of the release.

        Empty if there is no dvc.yaml, if params.yaml does not list the method, or if
        ``plans/<method>.json``, ``synthetic/<method>`` or ``reports/<method>`` belong to another
        release: committing its stages would publish it without validation, or record a plan as
        done.
        """
        root, folders = self.root, [self.root / name / method for name in ("synthetic", "reports")]
        if not (root / "dvc.yaml").is_file() or not folders[0].is_dir():
            return []
        with suppress(FileNotFoundError):
            if read_json(root / "plans" / f"{method}.json").get("release_id") != release_dir.name:
                return []
        # Every byte: dvc.lock states that these files are what the stages make of params.yaml.
        for folder in folders:
            for path in folder.rglob("*"):
                twin = release_dir / path.relative_to(folder)
                same = twin.is_file() and filecmp.cmp(path, twin, shallow=False)
                if not (path.is_dir() or same):
                    return []
        stages = self._dvc("status", lambda repo: list(repo.index.stages))
        return [
            stage.name
            for stage in stages
            if getattr(stage, "name", "").endswith(f"@{method}")
            and all(Path(file.fs_path).exists() for file in (*stage.deps, *stage.outs))
        ]

    def restore(self, release_id: str) -> Path:
        """Restore a published release to ``releases/<release id>``, byte for byte.

        Raises:
            DataError: It was never published here; says the nearest name.
            VerificationError: The existing folder, or the remote's answer, differs from what was
                published.
            PublishError: The remote cannot be read.
        """
        revision = self.revision(release_id)
        folder = self.root / "releases" / release_id
        with self._turn():
            self.prepare()
            # `dvc pull` would replace a folder whose content its cache knows without asking.
            if folder.exists() and folder_md5(folder) != revision.md5:
                raise VerificationError(
                    f"releases/{release_id} differs from what was published.",
                    hint="Move it away, then restore again.",
                )
            self._dvc("pull", lambda repo: repo.pull([revision.pointer]))
            # DVC's own check is a setting of the remote, which a project may have switched off.
            if not folder.is_dir() or folder_md5(folder) != revision.md5:
                raise VerificationError(
                    f"the DVC remote returned other content than was published of {release_id}.",
                    hint="Restore the remote from its backup.",
                )
        return folder

    def revision(self, release_id: str) -> DvcRevision:
        """Read the pointer file of a published release.

        Raises:
            DataError: There is no such pointer, or it is not a file of DVC.
        """
        pointer = self._pointer(release_id)
        if not pointer.is_file():
            near = nearest(release_id, self.published_ids())
            raise DataError(
                f"release {release_id!r} was not published here: releases/{pointer.name} is "
                "missing.",
                hint=f"Did you mean {near}?" if near else "Bring the file with git pull.",
            )
        md5 = _read_pointer(pointer)["outs"][0]["md5"]
        return DvcRevision(md5, pointer.relative_to(self.root).as_posix())

    def published_ids(self) -> list[str]:
        """Ids of the releases with a pointer file here, sorted."""
        return sorted(path.stem for path in (self.root / "releases").glob("*.dvc"))

    def _check_folder(self, release_dir: Path) -> None:
        """Check that a folder may be published.

        Raises:
            DataError: It lies elsewhere, lacks a file, or holds one that is not a release's.
        """
        if release_dir.parent != self.root / "releases":
            raise DataError(
                f"{release_dir} is not a folder in releases/ of {self.root}.",
                hint="Publish releases/<release id>.",
            )
        if not release_dir.is_dir():
            raise DataError(f"{release_dir} does not exist.", hint="Run generate first.")
        for path in sorted(release_dir.iterdir()):
            is_folder = path.name in layout.FOLDERS and path.is_dir() and not path.is_symlink()
            for file in sorted(path.iterdir()) if is_folder else [path]:
                # privacy: a list of allowed names: a stray file in a release folder may be private.
                known = is_folder or file.name in RELEASE_FILES
                if not known or file.is_symlink() or not file.is_file():
                    name = file.relative_to(release_dir).as_posix()
                    raise DataError(
                        f"releases/{release_dir.name} holds {name!r}, which is not a file of a "
                        "release.",
                        hint="Move it away: nothing else is published.",
                    )
        artifacts = layout.ARTIFACT, layout.MODEL_ARTIFACT
        if all((release_dir / name).is_file() for name in artifacts):
            raise DataError(
                f"releases/{release_dir.name} holds {' and '.join(artifacts)}; a release has one.",
                hint="Move away the one that is not in its certificate.",
            )
        if not (release_dir / layout.CERTIFICATE).is_file():
            raise DataError(
                f"releases/{release_dir.name} lacks {layout.CERTIFICATE}.",
                hint="Run certify again.",
            )

    def _pointer(self, release_id: str) -> Path:
        if not re.fullmatch(NAME, release_id):
            raise DataError(f"release id {release_id!r} must match {NAME}.")
        return self.root / "releases" / f"{release_id}.dvc"

    def _seal(self, release_dir: Path, pointer: Path) -> DvcRevision:
        """Write the digests that must never change into the new pointer."""
        content = _read_pointer(pointer)
        # Digests must be of the bytes that DVC has stored, and another process may have written
        # since.
        if content["outs"][0]["md5"] != folder_md5(release_dir):
            raise PublishError(
                f"{release_dir} changed while it was published.", hint="Publish again."
            )
        content["meta"] = {
            name: sha256_file(release_dir / name)
            for name in SEALED_FILES
            if (release_dir / name).is_file()
        }
        # The account that paid: with it a ledger that lost the release is noticed elsewhere.
        content["meta"]["account"] = None
        with suppress(OSError, ValueError, LookupError, TypeError):
            sealed = read_json(release_dir / layout.CERTIFICATE)
            if "derived" not in sealed:
                content["meta"]["account"] = str(sealed["plan"]["account"])
        with atomic_file(pointer, mode=0o644) as stream:
            stream.write(yaml.safe_dump(content, sort_keys=False).encode())
        return self.revision(release_dir.name)

    def _push(self, revision: DvcRevision, stages: list[str]) -> None:
        def push(repo: Any) -> bool:
            targets = [revision.pointer, *stages]
            repo.push(targets)
            states = set(repo.status(targets, cloud=True).values())
            there = repo.cloud.get_remote_odb().exists(revision.md5)
            return bool(there) and not {"new", "missing"} & states

        # DVC raises no error if it sent nothing because its cache lost the files.
        if not self._dvc("push", push):
            raise PublishError("dvc push: the DVC cache lost files.", hint="Publish again.")

    @contextmanager
    def _turn(self) -> Iterator[None]:
        try:
            with file_lock(self.root / ".privsyn" / "publish.lock", timeout=_TURN_SECONDS):
                yield
        except TimeoutError:
            raise PublishError(
                f"another publish ran for more than {_TURN_SECONDS:g} seconds.",
                hint="End it, then publish again.",
            ) from None


def _refuse_other_bytes(release_dir: Path, pointer: Path) -> None:
    """Refuse a release whose published artifact or certificate has changed."""
    if not pointer.is_file():
        return
    try:
        sealed = _read_pointer(pointer).get("meta") or {}
    except DataError:
        # DVC writes pointers in place, so a killed publish can leave half a file, which would stop
        # every later DVC command. Pointers with digests are renamed into place and never partial.
        pointer.unlink()
        return
    for name in SEALED_FILES:
        file = release_dir / name
        if name in sealed and not (file.is_file() and sealed[name] == sha256_file(file)):
            raise VerificationError(
                f"releases/{release_dir.name}/{name} differs from the published file.",
                hint=f"Move the folder away, then: privsyn restore {release_dir.name}",
            )


def _read_pointer(pointer: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(read_file(pointer))
        (out,) = content["outs"]
        if not out["md5"] or out["path"] != pointer.stem:
            raise ValueError
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, RecursionError):
        raise DataError(
            f"{pointer} is not a pointer file of DVC.", hint="Restore it with git checkout."
        ) from None
    return dict(content)


def _day(release_dir: Path) -> datetime:
    """The day in a release's certificate: the only time that is published."""
    try:
        sealed = read_json(release_dir / layout.CERTIFICATE)
        paid = sealed["parents"][0] if "derived" in sealed else sealed
        return datetime.fromisoformat(paid["reserved_on"]).replace(tzinfo=UTC)
    except (OSError, ValueError, LookupError, TypeError):
        raise DataError(
            f"releases/{release_dir.name}: its certificate has no day.", hint="Run certify again."
        ) from None


def _refusal(command: str, error: Exception, hint: str = "") -> PublishError | ConfigError:
    """DVC's own error in one line, with the next step."""
    from dvc.config import ConfigError as DvcConfigError

    if missing := MissingExtra.of(error):
        return missing
    # A remote's URL may hold a password, and this text ends up in logs.
    text = re.sub(r"//[^/@\s]*:[^/@\s]*@", "//***@", str(error.__cause__ or error))
    message = f"dvc {command}: {' '.join(text.split())[:300].rstrip('.')}."
    if "are missing from 'params.yaml'" in message:
        return ConfigError(message, hint="dvc.yaml names these sections; they may be empty: {}.")
    if isinstance(error, DvcConfigError):
        return ConfigError(message, hint="See: dvc remote list.")
    return PublishError(message, hint=hint or "Nothing is lost: repair it and run the same again.")
