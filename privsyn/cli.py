"""The command line. Every command is a thin driver of the stage functions."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date as Date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from privsyn.dp.accountant import shown
from privsyn.errors import ConfigError, PrivsynError
from privsyn.progress import show_progress

if TYPE_CHECKING:
    from privsyn.backends.rank_group import Group
    from privsyn.release import Plan, StudentPlan
    from privsyn.stages.base import Context, Progress

app = typer.Typer(
    name="privsyn",
    help="Differentially private synthetic data: plan, draw, certify, verify.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
stage_app = typer.Typer(help="One stage, as dvc.yaml and Airflow call it.", no_args_is_help=True)
ledger_app = typer.Typer(help="The budget ledger.", no_args_is_help=True)
app.add_typer(stage_app, name="stage")
app.add_typer(ledger_app, name="ledger")

Params = Annotated[Path, typer.Option("--params", help="The config file.")]
Overrides = Annotated[
    list[str] | None, typer.Option("-S", "--set", metavar="a.b.c=value", help="Override a setting.")
]
MethodName = Annotated[str, typer.Option("--method", "-m", help="Which method.")]
Day = Annotated[
    str | None, typer.Option("--date", metavar="YYYY-MM-DD", help="Logical date of the run.")
]
PlanFile = Annotated[Path, typer.Option("--plan", help="Plan file, as `stage plan` writes it.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

PARAMS = Path("params.yaml")
out, err = Console(), Console(stderr=True)


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
    """Facts of the scheduler that started this process, for lineage."""
    raw = os.environ.get("PRIVSYN_ORIGIN")
    return dict(json.loads(raw)) if raw else {"driver": "cli"}


@app.command()
def plan(
    method: MethodName = "invisible_ink",
    params: Params = PARAMS,
    overrides: Overrides = None,
    day: Day = None,
    as_json: Json = False,
) -> None:
    """Print what a release would cost and whether it fits. Opens no data file."""
    from privsyn.stages.plan import plan as make_plan
    from privsyn.stages.plan import preview, report

    ctx = _context(params, overrides, day)
    planned = make_plan(ctx, method)
    answer = report(planned, preview(ctx, planned))
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    table = Table(title=f"{method}: what it would cost", show_header=False, title_justify="left")
    account = answer["account"]
    rows = {
        "release": planned.release_id or "named when the account is opened",
        "guarantee": f"epsilon {shown(planned.epsilon)}, delta {planned.delta:g}, per "
        f"{planned.unit} (at most {planned.max_records_per_unit} record(s)), {planned.adjacency}",
        "rho (zCDP)": f"{planned.rho:.6g}" if planned.rho is not None else "-",
        **{key: f"{value:.6g}" for key, value in planned.derived.items()},
        "synthetic rows": planned.rows_said,
        "account": f"{planned.account}: cap epsilon {account['cap']['epsilon']:g}, "
        f"{account['share']:.0%} spent, room for one more release of epsilon "
        f"{account['left']:.4g}",
        "fits": "yes" if account["fits"] else "no",
    }
    for key, value in rows.items():
        table.add_row(key, value)
    out.print(table)
    for warning in planned.warnings:
        out.print(f"note: {warning}", highlight=False)


@app.command()
def run(
    method: MethodName = "invisible_ink",
    params: Params = PARAMS,
    overrides: Overrides = None,
    day: Day = None,
    publish: Annotated[bool, typer.Option(help="Publish with DVC at the end.")] = True,
) -> None:
    """Make one release: plan, draw, certify, validate, evaluate, publish."""
    from privsyn.stages.run import run as run_stages
    from privsyn.stages.summary import summary

    with show_progress(err) as progress:
        ctx = _context(params, overrides, day, progress)
        planned = run_stages(ctx, method, published=publish)
    out.print(summary(ctx, planned))


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(metavar="RELEASE_DIR", help="Folder of a release.")],
    ledger: Annotated[
        str | None, typer.Option("--ledger", metavar="URL", help="Ledger to check the row in.")
    ] = None,
    params: Params = PARAMS,
    as_json: Json = False,
) -> None:
    """Check a release against its certificate and, where there is one, the ledger."""
    from privsyn import certificate
    from privsyn.ledger import open_ledger

    book = None
    if ledger is not None:
        book = open_ledger(ledger)
    elif params.is_file():
        ctx = _context(params, None)
        if ctx.config.services.ledger or (ctx.workspace.state / "ledger.db").exists():
            book = ctx.ledger
    checks = certificate.verify(folder, book)
    if as_json:
        print(json.dumps([check.__dict__ for check in checks], indent=2))
    else:
        marks = {True: "[green]ok[/]", False: "[red]FAILED[/]", None: "[yellow]not checked[/]"}
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        for check in checks:
            table.add_row(marks[check.passed], check.name, check.detail)
        out.print(table)
    certificate.raise_failed(folder, checks)
    if not as_json:
        sealed = certificate.read(folder)[1]
        cost = certificate.origin(sealed)["plan"]
        out.print(
            f"{sealed['class']}: epsilon {shown(cost['epsilon'])}, delta {cost['delta']:g}, "
            f"per {cost['unit']}, {cost['adjacency']}",
            highlight=False,
        )


@app.command("sample-data")
def sample_data(
    target: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Where to write. By default messages.jsonl or digits.npz, .privsyn/sample/.",
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, max=1_000_000, help="Messages.")] = 4000,
    seed: Annotated[int, typer.Option(help="Seed of the generator of messages.")] = 7,
    images: Annotated[bool, typer.Option("--images", help="Scans of digits, not texts.")] = False,
) -> None:
    """Write invented patient-portal messages, or scans of digits, to try everything on."""
    if images:
        from privsyn.data.digits import write_digits

        target = target or Path(".privsyn/sample/digits.npz")
        out.print(f"wrote {write_digits(target)} scans of digits to {target}", highlight=False)
        return
    from privsyn.data.sample import write_sample

    target = target or Path(".privsyn/sample/messages.jsonl")
    written = write_sample(target, rows=rows, seed=seed)
    out.print(
        f"wrote {written.rows} messages of {written.patients} invented patients to {target}",
        highlight=False,
    )


@app.command()
def more(
    release_id: Annotated[str, typer.Argument(help="A finished release.")],
    number: Annotated[int, typer.Option("--n", "-n", min=1, help="New records.")],
    params: Params = PARAMS,
    overrides: Overrides = None,
    publish: Annotated[bool, typer.Option(help="Publish with DVC at the end.")] = True,
) -> None:
    """Make further records from a release, at no cost: its certificate names the release."""
    from privsyn.stages.more import more as make_more

    with show_progress(err) as progress:
        folder = make_more(
            _context(params, overrides, None, progress), release_id, number, published=publish
        )
    out.print(f"{number} records in {folder}; check with: privsyn verify {folder}", highlight=False)


@app.command()
def distill(
    release_id: Annotated[
        str, typer.Argument(metavar="RELEASE", help="A finished release of texts.")
    ],
    params: Params = PARAMS,
    overrides: Overrides = None,
    publish: Annotated[bool, typer.Option(help="Publish with DVC at the end.")] = True,
    evaluate: Annotated[bool, typer.Option(help="Measure it on held-out real texts.")] = True,
) -> None:
    """Train a small language model on a release's texts, at no cost (methods.distill)."""
    from privsyn import certificate
    from privsyn.stages.distill import distill as make_student
    from privsyn.stages.evaluate import EVALUATION
    from privsyn.stages.evaluate_student import evaluate_student

    with show_progress(err) as progress:
        ctx = _context(params, overrides, None, progress)
        folder = make_student(ctx, release_id, published=publish)
        measured = evaluate_student(ctx, folder.name) if evaluate else None
    made = certificate.read(folder)[1]["derived"]["distill"]["student"]
    table = Table(title="Student", show_header=False, title_justify="left")
    rows = {
        "student": folder.name,
        "parameters": f"{made['parameters']:,}, {made['vocabulary']:,} tokens",
        "trained on": f"{made['texts']:,} synthetic texts, {made['tokens']:,} tokens, "
        f"{made['steps']:,} steps; {made['loss']:.3f} nats a token at the end",
        "cost": "none: it has its parent's guarantee",
        "model": str(folder / certificate.MODEL),
        "evaluation (internal)": str(measured / EVALUATION) if measured else "none",
        "check": f"privsyn verify {folder}",
        "use": f"privsyn run -S models.language={folder / certificate.MODEL}",
    }
    for key, value in rows.items():
        table.add_row(key, value)
    out.print(table)


