"""`privsyn check`, `plan`, `run`, `verify` and what goes with a release."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privsyn import layout
from privsyn.cli.options import (
    PARAMS,
    Again,
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
    workspace_of,
)
from privsyn.display.progress import duration, show_progress
from privsyn.display.tables import GAP, Verbatim, at_a_terminal, facts, note, show
from privsyn.dp.accountant import format_epsilon
from privsyn.errors import BudgetExceeded, ConfigError, DataError, NotAuthenticated
from privsyn.progress import under_way
from privsyn.release.workspace import Workspace

if TYPE_CHECKING:
    from privsyn.release.plan import Plan
    from privsyn.release.settings import Stated

Releases = Annotated[
    str | None,
    typer.Option(
        "--releases",
        metavar="URL",
        help="Store to fetch a release from if it is not here: s3://bucket/prefix.",
    ),
]


def plan(
    method: MethodName = None,
    epsilon: Epsilon = None,
    texts: Texts = None,
    again: Again = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
    day: Day = None,
    as_json: Json = False,
    details: Annotated[
        bool,
        typer.Option("--details", help="Also show noise scales and thresholds."),
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Every method of `pipeline`, and the total cost.")
    ] = False,
    release: Annotated[
        str | None,
        typer.Option(
            "--release",
            metavar="RELEASE",
            help="Show the stored plan of a release that is paid for.",
        ),
    ] = None,
    releases: Releases = None,
) -> None:
    """Show what a release would cost. Reads no records.

    Exits with code 3 if the account cannot pay.

    With --release: the stored plan of a release that is paid for.
    """
    if release is not None:
        if method is not None or every or epsilon is not None or texts is not None:
            raise ConfigError("--release excludes --method, --all, --epsilon and --texts.")
        _show_stored_plan(release, releases, params, as_json=as_json)
        return
    if releases is not None:
        raise ConfigError("--releases needs --release.")
    from privsyn.display.plans import Pipeline, Planned
    from privsyn.stages.plan import of_other_accounts

    if every and method is not None:
        raise ConfigError(f"--all and --method={method} exclude each other.")
    # privacy: how long an earlier release took follows its records
    internal = at_a_terminal(out) and not as_json
    with show_progress(err) as progress:
        with under_way(progress, "plan: settings"):
            changes = chosen(params, overrides, method, epsilon, texts, again, every=every)
            ctx = context_of(params, changes, day, progress)
        planned: Pipeline | Planned
        if every:
            planned = Pipeline.of(ctx)
        else:
            planned = Planned.of(ctx, method or ctx.config.first_method, internal=internal)
    if as_json:
        print(json.dumps(planned.report(), indent=2))
    elif isinstance(planned, Pipeline):
        planned.print(out)
    else:
        planned.table(internal=internal, details=details, flags=True).print(out)
        if advice := of_other_accounts(ctx):
            note(out, advice)
    if not planned.fits:  # as `run` would: scripts go by the exit code
        raise typer.Exit(BudgetExceeded.exit_code)


def _show_stored_plan(release: str, releases: str | None, params: Path, *, as_json: bool) -> None:
    """Print the plan of a release as it is stored.

    Raises:
        ConfigError: No store is named.
        DataError: It holds no such plan.
    """
    from privsyn.display.plans import guarantee_text

    store = _reading(releases, params).store
    if store is None:
        raise ConfigError(
            "no store of releases is named.", hint="Set services.releases, or pass --releases URL."
        )
    planned = store.plan(release)
    if planned is None:
        raise DataError(
            f"{store.where} has no plan of {release}.",
            hint="A plan is stored once its release is paid for.",
        )
    if as_json:
        print(json.dumps(planned.model_dump(mode="json"), indent=2))
        return
    rows = {
        "method": planned.method,
        "dataset": f"{planned.dataset.name}, version {planned.dataset.version}",
        "guarantee": guarantee_text(planned),
        "account": planned.account,
        f"synthetic {planned.things}": planned.rows_said,
        "shards": str(planned.shards),
        **{f"model ({role})": use.source for role, use in planned.models.items()},
    }
    facts(out, rows, title=f"Plan of {planned.id}")


def _reading(releases: str | None, params: Path) -> Workspace:
    """Where a release is looked for: the store that is named, or the project's."""
    if releases is None:
        return workspace_of(params)
    from privsyn.release.release_store import ReleaseStore

    return Workspace(params.absolute().parent, ReleaseStore(releases))


