"""The mechanism between plan and run: solved for once, and never believed from a file."""

import json
import math
from dataclasses import replace

import pytest

from privsyn.dp.accountant import guarantee
from privsyn.dp.event_tree import without_secret
from privsyn.dp.events import Pure, dump
from privsyn.errors import BudgetError, ConfigError, PrivsynError, VerificationError
from privsyn.methods.base import Backends
from privsyn.methods.registry import load_method
from privsyn.release import certificate
from privsyn.release.plan import Plan
from privsyn.report import verification
from privsyn.stages.base import OpenPlan, open_plan
from privsyn.stages.draw import open_begun, train
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve, settle
from tests.integration.e2e.small_project import (
    METHODS,
    begin_release,
    finish,
    reserve_release,
    stand_ins,
)

SOLVED = {
    "invisible_ink": "clip_bound",
    "private_evolution": "noise_multiplier",
    "keyphrase_seeding": "noise_multiplier",
    "dp_lora": "noise_multiplier",
}
"""What each method solves for; private_tokens of private prediction are set in small_project."""


@pytest.mark.parametrize("name", METHODS)
def test_a_release_is_solved_for_once_and_again_by_verify_alone(make_project, monkeypatch, name):
    ctx = make_project(methods={name: METHODS[name]}).context("performance.shards=3")
    method, calls = type(load_method(name)), []
    solve = method.calibrate

    def counted(*arguments):
        calls.append(name)
        return solve(*arguments)

    monkeypatch.setattr(method, "calibrate", staticmethod(counted))
    backends = Backends(stand_ins())
    planned = begin_release(ctx, name)
    train(ctx, planned, backends=backends)
    folder = finish(ctx, planned, backends)
    settle(ctx, planned)
    # Where secret buckets buy nothing, the plan is solved once more without them.
    times = 2 if name == "invisible_ink" else 1
    assert len(calls) == times
    checks = verification.verify(folder, ctx.ledger)
    assert [check for check in checks if check.passed is False] == []
    assert len(calls) == times + 1


@pytest.mark.parametrize(("name", "key"), SOLVED.items())
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_an_edited_number_is_priced_as_it_would_draw(make_project, name, key, factor):
    """Whoever edits the solved number draws what the edited event costs, or draws nothing."""
    ctx = make_project(methods={name: METHODS[name]}).context()
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
        assert ctx.ledger.releases.find(forged.id) is None
        return
    assert not dearer
    assert dict(entry.event) == dump(event)  # charged for what it would draw


@pytest.mark.parametrize("name", METHODS)
def test_the_last_digits_of_a_plan_are_the_processor_s(make_project, name):
    """A plan made elsewhere may be reserved here; the event that is charged is the plan's own."""
    ctx = make_project(methods={name: METHODS[name]}).context()
    planned = plan(ctx, name, open_account=True)
    solved = {*SOLVED.values(), "private_tokens"}
    nudged = {k: v if k in solved else v * (1 + 1e-12) for k, v in planned.derived.items()}
    elsewhere = planned.model_copy(
        update={"derived": nudged, "epsilon": planned.epsilon * (1 + 1e-11)}
    )
    assert elsewhere != planned
    entry = reserve(ctx, elsewhere)
    assert dict(entry.event) == planned.event == dump(open_plan(ctx, elsewhere).event)
    partition(ctx, elsewhere)
    assert open_begun(ctx, elsewhere) is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: {"epsilon": plan.epsilon * (1 - 1e-11)},  # verify would refuse what it claims
        lambda plan: {"epsilon": plan.epsilon * (1 + 1e-8)},
        lambda plan: {"rho": math.nextafter(plan.rho, math.inf)},
        lambda plan: {"event": in_the_last_digit(plan.event)},
        lambda plan: {"derived": {k: v * (1 + 1e-8) for k, v in plan.derived.items()}},
        lambda plan: {"derived": plan.derived | {"other": 1.0}},
    ],
    ids=["less epsilon", "more epsilon", "rho", "event", "derived", "one more"],
)
def test_more_than_the_last_digits_of_a_plan_is_refused(make_project, change):
    ctx = make_project().context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    edited = planned.model_copy(update=change(planned))
    assert edited != planned
    with pytest.raises(ConfigError, match="made from other settings"):
        reserve(ctx, edited)
    assert ctx.ledger.releases.find(planned.id) is None


def in_the_last_digit(event):
    """An event whose fractions are those of another by one unit in the last place."""
    if isinstance(event, dict):
        return {key: in_the_last_digit(value) for key, value in event.items()}
    if isinstance(event, list):
        return [in_the_last_digit(value) for value in event]
    return math.nextafter(event, math.inf) if isinstance(event, float) else event