@app.command()
def restore(
    release_id: Annotated[str, typer.Argument(help="Release to bring back.")],
    params: Params = PARAMS,
) -> None:
    """Bring a published release back from the DVC remote."""
    from privsyn.stages.publish import restore as bring_back

    folder = bring_back(_context(params, None), release_id)
    out.print(f"{folder} is back; check it with: privsyn verify {folder}", highlight=False)


@stage_app.command("plan")
def stage_plan(
    method: MethodName = "invisible_ink",
    target: Annotated[Path | None, typer.Option("--out", help="Where to write the plan.")] = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
    day: Day = None,
) -> None:
    """Write the data-free plan of a release, opening its account."""
    from privsyn.data.artifacts import write_json_atomic
    from privsyn.stages.plan import plan as make_plan

    ctx = _context(params, overrides, day)
    file = target or ctx.workspace.plan(method)
    if method == "distill":
        from privsyn.stages.distill import plan_with_teacher

        student = plan_with_teacher(ctx)
        write_json_atomic(file, student.model_dump(mode="json"))
        out.print(f"{student.id}: plan in {file}", highlight=False)
        return
    planned = make_plan(ctx, method, open_account=True)
    write_json_atomic(file, planned.model_dump(mode="json"))
    out.print(f"{planned.id}: epsilon {shown(planned.epsilon)}, plan in {file}", highlight=False)


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
    out.print(f"valid: {folder / 'validation.html'}", highlight=False)


