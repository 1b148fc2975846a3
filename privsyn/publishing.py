"""Publish and restore releases with DVC, and keep them in git.

A pointer file beside the release folder holds DVC's hash, and digests of the files that must never
change. A killed publish can be repeated: it changes nothing that is published. DVC runs as a
command because its Python API is not public.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import yaml

from privsyn import layout
from privsyn.data.artifacts import atomic_file, check_writable, sha256_file
from privsyn.errors import ConfigError, DataError, PublishError, VerificationError
from privsyn.files import file_lock, read_file, read_json
from privsyn.section import NAME, nearest

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

_BUSY = ("Unable to acquire lock", "is busy, it is being blocked by")


class DvcCommand:
    """Runs DVC in a project, and waits for other DVC commands.

    Args:
        root: The project.
        busy_timeout: Seconds to wait for another DVC command.
    """

    def __init__(self, root: Path, *, busy_timeout: float) -> None:
        self.root = root
        self._busy_timeout = busy_timeout

    def prepare(self) -> None:
        """Make the folder a DVC project if it is not one yet, also without git."""
        if not (self.root / ".dvc" / "config").exists():
            for name, content in PROJECT_FILES.items():
                if not (self.root / name).exists():
                    with atomic_file(self.root / name, mode=0o644) as stream:
                        stream.write(content.encode())
        local = self.root / ".dvc" / "config.local"
        if not in_git(self.root) and not (local.exists() and "no_scm" in local.read_text()):
            self.run("config", "--local", "core.no_scm", "true")

    def run(self, *arguments: str) -> str:
        """Run one command and return what it printed.

        Raises:
            ConfigError: A setting of DVC or params.yaml is wrong.
            PublishError: DVC refused, or another DVC command ran for too long.
        """
        # -P: Python must not import a file of the project in place of a package.
        command = [sys.executable, "-P", "-m", "dvc", *arguments]
        deadline = time.monotonic() + self._busy_timeout
        while True:
            done = subprocess.run(
                command,
                cwd=self.root,
                env=os.environ | {"DVC_NO_ANALYTICS": "1"},
                # A prompt, such as for a password, must fail and not wait.
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
            if done.returncode == 0:
                return done.stdout
            if "Unable to read RWLock-file" in done.stdout:
                # crash safety: DVC writes in place which of its processes use which files. A kill
                # or a full disk leaves half of it, at which every later command would fail.
                (self.root / ".dvc" / "tmp" / "rwlock").unlink(missing_ok=True)
                continue
            busy = any(sign in done.stdout for sign in _BUSY)
            if not busy or time.monotonic() >= deadline:
                raise _refusal(arguments, done.stdout, busy=busy)
            time.sleep(0.5)


def _refusal(arguments: Sequence[str], output: str, *, busy: bool) -> PublishError | ConfigError:
    """DVC's own error in one line, with the next step."""
    # A remote's URL may hold a password, and this text ends up in logs.
    text = re.sub(r"//[^/@\s]*:[^/@\s]*@", "//***@", output)
    match = re.search(r"^ERROR: (.*?)(?=^ERROR: |\Z)", text, re.MULTILINE | re.DOTALL)
    reason = (match[1] if match else text[-300:]).split(" - ", 1)[-1]
    message = f"dvc {arguments[0]}: {' '.join(reason.split())[:300].rstrip('.')}."
    if busy:
        return PublishError(message, hint="Another DVC command runs in this project: wait for it.")
    if "are missing from 'params.yaml'" in message:
        return ConfigError(message, hint="dvc.yaml names these sections; they may be empty: {}.")
    if re.search(r"dvc\.lock' (is invalid|validation failed)", output):
        return PublishError(message, hint="Bring it back: git checkout dvc.lock. Or remove it.")
    if "config file error" in output:
        return ConfigError(message, hint="See services.dvc_remote and: dvc remote list.")
    return PublishError(message, hint="Nothing is lost: repair it and run the same again.")


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
            with suppress(PublishError, OSError):  # no git here, or not our repository
                if _git(place.parent, "--literal-pathspecs", "ls-files", "--", place.name):
                    tools.append("git")
        if any(
            folder.with_name(f"{folder.name}.dvc").is_file()
            for folder in (place, *place.parents)[:-1]
        ):
            tools.append("DVC")
    return sorted({*tools}, reverse=True)


