"""`privsyn stage`: one stage, as dvc.yaml and Airflow call it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from privsyn.cli.options import PARAMS, Day, Overrides, Params, context_of, err, one_of, out
from privsyn.display.progress import show_progress
from privsyn.display.tables import show
from privsyn.dp.accountant import format_epsilon
from privsyn.errors import ConfigError
from privsyn.files import read_file
from privsyn.methods.registry import METHODS
from privsyn.methods.shared.distill import STUDENTS
from privsyn.progress import under_way
from privsyn.release.plan import Plan

if TYPE_CHECKING:
    from privsyn.stages.base import Context
    from privsyn.students.release import StudentPlan

    Run = Callable[[Context, Any], str | None]
    Command = Callable[..., None]

stage_app = typer.Typer(help="Run one stage, as dvc.yaml and Airflow do.", no_args_is_help=True)

StageMethod = Annotated[str | None, one_of([*METHODS, STUDENTS])]

PlanFile = Annotated[
    Path,
    typer.Option(
        "--plan",
        help="Plan file, as `stage plan` writes it; or the id of a release that is here or stored.",
    ),
]


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
    from privsyn.stages.plan import plan, refuse_pipeline
    from privsyn.students.release import plan_with_teacher

    ctx = context_of(params, overrides, day)
    method = method or ctx.config.first_method
    file = target or ctx.workspace.plan(method)
    refuse_pipeline(ctx, method)
    with show_progress(err) as progress, under_way(progress, f"plan {method}: noise and cost"):
        planned = (
            plan_with_teacher(ctx) if method == STUDENTS else plan(ctx, method, open_account=True)
        )
    write_json_atomic(file, planned.model_dump(mode="json"))
    cost = f"epsilon {format_epsilon(planned.epsilon)}, " if isinstance(planned, Plan) else ""
    show(out, f"{planned.id}: {cost}plan in {file}")


def _stage(name: str, *, of_students: bool = False) -> Callable[[Run], Command]:
    """Makes a command of what runs a stage on a plan, and shows what that returns."""

    def add(run: Run) -> Command:
        def command(
            plan_file: PlanFile, params: Params = PARAMS, overrides: Overrides = None
        ) -> None:
            planned = _read_plan(plan_file, params, overrides)
            with show_progress(err) as progress, under_way(progress, name):
                ctx = context_of(params, overrides, progress=progress)
                line = run(ctx, planned if of_students else _of_release(planned, plan_file))
            if line is not None:
                show(out, line)

        command.__doc__ = run.__doc__
        return stage_app.command(name)(command)

    return add


@_stage("preflight")
def stage_preflight(ctx: Context, planned: Plan) -> None:
    """Try models, grammar and folders on public inputs, before a release begins."""
    from privsyn.stages.preflight import preflight

    preflight(ctx, planned)


@_stage("partition")
def stage_partition(ctx: Context, planned: Plan) -> None:
    """Begin a reserved release and sort its records, for which a model answers columns."""
    from privsyn.stages.partition import partition

    partition(ctx, planned)


@_stage("train")
def stage_train(ctx: Context, planned: Plan) -> None:
    """Train the model of a started release, if its method trains one."""
    from privsyn.stages.draw import train

    train(ctx, planned)


@stage_app.command("generate")
def stage_generate(
    plan_file: PlanFile,
    shard: Annotated[
        int | None, typer.Option(min=0, help="Draw one shard of a begun release and stop.")
    ] = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
) -> None:
    """Draw a release: reserve, partition, train, generate, certify, copy to synthetic/<method>."""
    from privsyn.stages.draw import generate
    from privsyn.stages.folder import export
    from privsyn.stages.run import draw_and_settle
    from privsyn.students.release import make_and_check

    with show_progress(err) as progress:
        planned = _read_plan(plan_file, params, overrides)
        ctx = context_of(params, overrides, progress=progress)
        if not isinstance(planned, Plan):
            draw_and_settle(ctx, planned.parent)
            make_and_check(ctx, planned)
        elif shard is not None:
            with under_way(progress, "generate"):
                generate(ctx, planned, shard)
        else:
            draw_and_settle(ctx, planned)
            # With overrides that shape the output it is not what params.yaml says, and dvc.lock
            # must not claim that it is.
            if ctx.as_filed:
                export(ctx, planned)


@_stage("validate", of_students=True)
def stage_validate(ctx: Context, planned: Plan | StudentPlan) -> str:
    """Run the Great Expectations suite on a committed release."""
    from privsyn.stages.validate import validate
    from privsyn.students.release import validate_student

    if isinstance(planned, Plan):
        folder = validate(ctx, planned)
    else:
        folder = validate_student(ctx, planned, filed=ctx.as_filed)
    return f"valid: {folder / 'report.html'}"


@_stage("evaluate", of_students=True)
def stage_evaluate(ctx: Context, planned: Plan | StudentPlan) -> str:
    """Measure a committed release against held-out real records (internal)."""
    from privsyn.stages.evaluate import evaluate, log_line
    from privsyn.students.evaluate import evaluate_student

    if isinstance(planned, Plan):
        folder = evaluate(ctx, planned, retried=ctx.origin.get("driver") == "airflow")
    else:
        folder = evaluate_student(ctx, planned.id)
    return log_line(folder)


@_stage("publish", of_students=True)
def stage_publish(ctx: Context, planned: Plan | StudentPlan) -> str:
    """Version a validated release with DVC and push it."""
    from privsyn.stages.publish import publish
    from privsyn.students.release import publish_student

    if isinstance(planned, Plan):
        answer = publish(ctx, planned)
    else:
        answer = publish_student(ctx, planned)
    return json.dumps(answer, indent=2)


def _of_release(planned: Plan | StudentPlan, file: Path) -> Plan:
    """The plan of a release.

    Raises:
        ConfigError: It plans something else.
    """
    if not isinstance(planned, Plan):
        raise ConfigError(
            f"{file} plans what is made from release {planned.parent.id} ({planned.method}), which "
            "spends nothing and has no such stage.",
            hint=f"Run: privsyn stage generate --plan {file}",
        )
    return planned


def _read_plan(path: Path, params: Path, overrides: list[str] | None) -> Plan | StudentPlan:
    """A plan from its file; of a release from the store, or from its certificate here.

    Raises:
        ConfigError: There is no such file, or it is no plan.
        VerificationError: What is stored is no plan of that release, or the release was changed.
    """
    from privsyn.students.parent import open_parent
    from privsyn.students.release import read_plan

    try:
        return read_plan(read_file(path))
    except FileNotFoundError:
        ctx = context_of(params, overrides) if params.is_file() else None
        # Not a file: on another machine than the planner's, --plan is a release's id.
        store = None if ctx is None else ctx.workspace.store
        stored = None if store is None else store.plan(str(path))
        if stored is not None:
            return stored
        # `privsyn run` leaves no plan file.
        if ctx is not None and path.name == str(path) and ctx.workspace.here_in(path.name):
            return open_parent(ctx, path.name).plan
        raise ConfigError(
            f"plan file {path} does not exist.", hint="Write it with: privsyn stage plan"
        ) from None
    except OSError as error:
        raise ConfigError(f"plan file {path} cannot be read: {error.strerror}.") from None
    except ValidationError:
        raise ConfigError(
            f"plan file {path} is not a plan.", hint="Write it anew with: privsyn stage plan"
        ) from None
