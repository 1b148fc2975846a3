"""A stage's nested run is called what the stage says."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from privsyn.ledger.entries import State
from privsyn.methods.base import Work
from privsyn.stages import duration
from privsyn.stages.base import trace_stage


@pytest.fixture
def seen():
    return []


@pytest.fixture
def ctx(seen):
    @contextmanager
    def stage_run(release_id, name):
        seen.append((release_id, name))
        yield

    begun = SimpleNamespace(state=State.BEGUN)
    return SimpleNamespace(
        config=SimpleNamespace(models=SimpleNamespace(server=None)),
        ledger=SimpleNamespace(releases=SimpleNamespace(get=lambda release_id: begun)),
        tracker=SimpleNamespace(stage_run=stage_run),
    )


def draw(ctx, shard):
    with trace_stage(ctx, "toy-1", "generate", shard):
        return shard


def test_a_shard_has_a_run_of_its_own(ctx, seen):
    assert [draw(ctx, shard) for shard in (5, 0, 7)] == [5, 0, 7]
    assert seen == [("toy-1", "generate-5"), ("toy-1", "generate-0"), ("toy-1", "generate-7")]


def test_a_stage_without_shards_is_called_what_it_is(ctx, seen):
    with trace_stage(ctx, "toy-1", "certify"):
        seen.append("work")
    assert seen == [("toy-1", "certify"), "work"]


def test_a_stage_whose_work_is_done_leaves_the_run_alone(ctx, seen):
    ctx.ledger.releases.get = lambda release_id: SimpleNamespace(state=State.COMMITTED)
    assert draw(ctx, 5) == 5
    assert seen == []


def test_a_failure_goes_through_the_run(ctx, seen):
    with pytest.raises(ValueError, match="the stage"), trace_stage(ctx, "toy-1", "certify"):
        raise ValueError("the stage")


def test_a_trial_is_of_half_as_many_as_a_release_does_together(monkeypatch):
    now, done = [0.0], []

    def do(number):
        done.append(number)
        now[0] += 1 + number / 64

    monkeypatch.setattr(duration.time, "monotonic", lambda: now[0])
    assert duration._seconds(Work("texts", 100, do)) == 1.5 / 32
    assert done == [1, 32]
