"""sweep: wipe what ended releases left in scratch, and end their MLflow runs.

Whoever commits a release wipes its scratch, and settle wipes that of a lost one. A process that was
killed in between, or a run of which only the failed tasks were cleared, leaves private records.
"""

from __future__ import annotations

from contextlib import suppress

from privsyn.data.artifacts import wipe
from privsyn.errors import ConfigError, LeaseHeld, ReleaseLost
from privsyn.ledger.entries import ENDED, State
from privsyn.release.workdir import wipe_dead
from privsyn.stages.base import Context, find_workdir, wipe_workdir
from privsyn.stages.lineage import ended
from privsyn.students.release import lock_student


def leftovers(ctx: Context) -> list[str]:
    """Ended releases whose private intermediates are still in scratch here."""
    states = {entry.release_id: entry.state for entry in ctx.ledger.releases.all()}
    return [name for name in ctx.workspace.scratches() if states.get(name) in ENDED]


def sweep(ctx: Context) -> list[str]:
    """Wipe the scratch of ended releases, here and in the vault, and of killed students.

    Of a release that is begun, the caches of processes that were killed on this machine go too.

    A release that is reserved or begun keeps its scratch, as does one that the ledger does not
    know: it may be another ledger's.

    Returns:
        What was wiped.

    Raises:
        StorageError: Something cannot be deleted.
    """
    known = {entry.release_id for entry in ctx.ledger.releases.all()}
    scratches = set(ctx.workspace.scratches())
    if scratches:
        wipe_dead(ctx.workspace.scratch("").parent)
    if ctx.vault is not None:
        scratches |= set(ctx.vault.releases()) & known
    return [name for name in sorted(scratches) if _swept(ctx, name, known)]


def _swept(ctx: Context, name: str, known: set[str]) -> bool:
    scratch, parent = ctx.workspace.scratch(name), name.partition(".")[0]
    # A folder that the ledger does not know may belong to another ledger: leave it.
    if name not in known:
        if name == parent or parent not in known:
            return False
        with suppress(LeaseHeld), lock_student(ctx, name):
            wipe(scratch)
            return True
        return False
    with suppress(ReleaseLost, ConfigError):  # it may lie in a vault that is not known here
        begun = ctx.ledger.releases.get(name)
        if begun.state is State.BEGUN:
            find_workdir(ctx, begun).refuse_given_up()
    # Under the lock: a release that starts right now must not lose its scratch.
    with ctx.ledger.releases.lock(name) as entry:
        if entry is None or entry.state not in ENDED:
            return False
        if entry.state is State.VOID:  # it holds no record, and no other run may begin in it now
            wipe(scratch)
    wipe_workdir(ctx, entry)
    if entry.state is not State.VOID:
        ended(ctx, name)
    return True
