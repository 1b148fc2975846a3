"""certify: merge the shards into the artifact, certify it, commit it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from privsyn import layout
from privsyn.data.artifacts import atomic_file, sha256_file
from privsyn.data.conversations import add_messages
from privsyn.errors import DataError, ReleaseLost, VerificationError
from privsyn.release import certificate
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.release.workdir import (
    CERTIFICATE,
    COLUMNS,
    EXHIBITS,
    MODEL,
    TRAIN,
    Workdir,
    part_name,
    samples,
)
from privsyn.stages.base import (
    Context,
    OpenPlan,
    again_if_finished,
    find_workdir,
    open_plan,
    trace_stage,
    wipe_workdir,
)
from privsyn.stages.draw import draw_accuracy
from privsyn.stages.folder import find, seal, store
from privsyn.stages.lineage import log_certificate
from privsyn.validation.suite import mask_rows


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


def _write(release: OpenPlan, work: Workdir, folder: Path) -> None:
    """Build the folder beside its place and rename it."""
    ctx, plan = release.ctx, release.plan
    # Under a hidden name until it is complete; a rename then makes it a release.
    building = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(building, ignore_errors=True)
    # With a vault each part was drawn on some machine: fetch all of them.
    for part in (*range(work.shards), TRAIN, COLUMNS):
        work.bring(part)
    scratch = work.folder
    noise, rows, counts = _merge(release, scratch, work.shards)
    rows = mask_rows(rows, ctx.config.validation)  # privacy: of what is released: post-processing
    rows = add_messages(rows, plan.dataset.roles)
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
        | ({"label": row["label"]} if "label" in row else {})
        | {name: row["columns"][name] for name in plan.dataset.columns}
        | ({field: row[field]} if field in row else {})
        for number, row in enumerate(drawn)
    ]
    counts: Counter[str] = Counter()
    for row in drawn:
        counts.update(row.get("counts", {}))
    return "+".join(sorted(kinds)), rows, dict(counts)
