"""A pipeline is refused before any of its releases is paid, by whoever drives it."""

import pytest

from privsyn.cli.stage import stage_plan
from privsyn.errors import BudgetExceeded
from privsyn.stages.base import open_context
from privsyn.stages.plan import refuse_pipeline
from tests.unit.release.test_advice import project

BOTH = ["keyphrase_seeding", "private_evolution"]


def two_releases(folder, cap, **changes):
    account = {"epsilon": cap, "delta": 1e-6}
    privacy = {"epsilon": 3, "delta": 1e-6}
    methods = {name: {"settings": "small"} for name in BOTH}
    dataset = {"name": "d", "path": "private.jsonl", "unit": "unit", "document": "note"}
    changes = {"pipeline": BOTH, "methods": methods, "dataset": dataset} | changes
    return project(folder, account=account, privacy=privacy, **changes)


def test_the_first_that_does_not_fit_is_named_and_nothing_is_opened(tmp_path):
    ctx = open_context(two_releases(tmp_path, 4.5))
    for method in BOTH:  # the first alone would fit
        with pytest.raises(BudgetExceeded, match=r"private_evolution .* is the first"):
            refuse_pipeline(ctx, method)
    refuse_pipeline(ctx, "dp_lora")  # no part of it
    assert not ctx.ledger.exists()
    refuse_pipeline(open_context(two_releases(tmp_path, 10)), BOTH[0])


def test_of_airflow_the_methods_that_run_by_themselves_count(tmp_path):
    schedule = {name: {"cron": "0 0 1 * *"} for name in BOTH}
    ctx = open_context(two_releases(tmp_path, 4.5, schedule=schedule))
    with pytest.raises(BudgetExceeded):
        refuse_pipeline(ctx, BOTH[0], scheduled=True)
    by_hand = schedule | {BOTH[1]: {"cron": None}}
    ctx = open_context(two_releases(tmp_path, 4.5, schedule=by_hand))
    refuse_pipeline(ctx, BOTH[0], scheduled=True)


def test_the_stage_of_dvc_asks_before_the_account_is_opened(tmp_path):
    params = two_releases(tmp_path, 4.5)
    with pytest.raises(BudgetExceeded, match="is the first that does not fit"):
        stage_plan(BOTH[0], tmp_path / "plan.json", params)
    assert not open_context(params).ledger.exists()
    assert not (tmp_path / "plan.json").exists()