@stage_app.command("evaluate")
def stage_evaluate(
    plan_file: PlanFile, params: Params = PARAMS, overrides: Overrides = None
) -> None:
    """Measure a committed release against held-out real records (internal)."""
    from privsyn.release import StudentPlan
    from privsyn.stages.evaluate import evaluate

    ctx, planned = _context(params, overrides), _read_plan(plan_file)
    if isinstance(planned, StudentPlan):
        from privsyn.stages.evaluate_student import evaluate_student

        folder = evaluate_student(ctx, planned.id)
    else:
        folder = evaluate(ctx, planned)
    out.print(f"internal numbers in {folder}" if folder else "nothing is held out", highlight=False)


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
    out.print(json.dumps(answer, indent=2), highlight=False)


@ledger_app.command("show")
def ledger_show(
    params: Params = PARAMS, overrides: Overrides = None, as_json: Json = False
) -> None:
    """Accounts, what is left of them, and their releases."""
    from privsyn.stages.summary import account_rows, accounts

    ledger = _context(params, overrides).ledger
    if as_json:
        print(json.dumps(account_rows(ledger), indent=2))
    else:
        out.print(accounts(ledger.statements()))


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
    release_id: Annotated[str, typer.Argument(help="A begun release that will not be resumed.")],
    reason: Annotated[str, typer.Option(help="Why.")] = "given up by hand",
    params: Params = PARAMS,
    overrides: Overrides = None,
) -> None:
    """Give a begun release up: its cost stays charged, and it can never be resumed."""
    entry = _context(params, overrides).ledger.lose(release_id, reason)
    out.print(f"{release_id} is {entry.state.value}; its cost stays charged", highlight=False)


@ledger_app.command("verify")
def ledger_verify(params: Params = PARAMS, overrides: Overrides = None) -> None:
    """Check the hash chain of the whole ledger."""
    audit = _context(params, overrides).ledger.verify()
    out.print(
        f"the chain holds: {audit.rows} rows, {audit.accounts} account(s), {audit.entries} "
        f"release(s), head {audit.head[:16]}",
        highlight=False,
    )


def _read_plan(path: Path) -> Plan | StudentPlan:
    from pydantic import ValidationError

    from privsyn.release import read_plan

    try:
        return read_plan(path.read_bytes())
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
    return f"privsyn: {error}"


def main() -> NoReturn:
    """Run the command line. A user's mistake is one line and an exit code, never a traceback."""
    try:
        app(standalone_mode=True)
    except PrivsynError as error:
        print(_error_line(error), file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("privsyn: interrupted; run the same command again to resume.", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
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
    sys.exit(0)
