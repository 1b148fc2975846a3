"""The command line. Every command is a thin driver of the stage functions."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date as Date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from privsyn import __version__
from privsyn.dp.accountant import shown
from privsyn.errors import ConfigError, DataError, LedgerUnavailable, PrivsynError
from privsyn.files import read_file
from privsyn.methods.base import METHODS, SETTINGS
from privsyn.models_cli import models_app
from privsyn.progress import duration, show_progress
from privsyn.tables import GAP, Verbatim, facts, show

if TYPE_CHECKING:
    from privsyn.backends.rank_group import Group
    from privsyn.release import Plan, StudentPlan
    from privsyn.stages.base import Context, Progress

app = typer.Typer(
    name="privsyn",
    help="Differentially private synthetic data: plan, draw, certify, verify.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
stage_app = typer.Typer(help="One stage, as dvc.yaml and Airflow call it.", no_args_is_help=True)
ledger_app = typer.Typer(help="The budget ledger.", no_args_is_help=True)
app.add_typer(stage_app, name="stage")
app.add_typer(ledger_app, name="ledger")
lineage_app = typer.Typer(help="The lineage in MLflow.", no_args_is_help=True)
app.add_typer(lineage_app, name="lineage")
app.add_typer(models_app, name="models")


def _known_here() -> list[str]:
    """Releases of the project in the working folder, for the shell's completion."""
    from privsyn.workspace import Workspace

    return Workspace(Path()).finished()


