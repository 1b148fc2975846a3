"""What a part of a release is drawn with, and what becomes of it when that fails."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privsyn.data.draws import Draws
from privsyn.dp.events import dump
from privsyn.dp.noise import NoiseSource
from privsyn.errors import (
    ModelError,
    PrivsynError,
    ReleaseLost,
    VerificationError,
    require_generate,
)
from privsyn.ledger.leases import Lease
from privsyn.methods.base import Backends
from privsyn.models.roles import ROLES, load_role
from privsyn.release.plan import Plan
from privsyn.release.scratch import part_name
from privsyn.stages.base import Context
from privsyn.stages.pace import note
from privsyn.stages.partition import journal_header
from privsyn.stages.pinned import Run, give_up
from privsyn.stages.place import Place


def begun(ctx: Context, plan: Plan) -> Run | None:
    """The run of a begun release; None where the release is already committed.

    Raises:
        ReleaseLost: It is neither.
        VerificationError: The plan was edited; or it was charged for another event than this
            version would run.
    """
    entry = ctx.ledger.entry(plan.id)
    if entry.state == "COMMITTED":
        return None
    if entry.state != "BEGUN":
        raise ReleaseLost(f"release {plan.id} is {entry.state}, not BEGUN: nothing may be drawn.")
    if not plan.is_its_name:
        raise VerificationError(
            f"the plan of release {plan.id} was edited: it is not what the release is named after.",
            hint="Plan again: privsyn stage plan. Nothing was drawn.",
        )
    run = Run.resume(ctx, plan)
    if not plan.event == dump(plan.charged_event()) == dict(entry.event):
        raise VerificationError(
            f"release {plan.id} is charged for another event than this version would run.",
            hint="Resume with the version that began it: its cost is paid. Only where that is gone "
            f"for good: privsyn ledger lose {plan.id}",
        )
    return run


def refuse_drawn(ctx: Context, plan: Plan) -> None:
    """Refuse a begun release that this process cannot go on with, before models are loaded for it.

    It looks and holds nothing: whoever draws a part asks for its lease.

    Raises:
        LeaseHeld: Another process draws a part of it; or its scratch is another one.
        ReleaseLost: Its scratch was here and is gone, or it was given up.
        VerificationError: See ``begun``.
    """
    begun(ctx, plan)
    ctx.ledger.check_alone(plan.id)


@dataclass(frozen=True)
class Drawing:
    """What a part of a release is drawn with, while it is drawn.

    Attributes:
        lease: Fails its check once another process has taken the part over.
        journal: Of the part.
        noise: Where private randomness comes from.
        backends: Models, those the release was planned with.
    """

    lease: Lease
    journal: Draws
    noise: NoiseSource
    backends: Backends


@contextmanager
def drawing(
    ctx: Context, plan: Plan, part: int | str, backends: Backends | None, place: Place
) -> Iterator[Drawing]:
    """Hold a part of a begun release (a shard's number, or ``train``) while it is drawn.

    Raises:
        LeaseHeld: Another process draws this part.
        ModelError: A model is not the one of the plan.
        ReleaseLost: See ``holding``.
    """
    if backends is None:
        backends = load_models(ctx, plan)
    check_models(plan, backends)
    with holding(ctx, plan, part, place) as (lease, journal, noise):
        yield Drawing(lease, journal, noise, backends)


@contextmanager
def holding(
    ctx: Context, plan: Plan, part: int | str, place: Place
) -> Iterator[tuple[Lease, Draws, NoiseSource]]:
    """Hold a part of a begun release that is drawn without a model. See ``drawing``.

    An exception of our own after a private draw makes the release LOST.

    Raises:
        LeaseHeld: Another process draws this part.
        ReleaseLost: See above; or the journal is gone.
    """
    header = journal_header(ctx, plan) | {"shard": part}
    with (
        ctx.ledger.acquire(plan.id, part_name(part)) as lease,
        _journal(ctx, plan, part, header, lease, place) as journal,
    ):
        began = time.monotonic()
        try:
            yield lease, journal, ctx.noise()
            note(ctx, plan, part, time.monotonic() - began)
        except Exception as error:
            if not journal.drawn or _from_outside(error):
                raise
            where = traceback.extract_tb(error.__traceback__)[-1]
            again = give_up(ctx, place, plan.id, f"{type(error).__name__} after a draw")
            # A foreign exception's message may hold record text: only its type and place go on.
            raise ReleaseLost(
                f"release {plan.id} is LOST: {type(error).__name__} in "
                f"{Path(where.filename).name}, line {where.lineno}, after private draws.",
                hint=f"{again}Its cost stays charged; a fresh draw needs "
                f"privacy.draw={plan.draw + 1}.",
            ) from None


def load_models(ctx: Context, plan: Plan) -> Backends:
    """The models a release reads, loaded.

    Raises:
        ModelError: One is missing, incomplete or of a kind that cannot be used.
    """
    require_generate()
    models, performance = ctx.config.models, ctx.config.performance
    method, settings = ctx.planned(plan)
    return Backends({role: load_role(models, role, performance) for role in method.roles(settings)})


def check_models(plan: Plan, backends: Backends) -> None:
    """Refuse models other than those a release was planned with.

    Raises:
        ModelError: Names the role.
    """
    for role, use in plan.models.items():
        if backends.models[role].revision != use.revision:
            setting = ROLES[role].setting
            raise ModelError(
                f"the {role} model is not the one release {plan.id} was planned with, which is "
                f"{use.source}: {setting} names another, or its files changed.",
                hint=f"Set {setting}={use.source} (-S), or put its files back, and run again; or "
                "plan a new release.",
            )


def _journal(
    ctx: Context,
    plan: Plan,
    part: int | str,
    header: Mapping[str, Any],
    lease: Lease,
    place: Place,
) -> Draws:
    """The part's journal, counted in the ledger from now on.

    Raises:
        VerificationError: The ledger has counted more than it holds: it is an older copy, and what
            was drawn since would be drawn again.
        ReleaseLost: It is gone.
    """
    counted = ctx.ledger.parts(plan.id).get(lease.part, 0)
    journal = place.journal(part, header, lease)
    if len(journal) < counted:
        journal.close()
        raise VerificationError(
            f"release {plan.id}, {lease.part}: the ledger has counted {counted} draws and "
            f"{journal.where} holds {len(journal)}: this scratch is an older copy.",
            hint="Put the newest one back: its cost is paid. Only where that is gone for good: "
            f"privsyn ledger lose {plan.id}",
        )
    lease.count(lambda: journal.durable)
    return journal


def _from_outside(error: Exception) -> bool:
    """Whether a failure cannot depend on what was drawn, so that the release may be resumed."""
    if isinstance(error, PrivsynError):
        return error.retryable
    return isinstance(error, MemoryError | OSError) or type(error).__name__ == "OutOfMemoryError"
