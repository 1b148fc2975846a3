"""A new project: what it must know about its private file, given or asked, and its files.

The files (params.yaml, dvc.yaml, dags and .gitignore) are made from those that the package ships.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from privsyn.config import Config, parse_config
from privsyn.data.artifacts import atomic_file
from privsyn.data.readers.columns import (
    PEOPLE,
    called_after_people,
    refuse_index,
    refuse_missing,
)
from privsyn.data.readers.formats import Header, read_header
from privsyn.data.readers.streams import parts, split_suffix
from privsyn.data.settings import LONGEST_DOCUMENT, PLACEHOLDER
from privsyn.dp.adjacency import plural
from privsyn.errors import ConfigError, PrivsynError
from privsyn.methods.base import READ_MODELS
from privsyn.methods.registry import METHODS, load_method
from privsyn.models.model_identity import size_here, size_in_words
from privsyn.publishing import PROJECT_FILES, in_git
from privsyn.section import MANY, NAME, PAPER, PRESET, SMALL, WORDS
from privsyn.stages.plan import for_texts
from privsyn.validation.settings import PATTERNS

_PACKAGE = Path(__file__).parents[1]
TEMPLATE = _PACKAGE / "template" if (_PACKAGE / "template").is_dir() else _PACKAGE.parent
"""The repository's own project files: ``setup.py`` copies them into a wheel."""
IMAGES = {
    "modality": "image",
    "rounds": 3,
    "population": 60,
    "expansion": 1,
    "degrees": [0.8, 0.4],
}
"""Settings of private evolution where records are images, in place of those for texts."""

COMMENTS = {
    "dataset.name": "the lineage: this dataset over all its versions",
    "dataset.version": "opaque and public; {date:%Y-%m} makes one version a month",
    "dataset.document": "what a record is, for the prompts: public; e.g. a message to a clinic",
    "dataset.examples": "texts as you imagine them, for prompts: public, never a record",
    "dataset.label": "column of the label",
    "dataset.labels": "public; records with any other label are dropped",
    "dataset.unit": "column of the id of who is protected; null: rows, not people, are protected",
    "dataset.max_records_per_unit": "so many records of a unit are used at most",
    "dataset.holdout": "share of units kept for internal evaluation",
    "dataset.delimiter": "between the columns",
    "validation.forbid": "masked in the texts: a model makes such up by itself",
    "account.unit": "what is protected",
    "account.epsilon": "lifetime cap over all releases",
    "account.period": "e.g. {days: 30, epsilon: 3}",
    "account.public_size": "public estimate of how many of them there are: plan judges sizes by it",
}


def params(
    answers: ProjectAnswers | None,
    method: str,
    changes: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
    preset: str | None = None,
) -> str:
    """params.yaml for a private file; without one that of the invented messages.

    Args:
        answers: The owner's answers about the file.
        method: The one of ``pipeline``.
        changes: Settings of ``dataset`` and ``account`` in place of those that follow.
        settings: Any others, ``a.b.c=value`` with values as JSON.
        preset: Values of the methods: paper or small. None: by the size of the language model.

    Raises:
        ConfigError: An answer is not usable as a setting, or there is no such preset.
    """
    text = (TEMPLATE / "params.yaml").read_text(encoding="utf-8")
    text = _with_setting(text, "pipeline", [method])
    if answers is not None:
        stated = answers.settings() | dict(changes or {})
        for section in ("dataset", "account"):
            text = _with_section(text, section, stated)
        # The shipped patterns describe the invented messages.
        bounds = {
            "validation.max_chars": 4000,
            "validation.forbid": list(PATTERNS if answers.mask else ()),
        }
        text = _with_section(text, "validation", bounds)
        if answers.image_size is not None:
            values = IMAGES if preset != PAPER else {"modality": "image", "population": 5000}
            for key, value in values.items():
                text = _with_setting(text, f"methods.private_evolution.{key}", value)
        for key, value in answers.deployment_settings().items():
            text = _with_setting(text, key, value)
    # Before a line is written: a misspelled setting leaves the file as it was.
    config = parse_config(yaml.safe_load(text), settings)
    images = answers is not None and answers.image_size is not None
    for key, value in _presets(config, preset, images=images).items():
        text = _with_setting(text, key, value)
    sized: list[str] = []
    if answers is not None and answers.texts is not None:
        config = parse_config(yaml.safe_load(text), settings)
        sized = [one for name in METHODS for one in for_texts(config, name, answers.texts)]
    for item in (*sized, *settings):
        key, _, value = item.partition("=")
        text = _with_setting(text, key, json.loads(value))
    # Lines were edited as text: read the result back before it becomes a project.
    parse_config(yaml.safe_load(text))
    return text


