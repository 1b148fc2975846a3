"""What commands share: their options, the two consoles, and the context they open."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date as Date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from privsyn.config import environment_overrides, load_config
from privsyn.errors import ConfigError
from privsyn.methods.registry import METHODS
from privsyn.models.training.distributed.rank_processes import by_hand, check_network, joined
from privsyn.release.workspace import Workspace

if TYPE_CHECKING:
    from privsyn.models.training.distributed.held_units import Units
    from privsyn.models.training.distributed.rank import Rank
    from privsyn.models.training.distributed.rank_group import Group
    from privsyn.stages.base import Context, Progress


def known_here() -> list[str]:
    """Releases of the project in the working folder, for the shell's completion."""
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

Epsilon = Annotated[
    float | None,
    typer.Option("--epsilon", help="Cost of the release: -S privacy.epsilon=N."),
]

Texts = Annotated[
    int | None,
    typer.Option(
        "--texts",
        help="How many synthetic records; sizes of the method go along, by account.public_size.",
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

INTERRUPTED = 130

out, err = Console(), Console(stderr=True)


def context_of(
    params: Path,
    overrides: list[str] | None,
    day: str | None = None,
    progress: Progress | None = None,
    group: Group | None = None,
) -> Context:
    """The project that a command works on, with what the environment overrides."""
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


def chosen(
    params: Path,
    overrides: list[str] | None,
    method: str | None,
    epsilon: float | None,
    texts: int | None,
    *,
    every: bool = False,
) -> list[str]:
    """The overrides of a command, with what ``--epsilon`` and ``--texts`` stand for.

    Args:
        params: The config file.
        overrides: Of ``-S``: they hold where ``--texts`` would set the same.
        method: The method, or None for the first of the pipeline.
        epsilon: Of the release.
        texts: How many records it is to hold.
        every: Whether all methods of the pipeline are meant.
    """
    given = [*(overrides or ()), *([] if epsilon is None else [f"privacy.epsilon={epsilon!r}"])]
    if texts is None:
        return given
    from privsyn.stages.plan import for_texts

    config = load_config(params, [*environment_overrides(), *given])
    names = [name for name in config.pipeline if name in METHODS] if every else []
    names = names or [method or config.first_method]
    return [*(item for name in names for item in for_texts(config, name, texts)), *given]


def workspace_of(params: Path) -> Workspace:
    """The paths of a project, also where there is no params.yaml and so no store of releases."""
    if not params.is_file():
        return Workspace(params.parent)
    return replace(context_of(params, None).workspace, root=params.parent)


@contextmanager
def ranks(params: Path, overrides: list[str] | None) -> Iterator[Group | None]:
    """The processes torchrun started; each but the first helps the first to train, and exits.

    Raises:
        ConfigError: They are on several machines, and what they send could be read.
    """
    place = by_hand()
    if place is None:
        yield None
        return
    secret = None if place.alone else _network(place, params, overrides)
    with joined(place, secret=secret) as group:
        if place.rank > 0:
            from privsyn.models.training.distributed.ranks import serve
            from privsyn.stages.spread import read_units

            def records(request: Mapping[str, Any], shards: Sequence[int]) -> Units:
                return read_units(context_of(params, overrides), request, shards)

            # Rank 0 says with which model and settings.
            serve(group, records if params.is_file() else None)
            raise typer.Exit
        yield group


def _network(place: Rank, params: Path, overrides: list[str] | None) -> bytes | None:
    """What messages between machines are sealed with; None where the user vouches for the network.

    Each process decides by the settings of its own machine: none sends in clear because another
    one asks it to. One that has no project goes by the environment and the command line.
    """
    from privsyn.vault.deployment_key import VARIABLE, load

    settings = [*environment_overrides(), *(overrides or ())]
    if params.is_file():
        config = load_config(params, settings)
        insecure, file = config.performance.rendezvous_insecure, config.services.vault_key
        if file is not None:
            file = params.parent / file
    else:
        insecure, file = "performance.rendezvous_insecure=true" in settings, None
    known = file is not None or bool(os.environ.get(VARIABLE))
    secret = load(file).secret if known and not insecure else None
    check_network(place, insecure=insecure, secret=secret)
    return secret


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