Params = Annotated[Path, typer.Option("--params", help="The config file.")]
Overrides = Annotated[
    list[str] | None, typer.Option("-S", "--set", metavar="a.b.c=value", help="Override a setting.")
]
MethodName = Annotated[
    str | None,
    typer.Option(
        "--method",
        "-m",
        metavar="METHOD",
        help=f"One of {', '.join(METHODS)}. By default the first of `pipeline` in params.yaml.",
        autocompletion=lambda: list(METHODS),
    ),
]
StageMethod = Annotated[
    str | None,
    typer.Option(
        "--method",
        "-m",
        metavar="METHOD",
        help=f"One of {', '.join([*METHODS, *SETTINGS])}. By default the first of `pipeline`.",
        autocompletion=lambda: [*METHODS, *SETTINGS],
    ),
]
Day = Annotated[
    str | None, typer.Option("--date", metavar="YYYY-MM-DD", help="Logical date of the run.")
]
PlanFile = Annotated[Path, typer.Option("--plan", help="Plan file, as `stage plan` writes it.")]
Release = Annotated[
    str,
    typer.Argument(
        metavar="RELEASE", help="Id or folder of a release.", autocompletion=_known_here
    ),
]
Publish = Annotated[
    bool, typer.Option("--publish/--no-publish", help="Publish with DVC at the end.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

PARAMS = Path("params.yaml")
INTERRUPTED = 130
out, err = Console(), Console(stderr=True)


def _version(asked: bool) -> None:
    if asked:
        print(f"privsyn {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of privsyn itself."""


def _context(
    params: Path,
    overrides: list[str] | None,
    day: str | None = None,
    progress: Progress | None = None,
    group: Group | None = None,
) -> Context:
    from privsyn.config import environment_overrides
    from privsyn.stages.base import open_context, silent

    settings = [*environment_overrides(), *(overrides or ())]
    return open_context(
        params,
        settings,
        day=_day(day),
        progress=progress or silent,
        origin=_origin(),
        group=group,
    )


@contextmanager
def _ranks() -> Iterator[Group | None]:
    """The processes torchrun started; each but the first helps the first to train, and exits."""
    from privsyn.backends.rank_processes import by_hand, joined

    place = by_hand()
    if place is None:
        yield None
        return
    with joined(place) as group:
        if place.rank > 0:
            from privsyn.backends.ranks import serve

            serve(group)  # rank 0 says with which model and settings
            raise typer.Exit
        yield group


def _day(text: str | None) -> Date | None:
    try:
        return Date.fromisoformat(text) if text else None
    except ValueError:
        raise ConfigError(f"--date={text!r} is not of the form YYYY-MM-DD.") from None


def _origin() -> dict[str, str]:
    """Facts of the scheduler that started this process, or of its user, for lineage."""
    from privsyn.stages.base import os_user

    raw = os.environ.get("PRIVSYN_ORIGIN")
    return dict(json.loads(raw)) if raw else {"driver": "cli", "user": os_user()}


@app.command()
def plan(
    method: MethodName = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
    day: Day = None,
    as_json: Json = False,
    every: Annotated[
        bool, typer.Option("--all", help="Every method of `pipeline`, and what all cost together.")
    ] = False,
) -> None:
    """Print what a release would cost and whether it fits. Opens no data file."""
    from privsyn.stages.pace import last
    from privsyn.stages.plan import plan as make_plan
    from privsyn.stages.plan import preview, preview_all, report, report_account
    from privsyn.stages.summary import cost_of_all, cost_of_release

    ctx = _context(params, overrides, day)
    if every and method is not None:
        raise ConfigError(f"--all and --method={method} exclude each other.")
    if not every:
        planned = make_plan(ctx, method or ctx.config.first_method)
        account = preview(ctx, planned)
        if as_json:
            print(json.dumps(report(planned, account), indent=2))
        else:
            schedule = ctx.config.schedule.get(planned.method)
            cron = schedule.cron if schedule else None
            cost_of_release(out, planned, account, last(ctx, planned), cron)
        return
    names = [name for name in ctx.config.pipeline if name in METHODS]
    if not names:
        raise ConfigError(
            "pipeline names no method.", hint="Name some in params.yaml: pipeline: [invisible_ink]"
        )
    plans = [make_plan(ctx, name) for name in names]
    previews = [preview(ctx, planned) for planned in plans]
    together = preview_all(ctx, plans)
    if as_json:
        reports = [report(*pair) for pair in zip(plans, previews, strict=True)]
        total = report_account(ctx.config.account.name, together)
        print(json.dumps({"releases": reports, "together": total}, indent=2))
    else:
        cost_of_all(out, plans, previews, together)


@app.command()
def run(
    method: MethodName = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
    day: Day = None,
    publish: Publish = True,
) -> None:
    """Make one release: plan, draw, certify, validate, evaluate, publish."""
    from privsyn.stages.run import run as run_stages
    from privsyn.stages.summary import summary

    def told(stage: str, seconds: float) -> None:
        if seconds >= _WORTH_TELLING:
            show(err, f"{stage}: done in {duration(seconds)}")

    began = time.monotonic()
    with show_progress(err) as progress:
        ctx = _context(params, overrides, day, progress)
        name = method or ctx.config.first_method
        planned = run_stages(ctx, name, published=publish, told=told)
    summary(out, ctx, planned)
    show(err, f"took {duration(time.monotonic() - began)}")


_WORTH_TELLING = 1.0
"""Seconds from which on the end of a stage is said."""


@app.command()
def verify(
    release: Release,
    ledger: Annotated[
        str | None, typer.Option("--ledger", metavar="URL", help="Ledger to check the row in.")
    ] = None,
    require_ledger: Annotated[
        bool,
        typer.Option("--require-ledger", help="End with exit code 6 if no ledger vouches for it."),
    ] = False,
    params: Params = PARAMS,
    as_json: Json = False,
) -> None:
    """Check a release against its certificate and, where there is one, the ledger.

    Exit code 0: all that could be checked agrees. 4: something does not, or is no part of the
    release. 6, with --require-ledger: it agrees with itself, and no ledger says who made it.
    """
    from privsyn import certificate
    from privsyn.errors import NotAuthenticated
    from privsyn.ledger import open_ledger
    from privsyn.workspace import Workspace

    folder = Workspace(params.parent).folder(release)
    book = None
    if ledger is not None:
        book = open_ledger(ledger)
        if not book.exists():
            raise LedgerUnavailable(
                f"--ledger: there is no ledger at {book.where}; the release was not checked.",
                hint="Check the URL: sqlite:////absolute/path/ledger.db or "
                "postgresql://user@host/name.",
            )
    elif params.is_file():
        ctx = _context(params, None)
        if ctx.config.services.ledger or (ctx.workspace.state / "ledger.db").exists():
            book = ctx.ledger
    checks = certificate.verify(folder, book)
    if as_json:
        print(json.dumps([check.__dict__ for check in checks], indent=2))
    else:
        marks = {True: "ok", False: "FAILED", None: "not checked"}
        width = max(len(marks[check.passed]) for check in checks) + GAP
        lines = {f"{marks[check.passed]:{width}}{check.name}": check.detail for check in checks}
        facts(out, lines, style="")
    certificate.raise_failed(folder, checks)
    authentic = certificate.authentic(checks)
    if not as_json:
        verdict = "authentic: the ledger vouches for it"
        show(out, verdict if authentic else "consistent, not authenticated: anyone can make one so")
        sealed = certificate.read(folder)[1]
        cost = certificate.origin(sealed)["plan"]
        show(
            out,
            f"{sealed['class']}: epsilon {shown(cost['epsilon'])}, delta {cost['delta']:g}, "
            f"per {cost['unit']}, {cost['adjacency']}",
        )
    if require_ledger and not authentic:
        raise NotAuthenticated(
            f"{folder} is consistent, not authenticated: no ledger at hand says who made it.",
            hint="Name its ledger: --ledger URL.",
        )


@app.command()
def check(
    params: Params = PARAMS,
    overrides: Overrides = None,
    day: Day = None,
    as_json: Json = False,
) -> None:
    """Count what a release could use of the private file. Internal, and costs nothing.

    Exact counts of private records, for the owner's eyes: never publish them.
    """
    from privsyn.stages.check import check as count
    from privsyn.stages.check import lines

    ctx = _context(params, overrides, day)
    found = count(ctx)
    if as_json:
        print(json.dumps({"class": "internal", "files": found}, indent=2))
    else:
        for path, counts in found.items():
            facts(out, lines(ctx, counts), title=f"{path} (internal: exact counts of records)")
    if not all(counts["kept"] for counts in found.values()):
        empty = next(path for path, counts in found.items() if not counts["kept"])
        raise DataError(f"{empty} holds no record that can be used.", hint="The reasons are above.")


@app.command("sample-data")
def sample_data(
    target: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Where to write. By default messages.jsonl or digits.npz, .privsyn/sample/.",
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, max=4000, help="Messages: the first so many.")] = 4000,
    images: Annotated[bool, typer.Option("--images", help="Scans of digits, not texts.")] = False,
) -> None:
    """Write invented patient-portal messages, or scans of digits, to try everything on."""
    if images:
        from privsyn.data.digits import write_digits

        target = target or Path(".privsyn/sample/digits.npz")
        show(out, f"wrote {write_digits(target)} scans of digits to {target}")
        return
    from privsyn.data.sample import write_sample

    target = target or Path(".privsyn/sample/messages.jsonl")
    written = write_sample(target, rows=rows)
    show(out, f"wrote {written.rows} messages of {written.patients} invented patients to {target}")


@app.command()
def init(
    folder: Annotated[
        Path, typer.Argument(help="Folder of the project; made if need be.")
    ] = Path(),
    data: Annotated[
        Path | None,
        typer.Option(help="Private file, or folder of images. Only its header is read."),
    ] = None,
    method: MethodName = None,
    text: Annotated[str | None, typer.Option(help="Column of the text.")] = None,
    document: Annotated[
        str | None,
        typer.Option(metavar="WORDS", help="What a text is, for prompts: public, e.g. bug report."),
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column of the label; - for none.")] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="A,B", help="All labels: public, never read from data.")
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="Column of the id of those who are protected.")
    ] = None,
    rows_are_units: Annotated[
        bool, typer.Option("--rows-are-units", help="There is none: every row is one by itself.")
    ] = False,
    protects: Annotated[
        str | None, typer.Option(metavar="WORD", help="What such a one is called: patient.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of dataset and account.")] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Of images: side in pixels they are brought to.")
    ] = None,
) -> None:
    """Begin a project: params.yaml, dvc.yaml, dags, .gitignore. Asks what is not given."""
    from privsyn import new_project

    if rows_are_units and unit is not None:
        raise ConfigError(f"--rows-are-units and --unit={unit} exclude each other.")
    given = {
        "text": text,
        "document": document,
        "label": label,
        "labels": new_project.label_list(labels) if labels is not None else None,
        "unit": unit,
        "protects": protects,
        "name": name,
        "image_size": image_size,
    }
    said: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if said and data is None:
        raise ConfigError(f"--{next(iter(said)).replace('_', '-')} needs --data.")
    if said.get("label") == new_project.NONE:
        said["label"] = None
    if rows_are_units:
        said["unit"] = None
    new_project.refuse_existing(folder)
    ask = _ask if sys.stdin.isatty() else None
    answers = new_project.interview(data.expanduser(), said, ask) if data is not None else None
    images = answers is not None and answers.image_size is not None
    method = method or ("private_evolution" if images else "invisible_ink")
    written, kept = new_project.write(folder, new_project.params(answers, method))
    show(out, *(f"wrote {file}" for file in written), *(f"left {file} as it is" for file in kept))
    show(out, "")
    facts(out, _first_steps(folder, answers is None), title="What next", style="")


