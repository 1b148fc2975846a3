"""Real records that no release was made from, for internal numbers."""

from __future__ import annotations

from privsyn.data.partition import read_holdout
from privsyn.data.records import Record
from privsyn.data.settings import DatasetConfig
from privsyn.release.plan import Plan
from privsyn.stages.base import Context

EVALUATION = "evaluation.json"
"""What was measured with them, in the state folder."""


def sets_aside(dataset: DatasetConfig) -> bool:
    """Whether the settings hold units out, or name a file of its own."""
    return bool(dataset.holdout) or dataset.test_path is not None


def held_out(ctx: Context, plan: Plan) -> list[Record]:
    """The real records no release was made from."""
    dataset = ctx.source(plan)
    if not sets_aside(dataset):
        return []
    key = ctx.open_account().partition_key.reveal()
    return [private.reveal() for private in read_holdout(dataset, key)]
