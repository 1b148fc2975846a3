"""`privsyn stage`: one stage, as dvc.yaml and Airflow call it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from privsyn.cli.options import PARAMS, Day, Overrides, Params, context_of, err, out, ranks
from privsyn.data.artifacts import write_json_atomic
from privsyn.dp.accountant import shown
from privsyn.errors import ConfigError
from privsyn.files import read_file
from privsyn.methods.base import METHODS, SETTINGS
from privsyn.progress import show_progress
from privsyn.release.plan import Plan, StudentPlan, read_plan
from privsyn.tables import show

stage_app = typer.Typer(help="One stage, as dvc.yaml and Airflow call it.", no_args_is_help=True)

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

PlanFile = Annotated[Path, typer.Option("--plan", help="Plan file, as `stage plan` writes it.")]


@stage_app.command("plan")
def stage_plan(
    method: StageMethod = None,
    target: Annotated[Path | None, typer.Option("--out", help="Where to write the plan.")] = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
    day: Day = None,
) -> None:
    """Write the data-free plan of a release, opening its account."""
    from privsyn.stages.plan import plan as make_plan

    ctx = context_of(params, overrides, day)
    method = method or ctx.config.first_method
    file = target or ctx.workspace.plan(method)
    if method == "distill":
        from privsyn.derived.student.release import plan_with_teacher

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
    from privsyn.stages.preflight import preflight

    planned = _read_plan(plan_file)
    if isinstance(planned, StudentPlan):
        raise ConfigError(f"{plan_file} plans a student, which spends nothing.")
    preflight(context_of(params, overrides), planned)


@stage_app.command("train")
def stage_train(plan_file: PlanFile, params: Params = PARAMS, overrides: Overrides = None) -> None:
    """Train the model of a begun release, for methods that train one. May be run by torchrun."""
    from privsyn.stages.train import train

    with ranks() as group, show_progress(err) as progress:
        planned = _read_plan(plan_file)
        if isinstance(planned, StudentPlan):
            raise ConfigError(
                f"{plan_file} plans a student, which is trained by the stage generate."
            )
        train(context_of(params, overrides, progress=progress, group=group), planned)


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
    from privsyn.stages.certify import export
    from privsyn.stages.generate import generate
    from privsyn.stages.reserve import settle
    from privsyn.stages.run import draw

    with ranks() as group, show_progress(err) as progress:
        planned = _read_plan(plan_file)
        ctx = context_of(params, overrides, progress=progress, group=group)
        if group is not None and (isinstance(planned, StudentPlan) or shard is not None):
            group.close()  # these stages are one process's work
        if isinstance(planned, StudentPlan):
            from privsyn.derived.student.release import draw_student

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
    from privsyn.stages.validate import validate

    ctx, planned = context_of(params, overrides), _read_plan(plan_file)
    if isinstance(planned, StudentPlan):
        from privsyn.derived.student.validate import validate_student

        folder = validate_student(ctx, planned, filed=ctx.as_filed)
    else:
        folder = validate(ctx, planned)
    show(out, f"valid: {folder / 'validation.html'}")


@stage_app.command("evaluate")
def stage_evaluate(
    plan_file: PlanFile, params: Params = PARAMS, overrides: Overrides = None
) -> None:
    """Measure a committed release against held-out real records (internal)."""
    from privsyn.stages.evaluate import evaluate, said

    ctx, planned = context_of(params, overrides), _read_plan(plan_file)
    if isinstance(planned, StudentPlan):
        from privsyn.derived.student.evaluate import evaluate_student

        folder = evaluate_student(ctx, planned.id)
    else:
        folder = evaluate(ctx, planned)
    show(out, said(folder))


@stage_app.command("publish")
def stage_publish(
    plan_file: PlanFile, params: Params = PARAMS, overrides: Overrides = None
) -> None:
    """Version a validated release with DVC and push it."""
    from privsyn.stages.publish import publish

    ctx, planned = context_of(params, overrides), _read_plan(plan_file)
    if isinstance(planned, StudentPlan):
        from privsyn.derived.student.release import publish_student

        answer = publish_student(ctx, planned)
    else:
        answer = publish(ctx, planned)
    show(out, json.dumps(answer, indent=2))


def _read_plan(path: Path) -> Plan | StudentPlan:
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
