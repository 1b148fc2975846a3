"""`privsyn stage`: one stage, as dvc.yaml and Airflow call it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from privsyn.cli.options import PARAMS, Day, Overrides, Params, context_of, err, out, ranks
from privsyn.derived.kinds import SECTIONS
from privsyn.dp.accountant import shown
from privsyn.errors import ConfigError
from privsyn.files import read_file
from privsyn.methods.registry import METHODS
from privsyn.progress import show_progress, under_way
from privsyn.release.plan import Plan
from privsyn.tables import show

if TYPE_CHECKING:
    from privsyn.derived.base import DerivedPlan

stage_app = typer.Typer(help="One stage, as dvc.yaml and Airflow call it.", no_args_is_help=True)

StageMethod = Annotated[
    str | None,
    typer.Option(
        "--method",
        "-m",
        metavar="METHOD",
        help=f"One of {', '.join([*METHODS, *SECTIONS])}. By default the first of `pipeline`.",
        autocompletion=lambda: [*METHODS, *SECTIONS],
    ),
]

PlanFile = Annotated[
    Path,
    typer.Option(
        "--plan",
        help="Plan file, as `stage plan` writes it; or a release's id, whose plan is stored.",
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
    from privsyn.derived.base import work_named
    from privsyn.release.plan import Plan

    ctx = context_of(params, overrides, day)
    method = method or ctx.config.first_method
    file = target or ctx.workspace.plan(method)
    with show_progress(err) as progress, under_way(progress, f"plan {method}: noise and cost"):
        planned = work_named(method).described(ctx)
    write_json_atomic(file, planned.model_dump(mode="json"))
    cost = f"epsilon {shown(planned.epsilon)}, " if isinstance(planned, Plan) else ""
    show(out, f"{planned.id}: {cost}plan in {file}")


@stage_app.command("preflight")
def stage_preflight(
    plan_file: PlanFile, params: Params = PARAMS, overrides: Overrides = None
) -> None:
    """Try models, grammar and folders on public inputs, before a release begins."""
    from privsyn.stages.preflight import preflight

    planned = _read_release(plan_file, params, overrides)
    with show_progress(err) as progress, under_way(progress, "preflight"):
        preflight(context_of(params, overrides, progress=progress), planned)


@stage_app.command("train")
def stage_train(plan_file: PlanFile, params: Params = PARAMS, overrides: Overrides = None) -> None:
    """Train the model of a begun release, for methods that train one. May be run by torchrun."""
    from privsyn.stages.train import train

    with ranks(params, overrides) as group, show_progress(err) as progress:
        planned = _read_release(plan_file, params, overrides)
        with under_way(progress, "train"):
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
    from privsyn.derived.base import work_of
    from privsyn.release.plan import Plan
    from privsyn.stages.generate import generate

    with ranks(params, overrides) as group, show_progress(err) as progress:
        planned = _read_plan(plan_file, params, overrides)
        ctx = context_of(params, overrides, progress=progress, group=group)
        work = work_of(planned)
        if group is not None and (work.one_process or shard is not None):
            group.close()  # the rest is one process's work
        if shard is not None and isinstance(planned, Plan):
            with under_way(progress, "generate"):
                generate(ctx, planned, shard)
            return
        work.draw(ctx, planned)


@stage_app.command("validate")
def stage_validate(
    plan_file: PlanFile, params: Params = PARAMS, overrides: Overrides = None
) -> None:
    """Run the Great Expectations suite on a committed release."""
    from privsyn.derived.base import work_of

    planned = _read_plan(plan_file, params, overrides)
    with show_progress(err) as progress, under_way(progress, "validate"):
        ctx = context_of(params, overrides, progress=progress)
        folder = work_of(planned).validate(ctx, planned)
    show(out, f"valid: {folder / 'report.html'}")


@stage_app.command("evaluate")
def stage_evaluate(
    plan_file: PlanFile, params: Params = PARAMS, overrides: Overrides = None
) -> None:
    """Measure a committed release against held-out real records (internal)."""
    from privsyn.derived.base import work_of
    from privsyn.stages.evaluate import said

    planned = _read_plan(plan_file, params, overrides)
    with show_progress(err) as progress, under_way(progress, "evaluate"):
        ctx = context_of(params, overrides, progress=progress)
        folder = work_of(planned).evaluate(ctx, planned)
    show(out, said(folder))


@stage_app.command("publish")
def stage_publish(
    plan_file: PlanFile, params: Params = PARAMS, overrides: Overrides = None
) -> None:
    """Version a validated release with DVC and push it."""
    from privsyn.derived.base import work_of

    planned = _read_plan(plan_file, params, overrides)
    with show_progress(err) as progress, under_way(progress, "publish"):
        ctx = context_of(params, overrides, progress=progress)
        answer = work_of(planned).publish(ctx, planned)
    show(out, json.dumps(answer, indent=2))


def _read_release(path: Path, params: Path, overrides: list[str] | None) -> Plan:
    """The plan of a release.

    Raises:
        ConfigError: It plans something else, or see _read_plan.
    """
    from privsyn.release.plan import Plan

    planned = _read_plan(path, params, overrides)
    if not isinstance(planned, Plan):
        raise ConfigError(
            f"{path} plans what is made from release {planned.parent.id} ({planned.method}), which "
            "spends nothing and has no such stage.",
            hint=f"Run: privsyn stage generate --plan {path}",
        )
    return planned


def _read_plan(path: Path, params: Path, overrides: list[str] | None) -> Plan | DerivedPlan:
    """A plan from its file, or of a release from the store.

    Raises:
        ConfigError: There is no such file, or it is no plan.
        VerificationError: What is stored is no plan of that release.
    """
    from privsyn.derived.base import read_plan

    try:
        return read_plan(read_file(path))
    except FileNotFoundError:
        store = context_of(params, overrides).workspace.store if params.is_file() else None
        stored = None if store is None else store.plan(str(path))
        if stored is not None:
            return stored
        raise ConfigError(
            f"plan file {path} does not exist.", hint="Write it with: privsyn stage plan"
        ) from None
    except OSError as error:
        raise ConfigError(f"plan file {path} cannot be read: {error.strerror}.") from None
    except ValidationError:
        raise ConfigError(
            f"plan file {path} is not a plan.", hint="Write it anew with: privsyn stage plan"
        ) from None