def _ask(question: str, proposal: str) -> str:
    answer: str = typer.prompt(question, default=proposal, err=True)
    return answer


def _first_steps(folder: Path, sample: bool) -> dict[str, str]:
    """The commands of a new project, in order."""
    steps = {
        "look over": "params.yaml",
        "what it costs": "privsyn plan",
        "one release": "privsyn run",
        "what is left": "privsyn ledger show",
        "by Airflow": f"PRIVSYN_PARAMS={(folder / 'params.yaml').resolve()}, and add "
        f"{(folder / 'dags').resolve()} to a DAG bundle",
    }
    steps = {"language model": "privsyn models fetch smollm2"} | steps
    if sample:
        steps = {"invented data": "privsyn sample-data"} | steps
    if folder.resolve() != Path.cwd():
        steps = {"go there": f"cd {folder}"} | steps
    return {name: Verbatim(step) for name, step in steps.items()}


@app.command()
def more(
    release: Release,
    number: Annotated[int, typer.Option("--n", "-n", min=1, help="New records.")],
    params: Params = PARAMS,
    overrides: Overrides = None,
    publish: Publish = True,
) -> None:
    """Make further records from a release, at no cost: its certificate names the release."""
    from privsyn.stages.more import more as make_more

    with show_progress(err) as progress:
        ctx = _context(params, overrides, None, progress)
        folder = make_more(ctx, ctx.workspace.release_id(release), number, published=publish)
    show(out, f"{number} records in {folder}; check with: privsyn verify {folder}")