def commit_files(root: Path, files: Sequence[str], message: str, day: str) -> str:
    """Commit the existing ones of these files and nothing else; returns the commit's id.

    Args:
        root: The project.
        files: Paths relative to the project.
        message: Message of the commit.
        day: Date of the commit (ISO). privacy: the time of a finish depends on the records.

    Raises:
        PublishError: No identity, a lock, or a hook refused.
    """
    present = [file for file in files if (root / file).exists()]
    # --force: the setting asks for the commit, even if a .gitignore has the folder of releases.
    _git(root, "add", "--force", "--", *present)
    # Nothing to commit is an error for git, and a repeated publish has nothing.
    if _git(root, "status", "--porcelain", "--", *present):
        _git(root, "commit", "--quiet", "--message", message, "--", *present, day=day)
    return _git(root, "rev-parse", "HEAD")


def _git(root: Path, *arguments: str, day: str | None = None) -> str:
    # Both dates: git shows the author's and stores the committer's.
    at = f"{day}T00:00:00+0000"
    dates = {} if day is None else {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
    done = subprocess.run(
        ["git", *arguments],
        cwd=root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env=os.environ | dates,
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
        message = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1])
        raise PublishError(
            f"git {arguments[0]}: {message.strip()[:300].rstrip('.')}.",
            hint="The release is pushed; repair git, then publish again.",
        )
    return done.stdout.strip()


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


def current_stages(root: Path, method: str, release_dir: Path) -> list[str]:
    """A method's stages in dvc.yaml, in order, if their files are those of the release.

    Empty if there is no dvc.yaml, if params.yaml does not list the method, or if
    ``plans/<method>.json``, ``synthetic/<method>`` or ``reports/<method>`` belong to another
    release: committing its stages would publish it without validation, or record a plan as done.
    """
    if not (root / "dvc.yaml").is_file() or not (root / "synthetic" / method).is_dir():
        return []
    if _load(root / "plans" / f"{method}.json").get("release_id") != release_dir.name:
        return []
    # Every byte: dvc.lock states that these files are what the stages make of params.yaml.
    for folder in (root / "synthetic" / method, root / "reports" / method):
        for path in folder.rglob("*"):
            if path.is_dir():
                continue
            twin = release_dir / path.relative_to(folder)
            if not twin.is_file() or not filecmp.cmp(path, twin, shallow=False):
                return []
    params = _load(root / "params.yaml")
    stages = _load(root / "dvc.yaml").get("stages") or {}
    return [
        f"{name}@{method}"
        for name, stage in stages.items()
        if method in _items(params, stage.get("foreach"))
        and all((root / path).exists() for path in _files(stage.get("do") or {}, method))
    ]


def _files(stage: Mapping[str, Any], method: str) -> list[str]:
    """Dependencies and outputs of a stage. An entry is a path or a mapping of a path to options."""
    kinds = ("deps", "outs", "metrics", "plots")
    entries = [item for kind in kinds for item in stage.get(kind, ())]
    paths = [next(iter(entry)) if isinstance(entry, Mapping) else str(entry) for entry in entries]
    return [path.replace("${item}", method).replace("${key}", method) for path in paths]


def _items(params: Mapping[str, Any], foreach: object) -> Collection[Any]:
    """Items of a stage's ``foreach``: a list, a mapping, or a reference to one in params.yaml."""
    if isinstance(foreach, str) and (place := re.fullmatch(r"\$\{([\w.]+)\}", foreach)):
        value: Any = params
        for part in place[1].split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        foreach = value
    return foreach if isinstance(foreach, Mapping | list) else ()


