"""Finished releases between this machine and the store of releases, where there is one.

Stages put a folder there when they have changed it, and look there before they read one: which
machine made it does not matter. Without ``services.releases`` nothing of this does anything.
"""

from __future__ import annotations

from pathlib import Path

from privsyn.release import certificate, layout, verification
from privsyn.release.plan import Plan
from privsyn.stages.audit import withheld
from privsyn.stages.base import Context


def locate(ctx: Context, name: str) -> Path | None:
    """Folder of a finished release, as the store has it and the ledger vouches for it.

    Returns:
        The folder; None where the release is neither here nor stored.

    Raises:
        VerificationError: What is stored is not what was certified and committed.
        StorageError: The store cannot be reached.
    """
    releases = ctx.workspace.store
    if releases is None:
        return ctx.workspace.locate(name)
    entry = ctx.ledger.find(name)

    def check(folder: Path) -> None:
        if not verification.covers_reports(folder, ctx.ledger):
            # Older than the ledger's note, or of a machine that died in between: made anew.
            for report in (*layout.REPORTS, layout.SIGNATURE):
                (folder / report).unlink(missing_ok=True)
        verification.raise_failed(folder, verification.verify(folder, ctx.ledger))

    fetched = releases.fetch(
        name,
        ctx.workspace.root,
        certified=None if entry is None else entry.certificate_sha256,
        check=check,
    )
    return fetched or ctx.workspace.here_in(name)


def store(ctx: Context, folder: Path) -> None:
    """Store a finished folder as it is now.

    Raises:
        StorageError: The store cannot be reached or refuses.
    """
    releases = ctx.workspace.store
    if releases is None:
        return
    _, sealed = certificate.read(folder)
    paid = Plan.from_certificate(certificate.origin(sealed))
    lies = folder.parent.name
    public = layout.passed(folder) is True and not withheld(ctx, paid)
    releases.put(folder, lies, passed=public and folder == ctx.workspace.release(folder.name))


def store_plan(ctx: Context, plan: Plan) -> None:
    """Store the plan of a release that is paid for.

    Raises:
        StorageError: The store cannot be reached or refuses.
    """
    if ctx.workspace.store is not None:
        ctx.workspace.store.put_plan(plan)


def before_commit(ctx: Context, folder: Path) -> None:
    """Have a folder outlive this machine before the ledger is told that it exists.

    Raises:
        StorageError: The store cannot be reached or refuses. Nothing is committed.
    """
    if ctx.workspace.store is not None:
        ctx.workspace.store.put_draft(folder)
