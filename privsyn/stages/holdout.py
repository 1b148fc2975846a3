"""Real records that no release was made from, for internal numbers."""

from __future__ import annotations

from collections.abc import Iterator

from privsyn.data.partition import read_holdout, read_training
from privsyn.data.records import Record
from privsyn.data.settings import DatasetConfig
from privsyn.errors import PolicyBroken
from privsyn.release.plan import Plan
from privsyn.stages.base import Context, open_plan

EVALUATION = "evaluation.json"
"""What was measured with them, in the state folder."""


def sets_aside(dataset: DatasetConfig) -> bool:
    """Whether the settings hold units out, or name a file of its own."""
    return bool(dataset.holdout) or dataset.test_path is not None


def held_out(ctx: Context, plan: Plan) -> list[Record]:
    """The real records no release was made from.

    Raises:
        PolicyBroken: The account is held to a policy that allows no internal metrics.
    """
    # The rules that the ledger remembers, and the config's: a laxer config lifts none of them.
    for terms in (ctx.ledger.accounts.terms(plan.account), ctx.account.terms):
        if not terms.internal_metrics:
            raise PolicyBroken(
                f"account {plan.account} ({terms.source}) does not allow that releases are "
                "measured beside held-out records.",
                hint="Set evaluate.enabled=false.",
            )
    dataset = open_plan(ctx, plan).source
    if not sets_aside(dataset):
        return []
    key = ctx.open_account().partition_key.reveal()
    return [private.reveal() for private in read_holdout(dataset, key)]


def either_side(ctx: Context, plan: Plan) -> Iterator[tuple[bool, Record]]:
    """All records of the private file, each with whether releases are made from its unit.

    Those of a file set aside for testing are not among them.
    """
    # Only the hash decides who is on which side here: records of test_path were never at stake.
    dataset = open_plan(ctx, plan).source.model_copy(update={"test_path": None})
    key = ctx.open_account().partition_key.reveal()
    for inside, read in ((True, read_training), (False, read_holdout)):
        for private in read(dataset, key):
            yield inside, private.reveal()
