"""Records of a training that lie on several machines: which a process reads, and from where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from privsyn.data.buckets import load_shard, load_units
from privsyn.data.records import Bucket, Cell
from privsyn.errors import ReleaseLost
from privsyn.release.plan import Plan
from privsyn.release.scratch import BUCKETS, PARTITION, bucket_files
from privsyn.stages.base import Context
from privsyn.stages.place import Place, at


def request_of(plan: Plan, cells: Sequence[Cell], shards: int) -> dict[str, Any]:
    """What rank 0 tells the others of the records. Public."""
    rows = [[cell.index, cell.label, cell.bucket] for cell in cells]
    return {"release": plan.id, "cells": rows, "shards": shards}


def read_buckets(
    place: Place, cells: Sequence[Cell], own: Sequence[int] | None, shards: int | None
) -> list[Bucket]:
    """Buckets of the partition's only shard; or, of one by unit, of some of its shards alone."""
    if own is None or shards is None:
        place.bring(PARTITION, *bucket_files(0))
        return load_shard(place.folder / BUCKETS, 0, cells, 1)
    place.bring(PARTITION, *(name for shard in own for name in bucket_files(shard)))
    return load_units(place.folder / BUCKETS, own, cells, shards)


def read_units(
    ctx: Context, request: Mapping[str, Any], own: Sequence[int]
) -> dict[str, list[tuple[str | None, str]]]:
    """Records by unit, of the shards of a process that helps rank 0 train; no others are fetched.

    Raises:
        ReleaseLost: The release has ended.
        PrivsynError: As for a stage that reads a partition.
    """
    release_id = str(request["release"])
    state = ctx.ledger.entry(release_id).state
    if state != "BEGUN":
        raise ReleaseLost(f"release {release_id} is {state}, not BEGUN: nothing may be drawn.")
    cells = [Cell(*row) for row in request["cells"]]
    with at(ctx, release_id) as place:
        buckets = read_buckets(place, cells, own, int(request["shards"]))
    units: dict[str, list[tuple[str | None, str]]] = {}
    for bucket in buckets:
        pairs = zip(bucket.units.reveal(), bucket.contents.reveal(), strict=True)
        for unit, text in pairs:
            units.setdefault(unit, []).append((bucket.cell.label, str(text)))
    return units