def _presets(config: Config, preset: str | None, *, images: bool) -> dict[str, Any]:
    """The lines that name the methods' presets, by dotted name, where they are not the template's.

    Raises:
        ConfigError: There is no such preset.
    """
    if preset not in (None, PAPER, SMALL):
        raise ConfigError(f"settings={preset} is not known.", hint=f"Write {PAPER} or {SMALL}.")
    size, chat = size_here(config.models) or (0, True)
    methods: tuple[str, ...] = ()
    if preset == PAPER:
        # The paper of private evolution is about images.
        methods = tuple(name for name in METHODS if images or name != "private_evolution")
    elif preset is None and size >= MANY:
        methods = tuple(name for name in METHODS if _reads_model(config, name))
    lines: dict[str, Any] = {f"methods.{name}.{PRESET}": PAPER for name in methods}
    if methods and not chat:
        # The papers' prompts are for chat models; null and plain continue a list of records.
        lines |= {"methods.invisible_ink.prompt": None, "methods.private_prediction.task": "plain"}
    return lines


def _reads_model(config: Config, method: str) -> bool:
    """Whether a method reads logits or gradients: for a large model it has the paper's values."""
    return bool(READ_MODELS.intersection(load_method(method).roles(config.method(method))))


def presets_in_words(config: Config) -> str:
    """Which preset the methods of a new project have, and why."""
    named: dict[str, list[str]] = {}
    for name in METHODS:
        named.setdefault(str(config.preset(name)), []).append(name)
    which = "; ".join(f"{preset} for {', '.join(names)}" for preset, names in named.items())
    known = size_here(config.models)
    size = f"{size_in_words(known[0])} parameters" if known else "a size not known here"
    return (
        f"settings of the methods: {which}. models.language={config.models.language} has {size}; "
        f"{SMALL} is for models below 1 billion."
    )


def yaml_of(value: Any) -> str:
    """A value on one line of YAML; a word that YAML would read as something else is quoted."""
    # YAML 1.1 reads 1e-06 as text and 1.0e-06 as a number.
    if isinstance(value, float):
        return f"{value:.1e}" if value < 1e-3 else str(value)
    dumped: str = yaml.safe_dump(
        value, default_flow_style=True, width=10**9, allow_unicode=True, sort_keys=False
    )
    return dumped.removesuffix("\n").removesuffix("\n...")


def _with_setting(text: str, key: str, value: Any) -> str:
    """The text with one setting at its place, whose comment stays; added where there is none."""
    *parents, name = key.split(".")
    lines, start = text.splitlines(), 0
    stop = len(lines)
    for depth, parent in enumerate(parents):
        at, inline = _find(lines, start, stop, depth, parent)
        if at is None:
            lines.insert(stop, f"{'  ' * depth}{parent}:")
            at = stop
        elif inline:  # a mapping on one line, or null
            current = yaml.safe_load(inline)
            whole: dict[str, Any] = dict(current) if isinstance(current, dict) else {}
            inner = whole
            for further in parents[depth + 1 :]:
                inner = inner.setdefault(further, {})
            inner[name] = value
            return _with_setting(text, ".".join(parents[: depth + 1]), whole)
        start, stop = at + 1, _end(lines, at + 1, depth)
    at, _ = _find(lines, start, stop, len(parents), name)
    # Lines are edited, not dumped: a YAML writer would lose the comments that explain the settings.
    line = f"{'  ' * len(parents)}{name}: {yaml_of(value)}"
    if at is None:
        lines.insert(stop, line)
    else:
        comment = re.search(r"\s{2,}#.*$", lines[at])
        lines[at : _end(lines, at + 1, len(parents))] = [line + (comment[0] if comment else "")]
    return "\n".join(lines) + "\n"


