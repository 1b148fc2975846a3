"""certify: merge the shards into the artifact, certify it, commit it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsyn import layout
from privsyn.data.artifacts import (
    ArtifactRef,
    atomic_file,
    check_place,
    sha256_file,
    storage_error,
    sync_folder,
    write_jsonl_atomic,
)
from privsyn.errors import ConfigError, DataError, ReleaseLost, VerificationError
from privsyn.release import certificate, signature
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.release.release_store import set_times
from privsyn.release.settings import KEY_VARIABLE
from privsyn.release.signature import load
from privsyn.release.workdir import (
    CERTIFICATE,
    EXHIBITS,
    MODEL,
    TRAIN,
    Workdir,
    part_name,
    samples,
)
from privsyn.report.verification import locate
from privsyn.stages.audit import withheld
from privsyn.stages.base import (
    Context,
    OpenPlan,
    again_if_finished,
    find_workdir,
    open_plan,
    wipe_workdir,
)
from privsyn.stages.draw import draw_accuracy
from privsyn.stages.lineage import log_certificate, trace_stage
from privsyn.validation.suite import mask_rows

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner


@again_if_finished
def certify(ctx: Context, plan: Plan | OpenPlan) -> Path:
    """Write the release folder and commit its digests to the ledger.

    The folder is renamed into place whole; the ledger is told afterwards, and then the scratch with
    its private records is wiped. Running again, at any point, ends in the same folder and the same
    row, and without scratch.

    Returns:
        The release folder.

    Raises:
        DataError: A shard is missing, or the committed artifact is no longer here.
        LeaseHeld: Another live process certifies this release.
        ReleaseLost: The release's scratch is gone.
    """
    release = open_plan(ctx, plan)
    plan = release.plan
    with trace_stage(ctx, plan.id, "certify"):
        entry = ctx.ledger.releases.get(plan.id)
        # A crash after the commit: finish what followed it, at no cost.
        if entry.state == "COMMITTED":
            wipe_workdir(ctx, entry)
            folder = find(ctx, plan)
            store(ctx, folder)
            log_certificate(ctx, plan, folder)
            return folder
        if entry.state != "BEGUN":
            raise ReleaseLost(f"release {plan.id} is {entry.state}: there is nothing to certify.")
        folder = ctx.workspace.release(plan.id)
        # Two that build one folder would take each other's files away, and what is committed then
        # may lack some.
        with ctx.ledger.leases.acquire(plan.id, part_name(CERTIFICATE)) as lease:
            # A folder with a certificate but no commit is a crash between the two: it is only
            # committed.
            if not (folder / layout.CERTIFICATE).is_file():
                work = find_workdir(ctx, entry)
                work.resume()
                with work:
                    _write(release, work, folder)
            facts = ReleaseFacts.read(folder)
            artifact = folder / facts.file
            # The digest goes into the chain for good, so it must be that of the file now.
            if sha256_file(artifact) != facts.sha256:
                raise VerificationError(f"{artifact} was changed before its release was committed.")
            if ctx.workspace.store is not None:  # it outlives this machine before it is committed
                ctx.workspace.store.put_draft(folder)
            ctx.ledger.releases.commit(plan.id, facts.sha256, facts.certificate_sha256, lease=lease)
        store(ctx, folder)
        # privacy: the scratch holds records; nothing needs them once the ledger has the commit.
        wipe_workdir(ctx, ctx.ledger.releases.get(plan.id))
        log_certificate(ctx, plan, folder)
        return folder


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
    try:
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
    except OSError as error:
        raise storage_error("write", target, error) from error
    return target


def _write(release: OpenPlan, work: Workdir, folder: Path) -> None:
    """Build the folder beside its place and rename it."""
    ctx, plan = release.ctx, release.plan
    # Under a hidden name until it is complete; a rename then makes it a release.
    building = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(building, ignore_errors=True)
    # With a vault each part was drawn on some machine: fetch all of them.
    for part in (*range(work.shards), TRAIN):
        work.bring(part)
    scratch = work.folder
    noise, rows, counts = _merge(release, scratch, work.shards)
    rows = mask_rows(rows, ctx.config.validation)  # privacy: of what is released: post-processing
    artifact = release.modality.write(building, rows)
    by, accuracy = draw_accuracy(release, building / layout.ARTIFACT, work) or (noise, None)
    exhibits = _take_along(scratch / EXHIBITS, building / layout.EXHIBITS)
    model = _take_along(scratch / MODEL, building / layout.MODEL)
    reserved, balance = ctx.ledger.releases.reservation(plan.id)
    sealed = certificate.build(
        plan,
        artifact,
        ctx.ledger.releases.get(plan.id),
        reserved,
        balance,
        noise="+".join(sorted({*noise.split("+"), by})) if accuracy else noise,
        counts=counts,
        exhibits=exhibits,
        model=model,
        accuracy=accuracy,
        root=ctx.workspace.root,
        approval=ctx.ledger.approvals.spend_approval(plan.id),
    )
    seal(building, sealed, folder)


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
    try:
        # privacy: the times of files would tell when the run ended.
        set_times(building)
        os.replace(building, folder)
        # A rename survives a power cut only once its folder is synced.
        sync_folder(folder.parent)
    except OSError as error:
        raise storage_error("write", folder, error) from error


def _take_along(source: Path, target: Path) -> dict[str, str]:
    """Copy the files of a folder of the scratch, if there; returns their digests by name.

    Hidden ones are left behind: halves that a killed run was writing.
    """
    digests = {}
    for file in sorted(source.iterdir()) if source.is_dir() else ():
        # Temporary files of an interrupted atomic write.
        if file.name.startswith("."):
            continue
        with file.open("rb") as content, atomic_file(target / file.name, mode=0o644) as stream:
            shutil.copyfileobj(content, stream)
        digests[file.name] = sha256_file(target / file.name)
    return digests


def _merge(
    release: OpenPlan, scratch: Path, shards: int
) -> tuple[str, list[dict[str, Any]], dict[str, int]]:
    """Kind of noise source, the rows of all shards in the order of their cells, summed counts."""
    plan = release.plan
    drawn: list[dict[str, Any]] = []
    kinds: set[str] = set()
    for shard in range(shards):
        try:
            part = json.loads((scratch / samples(shard)).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError(
                f"shard {shard} of release {plan.id} is not generated yet.",
                hint="Run generate again: it resumes at no cost.",
            ) from None
        # One shard with test noise makes the whole release not-private.
        kinds.add(part["noise"])
        drawn += part["rows"]
    drawn.sort(key=lambda row: int(row["cell"]))  # stable: a cell's texts stay in their order
    fewest, most = plan.row_bounds
    # Where every cell has one row, also the cells themselves must be complete.
    if fewest == most == len(release.cells):
        whole = [row["cell"] for row in drawn] == list(range(most))
    else:
        whole = fewest <= len(drawn) <= most
    if not whole:
        raise DataError(
            f"release {plan.id} holds {len(drawn)} rows, planned were {plan.rows_said}."
        )
    field = release.modality.field
    rows = [
        {"id": f"{plan.id}-{number:06d}"}
        | {key: row[key] for key in ("label", field) if key in row}
        for number, row in enumerate(drawn)
    ]
    counts: Counter[str] = Counter()
    for row in drawn:
        counts.update(row.get("counts", {}))
    return "+".join(sorted(kinds)), rows, dict(counts)


log = logging.getLogger(__name__)


def key_id(ctx: Context) -> str:
    """Id of the key that will sign releases here, which is tried; empty where there is none.

    Raises:
        ConfigError: ``signing.required`` is on and there is none here; or there is one that cannot
            be used.
    """
    signer = _signer(ctx)
    return "" if signer is None else str(signer.public_key.keyid)


def sign(ctx: Context, folder: Path) -> str | None:
    """Sign a release whose files are all there. Again is harmless: what holds is kept.

    Guarantee: see release.signature; nothing is charged.

    Returns:
        Id of the key; None where there is no key here. A signature of before that does not hold any
        more is taken away then.

    Raises:
        ConfigError: See key_id.
    """
    signer = _signer(ctx)
    if signer is not None:
        return signature.sign(folder, signer)
    if ctx.config.signing.file is not None:
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
        if config.required:
            raise ConfigError(
                "signing.required is on, and no key is named.",
                hint=f"Set signing.key or {KEY_VARIABLE}; make a key with: privsyn keys new",
            )
        return None
    file = ctx.path(config.file)
    check_place(file, ctx.workspace.public_folders, "signing.key")
    try:
        return load(file)
    except FileNotFoundError:
        if config.required:
            raise ConfigError(
                f"signing.required is on, and the key {file} is not on this machine.",
                hint=f"Put it there, or name it with signing.key or {KEY_VARIABLE}.",
            ) from None
        return None
