"""lineage sync: write to MLflow what finished releases should have there and have not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from privsyn.release import layout
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.stages.base import Context

if TYPE_CHECKING:
    pass
from privsyn.errors import DataError
from privsyn.publishing.dvc import DvcPublisher
from privsyn.stages import lineage
from privsyn.students.release import sync_student
from privsyn.students.settings import STUDENTS


def sync(ctx: Context, release_id: str | None = None) -> list[str]:
    """Write the missing lineage of one finished release, or of all that lie here.

    Everything is read from the release's folder and the ledger, and what is there already stays as
    it is. Costs nothing and opens no private file.

    Args:
        ctx: Config and ledger.
        release_id: A release or a student; None: all of both.

    Returns:
        The names of what was looked at, in order.

    Raises:
        DataError: The release is not here.
        TrackingUnavailable: MLflow cannot be reached.
    """
    ctx.lineage = ctx.tracker  # that it cannot be written is an error here, not a warning
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
            sync_student(ctx, folder)
        publisher = DvcPublisher(ctx.workspace.root, remote=ctx.config.services.dvc_remote)
        # Further records have no run of their own: their certificate is in their parent's.
        if name in publisher.published() and (not facts.is_derived or STUDENTS in facts.derived):
            lineage.published(ctx, name, publisher.revision(name))
    return names


def _release(ctx: Context, folder: Path, plan: Plan) -> None:
    entry = ctx.ledger.releases.find(plan.id)
    if entry is None:
        raise DataError(
            f"the ledger does not know release {plan.id}.", hint="Is services.ledger the right one?"
        )
    lineage.open_release(ctx, plan, entry)
    lineage.certified(ctx, plan, folder)
    holds = layout.passed(folder)
    if holds is not None:
        lineage.validated(ctx, plan, folder, passed=holds)
    lineage.ended(ctx, plan.id)