@app.command()
def distill(
    release: Release,
    params: Params = PARAMS,
    overrides: Overrides = None,
    publish: Publish = True,
    evaluate: Annotated[bool, typer.Option(help="Measure it on held-out real texts.")] = True,
) -> None:
    """Train a small language model on a release's texts, at no cost (methods.distill)."""
    from privsyn import certificate
    from privsyn.stages.distill import distill as make_student
    from privsyn.stages.evaluate import EVALUATION
    from privsyn.stages.evaluate_student import evaluate_student

    with show_progress(err) as progress:
        ctx = _context(params, overrides, None, progress)
        folder = make_student(ctx, ctx.workspace.release_id(release), published=publish)
        measured = evaluate_student(ctx, folder.name) if evaluate else None
    made = certificate.read(folder)[1]["derived"]["distill"]["student"]
    rows = {
        "student": Verbatim(folder.name),
        "parameters": f"{made['parameters']:,}, {made['vocabulary']:,} tokens",
        "trained on": f"{made['texts']:,} synthetic texts, {made['tokens']:,} tokens, "
        f"{made['steps']:,} steps; {made['loss']:.3f} nats a token at the end",
        "cost": "none: it has its parent's guarantee",
        "model": Verbatim(folder / certificate.MODEL),
        "evaluation (internal)": Verbatim(measured / EVALUATION if measured else "none"),
        "check": Verbatim(f"privsyn verify {folder}"),
        "use": Verbatim(f"privsyn run -S models.language={folder / certificate.MODEL}"),
    }
    facts(out, rows, title="Student")


@app.command()
def restore(
    release: Release,
    params: Params = PARAMS,
) -> None:
    """Bring a published release back from the DVC remote."""
    from privsyn.stages.publish import restore as bring_back

    ctx = _context(params, None)
    folder = bring_back(ctx, ctx.workspace.release_id(release))
    show(out, f"{folder} is back; check it with: privsyn verify {folder}")


@stage_app.command("plan")
def stage_plan(
    method: StageMethod = None,
    target: Annotated[Path | None, typer.Option("--out", help="Where to write the plan.")] = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
    day: Day = None,
) -> None:
    """Write the data-free plan of a release, opening its account."""
    from privsyn.data.artifacts import write_json_atomic
    from privsyn.stages.plan import plan as make_plan

    ctx = _context(params, overrides, day)
    method = method or ctx.config.first_method
    file = target or ctx.workspace.plan(method)
    if method == "distill":
        from privsyn.stages.distill import plan_with_teacher

        student = plan_with_teacher(ctx)
        write_json_atomic(file, student.model_dump(mode="json"))
        show(out, f"{student.id}: plan in {file}")
        return
    planned = make_plan(ctx, method, open_account=True)
    write_json_atomic(file, planned.model_dump(mode="json"))
    show(out, f"{planned.id}: epsilon {shown(planned.epsilon)}, plan in {file}")


