"""The folder of a finished release: found, copied, stored for all machines, signed."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsyn import layout
from privsyn.data.artifacts import (
    ArtifactRef,
    atomic_file,
    check_place,
    storage_errors,
    sync_folder,
    write_jsonl_atomic,
)
from privsyn.errors import ConfigError, DataError
from privsyn.release import certificate, signature
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.release.release_store import set_times
from privsyn.release.settings import KEY_VARIABLE
from privsyn.release.signature import load
from privsyn.report.verification import locate
from privsyn.stages.audit import withheld
from privsyn.stages.base import Context

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

log = logging.getLogger(__name__)


def find(ctx: Context, plan: Plan) -> Path:
    """The folder of a committed release.

    Raises:
        BudgetError: The ledger does not know the release.
        DataError: It is not on this machine, or not finished; says what brings it here.
    """
    folder = locate(ctx.workspace, ctx.ledger, plan.id)
    if folder is None:
        state = ctx.ledger.releases.get(plan.id).state
        if state != "COMMITTED":  # such as where somebody marked a task of Airflow as successful
            raise DataError(
                f"release {plan.id} is {state}: it is not finished, and has no folder.",
                hint="Run it again, or clear Airflow's tasks that did not run, `certify` among "
                "them: what was drawn costs nothing more.",
            )
        raise DataError(
            f"release {plan.id} is committed, but its folder is not here.",
            hint=f"Bring it back with: privsyn restore {plan.id}",
        )
    return folder


def store(ctx: Context, folder: Path) -> None:
    """Store a finished folder as it is now, where releases are for all machines.

    Raises:
        StorageError: The store cannot be reached or refuses.
    """
    releases = ctx.workspace.store
    if releases is None:
        return
    paid = ReleaseFacts.read(folder).plan
    public = layout.suite_passed(folder) is True and not withheld(ctx, paid)
    passed = public and folder == ctx.workspace.release(folder.name)
    releases.put(folder, folder.parent.name, passed=passed)


def export(ctx: Context, plan: Plan) -> Path:
    """Copy a release to synthetic/<method>/, the folder dvc.yaml tracks."""
    return copy_release(find(ctx, plan), ctx.workspace.synthetic(plan.method))


def copy_release(source: Path, target: Path) -> Path:
    """Copy what a release's certificate covers, and the certificate, in place of what is there.

    Raises:
        StorageError: Disk full or no permission.
    """
    # Beside the target, so that the last step is a rename: readers never see half a copy.
    fresh = target.with_name(f".{target.name}.new")
    with storage_errors("write", target):
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for name in (ReleaseFacts.read(source).file, layout.CERTIFICATE):
            shutil.copyfile(source / name, fresh / name)
        for name in layout.FOLDERS:
            if (source / name).is_dir():
                shutil.copytree(source / name, fresh / name)
        set_times(fresh)
        shutil.rmtree(target, ignore_errors=True)
        fresh.replace(target)
    return target


def key_id(ctx: Context) -> str:
    """Id of the key that will sign releases here, which is tried; empty where there is none.

    Raises:
        ConfigError: There is one that cannot be used.
    """
    signer = _signer(ctx)
    return "" if signer is None else str(signer.public_key.keyid)


def sign(ctx: Context, folder: Path, *, published: bool = False) -> str | None:
    """Sign a release whose files are all there. Again is harmless: what holds is kept.

    Guarantee: see release.signature; nothing is charged.

    Args:
        ctx: Config.
        folder: The release.
        published: It is to leave now, and not without the key that is named.

    Returns:
        Id of the key; None where there is no key here. A signature of before that does not hold any
        more is taken away then.

    Raises:
        ConfigError: See key_id; or it is published, and the key is not here.
    """
    signer = _signer(ctx)
    if signer is not None:
        return signature.sign(folder, signer)
    if (key := ctx.config.signing.file) is not None:
        if published:
            raise ConfigError(
                f"signing.key={key} is not on this machine, and nothing is published without it.",
                hint=f"Put it there, or name it with {KEY_VARIABLE}; then publish again.",
            )
        log.warning("%s is not signed: the key of signing.key is not on this machine", folder.name)
    # A signature of other bytes would fail verification: without the key, have none.
    if not signature.fits(folder):
        unsign(folder)
    return None


def unsign(folder: Path) -> None:
    """Take the signature of a release away: it failed its checks, or another is to come."""
    (folder / layout.SIGNATURE).unlink(missing_ok=True)


def _signer(ctx: Context) -> CryptoSigner | None:
    """The signer; None where none is asked for, or its file is on other machines alone."""
    config = ctx.config.signing
    if config.file is None:
        return None
    file = ctx.path(config.file)
    check_place(file, ctx.workspace.public_folders, "signing.key")
    try:
        return load(file)
    except FileNotFoundError:
        return None


def write_model(folder: Path, files: Mapping[str, bytes]) -> ArtifactRef:
    """Write the artifact of a derived release that is a model: its files, and a row on each.

    Args:
        folder: The release folder that is being built.
        files: Content by file name.

    Raises:
        ValueError: There is no file, or a name is not that of a plain file.
    """
    rows = []
    for name, content in sorted(files.items()):
        if not name or name != Path(name).name or name.startswith("."):
            # A name with a path could leave the folder; a hidden one would be skipped by its
            # checks.
            raise ValueError(f"{name!r} is no name of a file of a model")
        with atomic_file(folder / layout.MODEL / name, mode=0o644) as stream:
            stream.write(content)
        digest = hashlib.sha256(content).hexdigest()
        rows.append({"file": f"{layout.MODEL}/{name}", "sha256": digest})
    if not rows:
        raise ValueError("a model without files")
    artifact = write_jsonl_atomic(folder / layout.MODEL_ARTIFACT, rows)
    return replace(artifact, media_type=layout.MODEL_ROWS)


def seal(building: Path, sealed: Mapping[str, Any], folder: Path) -> None:
    """Put the certificate into a finished folder and rename it into its place."""
    with atomic_file(building / layout.CERTIFICATE, mode=0o644) as stream:
        stream.write(certificate.canonical(sealed))
    with storage_errors("write", folder):
        # privacy: the times of files would tell when the run ended.
        set_times(building)
        os.replace(building, folder)
        # A rename survives a power cut only once its folder is synced.
        sync_folder(folder.parent)