def _find(
    lines: Sequence[str], start: int, stop: int, depth: int, name: str
) -> tuple[int | None, str]:
    """The line of a key in a block, and what stands behind it on that line."""
    pattern = re.compile(rf"{'  ' * depth}{re.escape(name)}:(?:\s+(.*?))?\s*(?:\s{{2}}#.*)?$")
    for at in range(start, stop):
        if match := pattern.match(lines[at]):
            return at, match[1] or ""
    return None, ""


def _end(lines: Sequence[str], start: int, depth: int) -> int:
    """Behind the last line of the block that a line of some depth opens."""
    end = start
    for at in range(start, len(lines)):
        stripped = lines[at].strip()
        if stripped and not lines[at].startswith("  " * (depth + 1)):
            break
        if stripped:
            end = at + 1
    return end


def _with_section(text: str, section: str, settings: Mapping[str, Any]) -> str:
    """The text with a top-level section written anew; other sections and comments stay."""
    lines = [f"{section}:"]
    for key, value in settings.items():
        if key.startswith(f"{section}."):
            line = f"  {key.partition('.')[2]}: {yaml_of(value)}"
            comment = COMMENTS.get(key)
            lines.append(f"{line:32}  # {comment}" if comment else line)
    block = "\n".join(lines) + "\n"
    # A function as the replacement: backslashes in a path would be read as references.
    changed, count = re.subn(rf"(?m)^{section}:\n(?:[ \t].*\n)+", lambda _: block, text)
    if count != 1:
        raise AssertionError(f"the template has {count} sections {section}")
    return changed


def refuse_existing(folder: Path) -> None:
    """Refuse a folder that holds a project.

    Raises:
        ConfigError: It does, or it is no folder.
    """
    if (folder / "params.yaml").exists():
        raise ConfigError(
            f"{folder / 'params.yaml'} exists already.", hint="Edit it, or name another folder."
        )
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder.", hint="Name another.")


def write(
    folder: Path, params_text: str, write_data: Callable[[], None] | None = None
) -> tuple[list[Path], list[Path]]:
    """Write a project's files. A file that is there is left as it is, but for .gitignore.

    Args:
        folder: Of the project.
        params_text: Its params.yaml.
        write_data: Writes private data into it: called once git knows what it must not see.

    Returns:
        Files written, and files left as they were.

    Raises:
        ConfigError: The folder holds a params.yaml, or cannot be written.
    """
    refuse_existing(folder)
    contents: dict[str, str] = {"dvc.yaml": (TEMPLATE / "dvc.yaml").read_text(encoding="utf-8")}
    for file in sorted(file for file in (TEMPLATE / "dags").iterdir() if file.is_file()):
        contents[f"dags/{file.name}"] = file.read_text(encoding="utf-8")
    contents |= PROJECT_FILES
    # Outside of git DVC refuses to start without this.
    if not in_git(folder.absolute()):
        contents[".dvc/config.local"] = "[core]\n    no_scm = true\n"
    written, unchanged = [], []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            if (folder / name).exists():
                unchanged.append(folder / name)
                continue
            _write(folder / name, content)
            written.append(folder / name)
        # What git must not see is added, whoever wrote the file.
        ignored = folder / ".gitignore"
        lines = ignored.read_text(encoding="utf-8").splitlines() if ignored.exists() else []
        template = (TEMPLATE / ".gitignore").read_text(encoding="utf-8").splitlines()
        if missing := [line for line in template if line not in lines]:
            _write(ignored, "\n".join([*lines, *missing]) + "\n")
            written.append(ignored)
        if write_data is not None:
            write_data()
        # Last: a folder without params.yaml is not a project, so a failed init can be repeated.
        _write(folder / "params.yaml", params_text)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}.") from None
    return [folder / "params.yaml", *written], unchanged


