"""train: train the model of a release on the records. Only of methods that train one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from privsyn.data.artifacts import atomic_file, sync_folder, write_json_atomic
from privsyn.data.buckets import load_shard
from privsyn.methods.base import Backends, Draw, TrainsModel
from privsyn.models.training.processes import started
from privsyn.release.plan import Plan
from privsyn.release.scratch import BUCKETS, MODEL, PARTITION, TRAIN, TRAINED_BY, bucket_files
from privsyn.stages.base import Context
from privsyn.stages.drawing import begun, drawing, load_models
from privsyn.stages.lineage import traced
from privsyn.stages.place import Place, at


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
    with (
        _shared(ctx, plan, backends) as shared,
        drawing(ctx, plan, TRAIN, shared, place) as drawn,
    ):

        def progress(step: int, total: int) -> None:
            drawn.lease.check()
            ctx.progress("train", step, total, "steps")

        place.bring(PARTITION, *bucket_files(0))
        buckets = load_shard(place.folder / BUCKETS, 0, cells, 1)
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


@contextmanager
def _shared(ctx: Context, plan: Plan, backends: Backends | None) -> Iterator[Backends]:
    """The models, with the one to be trained shared among all processes, where there are several.

    The others have loaded it before anything is drawn: that one of them cannot costs nothing. They
    end with the block.
    """
    backends = load_models(ctx, plan) if backends is None else backends
    models, performance = ctx.config.models, ctx.config.performance
    if ctx.group is None and performance.processes == 1:
        yield backends
        return
    with closing(ctx.group) if ctx.group is not None else started(performance) as group:
        from privsyn.models.training.multi_gpu import RanksModel

        model = RanksModel(backends.base, group, models, performance)
        yield Backends({**backends.models, "base": model})
