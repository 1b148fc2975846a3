"""`privsyn ledger` and `lineage`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

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
)
from privsyn.data.artifacts import atomic_file
from privsyn.display.tables import Verbatim, show
from privsyn.errors import LedgerUnavailable, VerificationError

ledger_app = typer.Typer(help="The budget ledger.", no_args_is_help=True)

lineage_app = typer.Typer(help="The lineage in MLflow.", no_args_is_help=True)


@ledger_app.command("show")
def ledger_show(
    params: Params = PARAMS, overrides: Overrides = None, as_json: Json = False
) -> None:
    """Accounts, what is left of them, their releases, who asked, and what was refused."""
    from privsyn.display.accounts import account_rows, accounts
    from privsyn.stages.sweep import leftovers

    ctx = context_of(params, overrides)
    edited = None
    try:
        ctx.ledger.check()
    except VerificationError as error:  # what an edited ledger says of a balance may be false
        edited = error
        show(err, "The ledger was edited: what follows may be false, and nothing is spent on it.")
    if as_json:
        print(json.dumps(account_rows(ctx.ledger), indent=2))
    else:
        accounts(out, ctx.ledger.statements())
        left = leftovers(ctx)
        if left:
            show(
                out,
                f"private records of {len(left)} ended release(s) are still in scratch: "
                f"{', '.join(left)}. Wipe them: privsyn sweep",
            )
    if note := ctx.ledger.clock_note():
        show(err, note)
    if edited is not None:
        raise edited


@ledger_app.command("page")
def ledger_page(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it: budget.html.")],
    params: Params = PARAMS,
    overrides: Overrides = None,
) -> None:
    """Write the accounts as a page: spent and left over time, every release, what still fits."""
    from privsyn.display.budget_page import BudgetPage, crons_of, file_reports, web_address

    ctx = context_of(params, overrides)
    page = BudgetPage(ctx.clock())
    edited = None
    try:
        page.add(
            ctx,
            runs=web_address(ctx.config.services.airflow_ui),
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


@ledger_app.command("entries")
def ledger_entries(
    account: Annotated[str | None, typer.Option(help="Only this account.")] = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
) -> None:
    """Print every release as a line of JSON, oldest first."""
    for entry in context_of(params, overrides).ledger.entries(account):
        print(json.dumps(entry.as_dict(), sort_keys=True))


@ledger_app.command("lose")
def ledger_lose(
    release: Release,
    reason: Annotated[str, typer.Option(help="Why.")] = "given up by hand",
    params: Params = PARAMS,
    overrides: Overrides = None,
) -> None:
    """Give a begun release up: its cost stays charged, and it can never be resumed."""
    ctx = context_of(params, overrides)
    entry = ctx.ledger.lose(ctx.workspace.release_id(release), reason)
    show(out, f"{entry.release_id} is {entry.state.value}; its cost stays charged")


@ledger_app.command("verify")
def ledger_verify(params: Params = PARAMS, overrides: Overrides = None) -> None:
    """Check the hash chain of the whole ledger, and that it knows the releases that are here."""
    ctx = context_of(params, overrides)
    ctx.check_releases()
    if not ctx.ledger.exists():
        raise LedgerUnavailable(
            f"there is no ledger at {ctx.ledger.where}: nothing was verified.",
            hint="It comes with the first release. If there was one, check services.ledger.",
        )
    audit = ctx.ledger.verify()
    show(
        out,
        f"the chain holds: {audit.rows} rows, {audit.accounts} account(s), {audit.entries} "
        f"release(s), head {audit.head[:16]}",
    )
    if audit.late:
        days = audit.behind.total_seconds() / 86_400
        show(
            out,
            f"{audit.late} row(s) were written by a clock that was behind the row before, by up to "
            f"{days:.3g} days: they have the time of that row",
        )
    if note := ctx.ledger.clock_note():
        show(out, note)


@ledger_app.command("migrate")
def ledger_migrate(params: Params = PARAMS, overrides: Overrides = None) -> None:
    """Create the ledger's tables, or bring them up to date: as the role that owns them."""
    ctx = context_of(params, overrides)
    ctx.ledger.migrate()
    show(out, f"ledger {ctx.ledger.where} is up to date")


@ledger_app.command("grants")
def ledger_grants(
    role: Annotated[str, typer.Option(help="The PostgreSQL role of services.ledger.")],
    schema: Annotated[str, typer.Option(help="Where the ledger's tables are.")] = "public",
) -> None:
    """Print SQL that keeps a PostgreSQL role from rewriting the ledger: for the tables' owner."""
    from privsyn.ledger.grants import grants

    print(grants(role, schema), end="")


@lineage_app.command("sync")
def lineage_sync(
    release: Annotated[
        str | None,
        typer.Argument(
            metavar="[RELEASE]",
            help="Id or folder of one; by default all that are here.",
            autocompletion=known_here,
        ),
    ] = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
) -> None:
    """Write to MLflow what finished releases should have there and have not."""
    from privsyn.stages.lineage_sync import sync

    ctx = context_of(params, overrides)
    names = sync(ctx, ctx.workspace.release_id(release) if release else None)
    show(out, f"the lineage of {len(names)} release(s) is whole in MLflow")