@stage_app.command("preflight")
def stage_preflight(
    plan_file: PlanFile, params: Params = PARAMS, overrides: Overrides = None
) -> None:
    """Try models, grammar and folders on public inputs, before a release begins."""
    from privsyn.release import StudentPlan
    from privsyn.stages.preflight import preflight

    planned = _read_plan(plan_file)
    if isinstance(planned, StudentPlan):
        raise ConfigError(f"{plan_file} plans a student, which spends nothing.")
    preflight(_context(params, overrides), planned)


@stage_app.command("train")
def stage_train(plan_file: PlanFile, params: Params = PARAMS, overrides: Overrides = None) -> None:
    """Train the model of a begun release, for methods that train one. May be run by torchrun."""
    from privsyn.release import StudentPlan
    from privsyn.stages.train import train

    with _ranks() as group, show_progress(err) as progress:
        planned = _read_plan(plan_file)
        if isinstance(planned, StudentPlan):
            raise ConfigError(
                f"{plan_file} plans a student, which is trained by the stage generate."
            )
        train(_context(params, overrides, progress=progress, group=group), planned)


@stage_app.command("generate")
def stage_generate(
    plan_file: PlanFile,
    shard: Annotated[
        int | None, typer.Option(min=0, help="Draw one shard of a begun release and stop.")
    ] = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
) -> None:
    """Draw a release: reserve, partition, train, generate, certify, copy to synthetic/<method>.

    May be run by torchrun, where a model is trained.
    """
    from privsyn.release import StudentPlan
    from privsyn.stages.certify import export
    from privsyn.stages.generate import generate
    from privsyn.stages.reserve import settle
    from privsyn.stages.run import draw

    with _ranks() as group, show_progress(err) as progress:
        planned = _read_plan(plan_file)
        ctx = _context(params, overrides, progress=progress, group=group)
        if group is not None and (isinstance(planned, StudentPlan) or shard is not None):
            group.close()  # these stages are one process's work
        if isinstance(planned, StudentPlan):
            from privsyn.stages.distill import draw_student

            draw_student(ctx, planned)
            return
        if shard is not None:
            generate(ctx, planned, shard)
            return
        try:
            draw(ctx, planned)
        finally:
            settle(ctx, planned)
        if ctx.as_filed:
            export(ctx, planned)


@stage_app.command("validate")
def stage_validate(
    plan_file: PlanFile, params: Params = PARAMS, overrides: Overrides = None
) -> None:
    """Run the Great Expectations suite on a committed release."""
    from privsyn.release import StudentPlan
    from privsyn.stages.validate import validate

    ctx, planned = _context(params, overrides), _read_plan(plan_file)
    if isinstance(planned, StudentPlan):
        from privsyn.stages.validate_student import validate_student

        folder = validate_student(ctx, planned, filed=ctx.as_filed)
    else:
        folder = validate(ctx, planned)
    show(out, f"valid: {folder / 'validation.html'}")


@stage_app.command("evaluate")
def stage_evaluate(
    plan_file: PlanFile, params: Params = PARAMS, overrides: Overrides = None
) -> None:
    """Measure a committed release against held-out real records (internal)."""
    from privsyn.release import StudentPlan
    from privsyn.stages.evaluate import evaluate, said

    ctx, planned = _context(params, overrides), _read_plan(plan_file)
    if isinstance(planned, StudentPlan):
        from privsyn.stages.evaluate_student import evaluate_student

        folder = evaluate_student(ctx, planned.id)
    else:
        folder = evaluate(ctx, planned)
    show(out, said(folder))


@stage_app.command("publish")
def stage_publish(
    plan_file: PlanFile, params: Params = PARAMS, overrides: Overrides = None
) -> None:
    """Version a validated release with DVC and push it."""
    from privsyn.release import StudentPlan
    from privsyn.stages.publish import publish

    ctx, planned = _context(params, overrides), _read_plan(plan_file)
    if isinstance(planned, StudentPlan):
        from privsyn.stages.distill import publish_student

        answer = publish_student(ctx, planned)
    else:
        answer = publish(ctx, planned)
    show(out, json.dumps(answer, indent=2))


@ledger_app.command("show")
def ledger_show(
    params: Params = PARAMS, overrides: Overrides = None, as_json: Json = False
) -> None:
    """Accounts, what is left of them, their releases, who asked, and what was refused."""
    from privsyn.stages.summary import account_rows, accounts
    from privsyn.stages.sweep import leftovers

    ctx = _context(params, overrides)
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
    ctx.ledger.check()


