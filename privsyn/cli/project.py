"""`privsyn init` and `sample-data`: where a project begins."""

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

from privsyn.api import interview, new_project
from privsyn.api.overrides import as_overrides
from privsyn.cli.options import MethodName, out
from privsyn.config import parse_config
from privsyn.data.artifacts import sha256_file
from privsyn.data.digits import write_digits
from privsyn.data.sample import write_sample
from privsyn.display.tables import Verbatim, facts, note, show
from privsyn.errors import ConfigError
from privsyn.methods.registry import FIRST
from privsyn.release.warnings import of_unit


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
    """Write invented patient-portal messages, or scans of digits, to try everything on.

    A file of other content is left as it is.
    """
    if images:
        target = target or Path(".privsyn/sample/digits.npz")
        scans = _write_new(target, write_digits)
        show(out, f"wrote {scans} scans of digits to {target}")
        return
    target = target or Path(".privsyn/sample/messages.jsonl")
    written = _write_new(target, lambda path: write_sample(path, rows=rows))
    show(out, f"wrote {written.rows} messages of {written.patients} invented patients to {target}")


T = TypeVar("T")


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
        typer.Option(
            metavar="WORDS",
            help="What one text is, in a few public English words with their article: an SMS.",
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column of the label, or none.")] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="A,B", help="All labels: public, never read from data.")
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(help="Column that says whose row it is: who is protected."),
    ] = None,
    rows_are_units: Annotated[
        bool,
        typer.Option(
            "--rows-are-units",
            help="There is none, and no two rows can be the same person's: rows are protected.",
        ),
    ] = False,
    protects: Annotated[
        str | None, typer.Option(metavar="WORD", help="What one of them is called: patient.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of dataset and account.")] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Of images: side in pixels they are brought to.")
    ] = None,
    public_size: Annotated[
        int | None,
        typer.Option(help="About how many of them there are: a number you may publish."),
    ] = None,
    texts: Annotated[
        int | None, typer.Option(help="How many synthetic records are wanted in all.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The language model, as models.language names it.")
    ] = None,
    settings: Annotated[
        str | None,
        typer.Option(
            metavar="SET",
            help="Values of the methods: paper or small. Without it by the model's size.",
        ),
    ] = None,
) -> None:
    """Create a project: params.yaml, dvc.yaml, dags, .gitignore. Asks for what is not given."""
    if rows_are_units and unit is not None:
        raise ConfigError(f"--rows-are-units and --unit={unit} exclude each other.")
    given = {
        "text": text,
        "document": document,
        "label": label,
        "labels": labels,
        "unit": unit,
        "protects": protects,
        "name": name,
        "image_size": image_size,
        "public_size": public_size,
        "texts": texts,
    }
    options: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if options and data is None:
        raise ConfigError(f"--{next(iter(options)).replace('_', '-')} needs --data.")
    # The command line cannot pass None, so a word stands for it.
    if options.get("label") in interview.NOTHING:
        options["label"] = None
    if rows_are_units:
        options["unit"] = None
    if unit == interview.NONE:
        options["unit"] = None
    new_project.refuse_existing(folder)
    # In a pipe nobody answers: a missing option is an error instead of a hang.
    ask = _ask if sys.stdin.isatty() else None
    answers = interview.ask_for(data.expanduser(), options, ask) if data is not None else None
    named = () if model is None else as_overrides({"models.language": model})
    params = new_project.params(answers, method or FIRST, settings=named, preset=settings)
    written, unchanged = new_project.write(folder, params)
    show(
        out,
        *(f"wrote {file}" for file in written),
        *(f"left {file} as it is" for file in unchanged),
    )
    if answers is not None:
        _say_choices(answers)
    note(out, new_project.presets_in_words(parse_config(yaml.safe_load(params))))
    show(out, "")
    steps = _first_steps(
        folder, sample=answers is None, texts=answers is None or answers.image_size is None
    )
    facts(out, steps, title="What next", style="")


def _ask(question: str, proposal: str) -> str:
    answer: str = typer.prompt(question, default=proposal, show_default=bool(proposal), err=True)
    return answer


def _say_choices(answers: interview.ProjectAnswers) -> None:
    """What follows from what was said, or was not."""
    if answers.document:
        show(out, f"prompts: The following is {answers.document}.")
    for caution in of_unit(answers.unit, by_file=answers.image_size is not None):
        note(out, caution)
    if answers.document is None and answers.image_size is None:
        note(
            out,
            "dataset.document is not set: the prompts do not say what a text is, and texts come "
            "from anywhere. Set it in params.yaml.",
        )
    if answers.public_size is None:
        note(
            out,
            "account.public_size is not set: nothing says whether settings suit the number of "
            f"{answers.settings()['account.unit']}s. Set it in params.yaml.",
        )


def _first_steps(folder: Path, *, sample: bool, texts: bool) -> dict[str, str]:
    """The commands of a new project, in order."""
    steps = {
        "look over": "params.yaml",
        "what is in it": "privsyn check",
        "what it costs": "privsyn plan",
        "one release": "privsyn run",
        "what is left": "privsyn ledger show",
        "by Airflow": f"PRIVSYN_PARAMS={shlex.quote(str((folder / 'params.yaml').resolve()))}, "
        f"and add {shlex.quote(str((folder / 'dags').resolve()))} to a DAG bundle",
    }
    if texts:
        steps = {"language model": "privsyn models fetch smollm2"} | steps
    if sample:
        steps = {"invented data": "privsyn sample-data"} | steps
    if folder.resolve() != Path.cwd():
        steps = {"go there": f"cd {shlex.quote(str(folder))}"} | steps
    return {name: Verbatim(step) for name, step in steps.items()}
