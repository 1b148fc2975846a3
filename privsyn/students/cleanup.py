"""Cleanup after a kill: wipe what ended releases left, write the lineage that is missing.

Whoever commits a release wipes its scratch, and settle wipes that of a lost one. A process that was
killed in between, or a run of which only the failed tasks were cleared, leaves private records.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from privsyn import layout
from privsyn.data.artifacts import wipe
from privsyn.errors import ConfigError, DataError, LeaseHeld, ReleaseLost
from privsyn.ledger.entries import ENDED, State
from privsyn.methods.shared.distill import STUDENTS
from privsyn.publishing import DvcPublisher
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.release.workdir import wipe_dead
from privsyn.stages import lineage
from privsyn.stages.base import Context, find_workdir, wipe_workdir
from privsyn.students.release import StudentPlan, lock_student, trace_student


def sweep(ctx: Context) -> list[str]:
    """Wipe the scratch of ended releases, here and in the vault, and of killed students.

    Of a release that is begun, the caches of processes that were killed on this machine go too.

    A release that is reserved or begun keeps its scratch, as does one that the ledger does not
    know: it may be another ledger's.

    Returns:
        What was wiped.

    Raises:
        StorageError: Something cannot be deleted.
        VerificationError: The ledger does not know the releases here, so nothing tells which of
            the private files are of ended ones.
    """
    ctx.check_releases()
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
        lineage.end_run(ctx, name)
    return True


def sync(ctx: Context, release_id: str | None = None) -> list[str]:
    """Write the missing lineage of one finished release, or of all that lie here.

    Everything is read from the release's folders and the ledger, and what is there already stays as
    it is. What was measured here of a release goes into its nested run, which is internal. Costs
    nothing and opens no private file.

    Args:
        ctx: Config and ledger.
        release_id: A release or a student; None: all of both.

    Returns:
        The names of what was looked at, in order.

    Raises:
        DataError: The release is not here.
        TrackingUnavailable: MLflow cannot be reached.
    """
    ctx.tracker.strict = True  # that it cannot be written is an error here, not a warning
    ctx.tracker.check()
    names = ctx.workspace.here() if release_id is None else [release_id]
    for name in names:
        folder = ctx.workspace.locate(name)
        if folder is None:
            raise ctx.workspace.missing(name)
        facts = ReleaseFacts.read(folder)
        if not facts.is_derived:
            _release(ctx, folder, facts.plan)
        elif STUDENTS in facts.derived:
            student = StudentPlan.from_facts(facts)
            trace_student(ctx, student, folder)
            ctx.tracker.finish(ctx.tracker.release_run(student.id))
        publisher = DvcPublisher(ctx.workspace.root)
        # Further records have no run of their own: their certificate is in their parent's.
        if name in publisher.published_ids() and (
            not facts.is_derived or STUDENTS in facts.derived
        ):
            lineage.log_revision(ctx, name, publisher.revision(name))
    return names


def _release(ctx: Context, folder: Path, plan: Plan) -> None:
    entry = ctx.ledger.releases.find(plan.id)
    if entry is None:
        raise DataError(
            f"the ledger does not know release {plan.id}.", hint="Is services.ledger the right one?"
        )
    lineage.open_release(ctx, plan, entry)
    lineage.log_certificate(ctx, plan, folder)
    holds = layout.suite_passed(folder)
    if holds is not None:
        lineage.log_validation(ctx, plan, folder, passed=holds)
    lineage.log_measures(ctx, plan)
    lineage.end_run(ctx, plan.id)