def _write(file: Path, content: str) -> None:
    with atomic_file(file, mode=0o644) as stream:
        stream.write(content.encode())


@dataclass(frozen=True)
class ProjectAnswers:
    """What a user says of a private file.

    Attributes:
        path: The file, or the folder of images.
        text: Column of the text; None for images.
        label: Column of the label, if there is one.
        labels: The public set of labels.
        unit: Column of the unit id; None: every row is its own unit.
        protects: What a unit is: patient, customer.
        name: Of dataset and account; None: the file's.
        delimiter: Of a CSV; None: the reader's default.
        image_size: Side in pixels images are brought to; None for texts.
        document: What a record is, for prompts: public.
        examples: Pairs (label, text) of invented records, for prompts: public.
        public_size: How many units there are, as is known without the file; None: not said.
        texts: How many synthetic records a release is to hold; None: as many as are usual.
        curators: Who publishes releases and answers for them; None: not stated yet. These four
            stand in the first card of a report.
        contact: Whom to ask.
        license: Under which license.
        intended_use: What for.
        mask: Whether what looks like an address or a number of a person is masked in the texts.
    """

    path: Path
    text: str | None = "text"
    label: str | None = None
    labels: tuple[str, ...] = ()
    unit: str | None = None
    protects: str | None = None
    name: str | None = None
    delimiter: str | None = None
    image_size: int | None = None
    document: str | None = None
    examples: tuple[tuple[str | None, str], ...] = ()
    public_size: int | None = None
    texts: int | None = None
    curators: str | None = None
    contact: str | None = None
    license: str | None = None
    intended_use: str | None = None
    mask: bool = True

    def settings(self) -> dict[str, Any]:
        """The settings of ``dataset`` and ``account`` that follow, by dotted name.

        A file without unit ids has rows for units: one can be replaced by nothing but not removed,
        since later rows would move up.
        """
        name = self.name or name_of(self.path)
        # Adjacency follows: add_remove needs ids that stay the same when a unit is gone.
        removable = self.unit is not None
        content: dict[str, Any] = (
            {
                "dataset.text": self.text,
                "dataset.document": self.document,
                "dataset.examples": [
                    {"label": label, "text": text} if label else {"text": text}
                    for label, text in self.examples
                ],
            }
            if self.image_size is None
            else {"dataset.images": {"size": self.image_size, "mode": "L"}}
        )
        return {
            "dataset.name": name,
            "dataset.path": str(self.path.expanduser().resolve()),
            "dataset.version": "v1",
            **({} if self.delimiter is None else {"dataset.delimiter": self.delimiter}),
            **content,
            "dataset.label": self.label,
            "dataset.labels": list(self.labels),
            "dataset.unit": self.unit,
            "dataset.max_records_per_unit": 1,
            "dataset.holdout": HOLDOUT,
            "account.name": name,
            "account.unit": self.protects or (word_of(self.unit) if self.unit else "record"),
            "account.adjacency": "add_remove" if removable else "replace_null",
            "account.epsilon": 10.0,
            "account.delta": delta_for(self.public_size),
            "account.period": None,
            "account.public_size": self.public_size,
            "privacy.epsilon": 3.0,
            "privacy.delta": delta_for(self.public_size),
        }

    def deployment_settings(self) -> dict[str, Any]:
        """The settings of ``deployment`` that follow, by dotted name; those stated alone."""
        fields = {field: getattr(self, field) for field in _STATED}
        fields["curators"] = [self.curators] if self.curators else None
        return {f"deployment.{field}": value for field, value in fields.items() if value}


