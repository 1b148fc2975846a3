"""`privsyn export`, `more` and `distill`: what can be done with finished releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privsyn import layout
from privsyn.cli.options import (
    PARAMS,
    Overrides,
    Params,
    Publish,
    Release,
    context_of,
    err,
    out,
    workspace_of,
)
from privsyn.display.progress import show_progress
from privsyn.display.tables import Verbatim, facts, note, show
from privsyn.export import FORMATS


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
    license: Annotated[
        str | None, typer.Option("--license", metavar="ID", help="For the card: cc-by-4.0.")
    ] = None,
    params: Params = PARAMS,
) -> None:
    """Write a release as a folder for other tools, with a dataset card and its certificate."""
    from privsyn.export import export as write_export

    folder = workspace_of(params).existing(release)
    ctx = context_of(params, None) if params.is_file() else None
    # The form is part of the name, so that two exports of a release stand side by side.
    place = target or params.parent / "exports" / f"{folder.name}-{form}"
    made = write_export(folder, form, place, ctx=ctx, license=license)
    show(out, f"{form} in {made}; nothing was pushed. Its card: {made / 'README.md'}")


def more(
    release: Release,
    number: Annotated[int, typer.Option("--n", "-n", min=1, help="New records.")],
    params: Params = PARAMS,
    overrides: Overrides = None,
    publish: Publish = True,
) -> None:
    """Make further records from a release, at no cost. Their certificate names the release."""
    from privsyn.students.more import more as make_more

    with show_progress(err) as progress:
        ctx = context_of(params, overrides, None, progress)
        folder = make_more(ctx, ctx.workspace.release_id(release), number, published=publish)
    show(out, f"{number} records in {folder}; check with: privsyn verify {folder}")


def distill(
    release: Release,
    params: Params = PARAMS,
    overrides: Overrides = None,
    publish: Publish = True,
    evaluate: Annotated[bool, typer.Option(help="Measure it on held-out real texts.")] = True,
) -> None:
    """Train a small language model on the texts of a release, at no cost (methods.distill)."""
    from privsyn.release.facts import ReleaseFacts
    from privsyn.students.evaluate import measure_published
    from privsyn.students.release import distill as make_student
    from privsyn.students.release import student_of

    with show_progress(err) as progress:
        ctx = context_of(params, overrides, None, progress)
        folder = make_student(ctx, ctx.workspace.release_id(release), published=publish)
        notes: list[str] = []
        measured = measure_published(ctx, folder.name, notes.append) if evaluate else None
    for words in notes:
        note(err, words)
    made = student_of(ReleaseFacts.read(folder))
    rows = {
        "student": Verbatim(folder.name),
        "parameters": f"{made['parameters']:,}, with a vocabulary of {made['vocabulary']:,} tokens",
        "trained on": f"{made['texts']:,} synthetic texts, {made['tokens']:,} tokens, "
        f"{made['steps']:,} steps; {made['loss']:.3f} nats a token at the end",
        "cost": "none: its parent's guarantee covers it",
        "model": Verbatim(folder / layout.MODEL),
        "evaluation (internal)": Verbatim(measured / layout.EVALUATION if measured else "none"),
        "check": Verbatim(f"privsyn verify {folder}"),
        "use": Verbatim(f"privsyn run -S models.language={folder / layout.MODEL}"),
    }
    facts(out, rows, title="Student")
