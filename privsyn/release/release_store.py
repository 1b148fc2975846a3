"""Finished releases in a store that several machines reach: ``services.releases``.

    releases/<name>/manifest.json       those that passed their checks
    quarantine/<name>/manifest.json     all others
    <either>/<name>/files/<sha256>      their files, by content
    plans/<name>.json                   what a release is to be, once it is paid for

A manifest is written last and names every file with its digest, so a reader sees the release
before or after a change, never between; what the change replaced is deleted then. What a
certificate or its checks do not name is not stored. Only what lies in a release's folder goes
there, and its plan: as public as the release.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from privsyn import layout
from privsyn.data.artifacts import sha256_file, storage_errors, wipe
from privsyn.data.object_store import NoSuchObject, ObjectStore, open_store
from privsyn.errors import VerificationError
from privsyn.files import parse_json
from privsyn.release import certificate
from privsyn.release.plan import Plan

SETTING = "services.releases"
RELEASES, QUARANTINE = "releases", "quarantine"
"""Places of a store, and of a project: who may read a bucket's quarantine is its owner's to say."""

SCHEMA = "privsyn-stored-release/1"

_SHA256 = re.compile(r"[0-9a-f]{64}")
_PLAIN = frozenset(
    {
        layout.ARTIFACT,
        layout.MODEL_ARTIFACT,
        layout.CERTIFICATE,
        layout.SIGNATURE,
        *layout.REPORTS,
    }
)

PLANS = "plans"

_MANIFEST = "manifest.json"
_DAY_SECONDS = 86_400
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_OWN = re.compile(r"files/[0-9a-f]{64}|draft-[0-9a-f]{64}\.json")
"""What privsyn stores of a release beside its manifest."""


@dataclass(frozen=True)
class Manifest:
    """What a store holds of a release.

    Attributes:
        name: The release, or what was made from one.
        account: Account that paid; empty for what was made from a release, which costs nothing.
        certificate: SHA-256 of its certificate.
        lies: Its place in a project.
        change: Number of this version of it, from 1.
        files: SHA-256 by name.
    """

    name: str
    account: str
    certificate: str
    lies: str
    change: int
    files: Mapping[str, str]

    @classmethod
    def read(cls, raw: bytes, name: str) -> Manifest:
        """Parse a manifest without trusting it.

        Raises:
            VerificationError: It is not a manifest, or is of another release.
        """
        try:
            content = parse_json(raw)
            if content.pop("schema") != SCHEMA:
                raise ValueError
            manifest = cls(**content)
            fine = (
                manifest.name == name
                # A changed manifest could otherwise lead files to any folder of the project.
                and manifest.lies in (RELEASES, QUARANTINE)
                and isinstance(manifest.change, int)
                and isinstance(manifest.account, str)
                and manifest.files[layout.CERTIFICATE] == manifest.certificate
                # The same for names of files: no path may leave the release's folder.
                and all(is_of_release(file) for file in manifest.files)
                and all(_SHA256.fullmatch(sha) for sha in manifest.files.values())
            )
        except (ValueError, LookupError, TypeError, AttributeError):
            fine = False
        if not fine:
            raise VerificationError(
                f"{SETTING}: the manifest of {name} is none that privsyn wrote.",
                hint="Somebody changed the store. Bring the release back from DVC.",
            )
        return manifest


def is_of_release(file: Any) -> bool:
    """Whether a name is one that a file of a release may have, in a place it may lie in."""
    if not isinstance(file, str):
        return False
    above, slash, name = file.rpartition("/")
    if not slash:
        return name in _PLAIN
    # One level alone, no hidden files: a manifest cannot place a file that a shell or git reads.
    return above in layout.FOLDERS and bool(name) and not name.startswith(".") and "\0" not in name


class ReleaseStore:
    """Finished releases at a URL. Nothing is asked before the first call.

    Args:
        url: See object_store.open_store.

    Raises:
        ConfigError: It is no URL of a store.
    """

    def __init__(self, url: str) -> None:
        self.where = url.rstrip("/")
        self._at: dict[str, ObjectStore] = {
            place: open_store(f"{self.where}/{place}", SETTING) for place in (RELEASES, QUARANTINE)
        }
        self._plans = open_store(f"{self.where}/{PLANS}", SETTING)
        self._charged: dict[str, str] = {}

    def names(self) -> list[str]:
        """All releases that are stored, those in quarantine too, in order of name."""
        folders = {name for store in self._at.values() for name in store.folders()}
        return sorted(name for name in folders if _NAME.fullmatch(name))

    def charged_releases(self, account: str | None, known: Collection[str]) -> list[str]:
        """Releases that are stored, charged to an account or to any, and none of the known ones.

        Raises:
            StorageError: The store cannot be reached.
        """
        names = []
        for name in self.names():
            if name in known:
                continue
            if name not in self._charged and (manifest := self.manifest(name)) is not None:
                self._charged[name] = manifest.account  # never changes
            paid = self._charged.get(name, "")
            if paid and account in (None, paid):
                names.append(name)
        return names

    def manifest(self, name: str) -> Manifest | None:
        """What is stored of a release; None where nothing is, or not all of it yet.

        Raises:
            VerificationError: Its manifest was not written by privsyn.
        """
        current = self._locate(name)
        return None if current is None else current[1]

    def put(self, folder: Path, lies: str, *, passed: bool) -> None:
        """Store a finished folder as it is, in place of what is stored of it.

        Args:
            folder: The release, with its certificate.
            lies: Its place in the project.
            passed: Whether it may be read by whoever may read releases.

        Raises:
            StorageError: The store cannot be reached or refuses. What was stored can be read,
                or this folder; what is left over goes when it is stored again.
        """
        old = self._locate(folder.name)
        stored = set() if old is None else set(old[1].files.values())
        place = RELEASES if passed else QUARANTINE
        # A move to or from quarantine uploads anew: objects of one place are never reused in the
        # other.
        same = old is not None and old[0] == place
        manifest = self._upload(folder, lies, place, stored if same else set())
        number = 1 if old is None else old[1].change + 1
        # Nothing changed: a reader that is following this manifest goes on with it.
        if same and old is not None and manifest.files == old[1].files and old[1].lies == lies:
            manifest = old[1]
        else:
            manifest = replace(manifest, change=number)
            self._write(place, _MANIFEST, manifest)
        self._tidy(folder, place, manifest)

    def put_draft(self, folder: Path) -> None:
        """Store a folder that the ledger is about to commit.

        Nobody reads it but a machine that takes over after the ledger's word, by the certificate's
        digest: of two that certify at once the ledger takes one, and both are here.

        Raises:
            StorageError: The store cannot be reached or refuses.
        """
        manifest = self._upload(folder, RELEASES, QUARANTINE, set())
        self._write(QUARANTINE, _draft(manifest.certificate), manifest)

    def put_plan(self, plan: Plan) -> None:
        """Store the plan of a release, in place of an earlier one of the same release.

        Raises:
            StorageError: The store cannot be reached or refuses.
        """
        # Written once the release is paid for, so that another machine can go on with it.
        raw = json.dumps(plan.model_dump(mode="json"), indent=2).encode()
        self._plans.put(f"{plan.id}.json", io.BytesIO(raw))

    def plan(self, name: str) -> Plan | None:
        """The plan of a release; None where none is stored.

        That its name is that of what it says is checked; its cost is not computed again.

        Raises:
            VerificationError: It is no plan, or of another release.
            StorageError: The store cannot be reached.
        """
        # A name from a command line must not become a path in the store.
        raw = _content(self._plans, f"{name}.json") if _NAME.fullmatch(name) else None
        if raw is None:
            return None
        try:
            plan = Plan.model_validate_json(raw)
            # The name is a hash of the plan's identity, so an edited plan cannot keep its name.
            fine = plan.release_id == name and plan.is_its_name
        except (ValueError, LookupError, TypeError, RecursionError):
            fine = False
        if not fine:
            raise VerificationError(
                f"{SETTING}: the plan of {name} is none that privsyn wrote.",
                hint="Somebody changed the store. Plan again: privsyn stage plan.",
            )
        return plan

    def fetch(
        self,
        name: str,
        root: Path,
        *,
        certified: str | None = None,
        check: Callable[[Path], None] | None = None,
    ) -> Path | None:
        """Make a project's folder of a release equal to what the store holds.

        Every file is compared with the manifest's digest, the artifact with the certificate's.
        What is here already is not fetched again.

        Args:
            name: The release, or what was made from one.
            root: Folder of the project.
            certified: SHA-256 of its certificate, as the ledger knows it.
            check: Looks at the folder before it is put into its place.

        Returns:
            The folder; None where the store holds no such release.

        Raises:
            VerificationError: What is stored is not what was certified. Nothing here is changed.
            StorageError: The store cannot be reached, or the disk is full.
        """
        current = self._current(name, certified)
        # A manifest may be replaced while its files are fetched; then the new one is read.
        while current is not None:
            try:
                return self._fetch(current, root, certified, check)
            except NoSuchObject:
                earlier, current = current, self._current(name, certified)
                if current == earlier:  # else it was changed meanwhile, and what it named is gone
                    raise
        return None

    def _fetch(
        self,
        current: tuple[str, Manifest],
        root: Path,
        certified: str | None,
        check: Callable[[Path], None] | None,
    ) -> Path:
        place, manifest = current
        name = manifest.name
        if certified not in (None, manifest.certificate):
            raise VerificationError(
                f"{SETTING}: what is stored of {name} is not what its ledger entry committed.",
                hint="Bring the release back from DVC, and look who writes to the store.",
            )
        target = root / manifest.lies / name
        other = root / (QUARANTINE if manifest.lies == RELEASES else RELEASES) / name
        if _digests(target) == manifest.files:
            return target
        # A hidden name, which no listing of releases shows, in the same folder, so that it can be
        # renamed.
        building = target.with_name(f".{name}.{secrets.token_hex(4)}.fetched")
        sources = {sha: folder / file for folder in (target, other)
                   for file, sha in _digests(folder).items()}  # fmt: skip
        try:
            with storage_errors("write", target):
                self._build(place, manifest, building, sources)
                _refuse_other(building, manifest)
                if check is not None:
                    check(building)
                set_modes(building, private=manifest.lies == QUARANTINE)
                set_times(building)
                # It may have moved to or from quarantine: it must be in one place only.
                for earlier in (target, other):
                    shutil.rmtree(earlier, ignore_errors=True)
                building.replace(target)
        finally:
            with suppress(OSError):
                wipe(building)
        return target

    def _current(self, name: str, certified: str | None) -> tuple[str, Manifest] | None:
        """Place and manifest of a release, or of the copy from before its commit."""
        current = self._locate(name)
        if current is None and certified is not None:
            draft = self._read(QUARANTINE, name, _draft(certified))
            current = None if draft is None else (QUARANTINE, draft)
        return current

    def _locate(self, name: str) -> tuple[str, Manifest] | None:
        """Place and manifest of a release; the newer one while it moves between places."""
        both = [(place, self._read(place, name, _MANIFEST)) for place in self._at]
        known = [(place, manifest) for place, manifest in both if manifest is not None]
        # While it moves, both places have a manifest: the new one is written before the old one
        # goes.
        return max(known, key=lambda item: item[1].change, default=None)

    def _read(self, place: str, name: str, file: str) -> Manifest | None:
        if not _NAME.fullmatch(name):
            return None
        raw = _content(self._at[place], f"{name}/{file}")
        return None if raw is None else Manifest.read(raw, name)

    def _write(self, place: str, file: str, manifest: Manifest) -> None:
        content = json.dumps({"schema": SCHEMA} | asdict(manifest), sort_keys=True, indent=2)
        self._at[place].put(f"{manifest.name}/{file}", io.BytesIO(content.encode()))

    def _upload(self, folder: Path, lies: str, place: str, stored: set[str]) -> Manifest:
        """Store the files of a folder that are not stored yet; say what there is to name."""
        _, sealed = certificate.read(folder)
        files = _digests(folder)
        for file, sha in files.items():
            # Files first and the manifest last: a reader never sees a manifest without its files.
            if sha not in stored:
                with (folder / file).open("rb") as stream:
                    self._at[place].put(f"{folder.name}/files/{sha}", stream)
        return Manifest(
            name=folder.name,
            account="" if "derived" in sealed else str(sealed["plan"]["account"]),
            certificate=files[layout.CERTIFICATE],
            lies=lies,
            change=1,
            files=files,
        )

    def _tidy(self, folder: Path, place: str, manifest: Manifest) -> None:
        """Delete what a manifest does not name, and the release's objects in the other place.

        Leftovers of killed runs go, too. What privsyn did not write stays.
        """
        name, there = manifest.name, set(self._at[place].names(manifest.name))
        # Deleting by an old manifest could remove files that a newer one names.
        if self._locate(name) != (place, manifest):
            return  # changed meanwhile: whoever did it tidies up
        keep = {f"{name}/{_draft(manifest.certificate)}"}
        for file, sha in manifest.files.items():
            stored = f"{name}/files/{sha}"
            keep.add(stored)
            if stored not in there:  # another machine that tidied up took it for a leftover
                with (folder / file).open("rb") as stream:
                    self._at[place].put(stored, stream)
        for stored in sorted(there - keep):
            if _OWN.fullmatch(stored.removeprefix(f"{name}/")):
                self._at[place].remove(stored)
        self._at[QUARANTINE if place == RELEASES else RELEASES].delete(name)

    def _build(
        self, place: str, manifest: Manifest, building: Path, sources: Mapping[str, Path]
    ) -> None:
        for file, sha in manifest.files.items():
            part = building / file
            part.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if sha in sources:
                shutil.copyfile(sources[sha], part)
            else:
                with part.open("xb") as stream:
                    self._at[place].get(f"{manifest.name}/files/{sha}", stream)
            # Checked as it is written: the store's own checksums do not reach back to the
            # certificate.
            if sha256_file(part) != sha:
                raise VerificationError(
                    f"{SETTING}: {file} of {manifest.name} is not what its manifest names.",
                    hint="It was changed or cut off in the store: bring the release back from DVC.",
                )


def set_modes(folder: Path, *, private: bool) -> None:
    """Open a release folder for all to read, or for its owner alone."""
    folders, files = (0o700, 0o600) if private else (0o755, 0o644)
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(folders if path.is_dir() else files)


def set_times(folder: Path, release: Path | None = None) -> None:
    """Give all that lies in a release folder, and the folder, one time that tells nothing.

    Files keep the time at which they were written, and copies and archives take it along: that of
    a release's end depends on its records. Here it is the day on its certificate, at as many
    seconds past midnight as the digest of its content says, so that what compares times and sizes
    (DVC, rsync) sees when a file has another content.

    Args:
        folder: The folder.
        release: The release it was made from, where it is none.
    """
    release = release or folder
    _, sealed = certificate.read(release)
    # Of a release that another build made, which may name no day, a time that is nobody's.
    said = certificate.origin(sealed).get("reserved_on", "1970-01-01")
    day = datetime.fromisoformat(said).replace(tzinfo=UTC)
    content = json.dumps(_digests(release), sort_keys=True).encode()
    # In seconds past midnight UTC. A function of public bytes, so it says nothing more.
    past = int(hashlib.sha256(content).hexdigest(), 16) % _DAY_SECONDS
    at = (day.timestamp() + past,) * 2
    for path in (*folder.rglob("*"), folder):
        os.utime(path, at, follow_symlinks=False)


def _content(store: ObjectStore, name: str) -> bytes | None:
    """A small object's bytes; None where it is not there."""
    content = io.BytesIO()
    try:
        if not store.exists(name):
            return None
        store.get(name, content)
    except NoSuchObject:  # it went meanwhile
        return None
    return content.getvalue()


def _draft(certified: str) -> str:
    return f"draft-{certified}.json"


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of the files of a release folder by name, those of a release alone."""
    return {
        name: sha256_file(path)
        for path in sorted(folder.rglob("*"))
        if certificate.is_plain_file(path)
        and is_of_release(name := path.relative_to(folder).as_posix())
    }


def _refuse_other(folder: Path, manifest: Manifest) -> None:
    """Refuse a folder that is not what its own certificate says."""
    raw, sealed = certificate.read(folder)
    try:
        artifact = sealed["artifact"]
        fine = (
            hashlib.sha256(raw).hexdigest() == certificate.digest(sealed) == manifest.certificate
            and sha256_file(folder / Path(str(artifact["file"])).name) == artifact["sha256"]
            and sealed.get("name", certificate.origin(sealed)["plan"]["release_id"])
            == manifest.name
        )
    except (LookupError, TypeError, AttributeError):
        fine = False
    if not fine:
        raise VerificationError(
            f"{SETTING}: what is stored of {manifest.name} does not agree with its certificate.",
            hint="Bring the release back from DVC, and look who writes to the store.",
        )
