"""`privsyn ledger`, `approve`, `reject` and `lineage`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privsyn.cli.options import (
    PARAMS,
    Json,
    Overrides,
    Params,
    Release,
    context_of,
    err,
    known_here,
    out,
    show_result,
)
from privsyn.data.artifacts import atomic_file
from privsyn.display.tables import Verbatim, facts, show

if TYPE_CHECKING:
    from privsyn.ledger.decisions import What
    from privsyn.stages.approval import Question
    from privsyn.stages.base import Context
from privsyn.errors import BudgetError, ConfigError, LedgerUnavailable, VerificationError

ledger_app = typer.Typer(help="Show and check the budget ledger.", no_args_is_help=True)

lineage_app = typer.Typer(help="Manage the lineage in MLflow.", no_args_is_help=True)


@ledger_app.command("show")
def ledger_show(
    params: Params = PARAMS, overrides: Overrides = None, as_json: Json = False
) -> None:
    """Show accounts, remaining budget, releases, requesters and rejections."""
    from privsyn.display.accounts import Statements, edit_of
    from privsyn.stages.reserve import leftovers, unfinished_releases

    ctx = context_of(params, overrides)
    # What an edited ledger says of a balance may be false.
    if (edited := edit_of(ctx.ledger)) is not None:
        show(err, "The ledger was edited. What follows may be false, and no budget can be spent.")
    # Shown all the same: an owner has to see what an edited ledger says to repair it.
    show_result(Statements(ctx.ledger.accounts.statements()), as_json=as_json)
    if not as_json:
        if stale := [entry.standing for entry in unfinished_releases(ctx)]:
            show(
                out,
                f"charged and not finished: {', '.join(stale)}. Run again with the settings of "
                "each, by the version of privsyn that began it; or give it up: privsyn ledger "
                "lose, then privsyn sweep",
            )
        left = leftovers(ctx)
        if left:
            show(
                out,
                f"private temporary files of {len(left)} finished release(s) remain: "
                f"{', '.join(left)}. Delete them: privsyn sweep",
            )
    if note := ctx.ledger.clock_note():
        show(err, note)
    # Last, so that the exit code says it to a script whatever was printed.
    if edited is not None:
        raise edited


@ledger_app.command("page")
def ledger_page(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it: budget.html.")],
    params: Params = PARAMS,
    overrides: Overrides = None,
) -> None:
    """Write the accounts as a page: spending over time, every release, remaining budget."""
    from privsyn.display.accounts import BudgetPage, crons_of, file_reports, web_address

    ctx = context_of(params, overrides)
    page = BudgetPage(ctx.clock())
    edited = None
    try:
        page.add(
            ctx,
            runs=web_address(os.environ.get("AIRFLOW__API__BASE_URL")),
            reports=file_reports(ctx, file.absolute().parent),
            crons=crons_of(ctx),
        )
    except VerificationError as error:  # the page says so, and so does the exit code
        edited = error
    with atomic_file(file, mode=0o644) as stream:
        stream.write(page.html().encode())
    if edited is not None:
        raise edited
    show(out, Verbatim(f"xdg-open {file}"))


@ledger_app.command("metrics")
def ledger_metrics(params: Params = PARAMS, overrides: Overrides = None) -> None:
    """Print numbers to watch in Prometheus's text format: budgets, refusals, unfinished releases.

    Internal: they tell when releases end. Exits with code 4 if the ledger was edited.
    """
    from privsyn.display.accounts import exposition, gauges

    ctx = context_of(params, overrides)
    print(exposition(gauges(ctx)), end="")
    ctx.ledger.check()


@ledger_app.command("entries")
def ledger_entries(
    account: Annotated[str | None, typer.Option(help="Only this account.")] = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
) -> None:
    """Print every release as a line of JSON, oldest first."""
    for entry in context_of(params, overrides).ledger.releases.all(account):
        print(json.dumps(entry.as_dict(), sort_keys=True))


@ledger_app.command("lose")
def ledger_lose(
    release: Release,
    reason: Annotated[str, typer.Option(help="Why.")] = "given up by hand",
    params: Params = PARAMS,
    overrides: Overrides = None,
) -> None:
    """Give up a release: a started one stays charged; one only reserved costs nothing."""
    ctx = context_of(params, overrides)
    entry = ctx.ledger.releases.give_up(ctx.workspace.release_id(release), reason)
    cost = "its cost stays charged. Wipe its records: privsyn sweep"
    if not entry.is_charged:
        cost = "it cost nothing"
    show(out, f"{entry.release_id} is {entry.state}; {cost}")


@ledger_app.command("verify")
def ledger_verify(params: Params = PARAMS, overrides: Overrides = None) -> None:
    """Check the hash chain of the ledger, and that it contains the releases in this folder."""
    ctx = context_of(params, overrides)
    ctx.check_releases()
    if not ctx.ledger.exists():
        raise LedgerUnavailable(
            f"there is no ledger at {ctx.ledger.where}: nothing was verified.",
            hint="The first release creates it. If there was one, check services.ledger.",
        )
    audit = ctx.ledger.verify()
    show(
        out,
        f"the hash chain is intact: {audit.rows} rows, {audit.accounts} account(s), "
        f"{audit.entries} release(s), head {audit.head[:16]}",
    )
    if audit.late:
        days = audit.behind.total_seconds() / 86_400
        show(
            out,
            f"{audit.late} row(s) have the time of the row before, because the clock that wrote "
            f"them was up to {days:.3g} days behind",
        )
    if note := ctx.ledger.clock_note():
        show(out, note)


@ledger_app.command("migrate")
def ledger_migrate(params: Params = PARAMS, overrides: Overrides = None) -> None:
    """Create or update the ledger's tables. Run it as the role that owns them."""
    ctx = context_of(params, overrides)
    ctx.ledger.migrate()
    show(out, f"ledger {ctx.ledger.where} is up to date")


