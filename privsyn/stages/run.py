"""run: all stages of one release in one process, as the command line does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from privsyn.display.progress import under_way
from privsyn.errors import PolicyBroken, require_generate
from privsyn.methods.base import TrainsModel
from privsyn.release.plan import Plan
from privsyn.stages.base import Context
from privsyn.stages.certify import certify
from privsyn.stages.draw import generate, load_models, refuse_drawn, train
from privsyn.stages.evaluate import evaluate, not_measured, said
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.preflight import preflight
from privsyn.stages.publish import publish
from privsyn.stages.reserve import reserve, settle
from privsyn.stages.validate import validate

T = TypeVar("T")
Told = Callable[[str, float], None]
"""Hears of a stage that ended, and of the seconds it took."""


def unheard(stage: str, seconds: float) -> None:
    """Nobody listens."""


def unnoted(note: str) -> None:
    """Nobody listens."""


def unseen(planned: Plan) -> None:
    """Nobody looks."""


def draw(ctx: Context, planned: Plan, *, published: bool = False, told: Told = unheard) -> None:
    """Reserve, try what is public, partition, train, generate and certify: everything that spends.

    A release that is committed already is left as it is, at no cost.
    """

    def generate_all(shards: int) -> None:
        for shard in range(shards):
            generate(ctx, planned, shard, backends)

    require_generate()
    state = _timed(ctx, "reserve", told, lambda: reserve(ctx, planned)).state
    if state == "BEGUN":
        refuse_drawn(ctx, planned)
    if state != "COMMITTED":
        # Loading comes before begin: a model that does not load costs nothing.
        backends = _timed(ctx, "load models", told, lambda: load_models(ctx, planned))
        _timed(
            ctx, "preflight", told, lambda: preflight(ctx, planned, backends, published=published)
        )
        shards = _timed(ctx, "partition", told, lambda: partition(ctx, _here(ctx, planned)))
        if isinstance(ctx.planned(planned)[0], TrainsModel):
            _timed(ctx, "train", told, lambda: train(ctx, planned, backends=backends))
        if ctx.group is not None:
            ctx.group.close()  # the rest is one process's work
        _timed(ctx, "generate", told, lambda: generate_all(shards))
    _timed(ctx, "certify", told, lambda: certify(ctx, planned))


def _here(ctx: Context, planned: Plan) -> Plan:
    """The plan as one process carries it out: a trained model is loaded once and writes at once.

    Its parts are for processes side by side, each with a model of its own. A release that has begun
    in several goes on in those.
    """
    method, _ = ctx.planned(planned)
    return planned.model_copy(update={"shards": 1}) if isinstance(method, TrainsModel) else planned


def run(
    ctx: Context,
    method: str,
    *,
    published: bool = True,
    told: Told = unheard,
    planned: Callable[[Plan], None] = unseen,
    noted: Callable[[str], None] = unnoted,
) -> Plan:
    """Plan, draw, validate, evaluate and publish one release; settle whatever happens.

    Args:
        ctx: Config, ledger and workspace.
        method: Which.
        published: Whether it is to be.
        told: Hears of every stage that is done.
        planned: Sees the plan before anything is spent.
        noted: Hears why the release was not measured.

    Returns:
        The plan of the release.

    Raises:
        PrivsynError: From the stage that failed.
    """
    require_generate()
    release = _timed(ctx, "plan", told, lambda: plan(ctx, method, open_account=True))
    planned(release)
    carry_out(ctx, release, published=published, told=told, noted=noted)
    return release


def draw_and_settle(ctx: Context, planned: Plan) -> None:
    """Draw a release, see draw; settle whatever happens.

    Raises:
        PrivsynError: From the stage that failed.
    """
    try:
        draw(ctx, planned)
    finally:
        settle(ctx, planned)


def _evaluated(ctx: Context, planned: Plan, noted: Callable[[str], None]) -> None:
    """Measure a release; what keeps it from being measured holds nothing back but a gate."""
    try:
        folder = evaluate(ctx, planned)
    except PolicyBroken as refusal:
        noted(f"not measured: {refusal.message}")
        return
    if not_measured(folder):
        noted(said(folder))


def carry_out(
    ctx: Context,
    planned: Plan,
    *,
    published: bool = True,
    told: Told = unheard,
    noted: Callable[[str], None] = unnoted,
) -> None:
    """Draw, validate, evaluate and publish a planned release; settle whatever happens.

    Args:
        ctx: Config, ledger and workspace.
        planned: The release.
        published: Whether it is to be.
        told: Hears of every stage that is done.
        noted: Hears why a release was not measured, which is published all the same.

    Raises:
        PrivsynError: From the stage that failed.
    """
    try:
        draw(ctx, planned, published=published, told=told)
        _timed(ctx, "validate", told, lambda: validate(ctx, planned))
        _timed(ctx, "evaluate", told, lambda: _evaluated(ctx, planned, noted))
        if published:
            _timed(ctx, "publish", told, lambda: publish(ctx, planned))
    finally:
        settle(ctx, planned)


def _timed(ctx: Context, stage: str, told: Told, work: Callable[[], T]) -> T:
    began = time.monotonic()
    with under_way(ctx.progress, stage):
        done = work()
    told(stage, time.monotonic() - began)
    return done
