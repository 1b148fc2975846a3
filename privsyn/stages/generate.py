"""generate: draw one shard of a release. The only stage that runs a mechanism."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from privsyn.data.artifacts import atomic_file, write_json_atomic
from privsyn.data.buckets import load_shard
from privsyn.methods.base import Backends, Draw, DrawsSamples, Exhibit, Sample, TrainsModel
from privsyn.modalities.registry import modality_of
from privsyn.release.plan import Plan
from privsyn.release.scratch import (
    BUCKETS,
    EXHIBITS,
    MODEL,
    PARTITION,
    TRAIN,
    bucket_files,
    noise_of_training,
    samples,
)
from privsyn.stages.base import Context
from privsyn.stages.drawing import Drawing, begun, drawing
from privsyn.stages.lineage import traced
from privsyn.stages.place import Place, at


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
        The shard's file, which is no longer here where it lies in the vault; None where the release
        is already committed.
    """
    run = begun(ctx, plan)
    if run is None:
        return None
    name = samples(shard)
    with at(ctx, plan.id) as place:
        target = place.folder / name
        if place.finished(shard, name):
            return target
        with drawing(ctx, plan, shard, backends, place) as drawn:
            kind, rows, shown = _draw(ctx, plan, shard, run.shards, drawn, place)
            ctx.ledger.renew(drawn.lease)  # every draw is counted before its text is handed on
            write_json_atomic(target, {"noise": kind, "rows": rows}, mode=0o600)
            place.hand_on(shard, drawn.lease, [*shown, name], journal=drawn.journal)
    return target


def _draw(
    ctx: Context,
    plan: Plan,
    shard: int,
    shards: int,
    drawn: Drawing,
    place: Place,
) -> tuple[str, Sequence[dict[str, Any]], Sequence[str]]:
    """Kind of the noise behind the samples of a shard, their rows, and names of its exhibits."""
    performance = ctx.config.performance
    method, settings = ctx.planned(plan)
    kind, lease = drawn.noise.kind, drawn.lease
    part = f"generate {shard + 1}/{shards}"

    def progress(done: int, total: int) -> None:
        lease.check()
        ctx.progress(part, done, total, method.counts)

    def reading(done: int, total: int, what: str) -> None:
        lease.check()
        ctx.progress(f"{part}, reading {what}", done, total, "parts")

    written: Iterator[Sample | Exhibit]
    if isinstance(method, TrainsModel):
        place.bring(TRAIN)
        kind = noise_of_training(place.folder)
        written = method.write(
            settings,
            plan.privacy_unit,
            plan.dataset.labels,
            drawn.backends,
            place.folder / MODEL,
            (shard, shards),
            progress,
        )
    else:
        assert isinstance(method, DrawsSamples)  # noqa: S101  every method is one of the two
        place.bring(PARTITION, *bucket_files(shard))
        cells = method.cells(settings, plan.dataset.labels)
        buckets = load_shard(place.folder / BUCKETS, shard, cells, shards)
        units = (ctx.config.account.public_size or 0) * (1 - plan.dataset.holdout)
        written = method.run(
            settings,
            plan.mechanism(),
            buckets,
            Draw(
                drawn.backends,
                drawn.noise,
                drawn.journal,
                performance,
                progress,
                expected_records=units / len(cells),
                reading=reading,
            ),
        )
    kind_of_record = modality_of(plan.dataset)
    rows: list[dict[str, Any]] = []
    shown: list[str] = []
    for sample in written:
        if isinstance(sample, Exhibit):
            shown.append(f"{EXHIBITS}/{sample.name}")
            with atomic_file(place.folder / shown[-1]) as stream:
                stream.write(sample.content)
            continue
        lease.check()  # an overtaken process stops before its next draw
        row: dict[str, Any] = {"cell": sample.cell.index} | kind_of_record.entry(sample.content)
        if sample.counts:
            row["counts"] = dict(sample.counts)
        if sample.cell.label is not None:
            row["label"] = sample.cell.label
        rows.append(row)
    return kind, rows, shown
