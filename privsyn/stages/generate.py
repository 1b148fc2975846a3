"""generate: draw one shard of a release. The only stage that runs a mechanism."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privsyn.data.artifacts import atomic_file, write_json_atomic
from privsyn.data.journal import Journal
from privsyn.data.partition import load_shard
from privsyn.dp.events import dump
from privsyn.dp.noise import NoiseSource
from privsyn.errors import DataError, ModelError, PrivsynError, ReleaseLost, VerificationError
from privsyn.ledger.leases import Lease
from privsyn.methods.base import Backends, Draw, DrawsSamples, Exhibit, Sample, TrainsModel
from privsyn.modalities.registry import modality_of
from privsyn.models.roles import load_role
from privsyn.release.plan import Plan
from privsyn.stages.base import Context
from privsyn.stages.lineage import traced
from privsyn.stages.pace import note
from privsyn.stages.partition import (
    BUCKETS,
    Run,
    give_up,
    journal_file,
    journal_header,
    open_journal,
    part_name,
)


def shard_file(scratch: Path, shard: int) -> Path:
    """Where the finished samples of a shard lie until certify merges them."""
    return scratch / "samples" / f"shard-{shard:05d}.json"


def exhibits(scratch: Path) -> Path:
    """Where the pictures and tables of a draw lie until certify takes them along."""
    return scratch / "exhibits"


def trained(scratch: Path) -> Path:
    """Where the files of a model lie that the release is drawn from, until certify takes them.

    Public like the samples: only what a private mechanism gave out may be put there.
    """
    return scratch / "model"


@traced("generate", shard="shard")
def generate(ctx: Context, plan: Plan, shard: int, backends: Backends | None = None) -> Path | None:
    """Draw the samples of one shard, resuming from its journal.

    Every private draw is on disk before it is used. A killed run is resumed and spends nothing
    more; an exception of our own after a draw makes the release LOST.

    Args:
        ctx: Config and ledger.
        plan: The release; its account must hold a BEGUN entry.
        shard: Which part, 0-based.
        backends: Models already loaded; None loads what the config names.

    Returns:
        The shard's file; None where the release is already committed.
    """
    run = begun(ctx, plan)
    if run is None:
        return None
    target = shard_file(ctx.workspace.scratch(plan.id), shard)
    if target.exists():
        return target
    with drawing(ctx, plan, shard, backends) as drawn:
        kind, rows = _draw(ctx, plan, shard, run.shards, drawn)
        ctx.ledger.renew(drawn.lease)  # every draw is counted before its text is handed on
        write_json_atomic(target, {"noise": kind, "rows": rows}, mode=0o600)
    return target


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
    journal: Journal
    noise: NoiseSource
    backends: Backends


@contextmanager
def drawing(
    ctx: Context, plan: Plan, part: int | str, backends: Backends | None
) -> Iterator[Drawing]:
    """Hold a part of a begun release (a shard's number, or ``train``) while it is drawn.

    An exception of our own after a private draw makes the release LOST.

    Raises:
        LeaseHeld: Another process draws this part.
        ModelError: A model is not the one of the plan.
        ReleaseLost: See above; or the journal is gone.
    """
    if backends is None:
        backends = load_models(ctx, plan)
    check_models(plan, backends)
    header = journal_header(ctx, plan) | {"shard": part}
    with (
        ctx.ledger.acquire(plan.id, part_name(part)) as lease,
        _journal(ctx, plan, part, header, lease) as journal,
    ):
        began = time.monotonic()
        try:
            yield Drawing(lease, journal, ctx.noise(), backends)
            note(ctx, plan, part, time.monotonic() - began)
        except Exception as error:
            if not journal.drawn or _from_outside(error):
                raise
            where = traceback.extract_tb(error.__traceback__)[-1]
            told = give_up(ctx, plan.id, f"{type(error).__name__} after a draw")
            again = "" if told else "The ledger could not be told and is told by the next run. "
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
            raise ModelError(
                f"the {role} model {use.source} is not the one release {plan.id} was planned with: "
                "its files changed.",
                hint="Put the planned model back and run again, or plan a new release.",
            )


def _journal(
    ctx: Context, plan: Plan, part: int | str, header: Mapping[str, Any], lease: Lease
) -> Journal:
    """The part's journal, counted in the ledger from now on.

    Raises:
        VerificationError: The ledger has counted more than it holds: it is an older copy, and what
            was drawn since would be drawn again.
        ReleaseLost: It is gone.
    """
    file = journal_file(ctx.workspace.scratch(plan.id), part)
    counted = ctx.ledger.parts(plan.id).get(lease.part, 0)
    journal = open_journal(ctx, plan, file, header)
    if len(journal) < counted:
        journal.close()
        raise VerificationError(
            f"release {plan.id}, {lease.part}: the ledger has counted {counted} draws and {file} "
            f"holds {len(journal)}: this scratch is an older copy.",
            hint="Put the newest one back: its cost is paid. Only where that is gone for good: "
            f"privsyn ledger lose {plan.id}",
        )
    lease.count(lambda: journal.durable)
    return journal


def _draw(
    ctx: Context,
    plan: Plan,
    shard: int,
    shards: int,
    drawn: Drawing,
) -> tuple[str, Sequence[dict[str, Any]]]:
    """Kind of the noise behind the samples of a shard, and their rows."""
    performance, scratch = ctx.config.performance, ctx.workspace.scratch(plan.id)
    method, settings = ctx.planned(plan)
    kind, lease = drawn.noise.kind, drawn.lease

    def progress(done: int, total: int) -> None:
        lease.check()
        ctx.progress(f"generate {shard + 1}/{shards}", done, total, method.counts)

    samples: Iterator[Sample | Exhibit]
    if isinstance(method, TrainsModel):
        kind = noise_of_training(scratch)
        samples = method.write(
            settings,
            plan.privacy_unit,
            plan.dataset.labels,
            drawn.backends,
            trained(scratch),
            (shard, shards),
            progress,
        )
    else:
        assert isinstance(method, DrawsSamples)  # noqa: S101  every method is one of the two
        buckets = load_shard(
            scratch / BUCKETS,
            shard,
            method.cells(settings, plan.dataset.labels),
            shards,
        )
        samples = method.run(
            settings,
            plan.mechanism(),
            buckets,
            Draw(drawn.backends, drawn.noise, drawn.journal, performance, progress),
        )
    kind_of_record = modality_of(plan.dataset)
    rows: list[dict[str, Any]] = []
    for sample in samples:
        if isinstance(sample, Exhibit):
            with atomic_file(exhibits(scratch) / sample.name) as stream:
                stream.write(sample.content)
            continue
        lease.check()  # an overtaken process stops before its next draw
        row: dict[str, Any] = {"cell": sample.cell.index} | kind_of_record.entry(sample.content)
        if sample.counts:
            row["counts"] = dict(sample.counts)
        if sample.cell.label is not None:
            row["label"] = sample.cell.label
        rows.append(row)
    return kind, rows


TRAINED_BY = "trained.json"


def noise_of_training(scratch: Path) -> str:
    """Kind of the noise source a release's model was trained with.

    Raises:
        DataError: It is not trained yet.
    """
    try:
        return str(json.loads((scratch / TRAINED_BY).read_bytes())["noise"])
    except FileNotFoundError:
        raise DataError(
            "the release's model is not trained yet.",
            hint="Run the stage train first; where it was killed it resumes at no cost.",
        ) from None


def _from_outside(error: Exception) -> bool:
    """Whether a failure cannot depend on what was drawn, so that the release may be resumed."""
    if isinstance(error, PrivsynError):
        return error.retryable
    return isinstance(error, MemoryError | OSError) or type(error).__name__ == "OutOfMemoryError"