def delta_for(public_size: int | None) -> float:
    """A delta for so many units: a power of ten of at most size ** -1.1, from 1e-9 to 1e-6.

    >>> [delta_for(size) for size in (None, 1500, 400_000, 10**7, 10**12)]
    [1e-06, 1e-06, 1e-07, 1e-08, 1e-09]
    """
    # Below 1 / size: else publishing one whole record would satisfy the guarantee.
    digits = 6 if public_size is None else math.ceil(1.1 * math.log10(max(public_size, 1)))
    return float(f"1e-{min(max(digits, 6), 9)}")


def name_of(path: Path) -> str:
    """A dataset's name after its file: letters, digits, dots and dashes."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", path.name.split(".")[0]).strip("-._")
    return name[:64] or "data"


def word_of(column: str) -> str:
    """What a unit is called, after the column of its id; ``unit`` where the name does not say.

    >>> [word_of(name) for name in ("customer_id", "patientId", "Patient no.", "userid", "uid")]
    ['customer', 'patient', 'patient', 'user', 'unit']
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", column)
    words = [word.lower() for word in re.split(r"[^A-Za-z0-9\u00c0-\uffff]+", spaced) if word]
    while words and words[-1] in _MARKS:
        words.pop()
    word = "-".join(words)
    if run_together := re.fullmatch(f"{PEOPLE}(id|no|nr)", word):
        word = run_together[1]
    return word if re.fullmatch(r"[a-z][a-z0-9-]{2,63}", word) else "unit"


_MARKS = frozenset(
    "id ids uid uids uuid guid pid sid no nr num number key code hash ref pk name".split()
)
"""Last words of a column's name that say that it holds ids, and not whose."""


def label_list(text: str) -> tuple[str, ...]:
    """Labels with commas between them; one that holds a comma stands in double quotes.

    >>> label_list('Bug, "Question, other", Praise')
    ('Bug', 'Question, other', 'Praise')
    """
    row = next(csv.reader([text], skipinitialspace=True), [])
    return tuple(label.strip() for label in row if label.strip())


def likely(columns: Sequence[str], role: str) -> str | None:
    """The column whose name says that it is there for a role: text, label or unit."""
    if role == "unit":
        return next((name for name in columns if called_after_people(name)), None)
    pattern = {
        "text": "text|body|message|content|note|review|comment|abstract",
        "label": "label|category|class|topic|intent|tag",
    }[role]
    return next((name for name in columns if re.fullmatch(pattern, name.lower())), None)


Ask = Callable[[str, str], str]
"""Asks a person a question, with a proposal that Enter takes; an empty one: Enter takes nothing."""
NONE = "none"
NOTHING = (NONE, "-")
"""Answers that stand for nothing."""
_COLUMNS = ("text", "label", "unit")
"""Answers that name columns."""
OPTION, ARGUMENT = "--", "argument "
"""What stands before a field's name on the command line, and in Python."""
_TRIES = 2
"""Times that a person who names no column of the file is asked again."""


