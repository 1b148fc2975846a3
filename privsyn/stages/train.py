"""train: train the model of a release on the records. Only of methods that train one."""

from __future__ import annotations

import shutil
from pathlib import Path

from privsyn.data.artifacts import atomic_file, sync_folder, write_json_atomic
from privsyn.data.partition import load_shard
from privsyn.methods.base import Backends, Trained
from privsyn.release import Plan
from privsyn.stages.base import Context
from privsyn.stages.generate import TRAINED_BY, begun, drawing, trained
from privsyn.stages.lineage import traced
from privsyn.stages.partition import BUCKETS, TRAIN


@traced
def train(ctx: Context, plan: Plan, *, backends: Backends | None = None) -> Path | None:
    """Train the release's model, resuming from its last checkpoint.

    A checkpoint is on disk before anything is computed from it; steps after the last one, of which
    nothing has left the process, are made again at no cost. An exception of our own after a step
    makes the release LOST.

    Args:
        ctx: Config and ledger.
        plan: The release; its account must hold a BEGUN entry.
        backends: Models already loaded; None loads what the config names.

    Returns:
        The folder of the model; None where the method trains none or the release is committed.
    """
    method, settings = plan.load_method()
    if not isinstance(method, Trained) or begun(ctx, plan) is None:
        return None
    scratch = ctx.workspace.scratch(plan.id)
    folder, done = trained(scratch), scratch / TRAINED_BY
    if done.exists():
        return folder
    with drawing(ctx, plan, TRAIN, backends) as drawn:

        def progress(step: int, total: int) -> None:
            drawn.lease.check()
            ctx.progress("train", step, total)

        buckets = load_shard(scratch / BUCKETS, 0, method.cells(settings, plan.dataset.labels), 1)
        files = method.train(
            settings,
            plan.method_plan(),
            plan.adjacency,
            plan.privacy_unit,
            buckets,
            drawn.backends,
            drawn.noise,
            drawn.journal,
            ctx.config.performance,
            progress,
        )
        shutil.rmtree(folder, ignore_errors=True)
        for name, content in files.items():
            with atomic_file(folder / name) as stream:
                stream.write(content)
        sync_folder(folder)
        write_json_atomic(done, {"noise": drawn.noise.kind}, mode=0o600)
    return folder
