"""What commands share: their options, the two consoles, and the context they open."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import replace
from datetime import date as Date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from privsyn.config import environment_overrides, load_config
from privsyn.errors import ConfigError
from privsyn.methods.registry import METHODS
from privsyn.release.workspace import Workspace

if TYPE_CHECKING:
    from privsyn.display.tables import Displayable
    from privsyn.progress import Progress
    from privsyn.stages.base import Context


def known_here() -> list[str]:
    """Releases of the project in the working folder, for the shell's completion."""
    return Workspace(Path()).release_ids()


Params = Annotated[Path, typer.Option("--params", help="The config file.")]

Overrides = Annotated[
    list[str] | None, typer.Option("-S", "--set", metavar="a.b.c=value", help="Override a setting.")
]


def one_of(names: Collection[str]) -> Any:
    """The option that names a method."""
    return typer.Option(
        "--method",
        "-m",
        metavar="METHOD",
        help=f"One of {', '.join(names)}. By default the first of `pipeline` in params.yaml.",
        autocompletion=lambda: list(names),
    )


MethodName = Annotated[str | None, one_of(METHODS)]

Epsilon = Annotated[
    float | None,
    typer.Option("--epsilon", help="Cost of the release: -S privacy.epsilon=N."),
]

Texts = Annotated[
    int | None,
    typer.Option(
        "--texts",
        help="Number of synthetic records. Scales the method's sizes, by account.public_size.",
    ),
]

Day = Annotated[
    str | None, typer.Option("--date", metavar="YYYY-MM-DD", help="Logical date of the run.")
]

Release = Annotated[
    str,
    typer.Argument(metavar="RELEASE", help="Id or folder of a release.", autocompletion=known_here),
]

Publish = Annotated[
    bool, typer.Option("--publish/--no-publish", help="Publish with DVC at the end.")
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

PARAMS = Path("params.yaml")

out, err = Console(), Console(stderr=True)


def show_result(result: Displayable, *, as_json: bool) -> None:
    """Print what a command found out, as Python shows it too: as tables, or as JSON."""
    if as_json:
        print(json.dumps(result.as_json(), indent=2))
    else:
        result.print(out)


def context_of(
    params: Path,
    overrides: list[str] | None,
    day: str | None = None,
    progress: Progress | None = None,
) -> Context:
    """The project that a command works on, with what the environment overrides."""
    from privsyn.stages.base import open_context

    # In this order: what the user of a command says holds over what the machine says.
    settings = [*environment_overrides(), *(overrides or ())]
    return open_context(params, settings, day=_day(day), progress=progress, origin=_origin())


def chosen(
    params: Path,
    overrides: list[str] | None,
    method: str | None,
    epsilon: float | None,
    texts: int | None,
    *,
    every: bool = False,
) -> list[str]:
    """The overrides of a command, with what its other options stand for.

    Args:
        params: The config file.
        overrides: Of ``-S``: they hold where ``--texts`` would set the same.
        method: The method, or None for the first of the pipeline.
        epsilon: Of the release.
        texts: How many records it is to hold.
        every: Whether all methods of the pipeline are meant.
    """
    given = list(overrides or ())
    given += [] if epsilon is None else [f"privacy.epsilon={epsilon}"]
    if texts is None:
        return given
    from privsyn.stages.plan import methods_of, sized

    config = load_config(params, [*environment_overrides(), *given])
    names = methods_of(config) if every else [method or config.first_method]
    # The user's own -S come last and hold where --texts would set the same.
    return [*sized(config, texts, names), *given]


def workspace_of(params: Path) -> Workspace:
    """The paths of a project, also where there is no params.yaml and so no store of releases."""
    if not params.is_file():
        return Workspace(params.parent)
    return replace(context_of(params, None).workspace, root=params.parent)


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
