"""`privsyn more` and `distill`: from a finished release, at no cost."""

from __future__ import annotations

from typing import Annotated

import typer

from privsyn.cli.options import PARAMS, Overrides, Params, Publish, Release, context_of, err, out
from privsyn.display.progress import show_progress
from privsyn.display.tables import Verbatim, facts, show
from privsyn.release import layout
from privsyn.students.settings import STUDENTS


def more(
    release: Release,
    number: Annotated[int, typer.Option("--n", "-n", min=1, help="New records.")],
    params: Params = PARAMS,
    overrides: Overrides = None,
    publish: Publish = True,
) -> None:
    """Make further records from a release, at no cost: its certificate names the release."""
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
    """Train a small language model on a release's texts, at no cost (methods.distill)."""
    from privsyn.release import certificate
    from privsyn.stages.held import EVALUATION
    from privsyn.students.evaluate import evaluate_student
    from privsyn.students.release import distill as make_student

    with show_progress(err) as progress:
        ctx = context_of(params, overrides, None, progress)
        folder = make_student(ctx, ctx.workspace.release_id(release), published=publish)
        measured = evaluate_student(ctx, folder.name) if evaluate else None
    made = certificate.read(folder)[1]["derived"][STUDENTS]["student"]
    rows = {
        "student": Verbatim(folder.name),
        "parameters": f"{made['parameters']:,}, {made['vocabulary']:,} tokens",
        "trained on": f"{made['texts']:,} synthetic texts, {made['tokens']:,} tokens, "
        f"{made['steps']:,} steps; {made['loss']:.3f} nats a token at the end",
        "cost": "none: it has its parent's guarantee",
        "model": Verbatim(folder / layout.MODEL),
        "evaluation (internal)": Verbatim(measured / EVALUATION if measured else "none"),
        "check": Verbatim(f"privsyn verify {folder}"),
        "use": Verbatim(f"privsyn run -S models.language={folder / layout.MODEL}"),
    }
    facts(out, rows, title="Student")