@app.command()
def sweep(params: Params = PARAMS, overrides: Overrides = None) -> None:
    """Wipe what ended releases left in scratch, as where a process was killed at the very end."""
    from privsyn.stages.sweep import sweep as wipe_all

    wiped = wipe_all(_context(params, overrides))
    show(out, f"wiped the scratch of {', '.join(wiped)}" if wiped else "nothing to wipe")


@ledger_app.command("entries")
def ledger_entries(
    account: Annotated[str | None, typer.Option(help="Only this account.")] = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
) -> None:
    """Print every release as a line of JSON, oldest first."""
    for entry in _context(params, overrides).ledger.entries(account):
        print(json.dumps(entry.as_dict(), sort_keys=True))


@ledger_app.command("lose")
def ledger_lose(
    release: Release,
    reason: Annotated[str, typer.Option(help="Why.")] = "given up by hand",
    params: Params = PARAMS,
    overrides: Overrides = None,
) -> None:
    """Give a begun release up: its cost stays charged, and it can never be resumed."""
    ctx = _context(params, overrides)
    entry = ctx.ledger.lose(ctx.workspace.release_id(release), reason)
    show(out, f"{entry.release_id} is {entry.state.value}; its cost stays charged")


@ledger_app.command("verify")
def ledger_verify(params: Params = PARAMS, overrides: Overrides = None) -> None:
    """Check the hash chain of the whole ledger, and that it knows the releases that are here."""
    ctx = _context(params, overrides)
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


@lineage_app.command("sync")
def lineage_sync(
    release: Annotated[
        str | None,
        typer.Argument(
            metavar="[RELEASE]",
            help="Id or folder of one; by default all that are here.",
            autocompletion=_known_here,
        ),
    ] = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
) -> None:
    """Write to MLflow what finished releases should have there and have not."""
    from privsyn.stages.lineage_sync import sync

    ctx = _context(params, overrides)
    names = sync(ctx, ctx.workspace.release_id(release) if release else None)
    show(out, f"the lineage of {len(names)} release(s) is whole in MLflow")


def _read_plan(path: Path) -> Plan | StudentPlan:
    from pydantic import ValidationError

    from privsyn.release import read_plan

    try:
        return read_plan(read_file(path))
    except FileNotFoundError:
        raise ConfigError(
            f"plan file {path} does not exist.", hint="Write it with: privsyn stage plan"
        ) from None
    except OSError as error:
        raise ConfigError(f"plan file {path} cannot be read: {error.strerror}.") from None
    except ValidationError:
        raise ConfigError(
            f"plan file {path} is not a plan.", hint="Write it anew with: privsyn stage plan"
        ) from None


def _error_line(error: PrivsynError) -> str:
    """One line for a person; for a scheduler one JSON object, whose class decides on a retry."""
    if "PRIVSYN_ORIGIN" in os.environ:
        return json.dumps(
            {"error": type(error).__name__, "message": error.message, "hint": error.hint}
        )
    return f"privsyn: {_one_line(str(error))}"


def _one_line(text: str) -> str:
    """A message on one line, whatever it quotes: a file's name may hold a line break."""
    return " ".join(text.split())


_UsageError = typer.BadParameter.__mro__[1]
"""What the command line's parser raises: a class of click's, or of the copy typer carries."""


def main() -> NoReturn:
    """Run the command line. A user's mistake is one line and an exit code, never a traceback."""
    try:
        code = app(standalone_mode=False)
    except PrivsynError as error:
        print(_error_line(error), file=sys.stderr)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        if isinstance(error, _UsageError):
            _say_usage(error)
            sys.exit(2)
        # A foreign message may hold record text, so only its type and place are shown.
        if os.environ.get("PRIVSYN_DEBUG"):
            raise
        where = traceback.extract_tb(error.__traceback__)[-1]
        print(
            f"privsyn: {type(error).__name__} in {Path(where.filename).name}, line {where.lineno}. "
            "This is a defect; PRIVSYN_DEBUG=1 shows the traceback, which may hold private text.",
            file=sys.stderr,
        )
        sys.exit(1)
    if code == INTERRUPTED:
        print("privsyn: interrupted; run the same command again to resume.", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _say_usage(error: Any) -> None:
    """What is wrong with the words of a command: one line; the help where no word was given."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    context = error.ctx
    hint = f" See: {context.command_path} --help" if context else ""
    print(f"privsyn: {_one_line(error.format_message())}{hint}", file=sys.stderr)
