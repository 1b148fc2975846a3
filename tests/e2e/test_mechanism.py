"""The mechanism between plan and run: solved for once, and never believed from a file."""

from __future__ import annotations

import json

import pytest

from privsyn.dp.accountant import guarantee
from privsyn.dp.events import dump
from privsyn.errors import BudgetError, ConfigError, PrivsynError, VerificationError
from privsyn.methods.base import Backends
from privsyn.methods.registry import load_method
from privsyn.release import verification
from privsyn.release.plan import Plan
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve, settle
from privsyn.stages.train import train
from tests.e2e.small_project import METHODS, build_project, finish, stand_ins

SOLVED = {
    "invisible_ink": "clip_bound",
    "private_evolution": "noise_multiplier",
    "keyphrase_seeding": "noise_multiplier",
    "dp_lora": "noise_multiplier",
}
"""What each method solves for; private_tokens of private prediction are set in small_project."""


@pytest.mark.parametrize("name", METHODS)
def test_a_release_is_solved_for_once_and_again_by_verify_alone(tmp_path, monkeypatch, name):
    project = build_project(tmp_path / "project", methods={name: METHODS[name]})
    ctx = project.context("performance.shards=3")
    method, calls = type(load_method(name)), []
    solve = method.calibrate

    def counted(*arguments):
        calls.append(name)
        return solve(*arguments)

    monkeypatch.setattr(method, "calibrate", staticmethod(counted))
    backends = Backends(stand_ins())
    planned = plan(ctx, name, open_account=True)
    reserve(ctx, planned)
    partition(ctx, planned)
    train(ctx, planned, backends=backends)
    folder = finish(ctx, planned, backends)
    settle(ctx, planned)
    assert len(calls) == 1
    checks = verification.verify(folder, ctx.ledger)
    assert [check for check in checks if not check.passed] == []
    assert len(calls) == 2


@pytest.mark.parametrize(("name", "key"), SOLVED.items())
@pytest.mark.parametrize("factor", [0.01, 0.5, 2.0, 100.0])
def test_an_edited_number_is_priced_as_it_would_draw(tmp_path, name, key, factor):
    """Whoever edits the solved number draws what the edited event costs, or draws nothing."""
    project = build_project(tmp_path / "project", methods={name: METHODS[name]})
    ctx = project.context()
    honest = plan(ctx, name, open_account=True)
    said = json.loads(honest.model_dump_json())
    said["derived"][key] *= factor
    forged = Plan.model_validate(said)
    with pytest.raises(
        ConfigError, match=r"made from other settings|would cost epsilon|cannot be planned"
    ):
        reserve(ctx, forged)  # its event is not that of the number
    try:
        event = forged.mechanism().event
    except (PrivsynError, ValueError):
        return  # no mechanism has such a number
    cost = guarantee(event, forged.target_delta)
    consistent = forged.model_copy(
        update={"event": dump(event), "epsilon": cost.epsilon, "delta": cost.delta}
    )
    dearer = cost.epsilon > honest.target_epsilon
    try:
        entry = reserve(ctx, consistent)
    except (ConfigError, BudgetError, VerificationError):
        assert ctx.ledger.find(forged.id) is None
        return
    assert not dearer
    assert dict(entry.event) == dump(event)  # charged for what it would draw
