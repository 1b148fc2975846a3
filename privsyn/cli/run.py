"""`privsyn check`, `plan`, `run`, `verify` and what goes with a release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privsyn import layout
from privsyn.cli.options import (
    PARAMS,
    Day,
    Epsilon,
    Json,
    MethodName,
    Overrides,
    Params,
    Publish,
    Release,
    Texts,
    chosen,
    context_of,
    err,
    out,
    show_result,
    workspace_of,
)
from privsyn.display.progress import duration, show_progress
from privsyn.display.tables import Verbatim, at_a_terminal, facts, note, show
from privsyn.errors import BudgetExceeded, ConfigError, NotAuthenticated
from privsyn.progress import under_way
from privsyn.release.workspace import Workspace

if TYPE_CHECKING:
    from privsyn.release.plan import Plan
    from privsyn.release.settings import Stated


def plan(
    method: MethodName = None,
    epsilon: Epsilon = None,
    texts: Texts = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
    day: Day = None,
    as_json: Json = False,
    every: Annotated[
        bool, typer.Option("--all", help="Every method of `pipeline`, and the total cost.")
    ] = False,
    time: Annotated[
        bool, typer.Option("--time", help="Try the models for some seconds: how long it takes.")
    ] = False,
) -> None:
    """Show what a release would cost. Reads no records.

    Exits with code 3 if the account cannot pay.
    """
    from privsyn.display.plans import Pipeline, Planned
    from privsyn.stages.plan import of_other_accounts

    if every and (method is not None or time):
        one = "--time" if method is None else f"--method={method}"
        raise ConfigError(f"--all and {one} exclude each other.")
    with show_progress(err) as progress:
        changes = chosen(params, overrides, method, epsilon, texts, every=every)
        ctx = context_of(params, changes, day, progress)
        name = method or ctx.config.first_method
        planned = Pipeline.of(ctx) if every else Planned.of(ctx, name, time=time)
    show_result(planned, as_json=as_json)
    # Names of other accounts are no part of a plan, which is published.
    if not as_json and (advice := of_other_accounts(ctx)):
        note(out, advice)
    if not planned.fits:  # as `run` would: scripts go by the exit code
        raise typer.Exit(BudgetExceeded.exit_code)


def run(
    method: MethodName = None,
    epsilon: Epsilon = None,
    texts: Texts = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
    day: Day = None,
    publish: Publish = True,
) -> None:
    """Make one release: plan, draw, certify, validate, evaluate, publish."""
    from privsyn.display.releases import summary
    from privsyn.stages.run import run as run_stages

    def show_step(stage: str, seconds: float) -> None:
        # privacy: how long a stage took follows the records, and a log keeps what is told
        if at_a_terminal(err):
            show(err, f"{stage}: done in {duration(seconds)}")
        elif stage not in _FIRST:  # what a mistake ends is one line
            show(err, f"{stage}: done")

    def cautions(planned: Plan) -> None:
        entry = ctx.ledger.releases.find(planned.id)
        if entry is None or not entry.is_charged:
            for caution in planned.warnings:
                # In a pipe stderr is often dropped, and a caution on the guarantee must be on
                # record.
                note(err if at_a_terminal(err) else out, caution)

    with show_progress(err) as progress:
        with under_way(progress, "settings"):
            changes = chosen(params, overrides, method, epsilon, texts)
            ctx = context_of(params, changes, day, progress)
        planned = run_stages(
            ctx,
            method or ctx.config.first_method,
            published=publish,
            on_step=show_step,
            on_plan=cautions,
            on_note=lambda text: note(err, text),
        )
    # privacy: numbers of real records are shown to a person and never written to a pipe or log.
    summary(out, ctx, planned, internal=at_a_terminal(out))


_FIRST = ("plan", "reserve")
"""Stages of which a log hears nothing: they take a moment, and most mistakes end in them."""


def verify(
    release: Release,
    ledger: Annotated[
        str | None, typer.Option("--ledger", metavar="URL", help="Ledger to check the row in.")
    ] = None,
    require_ledger: Annotated[
        bool,
        typer.Option("--require-ledger", help="Exit with code 6 if no ledger confirms it."),
    ] = False,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="PUBLIC.PEM",
            help="Public key of the expected signer; exit code 6 for any other. Works offline.",
        ),
    ] = None,
    releases: Annotated[
        str | None,
        typer.Option(
            "--releases",
            metavar="URL",
            help="Store to fetch a release from if it is not here: s3://bucket/prefix.",
        ),
    ] = None,
    params: Params = PARAMS,
    as_json: Json = False,
) -> None:
    """Check a release against its certificate, the ledger and the signature.

    Exit code 0: every check passed. 4: a check failed, or a file is not part of the release. 6: not
    authenticated (--require-ledger: no ledger confirms it; --key: no signature by this key).
    """
    from privsyn.api.released import Verification
    from privsyn.ledger.ledger import open_existing
    from privsyn.release.release_store import ReleaseStore

    workspace = workspace_of(params)
    if releases is not None:
        workspace = Workspace(params.absolute().parent, ReleaseStore(releases))
    folder, book = workspace.existing(release), None
    if ledger is not None:
        # Never made: an empty new ledger would say that it does not know the release.
        book = open_existing(ledger)
    elif params.is_file():
        book = context_of(params, None).ledger_at_hand
    verified = Verification.of(folder, book, key)
    # Printed first, then raised: whoever verifies sees the checks that passed, too.
    show_result(verified, as_json=as_json)
    verified.refuse_failed()
    if require_ledger and not verified.authentic:
        raise NotAuthenticated(
            f"{folder} is consistent, but not authenticated: no ledger here confirms who made it.",
            hint="Name its ledger: --ledger URL.",
        )
    if key is not None and not verified.signed:
        raise NotAuthenticated(
            f"{folder} is not authenticated by {key}: {verified.signature}.",
            hint="Ask the sender for the key or for a signed copy.",
        )


def check(
    params: Params = PARAMS,
    overrides: Overrides = None,
    day: Day = None,
    as_json: Json = False,
) -> None:
    """Count the usable records of the private file. The output is internal; no budget is used.

    The counts are exact. Only the owner of the records may see them: never publish them.
    """
    from privsyn.display.plans import RecordCounts

    with show_progress(err) as progress:
        counted = RecordCounts.of(context_of(params, overrides, day, progress))
    show_result(counted, as_json=as_json)
    counted.refuse_empty()  # the table is printed first: it says why records were dropped


def report(
    release: Release,
    params: Params = PARAMS,
    overrides: Overrides = None,
    json_: Json = False,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Measure it again on held-out real records first, for example with other "
            "settings. No budget is used.",
        ),
    ] = False,
) -> None:
    """Write the public and the internal report of a release."""
    from privsyn.display.releases import short
    from privsyn.stages.evaluate import evaluate, failure_reason, log_line
    from privsyn.stages.report import in_words, internal_sections
    from privsyn.stages.report import report as write_report
    from privsyn.students.parent import open_parent

    with show_progress(err) as progress:
        ctx = context_of(params, overrides, progress=progress)
        parent = open_parent(ctx, ctx.workspace.release_id(release))
        if measure:
            with under_way(progress, "evaluate"):
                folder = evaluate(ctx, parent.plan, again=True)
            if folder is None or failure_reason(folder):
                note(err, log_line(folder))
    sections = internal_sections(ctx, parent.plan)
    page, numbers = write_report(ctx, parent.plan, sections)
    if json_:
        print(numbers.read_text(encoding="utf-8"))
        return
    rows = {section.title: in_words(section) for section in sections}
    documents = {
        "public report": Verbatim(short(layout.page_of(parent.folder))),
        "internal report": Verbatim(short(page)),
    }
    facts(out, rows | documents, title=f"Report of {parent.plan.id}")


def record(
    release: Release,
    target: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Target folder. By default records/<release id>."
        ),
    ] = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
) -> None:
    """Export metadata: OpenDP registry entry, Croissant, privacy checklist.

    It is made from the certificate and from `deployment` of params.yaml.
    """
    from privsyn.stages.publish import record as write_records

    workspace = workspace_of(params.absolute())
    stated: Stated = {}
    ledger = None
    if params.is_file():
        ctx = context_of(params, overrides)
        stated, ledger = ctx.config.deployment, ctx.ledger_at_hand
    elif overrides:
        raise ConfigError(f"params file {params} does not exist.", hint="Pass --params.")
    facts_of_release, written = write_records(workspace.existing(release), target, stated, ledger)
    facts(
        out,
        {file.name: Verbatim(file) for file in written},
        title=f"Records of {facts_of_release.name}",
    )
    for setting, what in facts_of_release.missing.items():
        show(out, f"not stated: {what} ({setting})")
    if facts_of_release.missing:
        show(out, "Set these in params.yaml and run the command again.")


def restore(release: Release, params: Params = PARAMS) -> None:
    """Restore a release from `services.releases` if that is set, else from DVC."""
    from privsyn.stages.publish import restore as bring_back

    ctx = context_of(params, None)
    folder = bring_back(ctx, ctx.workspace.release_id(release))
    show(out, f"restored {folder}; check it with: privsyn verify {folder}")


def sweep(params: Params = PARAMS, overrides: Overrides = None) -> None:
    """Delete private temporary files of finished releases."""
    from privsyn.students.cleanup import sweep as wipe_all

    wiped = wipe_all(context_of(params, overrides))
    show(out, f"deleted private files of {', '.join(wiped)}" if wiped else "nothing to delete")
