"""`privsyn compare` and `export`: finished releases side by side, and for others' tools."""

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
    known_here,
    out,
    workspace_of,
)
from privsyn.display.tables import Verbatim, facts, show
from privsyn.handover.formats import FORMATS


def compare(
    releases: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RELEASE...",
            help="Ids or folders of releases; by default all that are here.",
            autocompletion=known_here,
        ),
    ] = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Put releases of one dataset side by side: cost, utility, samples. Internal, as it says."""
    from privsyn.display.comparison import compare as put_beside
    from privsyn.display.comparison import paid, write

    ctx = context_of(params, overrides)
    names = [ctx.workspace.release_id(name) for name in releases or paid(ctx)]
    found = put_beside(ctx, names, internal=True)
    page = write(ctx, found)
    if as_json:
        print(json.dumps(found.as_dict(), indent=2))
        return
    found.print(out)
    facts(out, {"page (internal)": Verbatim(page)})


def export(
    release: Release,
    form: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORM",
            help=f"One of {', '.join(FORMATS)}.",
            autocompletion=lambda: list(FORMATS),
        ),
    ],
    target: Annotated[
        Path | None, typer.Option("--out", help="Folder to make. By default exports/RELEASE-FORM.")
    ] = None,
    licence: Annotated[
        str | None, typer.Option("--license", metavar="ID", help="For the card: cc-by-4.0.")
    ] = None,
    params: Params = PARAMS,
) -> None:
    """Write a release as a folder for other tools, with a dataset card and its certificate."""
    from privsyn.handover.export import export as write_export

    folder = workspace_of(params).existing(release)
    ctx = context_of(params, None) if params.is_file() else None
    book = None if ctx is None else ctx.ledger_at_hand
    place = target or params.parent / "exports" / f"{folder.name}-{form}"
    made = write_export(folder, form, place, ledger=book, ctx=ctx, licence=licence)
    show(out, f"{form} in {made}; nothing was pushed. Its card: {made / 'README.md'}")
