"""run: all stages of one release in one process, as the command line does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from privsyn.errors import PolicyBroken, require_generate
from privsyn.methods.base import TrainsModel
from privsyn.progress import under_way
from privsyn.release.plan import Plan
from privsyn.stages.base import Context, OpenPlan, open_plan
from privsyn.stages.certify import certify
from privsyn.stages.draw import generate, load_models, refuse_drawn, train
from privsyn.stages.evaluate import evaluate, failure_reason, log_line
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.preflight import preflight
from privsyn.stages.publish import publish
from privsyn.stages.reserve import reserve, settle
from privsyn.stages.validate import validate

OnStep = Callable[[str, float], None] | None
"""Hears of a stage that ended, and of the seconds it took; None: nobody does."""


def draw(ctx: Context, plan: Plan | OpenPlan, *, on_step: OnStep = None) -> None:
    """Reserve, try what is public, partition, train, generate and certify: everything that spends.

    A release that is committed already is left as it is, at no cost.
    """
    require_generate()
    release, step = open_plan(ctx, plan), partial(_step, ctx, on_step)
    with step("reserve"):
        state = reserve(ctx, release).state
    if state == "BEGUN":
        refuse_drawn(ctx, release)
    if state != "COMMITTED":
        trains = isinstance(release.method, TrainsModel)
        with step("load models"):  # before begin: a model that does not load costs nothing
            backends = load_models(ctx, release)
        with step("preflight"):
            preflight(ctx, release, backends)
        with step("partition"):
            # Parts are for processes side by side, each with a model of its own. Here the trained
            # model is loaded once; a release that has begun in several parts goes on in those.
            shards = partition(ctx, release, shards=1 if trains else None, backends=backends)
        if trains:
            with step("train"):
                train(ctx, release, backends=backends)
        with step("generate"):
            for shard in range(shards):
                generate(ctx, release, shard, backends)
    with step("certify"):
        certify(ctx, release)


def run(
    ctx: Context,
    method: str,
    *,
    published: bool = True,
    on_step: OnStep = None,
    on_plan: Callable[[Plan], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Plan:
    """Plan, draw, validate, evaluate and publish one release; settle whatever happens.

    Args:
        ctx: Config, ledger and workspace.
        method: Which.
        published: Whether it is to be.
        on_step: Hears of every stage that is done.
        on_plan: Sees the plan before anything is spent.
        on_note: Hears why the release was not measured.

    Returns:
        The plan of the release.

    Raises:
        PrivsynError: From the stage that failed.
    """
    require_generate()
    with _step(ctx, on_step, "plan"):
        release = plan(ctx, method, open_account=True)
    if on_plan is not None:
        on_plan(release)
    carry_out(ctx, release, published=published, on_step=on_step, on_note=on_note)
    return release


def draw_and_settle(ctx: Context, plan: Plan) -> None:
    """Draw a release, see draw; settle whatever happens.

    Raises:
        PrivsynError: From the stage that failed.
    """
    try:
        draw(ctx, plan)
    finally:
        settle(ctx, plan)


def carry_out(
    ctx: Context,
    plan: Plan,
    *,
    published: bool = True,
    on_step: OnStep = None,
    on_note: Callable[[str], None] | None = None,
) -> None:
    """Draw, validate, evaluate and publish a planned release; settle whatever happens.

    Args:
        ctx: Config, ledger and workspace.
        plan: The release.
        published: Whether it is to be.
        on_step: Hears of every stage that is done.
        on_note: Hears why a release was not measured, which is published all the same.

    Raises:
        PrivsynError: From the stage that failed.
    """
    step = partial(_step, ctx, on_step)
    try:
        draw(ctx, plan, on_step=on_step)
        with step("validate"):
            validate(ctx, plan)
        with step("evaluate"):
            why = _evaluate(ctx, plan)
            if why is not None and on_note is not None:
                on_note(why)
        if published:
            with step("publish"):
                publish(ctx, plan)
    finally:
        settle(ctx, plan)


def _evaluate(ctx: Context, plan: Plan) -> str | None:
    """Measure a release; what keeps it from being measured holds nothing back but a gate.

    Returns:
        Why it was not measured; None where it was.
    """
    try:
        folder = evaluate(ctx, plan)
    except PolicyBroken as refusal:
        return f"not measured: {refusal.message}"
    return log_line(folder) if failure_reason(folder) else None


@contextmanager
def _step(ctx: Context, on_step: OnStep, stage: str) -> Iterator[None]:
    """Show that a stage is at work, and tell how long it took once it is done."""
    began = time.monotonic()
    with under_way(ctx.on_progress, stage):
        yield
    if on_step is not None:
        on_step(stage, time.monotonic() - began)