LINEAR = {"ensemble": "linear", "sequence_length": 3}
"""Of keyphrase seeding: several estimates a label, so that their number can be lied about."""


@pytest.mark.parametrize(
    ("name", "key"), [*SOLVED.items(), ("private_prediction", "private_tokens")]
)
def test_only_the_solved_number_is_taken_from_a_plan(make_project, name, key):
    """Counts, scales and costs that stand beside it in the file are computed, not believed."""
    settings = METHODS[name] | (LINEAR if name == "keyphrase_seeding" else {})
    project = make_project(methods={name: settings})
    honest = plan(project.context(), name, open_account=True)
    for factor in (0.0, 0.5, 3.0):
        lied = {k: v if k == key else v * factor for k, v in honest.derived.items()}
        assert len(lied) > 1
        forged = honest.model_copy(update={"derived": lied})
        assert forged.mechanism() == honest.mechanism()
        assert dict(forged.priced_again()[1]) == pytest.approx(dict(honest.derived), rel=1e-9)
        assert dump(open_plan(project.context(), forged).event) == honest.event


@pytest.mark.parametrize("name", ["private_evolution", "dp_lora"])
def test_noise_that_is_set_too_small_for_the_target_is_refused(make_project, name):
    project = make_project(methods={name: METHODS[name]})
    with pytest.raises(ConfigError, match="would cost epsilon"):
        plan(project.context(f"methods.{name}.noise_multiplier=0.1"), name)


@pytest.mark.parametrize("where", ["ledger", "plan", "version"])
def test_another_event_than_the_charged_one_is_not_drawn(make_project, monkeypatch, where):
    """Before a draw the ledger, the plan and what this version would run say the same."""
    ctx = make_project().context()
    planned = begin_release(ctx)
    assert open_begun(ctx, planned) is not None
    other = dump(Pure(epsilon=0.01))
    if where == "ledger":
        entry = ctx.ledger.releases.get(planned.id)
        monkeypatch.setattr(
            type(ctx.ledger.releases), "get", lambda *_: replace(entry, event=other)
        )
    elif where == "plan":
        planned = planned.model_copy(update={"event": other})
    else:
        mechanism = planned.mechanism()
        longer = replace(mechanism, tokens=mechanism.tokens + 1)
        monkeypatch.setattr(OpenPlan, "mechanism", longer)
    with pytest.raises(VerificationError, match="charged for another event"):
        open_begun(ctx, planned)


def test_verify_holds_a_release_to_its_target(make_project):
    """With noise that is set, not solved for, the event does not follow the target."""
    name = "private_evolution"
    settings = METHODS[name] | {"noise_multiplier": 5.0}
    ctx, backends = make_project(methods={name: settings}).context(), Backends(stand_ins())
    planned = reserve_release(ctx, name)
    folder = finish(ctx, planned, backends)
    _, sealed = certificate.read(folder)

    def failed(target):
        asked = planned.model_copy(update={"target_epsilon": target})
        return {check.name for check in verification._cost(asked, sealed) if not check.passed}

    assert failed(planned.target_epsilon) == set()
    assert "guarantee" in failed(planned.epsilon / 2)


SECRET = {"privacy": {"epsilon": 1.0}, "methods": {"invisible_ink": METHODS["invisible_ink"]}}
PAID = {"by": "models", "paid": {"epsilon": 0.2}}


@pytest.mark.parametrize(
    ("changes", "amplified"),
    [
        ({}, True),
        ({"account": {"adjacency": "replace_null"}}, True),
        ({"account": {"adjacency": "replace_one"}}, False),
        ({"account": {"amplification": False}}, False),
        ({"privacy": {"epsilon": 3.0}}, True),  # 14% less noise; at 3.5 it would be 9%
        ({"privacy": {"epsilon": 3.5}}, False),
        ({"evaluate": PAID}, True),
    ],
)
def test_a_plan_counts_on_secret_buckets_where_it_may_and_needs_to(
    make_project, changes, amplified
):
    project = make_project(**SECRET | changes)
    ctx = project.context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    event = planned.privacy_event()
    assert planned.amplified == amplified == (without_secret(event) != event)
    assert (ctx.account.split.chances > 0) == (ctx.account.adjacency != "replace_one")
    known = guarantee(without_secret(event), planned.target_delta).epsilon
    assert planned.epsilon <= planned.target_epsilon
    assert planned.epsilon_without_secret == (known if amplified else None)
    assert (known > planned.target_epsilon) == amplified
    plain = plan(project.context("account.amplification=false"), "invisible_ink")
    if "adjacency" not in changes.get("account", {}):
        gain = planned.derived["clip_bound"] / plain.derived["clip_bound"]
        assert gain > 1.1 if amplified else gain == 1
    reserve(ctx, planned)
    assert ctx.ledger.verify().entries == 1
