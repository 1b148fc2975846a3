"""A stage's nested run is called what the stage says, however it is called."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from privsyn.ledger.entries import State
from privsyn.stages.lineage import traced

PLAN = SimpleNamespace(id="toy-1")


@pytest.fixture
def seen():
    return []


@pytest.fixture
def ctx(seen):
    """A context of a release that has begun."""

    @contextmanager
    def stage_run(release_id, name):
        seen.append((release_id, name))
        yield

    begun = SimpleNamespace(state=State.BEGUN)
    return SimpleNamespace(
        ledger=SimpleNamespace(entry=lambda release_id: begun),
        lineage=SimpleNamespace(stage_run=stage_run),
    )


@traced("generate", shard="part")
def draws(ctx, plan, other, part=7):
    return other, part


@traced("certify")
def whole(ctx, plan, number):
    return number


def test_the_shard_is_the_named_parameter_wherever_it_stands(ctx, seen):
    assert draws(ctx, PLAN, 3, 5) == (3, 5)
    assert draws(ctx, PLAN, part=0, other=9) == (9, 0)
    assert draws(ctx, PLAN, 3) == (3, 7)  # the stage's own default
    assert seen == [("toy-1", "generate-5"), ("toy-1", "generate-0"), ("toy-1", "generate-7")]


def test_no_argument_is_taken_for_a_shard(ctx, seen):
    assert whole(ctx, PLAN, 4) == 4
    assert seen == [("toy-1", "certify")]


def test_a_stage_whose_work_is_done_leaves_the_run_alone(ctx, seen):
    ctx.ledger.entry = lambda release_id: SimpleNamespace(state=State.COMMITTED)
    assert draws(ctx, PLAN, 3, 5) == (3, 5)
    assert seen == []


def test_a_shard_that_is_no_parameter_is_refused():
    with pytest.raises(TypeError, match="no parameter shard"):
        traced("generate", shard="shard")(whole.__wrapped__)