@ledger_app.command("grants")
def ledger_grants(
    role: Annotated[str, typer.Option(help="The PostgreSQL role of services.ledger.")],
    schema: Annotated[str, typer.Option(help="Where the ledger's tables are.")] = "public",
    approvers: Annotated[
        str | None,
        typer.Option(help="The role that alone approves. Its members do so in their own names."),
    ] = None,
) -> None:
    """Print SQL that prevents a PostgreSQL role from rewriting the ledger. Their owner runs it."""
    from privsyn.ledger.postgres_roles import grants

    print(grants(role, schema, approvers), end="")


@lineage_app.command("sync")
def lineage_sync(
    release: Annotated[
        str | None,
        typer.Argument(
            metavar="[RELEASE]",
            help="Id or folder of a release. By default all that are here.",
            autocompletion=known_here,
        ),
    ] = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
) -> None:
    """Write missing lineage of finished releases to MLflow."""
    from privsyn.students.cleanup import sync

    ctx = context_of(params, overrides)
    names = sync(ctx, ctx.workspace.release_id(release) if release else None)
    show(out, f"MLflow has the lineage of {len(names)} release(s)")


Spend = Annotated[bool, typer.Option("--spend", help="Decide on reserving its cost.")]
Publish = Annotated[bool, typer.Option("--publish", help="Decide on its publication.")]
Comment = Annotated[
    str, typer.Option("--comment", help="The reason. Stored for good: no record text.")
]
By = Annotated[
    str | None,
    typer.Option(
        "--by", metavar="NAME", help="Who decides. The user of this machine is recorded, too."
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
    """Approve the cost or the publication of a release.

    By default, approves publication if the release is finished, spending otherwise. The decision
    is a row of the ledger's chain. It holds for exactly this cost, or exactly this certificate.
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
    """Reject a pending release, or revoke its approval."""
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
    # A release may be known to the ledger alone, where it was drawn on another machine.
    asked_for = (
        ctx.ledger.approvals.find_request(name) is not None
        or ctx.ledger.releases.find(name) is not None
    )
    if not asked_for and ctx.workspace.locate(name) is None:
        raise ctx.workspace.missing(name)
    question = question_of(ctx, name, what)
    approver = by or os_user()
    if approved:
        # A second row that says the same would make the chain harder to audit.
        _refuse_again(ctx, question, approver)
    rows = {key: Verbatim(value) for key, value in question.facts.items()}
    facts(out, rows, title=question.subject)
    decision = decide(ctx, question, approved=approved, approver=approver, comment=comment)
    verb = "approved" if approved else "rejected"
    show(
        out,
        f"{question.name}: {verb} to {question.what} by {decision.approver}, row {decision.seq} of "
        "the ledger's chain",
    )
    if approved:
        show(out, "Continue with: privsyn run")


def _refuse_again(ctx: Context, question: Question, approver: str) -> None:
    """Refuse what is on record already: the last word on this digest, by the same person."""
    about = [
        one
        for one in ctx.ledger.approvals.decisions(question.release_id)
        if one.what is question.what and one.digest == question.digest
    ]
    if about and about[-1].approved and about[-1].approver == approver:
        raise BudgetError(
            f"{question.name}: {approver} has already approved to {question.what} exactly this, in "
            f"row {about[-1].seq} of the ledger's chain.",
            hint="Continue with: privsyn run",
        )
