"""run: all stages of one release in one process, as the command line does."""

from __future__ import annotations

from privsyn.release import Plan
from privsyn.stages.base import Context
from privsyn.stages.certify import certify
from privsyn.stages.evaluate import evaluate
from privsyn.stages.generate import generate, load_models
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.preflight import preflight
from privsyn.stages.publish import publish
from privsyn.stages.reserve import reserve, settle
from privsyn.stages.train import train
from privsyn.stages.validate import validate


def draw(ctx: Context, planned: Plan, *, published: bool = False) -> None:
    """Reserve, try what is public, partition, train, generate and certify: everything that spends.

    A release that is committed already is left as it is, at no cost.
    """
    if reserve(ctx, planned).state != "COMMITTED":
        # Loading comes before begin: a model that does not load costs nothing.
        backends = load_models(ctx, planned)
        preflight(ctx, planned, backends, published=published)
        shards = partition(ctx, planned)
        train(ctx, planned, backends=backends)
        if ctx.group is not None:
            ctx.group.close()  # the rest is one process's work
        for shard in range(shards):
            generate(ctx, planned, shard, backends)
    certify(ctx, planned)


def run(ctx: Context, method: str, *, published: bool = True) -> Plan:
    """Plan, draw, validate, evaluate and publish one release; settle whatever happens.

    Returns:
        The plan of the release.

    Raises:
        PrivsynError: From the stage that failed.
    """
    planned = plan(ctx, method, open_account=True)
    try:
        draw(ctx, planned, published=published)
        validate(ctx, planned)
        evaluate(ctx, planned)
        if published:
            publish(ctx, planned)
    finally:
        settle(ctx, planned)
    return planned
