"""reserve and settle: the release's way into the ledger and out of it, and what is on the way."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from privsyn.data.readers.formats import check_source
from privsyn.data.settings import DatasetConfig
from privsyn.dp.adjacency import Guarantee
from privsyn.errors import ConfigError, LeaseHeld, PrivsynError, ReleaseLost
from privsyn.ledger.entries import ENDED, DatasetSource, Entry
from privsyn.methods.base import TrainsModel
from privsyn.models.loading import check_prompt
from privsyn.models.rows import SyntheticRows, with_row
from privsyn.release.certificate import agree
from privsyn.release.plan import Plan
from privsyn.stages.base import (
    Context,
    OpenPlan,
    check_machine,
    find_workdir,
    open_plan,
    wipe_workdir,
)
from privsyn.stages.folder import key_id
from privsyn.stages.lineage import end_run, open_release
from privsyn.stages.plan import plan as make_plan
from privsyn.validation.suite import load_suite


def reserve(ctx: Context, plan: Plan | OpenPlan) -> Entry:
    """Set the cost of a release aside, once, however often this runs.

    What could fail later is tried first, so that a mistake costs nothing: the plan against the
    settings, the tracker, the suite, the prompt's length, the input file's existence and columns.

    Raises:
        ConfigError: The plan was made from other settings, or the suite is malformed.
        DataError: The input is missing, empty or lacks a column; it changed under its version, or
            is that of another version. Nothing is reserved.
        VerificationError: The ledger was edited. Nothing is reserved.
        BudgetExceeded: The account cannot pay. Nothing is reserved.
        PaidBefore: Another version of privsyn made a release of the same settings. Nothing is
            reserved.
        ReleaseLost: This release was spent without an artifact.
        TrackingUnavailable: MLflow cannot be reached, and the release has not begun. Nothing is
            reserved.
        StorageError: The store of releases does not take the plan. It is reserved: run again.
    """
    release = open_plan(ctx, plan)
    plan = release.plan
    _check_plan(ctx, plan)
    key_id(ctx)
    if ctx.vault is not None:
        # Whatever could fail later fails here, before the cost is set aside.
        ctx.vault.key  # noqa: B018  it can be read here
    known = ctx.ledger.releases.find(plan.id)
    new = known is None or known.state in ("VOID", "RESERVED")
    if new:  # what is paid for goes on without lineage, which is written later
        ctx.tracker.check()
    ctx.open_account()
    # A started release has its records in buckets already, and the private file may be gone.
    if new:
        method = release.method
        load_suite(
            ctx.config.validation,
            plan.dataset.labels,
            plan.row_bounds,
            ctx.files,
            release.modality,
            schema=plan.settings.get("json_schema"),
        )
        prompt = method.prompt(release.settings)
        if prompt is not None:
            row = SyntheticRows(plan.dataset.columns).longest
            keys = [with_row(label, row) for label in plan.dataset.labels or (None,)]
            check_prompt(ctx.config.models, *prompt, labels=keys)
        if isinstance(method, TrainsModel):
            method.check_models(release.settings, ctx.config.models)
        check_machine(release)
        check_source(release.source)
    entry = ctx.ledger.releases.reserve(
        plan.account,
        plan.id,
        plan.privacy_event(),
        method=plan.method,
        guarantee=Guarantee(plan.epsilon, plan.delta),
        source=_note_source(ctx, release.source, known),
        settings_digest=plan.settings_digest,
    )
    if entry.state == "LOST":
        raise lost(plan)
    if ctx.workspace.store is not None:
        ctx.workspace.store.put_plan(plan)
    open_release(ctx, plan, entry)
    return entry


def _note_source(ctx: Context, source: DatasetConfig, known: Entry | None) -> DatasetSource | None:
    """The private file as the ledger compares it with those of other versions and releases.

    A release that has begun goes on from its buckets, whatever became of the file; of a finished
    one the file may be gone.
    """
    # A release that began was noted with its file; a resumed run must not need the file again.
    if known is not None and known.state in ("BEGUN", "LOST"):
        return None
    try:
        return DatasetSource(source.version, ctx.fingerprint(source))
    except PrivsynError:
        if known is None or known.state != "COMMITTED":
            raise
        return None


def settle(ctx: Context, plan: Plan) -> str:
    """End a run: give an untouched reservation back, wipe the scratch of a finished release.

    A release that has begun and not finished keeps its scratch: running again resumes it.

    Returns:
        The state of the release after settling.
    """
    entry = ctx.ledger.releases.find(plan.id)
    if entry is None:
        return "VOID"
    if entry.state == "BEGUN":
        # It was given up on disk while the ledger was unreachable: this tells the ledger now.
        with suppress(ReleaseLost):
            find_workdir(ctx, entry).refuse_given_up()
        entry = ctx.ledger.releases.get(plan.id)
    if entry.state == "RESERVED":
        entry = ctx.ledger.releases.void(plan.id, "run ended before begin")
        ctx.tracker.finish(ctx.tracker.release_run(plan.id), "KILLED")
    # A VOID release never began, so its scratch holds no record, and another run may begin in it.
    if entry.state in ("COMMITTED", "LOST"):
        end_run(ctx, plan.id)
        wipe_workdir(ctx, entry)
    return str(entry.state)


def _check_plan(ctx: Context, plan: Plan) -> None:
    """Refuse to run a plan with settings it was not made from: they would shape the output."""
    dataset = ctx.config.dataset.model_copy(update={"version": plan.dataset.version})
    config = ctx.config.model_copy(update={"dataset": dataset})
    today = make_plan(
        replace(ctx, config=config), plan.method, open_account=True, derived=plan.derived
    )
    # Advice, the number of shards and dates change nothing that is drawn or charged.
    free, computed = {"warnings", "shards", "dates"}, {"derived", "epsilon"}
    same = today.model_dump(exclude=free | computed) == plan.model_dump(exclude=free | computed)
    # Sums of an FFT differ in the last digits between processors, so these two are compared as
    # verify does. The event, which is charged and drawn with, is the same to the last digit.
    if (
        not same
        or not agree(plan.derived, today.derived)
        or not agree(plan.epsilon, today.epsilon)
        or today.epsilon > plan.epsilon * (1 + 1e-12)
    ):
        raise ConfigError(
            f"the plan of release {plan.id} was made from other settings or by another version.",
            hint="Plan again: privsyn stage plan",
        )


def lost(plan: Plan) -> ReleaseLost:
    """The error for a release that was spent without an artifact."""
    return ReleaseLost(
        f"release {plan.id} is LOST: its budget is spent and its draws cannot be used.",
        hint=f"A fresh draw is a new charge: set privacy.draw={plan.draw + 1}.",
    )


def unfinished_releases(ctx: Context, *, hours: float = 0) -> list[Entry]:
    """Releases that are charged, not finished, and that nobody draws.

    Args:
        ctx: Config and ledger.
        hours: Only those whose state is older.
    """
    limit = ctx.clock() - timedelta(hours=hours)
    return [
        entry
        for entry in ctx.ledger.releases.all()
        if entry.open and entry.changed_at <= limit and _idle(ctx, entry.release_id)
    ]


def _idle(ctx: Context, release_id: str) -> bool:
    try:
        ctx.ledger.leases.check_idle(release_id)
    except LeaseHeld:
        return False
    return True


def leftovers(ctx: Context) -> list[str]:
    """Ended releases whose private intermediates are still in scratch here."""
    states = {entry.release_id: entry.state for entry in ctx.ledger.releases.all()}
    return [name for name in ctx.workspace.scratches() if states.get(name) in ENDED]