def run(
    method: MethodName = None,
    epsilon: Epsilon = None,
    texts: Texts = None,
    again: Again = None,
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
        if not at_a_terminal(err):
            if stage not in _FIRST:  # what a mistake ends is one line
                show(err, f"{stage}: done")
        elif seconds >= _WORTH_TELLING:
            show(err, f"{stage}: done in {duration(seconds)}")

    def cautions(planned: Plan) -> None:
        entry = ctx.ledger.releases.find(planned.id)
        if entry is None or not entry.is_charged:
            for caution in planned.warnings:
                # In a pipe stderr is often dropped, and a caution on the guarantee must be on
                # record.
                note(err if at_a_terminal(err) else out, caution)

    began = time.monotonic()
    with show_progress(err) as progress:
        with under_way(progress, "settings"):
            changes = chosen(params, overrides, method, epsilon, texts, again)
            ctx = context_of(params, changes, day, progress)
        name = method or ctx.config.first_method
        planned = run_stages(
            ctx,
            name,
            published=publish,
            on_step=show_step,
            on_plan=cautions,
            on_note=lambda text: note(err, text),
        )
    # privacy: numbers of real records are shown to a person and never written to a pipe or log.
    summary(out, ctx, planned, internal=at_a_terminal(out))
    if at_a_terminal(err):
        # privacy: how long a run took depends on the records.
        show(err, f"took {duration(time.monotonic() - began)}")


_FIRST = ("plan", "reserve")
"""Stages of which a log hears nothing: they take a moment, and most mistakes end in them."""
_WORTH_TELLING = 1.0
"""Seconds from which on the end of a stage is said."""


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
    releases: Releases = None,
    params: Params = PARAMS,
    as_json: Json = False,
) -> None:
    """Check a release against its certificate, the ledger and the signature.

    Exit code 0: every check passed. 4: a check failed, or a file is not part of the release. 6: not
    authenticated (--require-ledger: no ledger confirms it; --key: no signature by this key).
    """
    from privsyn.ledger.ledger import open_existing
    from privsyn.release import signature, verification
    from privsyn.release.facts import ReleaseFacts

    folder = _reading(releases, params).existing(release)
    book = None
    if ledger is not None:
        # Never made: an empty new ledger would say that it does not know the release.
        book = open_existing(ledger)
    elif params.is_file():
        book = context_of(params, None).ledger_at_hand
    signer = None if key is None else signature.public_key(key)
    checks = verification.verify(folder, book, signer)
    reason = layout.held_back(folder)
    if as_json:
        advice = [verification.Check("handed out", None, reason)] if reason else []
        print(json.dumps([check.__dict__ for check in [*checks, *advice]], indent=2))
    else:
        marks = {True: "ok", False: "FAILED", None: "not checked"}
        width = max(len(marks[check.passed]) for check in checks) + GAP
        lines = {f"{marks[check.passed]:{width}}{check.name}": check.detail for check in checks}
        facts(out, lines, style="")
    verification.raise_on_failure(folder, checks)
    # Printed first, then raised: whoever verifies sees the checks that passed, too.
    authentic = verification.authentic(checks)
    signed = next((check for check in checks if check.name == verification.SIGNED), None)
    if not as_json:
        confirmed = ["the ledger"] * authentic
        confirmed += ["the signature"] if signed is not None and signed.passed else []
        show(
            out,
            f"authentic: confirmed by {' and '.join(confirmed)}"
            if confirmed
            else "consistent, but not authenticated: no ledger or signature confirms who made it",
        )
        show(out, signature.UNSIGNED if signed is None else signed.detail)
        release_facts = ReleaseFacts.read(folder)
        cost = release_facts.plan
        show(
            out,
            f"{release_facts.kind}: epsilon {format_epsilon(cost.epsilon)}, delta {cost.delta:g}, "
            f"per {cost.unit}, {cost.adjacency}",
        )
        if reason:
            show(out, f"not to be handed out: {reason}")
    if require_ledger and not authentic:
        raise NotAuthenticated(
            f"{folder} is consistent, but not authenticated: no ledger here confirms who made it.",
            hint="Name its ledger: --ledger URL.",
        )
    if key is not None and not (signed is not None and signed.passed):
        reason = signature.UNSIGNED if signed is None else signed.detail
        raise NotAuthenticated(
            f"{folder} is not authenticated by {key}: {reason}.",
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

    counted = RecordCounts.of(context_of(params, overrides, day))
    if as_json:
        print(json.dumps(counted.report(), indent=2))
    else:
        counted.print(out)
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
    to: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write the public report of any release folder to this file. Needs no project.",
        ),
    ] = None,
) -> None:
    """Write the public and the internal report of a release."""
    if to is not None and measure:
        raise ConfigError("--out and --measure exclude each other.")
    if to is not None:
        named = Path(release)
        # A folder that somebody handed in is taken as it is, whatever project is around.
        _from_folder_alone(
            named if named.exists() else _reading(None, params).existing(release), to
        )
        return
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
        stated = ctx.config.deployment
        # `ctx.ledger` would make a new ledger in a project without one.
        if ctx.config.services.ledger or (ctx.workspace.state / "ledger.db").exists():
            ledger = ctx.ledger
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


def _from_folder_alone(folder: Path, to: Path) -> None:
    """Write the outward report of a folder that somebody may have handed in."""
    from privsyn.data.artifacts import atomic_file
    from privsyn.release import verification
    from privsyn.report.outward import outward

    # A file more in the folder would make the release fail its own verification.
    if to.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"--out={to} lies in the release.", hint="Name a file elsewhere.")
    verification.raise_on_failure(folder, verification.verify(folder, None))
    # A page of changed records would look like one of the certified ones.
    page = outward(folder).to_html()
    with atomic_file(to, mode=0o644) as stream:
        stream.write(page.encode())
    show(out, f"wrote {to} from the release folder, which is consistent; no ledger was checked")


def restore(
    release: Release,
    params: Params = PARAMS,
) -> None:
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