def ask_for(
    path: Path, given: Mapping[str, Any], ask: Ask | None, *, prefix: str = OPTION
) -> ProjectAnswers:
    """What a private file's columns mean: as given, else asked, else by their names.

    Only the header is read. Labels are public and are never taken from the data; who is protected
    is never guessed without a person's consent.

    Args:
        path: The file, or a folder of images.
        given: Fields of Answers that need not be asked; ``unit`` may be given as None.
        ask: None: there is nobody to ask.
        prefix: What stands before a field's name where the user gives it: OPTION or ARGUMENT.

    Raises:
        ConfigError: Something was neither given nor can be asked.
        DataError: The file cannot be read, or has no such column.
    """
    options = dict(given)

    def settle(field: str, question: str, proposal: str | None, *, sure: bool) -> None:
        """Fill a field in; ``sure``: the proposal does where nobody can be asked."""
        if field in options:
            return
        if ask is not None:
            answer = ask(question, proposal or "").strip()
            for _ in range(_TRIES):
                try:
                    refuse({field: answer})
                    break
                except PrivsynError as wrong:
                    answer = ask(f"{wrong} {question}", proposal or "").strip()
            refuse({field: answer})
        # privacy: who is protected and which labels there are is never `sure`: a person has to say
        # it.
        elif sure and proposal:
            answer = proposal
        else:
            option = _EITHER[prefix] if field == "unit" else option_name(field)
            raise ConfigError(f"{option} is missing.", hint=question)
        options[field] = None if answer == "" or nothing(answer) else answer

    def nothing(answer: str) -> bool:
        return answer.casefold() in NOTHING and (header is None or answer not in header)

    def option_name(field: str) -> str:
        if ask is not None and field not in given:
            return field.replace("_", " ")  # an answer, and no option that anybody wrote
        return prefix + (field.replace("_", "-") if prefix == OPTION else field)

    def refuse(answers: Mapping[str, Any]) -> None:
        """Refuse an answer that would not do: at once, while it can be given again."""
        for field, value in answers.items():
            if field in _CHECKS and value is not None:
                _CHECKS[field](option_name(field), value)
        if header is None:
            return
        if answers.get("text", "text") in ("", None, *NOTHING) and answers["text"] not in header:
            raise ConfigError(
                f"{option_name('text')}={answers['text']!r} names no column.",
                hint="A project of texts needs one, or a form over several.",
            )
        if "unit" in answers and ask is not None and answers["unit"] in ("", "-"):
            raise ConfigError("This needs an answer: nobody but you can say who is protected.")
        names = {
            k: answers[k]
            for k in _COLUMNS
            if answers.get(k) not in (None, "") and not nothing(answers[k])
        }
        in_text = PLACEHOLDER.findall(names.get("text", ""))
        if in_text and names["text"] not in header:
            del names["text"]
            names = {f"text ({n})": name for n, name in enumerate(in_text, 1)} | names
        missing = {k: name for k, name in names.items() if name not in header}
        may_ask = ask is not None and not missing.keys() & given.keys()
        refuse_missing(path, missing, header.names, prefix="" if may_ask else prefix)
        if "unit" in names:
            refuse_index(names["unit"])

    table = _table(path)
    images = (path.is_dir() and table is None) or path.suffix == ".npz" or "image_size" in options
    header: Header | None = None
    for field in ("label", "unit"):
        if options.get(field) == "":  # else who is protected would be left open by a slip
            raise ConfigError(f"{option_name(field)} is empty.", hint=_EMPTY[field, prefix])
    if images:
        refuse(options)
        options["text"] = None
        size = "To how many pixels a side are images brought?"
        settle("image_size", size, "28", sure=False)
        settle("label", "Which column holds the label? (in a folder any word)", "label", sure=True)
        if path.is_dir():
            options.setdefault("unit", "file")
    else:
        header = read_header(table or path, setting=option_name("data"))
        columns, delimiter = header.names, header.delimiter
        refuse(options)
        usual = "\t" if split_suffix(table or path)[0] == ".tsv" else ","
        options["delimiter"] = None if delimiter in (None, usual) else delimiter
        text, listed = likely(columns, "text"), f"Which column holds the text? ({_some(columns)})"
        settle("text", listed, text, sure=True)
        settle("document", _WHAT, NONE, sure=True)
        # Labels must be listed by a person: where there is none, no column is proposed.
        label = likely(columns, "label") if ask is not None else None
        settle(
            "label", f"Which column holds the label? ({NONE}: no labels)", label or NONE, sure=True
        )
    if options["label"] and not options.get("labels"):
        question = (
            "Which labels are there? All of them, with commas between (they are public, so they "
            "are not read from the file)"
        )
        options.pop("labels", None)
        settle("labels", question, None, sure=False)
    if isinstance(options.get("labels"), str):
        options["labels"] = label_list(options["labels"])
    if ask is not None and not images and "examples" not in options:
        options["examples"] = _examples(ask, options.get("labels") or ())
    unit = None if header is None else likely(header.names, "unit")
    settle("unit", _WHOSE.format(f"; {unit} looks like one" if unit else ""), None, sure=False)
    if options["unit"]:
        settle("protects", "What is one of them called?", word_of(options["unit"]), sure=True)
    settle("public_size", _how_many(options), NONE, sure=True)
    for field in _WHOLE_NUMBERS:
        if options.get(field) is not None:
            options[field] = int(options[field])
    number = usual_number(len(options.get("labels") or ()), options["public_size"], images=images)
    settle("texts", _HOW_MANY_TEXTS, str(number), sure=True)
    options["texts"] = int(options["texts"])
    for field, question in _STATED.items():
        if field == "curators" or options["curators"]:
            settle(field, f"{question} (public; {NONE}: not stated yet)", NONE, sure=True)
    if not images:
        settle("mask", _MASK, YES, sure=True)
        options["mask"] = str(options["mask"]).lower() in _YESES
    return ProjectAnswers(path=path, **options)


