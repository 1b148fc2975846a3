"""`privsyn approve` and `privsyn reject`: a person's decision, without Airflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from privsyn.cli.options import PARAMS, Overrides, Params, Release, context_of, out
from privsyn.display.tables import Verbatim, facts, show
from privsyn.errors import BudgetError, ConfigError

if TYPE_CHECKING:
    from privsyn.ledger.decisions import What
    from privsyn.stages.approval import Question
    from privsyn.stages.base import Context

Spend = Annotated[bool, typer.Option("--spend", help="That its cost is reserved.")]
Publish = Annotated[bool, typer.Option("--publish", help="That it is published.")]
Comment = Annotated[str, typer.Option("--comment", help="Why. Kept for good; no record text.")]
By = Annotated[
    str | None,
    typer.Option(
        "--by", metavar="NAME", help="Who decides, beside the user of this machine, who is noted."
    ),
]


def approve(
    release: Release,
    spend: Spend = False,
    publish: Publish = False,
    comment: Comment = "",
    by: By = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
) -> None:
    """Approve that a release's cost is reserved, or that a finished one is published.

    By default: what is finished is published, anything else reserved. The decision is a row of the
    ledger's chain; it is about exactly this cost, or exactly this certificate.
    """
    _decide(release, _what(spend, publish), comment, by, params, overrides, approved=True)


def reject(
    release: Release,
    spend: Spend = False,
    publish: Publish = False,
    comment: Comment = "",
    by: By = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
) -> None:
    """Reject it, which undoes an earlier approval. See approve."""
    _decide(release, _what(spend, publish), comment, by, params, overrides, approved=False)


def _what(spend: bool, publish: bool) -> What | None:
    from privsyn.ledger.decisions import What

    if spend and publish:
        raise ConfigError("--spend and --publish exclude each other: they are two decisions.")
    return What.SPEND if spend else What.PUBLISH if publish else None


def _decide(
    release: str,
    what: What | None,
    comment: str,
    by: str | None,
    params: Params,
    overrides: Overrides,
    *,
    approved: bool,
) -> None:
    from privsyn.stages.approval import decide, question_of
    from privsyn.stages.base import os_user

    ctx = context_of(params, overrides)
    # Whatever a scheduler set for this process: who decides here is the user of this machine.
    ctx.origin = {"driver": "cli", "user": os_user()}
    name = ctx.workspace.release_id(release)
    asked_for = ctx.ledger.requested(name) is not None or ctx.ledger.find(name) is not None
    if not asked_for and ctx.workspace.locate(name) is None:
        raise ctx.workspace.missing(name)
    question = question_of(ctx, name, what)
    approver = by or os_user()
    if approved:
        _refuse_again(ctx, question, approver)
    rows = {key: Verbatim(value) for key, value in question.facts.items()}
    facts(out, rows, title=question.subject)
    decision = decide(ctx, question, approved=approved, approver=approver, comment=comment)
    said = "approved" if approved else "rejected"
    show(
        out,
        f"{question.name}: {said} to {question.what} by {decision.approver}, row {decision.seq} of "
        "the ledger's chain",
    )
    if approved:
        show(out, "Go on with the command that asked: privsyn run")


def _refuse_again(ctx: Context, question: Question, approver: str) -> None:
    """Refuse what is on record already: the last word on this digest, by the same person."""
    about = [
        one
        for one in ctx.ledger.decisions(question.release_id)
        if one.what is question.what and one.digest == question.digest
    ]
    if about and about[-1].approved and about[-1].approver == approver:
        raise BudgetError(
            f"{question.name}: {approver} approved to {question.what} exactly this already, in "
            f"row {about[-1].seq} of the ledger's chain.",
            hint="Go on with the command that asked: privsyn run",
        )
