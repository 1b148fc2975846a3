"""train: train the model of a release on the records. Only of methods that train one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from privsyn.data.artifacts import atomic_file, sync_folder, write_json_atomic
from privsyn.data.partition_marker import unit_shards
from privsyn.data.unit_shard import own_shards
from privsyn.errors import ConfigError
from privsyn.methods.base import Backends, Draw, TrainsModel
from privsyn.models.training.distributed.rank_processes import started
from privsyn.release.plan import Plan
from privsyn.release.scratch import BUCKETS, MODEL, PARTITION, TRAIN, TRAINED_BY, bucket_files
from privsyn.stages.base import Context
from privsyn.stages.drawing import begun, drawing, load_models
from privsyn.stages.lineage import traced
from privsyn.stages.place import Place, at
from privsyn.stages.spread import read_buckets, request_of


@traced("train")
def train(ctx: Context, plan: Plan, *, backends: Backends | None = None) -> Path | None:
    """Train the release's model, resuming from its last checkpoint.

    A checkpoint is on disk before anything is computed from it; steps after the last one, of which
    nothing has left the process, are made again at no cost. An exception of our own after a step
    makes the release LOST.

    Args:
        ctx: Config, ledger, and the processes that torchrun started to help, if it did. Else this
            one starts as many as performance.processes says.
        plan: The release; its account must hold a BEGUN entry.
        backends: Models already loaded; None loads what the config names.

    Returns:
        The folder of the model, which is no longer here where it lies in the vault; None where the
        method trains none or the release is committed.
    """
    method, _ = ctx.planned(plan)
    if not isinstance(method, TrainsModel) or begun(ctx, plan) is None:
        return None
    with at(ctx, plan.id) as place:
        folder = place.folder / MODEL
        if not place.finished(TRAIN, TRAINED_BY, MODEL):
            _train(ctx, plan, backends, place)
    return folder


def _train(ctx: Context, plan: Plan, backends: Backends | None, place: Place) -> None:
    method, settings = ctx.planned(plan)
    assert isinstance(method, TrainsModel)  # noqa: S101  as asked by train
    cells = method.cells(settings, plan.dataset.labels)
    place.bring(PARTITION, bucket_files(0)[0])
    shards = unit_shards(place.folder / BUCKETS)
    spread = request_of(plan, cells, shards) if shards and _over_machines(ctx, shards) else None
    with (
        _shared(ctx, plan, backends, spread) as shared,
        drawing(ctx, plan, TRAIN, shared, place) as drawn,
    ):

        def progress(step: int, total: int) -> None:
            drawn.lease.check()
            ctx.progress("train", step, total, "steps")

        ranks = ctx.group.place.size if spread and ctx.group is not None else 1
        own = None if shards is None else own_shards(0, ranks, shards)
        buckets = read_buckets(place, cells, own, shards)
        files = method.train(
            settings,
            plan.mechanism(),
            buckets,
            Draw(drawn.backends, drawn.noise, drawn.journal, ctx.config.performance, progress),
        )
        ctx.ledger.renew(drawn.lease)  # every draw is counted before the model is handed on
        folder = place.folder / MODEL
        shutil.rmtree(folder, ignore_errors=True)
        for name, content in files.items():
            with atomic_file(folder / name) as stream:
                stream.write(content)
        sync_folder(folder)
        write_json_atomic(place.folder / TRAINED_BY, {"noise": drawn.noise.kind}, mode=0o600)
        names = [*(f"{MODEL}/{name}" for name in files), TRAINED_BY]
        place.hand_on(TRAIN, drawn.lease, names, journal=drawn.journal)


def _over_machines(ctx: Context, shards: int) -> bool:
    """Whether other processes read records of their own: torchrun started them on other machines.

    Raises:
        ConfigError: There are more of them than shards.
    """
    if ctx.group is None or ctx.group.place.alone:
        return False
    if ctx.group.place.size > shards:
        raise ConfigError(
            f"torchrun started {ctx.group.place.size} processes, and the release is partitioned "
            f"into {shards} shards (performance.train_shards).",
            hint="Start as many as there are shards, or fewer.",
        )
    return True


@contextmanager
def _shared(
    ctx: Context, plan: Plan, backends: Backends | None, spread: Mapping[str, Any] | None
) -> Iterator[Backends]:
    """The models, with the one to be trained shared among all processes, where there are several.

    The others have loaded it, and where the records are spread over them read theirs, before
    anything is drawn: that one of them cannot costs nothing. They end with the block.
    """
    backends = load_models(ctx, plan) if backends is None else backends
    models, performance = ctx.config.models, ctx.config.performance
    if ctx.group is None and performance.processes == 1:
        yield backends
        return
    with closing(ctx.group) if ctx.group is not None else started(performance) as group:
        from privsyn.models.training.distributed.ranks import RanksModel
        from privsyn.models.training.distributed.spread import SpreadModel

        base = backends.base
        if spread is None:
            model = RanksModel(base, group, models, performance)
        else:
            model = SpreadModel(base, group, models, performance, spread)
        yield Backends({**backends.models, "base": model})