def _examples(ask: Ask, labels: Sequence[str]) -> tuple[tuple[str | None, str], ...]:
    """Texts that the owner invents, one a label at most; those that they skip are left out."""
    answers: list[tuple[str | None, str]] = []
    invented: Sequence[str | None] = list(labels)[:_EXAMPLES] or [None, None]
    for label in invented:
        of = f" of {label}" if label else ""
        question = (
            f"Write one text{of} as you imagine it, in the usual length and voice. Prompts show "
            f"it, so it is public: never copy a record ({NONE}: skip)"
        )
        text = ask(question, NONE).strip()
        if text and text.casefold() not in NOTHING:
            answers.append((label, text))
    return tuple(answers)


def usual_number(labels: int, public_size: int | None, *, images: bool = False) -> int:
    """How many synthetic records are proposed: by public numbers alone.

    Some for each label; of texts, where there are many people, about one for each eight of them
    that train, since private evolution chooses among eight candidates a text.
    """
    labels = max(1, labels)
    if images:
        return labels * _IMAGES_EACH
    most = 0 if public_size is None else int((1 - HOLDOUT) * public_size) // _PEOPLE_A_TEXT
    return labels * max(_EACH, min(_MOST, most) // labels)


_EXAMPLES = 5
"""Labels of which an example is asked for."""
HOLDOUT = 0.2
"""Share of the people that a new project holds out for its internal evaluation."""
_EACH, _IMAGES_EACH = 20, 60
"""Texts and images of a label that are proposed at least."""
_PEOPLE_A_TEXT, _MOST = 8, 300
"""People that a proposed text has, and texts that are proposed at most for them: a small model
writes eight candidates for each of them."""


def _table(path: Path) -> Path | None:
    """The first of a folder's files where its files are rows; None for images and for a file."""
    if not path.is_dir():
        return None
    rows = [part for part in path.iterdir() if part.is_file() and part.name[:1] not in ("_", ".")]
    if not any(split_suffix(part)[0] in _TABLES for part in rows):
        return None
    return next(part for part in parts(path) if isinstance(part, Path))


_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")


def _some(columns: Sequence[str]) -> str:
    return ", ".join(columns[:_SHOWN]) + (", ..." if len(columns) > _SHOWN else "")


_SHOWN = 20
"""Columns that a question lists."""
_WHAT = (
    "In a few English words with their article, what is one text? For example: an SMS to a shop. "
    f"Prompts say it, so it is public ({NONE}: prompts say a text, and texts come from anywhere)"
)
_WHOSE = (
    "Which column says whose row it is, such as a patient's? That is who is protected "
    f"({NONE} only if no two rows can be the same person's: rows, not people, are protected "
    "then{})"
)
_STATED = {
    "curators": "Who publishes the releases, and answers for them?",
    "contact": "Whom may a reader of a release ask? An address or a page",
    "license": "Under which license is a release handed out?",
    "intended_use": "What is a release meant for?",
}
"""Fields of ``deployment`` that the first card of a report shows; the first opens the others."""
_MASK = (
    "Are e-mail addresses, phone numbers and record numbers masked in the synthetic texts? A model "
    "makes some up, and nobody can tell them from a person's (yes or no)"
)
YES, _YESES, _NOES = "yes", ("yes", "y", "true"), ("no", "n", "false")
_HOW_MANY_TEXTS = "How many synthetic records do you want in all?"


def _check_labels(option: str, labels: Any) -> None:
    """Refuse no label, and a line of labels that was read as one."""
    if not isinstance(labels, str):
        return
    names = label_list(labels)
    if not names:
        raise ConfigError(f"{option}={labels!r} names no label.", hint="Write: Bug,Question")
    for label in names:
        marks = [mark for mark in _NO_COMMAS if mark in label]
        if marks and f'"{label}"' not in labels:
            meant = ",".join(part.strip() for part in label.split(marks[0]) if part.strip())
            raise ConfigError(
                f"{option}={label!r} is one label: labels have commas between them, not "
                f"{marks[0]!r}.",
                hint=f"Write {meant}, or double quotes around it if it is one.",
            )


def _how_many(answers: Mapping[str, Any]) -> str:
    whose = plural(answers.get("protects") or ("row" if answers["unit"] is None else "unit"))
    return (
        f"About how many {whose} are there, by what is known without the file? A number that you "
        f"may publish: settings are judged by it ({NONE}: not known)"
    )


def _check_whole(option: str, number: Any) -> None:
    field = re.sub("[ -]", "_", option.removeprefix(OPTION).removeprefix(ARGUMENT))
    if number in NOTHING and field == "public_size":
        return
    if not re.fullmatch(r"[1-9]\d{0,17}", str(number)):
        raise ConfigError(
            f"{option}={number} is not a whole number from 1 on.", hint=_WHOLE_NUMBERS[field]
        )


def _check_word(option: str, word: Any) -> None:
    if not re.fullmatch(NAME, word):
        raise ConfigError(f"{option}={word!r} must be {WORDS[NAME]}.", hint="Write: patient")


def _check_yes_or_no(option: str, answer: Any) -> None:
    if str(answer).lower() not in (*_YESES, *_NOES):
        raise ConfigError(f"{option}={answer} is neither yes nor no.", hint="Write: yes")


def _check_length(option: str, words: Any) -> None:
    if len(words) > LONGEST_DOCUMENT:
        raise ConfigError(
            f"{option} has {len(words)} characters, of at most {LONGEST_DOCUMENT}.",
            hint="Say in a few words what a text is, such as: bug report",
        )


_NO_COMMAS = (";", "|", "\t", "\n")
_WHOLE_NUMBERS = {
    "image_size": "Write pixels, such as 28.",
    "public_size": f"Write a public estimate, such as 5000, or {NONE} where there is none.",
    "texts": "Write how many, such as 200.",
}
"""Fields that are whole numbers, and what to write."""
_CHECKS: Mapping[str, Callable[[str, Any], None]] = {
    "document": _check_length,
    "labels": _check_labels,
    **dict.fromkeys(_WHOLE_NUMBERS, _check_whole),
    "protects": _check_word,
    "mask": _check_yes_or_no,
}
"""Field -> what refuses a value that its setting could not have."""
_EMPTY = {
    ("label", OPTION): f"Name a column, or write {NONE} for none.",
    ("unit", OPTION): "Name a column, or say --rows-are-units if no two rows can be the same "
    "person's.",
    ("label", ARGUMENT): "Name a column, or give None for none.",
    ("unit", ARGUMENT): "Name a column, or give None if no two rows can be the same person's.",
}
_EITHER = {OPTION: "--unit COLUMN or --rows-are-units", ARGUMENT: "argument unit"}