def _load(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        raise ConfigError(f"{path} cannot be read as YAML.") from None
    return content if isinstance(content, dict) else {}


log = logging.getLogger(__name__)

ARTIFACTS = (layout.ARTIFACT, layout.MODEL_ARTIFACT)
"""The artifact of a release: records or a model, never both."""

SEALED_FILES = (*ARTIFACTS, layout.CERTIFICATE)
"""Files that never change after publication. A newer suite may replace the reports."""

RELEASE_FILES = frozenset({*SEALED_FILES, *layout.REPORTS, layout.SIGNATURE})
"""All files that a published release folder may hold."""

RELEASE_FOLDERS = frozenset(layout.FOLDERS)
"""All folders that it may hold. The artifact or the certificate lists their files with digests."""


@dataclass(frozen=True)
class DvcRevision:
    """A published version.

    Attributes:
        release_id: The release.
        md5: DVC's hash of the release folder, as its pointer file holds it.
        pointer: The pointer file, relative to the project.
        remote: Name of the remote it was pushed to.
        stages: Stages of dvc.yaml that were committed and pushed with it.
        commit: Git commit with the pointer, if publishing commits to git.
    """

    release_id: str
    md5: str
    pointer: str
    remote: str
    stages: tuple[str, ...] = ()
    commit: str | None = None


class DvcPublisher:
    """Publishes and restores releases of one project, in one process of a host at a time.

    Args:
        root: Folder of params.yaml.
        remote: DVC remote. None: the project's default.
        lock_timeout: Seconds to wait for other publishes.
        busy_timeout: Seconds to wait for another DVC command in the project.
    """

    def __init__(
        self,
        root: Path,
        remote: str | None = None,
        *,
        lock_timeout: float = 1800.0,
        busy_timeout: float = 120.0,
    ) -> None:
        self.root = root.resolve()
        self.remote = remote
        self._lock_timeout = lock_timeout
        self._dvc = DvcCommand(self.root, busy_timeout=busy_timeout)

    def publish(
        self, release_dir: Path, *, method: str | None = None, git_commit: bool = False
    ) -> DvcRevision:
        """Publish a release folder. Repeating it changes nothing.

        Args:
            release_dir: ``releases/<release id>`` of this project.
            method: Also commit this method's stages of dvc.yaml, if ``synthetic/<method>`` holds
                the release. None if overrides were used: dvc.lock would say that params.yaml alone
                made the release.
            git_commit: Commit only the pointer and dvc.lock to git.

        Raises:
            DataError: The folder holds a foreign file, or lacks a file of a release.
            VerificationError: Other content was published under this release id.
            ConfigError: The remote is unknown, params.yaml lacks a section that dvc.yaml names, or
                the project is not in git.
            PublishError: DVC or git refused. Nothing is lost; publish again.
        """
        if git_commit and not in_git(self.root):
            raise ConfigError(
                "services.git_commit is on, but the project is not in git.",
                hint="Run git init, or switch it off.",
            )
        release_dir = release_dir.resolve()
        release_id = self._check_folder(release_dir)
        pointer = self._pointer(release_id)
        day = _day(release_dir)
        with self._turn():
            self._dvc.prepare()
            # Before `dvc add`, which would write the new hash into the pointer.
            _refuse_other_bytes(release_dir, pointer)
            self._dvc.run("add", _relative(release_dir, self.root))
            revision = self._seal(release_dir, pointer)
            stages = current_stages(self.root, method, release_dir) if method else []
            if stages:
                # --force: DVC would ask whether changed outputs are meant, and there is nobody to
                # answer.
                self._dvc.run("commit", "--force", *stages)
            elif method:
                log.info("synthetic/%s holds another release: dvc.lock does not change", method)
            # Pushed before it is committed to git: a commit never names files that the remote
            # lacks.
            self._push(revision.pointer, *stages)
            commit = None
            # privacy: the time at which a release is finished depends on its records, so only the
            # day shows.
            os.utime(pointer, (datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp(),) * 2)
            if git_commit:
                files = [revision.pointer, "dvc.lock", "releases/.gitignore"]
                commit = commit_files(self.root, files, f"Publish {release_id}", day)
        return replace(revision, stages=tuple(stages), commit=commit)

    def check_remote(self) -> None:
        """Check by a small file that the remote can be written, if it is a local folder.

        Other remotes are only tried by publishing, which can be repeated at no cost.

        Raises:
            StorageError: The folder cannot be written.
        """
        config = ConfigParser(interpolation=None, strict=False)
        folder = self.root / ".dvc"
        with suppress(ConfigParserError, UnicodeError):  # DVC reports a broken config itself
            config.read([folder / "config", folder / "config.local"], encoding="utf-8")
        name = self.remote or config.get("core", "remote", fallback=None)
        url = config.get(f"'remote \"{name}\"'", "url", fallback=None)
        # A relative path in DVC's config is relative to the .dvc folder.
        if url and "://" not in url:
            check_writable((folder / url).resolve())

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
            self._dvc.prepare()
            # `dvc pull` would replace a folder whose content its cache knows without asking.
            if folder.exists() and folder_md5(folder) != revision.md5:
                raise VerificationError(
                    f"releases/{release_id} differs from what was published.",
                    hint="Move it away, then restore again.",
                )
            remote = ["--remote", self.remote] if self.remote else []
            self._dvc.run("pull", *remote, revision.pointer)
            # DVC's own check is a setting of the remote, which a project may have switched off.
            if not folder.is_dir() or folder_md5(folder) != revision.md5:
                raise VerificationError(
                    f"remote {revision.remote!r} returned other content than was published.",
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
                f"release {release_id!r} was not published here: {_relative(pointer, self.root)} "
                "is missing.",
                hint=f"Did you mean {near}?" if near else "Bring the file with git pull.",
            )
        return DvcRevision(
            release_id=release_id,
            md5=_read_pointer(pointer)["outs"][0]["md5"],
            pointer=_relative(pointer, self.root),
            remote=self.remote or "default",
        )

    def published_ids(self) -> list[str]:
        """Ids of the releases with a pointer file here, sorted."""
        return sorted(path.stem for path in (self.root / "releases").glob("*.dvc"))

    def _check_folder(self, release_dir: Path) -> str:
        """Check that a folder may be published; returns its release id."""
        if release_dir.parent != self.root / "releases":
            raise DataError(
                f"{release_dir} is not a folder in releases/ of {self.root}.",
                hint="Publish releases/<release id>.",
            )
        if not release_dir.is_dir():
            raise DataError(f"{release_dir} does not exist.", hint="Run generate first.")
        value = {path.name: path for path in release_dir.iterdir()}
        inside: list[Path] = []
        for name in sorted(RELEASE_FOLDERS & value.keys()):
            if value[name].is_dir() and not value[name].is_symlink():
                inside += sorted(value.pop(name).iterdir())
        for path in [value[name] for name in sorted(value)] + inside:
            # privacy: a list of allowed names: a stray file in a release folder may be private.
            known = path.parent != release_dir or path.name in RELEASE_FILES
            if not known or path.is_symlink() or not path.is_file():
                name = path.relative_to(release_dir).as_posix()
                raise DataError(
                    f"releases/{release_dir.name} holds {name!r}, which is not a file of a "
                    "release.",
                    hint="Move it away: nothing else is published.",
                )
        artifacts = [name for name in ARTIFACTS if name in value]
        if not artifacts or layout.CERTIFICATE not in value:
            lacking = layout.CERTIFICATE if artifacts else ARTIFACTS[0]
            raise DataError(
                f"releases/{release_dir.name} lacks {lacking}.", hint="Run certify again."
            )
        if len(artifacts) > 1:
            raise DataError(
                f"releases/{release_dir.name} holds {' and '.join(artifacts)}; a release has one.",
                hint="Move away the one that is not in its certificate.",
            )
        return release_dir.name

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
        content["meta"]["account"] = _account(release_dir)
        with atomic_file(pointer, mode=0o644) as stream:
            stream.write(yaml.safe_dump(content, sort_keys=False).encode())
        return self.revision(release_dir.name)

    def _push(self, *targets: str) -> None:
        remote = ["--remote", self.remote] if self.remote else []
        answer = self._dvc.run("push", *remote, *targets)
        # DVC exits with 0 if it sent nothing because its cache lost the files.
        if "do not exist neither locally nor on remote" in answer:
            raise PublishError(
                f"dvc push {targets[0]}: the DVC cache lost files.", hint="Publish again."
            )

    @contextmanager
    def _turn(self) -> Iterator[None]:
        try:
            with file_lock(self.root / ".privsyn" / "publish.lock", timeout=self._lock_timeout):
                yield
        except TimeoutError:
            raise PublishError(
                f"another publish ran for more than {self._lock_timeout:g} seconds.",
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


def _account(release_dir: Path) -> str | None:
    """The account that paid; with it a ledger that lost the release can be noticed elsewhere."""
    try:
        sealed = read_json(release_dir / layout.CERTIFICATE)
        return None if "derived" in sealed else str(sealed["plan"]["account"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _day(release_dir: Path) -> str:
    """The day in a release's certificate: the only time that is published."""
    try:
        sealed = read_json(release_dir / layout.CERTIFICATE)
        paid = sealed["parents"][0] if "derived" in sealed else sealed
        return date.fromisoformat(paid["reserved_on"]).isoformat()
    except (OSError, ValueError, LookupError, TypeError):
        raise DataError(
            f"releases/{release_dir.name}: its certificate has no day.", hint="Run certify again."
        ) from None


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()
