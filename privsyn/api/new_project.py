"""A new project: params.yaml, dvc.yaml, dags and .gitignore, from what the package ships."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from privsyn.config import parse_config
from privsyn.data.artifacts import atomic_file
from privsyn.data.readers.columns import refuse_index, refuse_missing
from privsyn.data.readers.header import Header, read_header
from privsyn.data.readers.streams import split_suffix
from privsyn.data.settings import LONGEST_DOCUMENT, PLACEHOLDER
from privsyn.errors import ConfigError, PrivsynError
from privsyn.publishing.command import PROJECT_FILES
from privsyn.publishing.git import in_git
from privsyn.section import NAME, WORDS

TEMPLATE = Path(__file__).parents[1] / "template"
"""The files of the repository's own project, as an installed package holds them."""
IMAGES = {
    "modality": "image",
    "rounds": "3",
    "population": "60",
    "expansion": "1",
    "degrees": "[0.8, 0.4]",
}
"""Settings of private evolution where records are images, in place of those for texts."""

COMMENTS = {
    "dataset.name": "the lineage: this dataset over all its versions",
    "dataset.version": "opaque and public; {date:%Y-%m} makes one version a month",
    "dataset.document": "what a record is, for the prompts: public; e.g. message to a clinic",
    "dataset.label": "column of the label",
    "dataset.labels": "public; records with any other label are dropped",
    "dataset.unit": "column of the stable unit id: who is protected; null: every row for itself",
    "dataset.max_records_per_unit": "so many records of a unit are used at most",
    "dataset.holdout": "share of units kept for internal evaluation",
    "dataset.delimiter": "between the columns",
    "account.unit": "what is protected",
    "account.epsilon": "lifetime cap over all releases",
    "account.period": "e.g. {days: 30, epsilon: 10}",
    "account.public_size": "public estimate of how many of them there are: plan judges sizes by it",
}


@dataclass(frozen=True)
class Answers:
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
        public_size: How many units there are, as is known without the file; None: not said.
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
    public_size: int | None = None

    def settings(self) -> dict[str, Any]:
        """The settings of ``dataset`` and ``account`` that follow, by dotted name.

        A file without unit ids has rows for units: one can be replaced by nothing but not removed,
        since later rows would move up.
        """
        name = self.name or name_of(self.path)
        removable = self.unit is not None
        content: dict[str, Any] = (
            {"dataset.text": self.text, "dataset.document": self.document}
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
            "dataset.holdout": 0.2,
            "account.name": name,
            "account.unit": self.protects or ("unit" if removable else "record"),
            "account.adjacency": "add_remove" if removable else "replace_null",
            "account.epsilon": 30.0,
            "account.delta": 1e-6,
            "account.period": None,
            "account.public_size": self.public_size,
        }


def name_of(path: Path) -> str:
    """A dataset's name after its file: letters, digits, dots and dashes."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", path.name.split(".")[0]).strip("-._")
    return name[:64] or "data"


def label_list(text: str) -> tuple[str, ...]:
    """Labels with commas between them; one that holds a comma stands in double quotes.

    >>> label_list('Bug, "Question, other", Praise')
    ('Bug', 'Question, other', 'Praise')
    """
    row = next(csv.reader([text], skipinitialspace=True), [])
    return tuple(label.strip() for label in row if label.strip())


def likely(columns: Sequence[str], role: str) -> str | None:
    """The column whose name says that it is there for a role: text, label or unit."""
    pattern = {
        "text": "text|body|message|content|note|review|comment|abstract",
        "label": "label|category|class|topic|intent|tag",
        "unit": "(patient|user|customer|client|author|person|member|student|employee)[ _-]?(id)?",
    }[role]
    return next((name for name in columns if re.fullmatch(pattern, name.lower())), None)


def params(answers: Answers | None, method: str, changes: Mapping[str, Any] | None = None) -> str:
    """params.yaml for a private file; without one that of the invented messages.

    Args:
        answers: What the file's owner said of it.
        method: The one of ``pipeline``.
        changes: Settings of ``dataset`` and ``account`` in place of those that follow.

    Raises:
        ConfigError: An answer is not usable as a setting.
    """
    text = (TEMPLATE / "params.yaml").read_text(encoding="utf-8")
    text = _with_line(text, "pipeline", yaml_of([method]))
    if answers is not None:
        settings = answers.settings() | dict(changes or {})
        for section in ("dataset", "account"):
            text = _with_section(text, section, settings)
        # The shipped patterns describe the invented messages.
        bounds = {"validation.max_chars": 4000, "validation.forbid": []}
        text = _with_section(text, "validation", bounds)
        if answers.image_size is not None:
            for key, value in IMAGES.items():
                text = _with_line(text, f"    {key}", value, r"\[.*\]|\S+")
    parse_config(yaml.safe_load(text))
    return text


def yaml_of(value: Any) -> str:
    """A value on one line of YAML; a word that YAML would read as something else is quoted."""
    if isinstance(value, float):
        return f"{value:.1e}" if value < 1e-3 else str(value)
    dumped: str = yaml.safe_dump(
        value, default_flow_style=True, width=10**9, allow_unicode=True, sort_keys=False
    )
    return dumped.removesuffix("\n").removesuffix("\n...")


def _with_line(text: str, key: str, value: str, old: str = ".*") -> str:
    changed, count = re.subn(rf"(?m)^{key}: (?:{old})", lambda _: f"{key}: {value}", text)
    if count != 1:
        raise AssertionError(f"the template has {count} lines {key}")
    return changed


def _with_section(text: str, section: str, settings: Mapping[str, Any]) -> str:
    """The text with a top-level section written anew; other sections and comments stay."""
    lines = [f"{section}:"]
    for key, value in settings.items():
        if key.startswith(f"{section}."):
            line = f"  {key.partition('.')[2]}: {yaml_of(value)}"
            comment = COMMENTS.get(key)
            lines.append(f"{line:32}  # {comment}" if comment else line)
    block = "\n".join(lines) + "\n"
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
    folder: Path, params_text: str, keep: Callable[[], None] = lambda: None
) -> tuple[list[Path], list[Path]]:
    """Write a project's files. A file that is there is left as it is, but for .gitignore.

    Args:
        folder: Of the project.
        params_text: Its params.yaml.
        keep: Writes private data into it: called once git knows what it must not see.

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
    if not in_git(folder.absolute()):
        contents[".dvc/config.local"] = "[core]\n    no_scm = true\n"
    written, kept = [], []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            if (folder / name).exists():
                kept.append(folder / name)
                continue
            _write(folder / name, content)
            written.append(folder / name)
        # What git must not see is added, whoever wrote the file.
        ignored = folder / ".gitignore"
        lines = ignored.read_text(encoding="utf-8").splitlines() if ignored.exists() else []
        template = (TEMPLATE / "gitignore").read_text(encoding="utf-8").splitlines()
        if missing := [line for line in template if line not in lines]:
            _write(ignored, "\n".join([*lines, *missing]) + "\n")
            written.append(ignored)
        keep()
        # Last: a project without params.yaml is none, and can be begun again.
        _write(folder / "params.yaml", params_text)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}.") from None
    return [folder / "params.yaml", *written], kept


def _write(file: Path, content: str) -> None:
    with atomic_file(file, mode=0o644) as stream:
        stream.write(content.encode())


Ask = Callable[[str, str], str]
"""Asks a person a question, with a proposal that Enter takes."""
NONE = "-"
_NO_COLUMN = (None, "", NONE)
_COLUMNS = ("text", "label", "unit")
"""Answers that name columns."""
OPTION, ARGUMENT = "--", "argument "
"""What stands before a field's name on the command line, and in Python."""
_TRIES = 2
"""Times that a person who names no column of the file is asked again."""


def interview(
    path: Path, given: Mapping[str, Any], ask: Ask | None, *, prefix: str = OPTION
) -> Answers:
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
    said = dict(given)

    def settle(field: str, question: str, proposal: str | None, *, sure: bool) -> None:
        """Fill a field in; ``sure``: the proposal does where nobody can be asked."""
        if field in said:
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
        elif sure and proposal:
            answer = proposal
        else:
            option = "--unit COLUMN or --rows-are-units" if field == "unit" else named(field)
            raise ConfigError(f"{option} is missing: {question[0].lower()}{question[1:]}.")
        said[field] = None if answer in ("", NONE) else answer

    def named(field: str) -> str:
        return prefix + (field.replace("_", "-") if prefix == OPTION else field)

    def refuse(answers: Mapping[str, Any]) -> None:
        """Refuse an answer that would not do: at once, while it can be given again."""
        for field, value in answers.items():
            if field in _CHECKS and value is not None:
                _CHECKS[field](named(field), value)
        if header is None:
            return
        if answers.get("text", "text") in _NO_COLUMN and answers["text"] not in header:
            raise ConfigError(
                f"{named('text')}={answers['text']!r} names no column.",
                hint="A project of texts needs one, or a form over several.",
            )
        names = {k: answers[k] for k in _COLUMNS if answers.get(k) not in _NO_COLUMN}
        in_text = PLACEHOLDER.findall(names.get("text", ""))
        if in_text and names["text"] not in header:
            del names["text"]
            names = {f"text ({n})": name for n, name in enumerate(in_text, 1)} | names
        missing = {k: name for k, name in names.items() if name not in header}
        refuse_missing(path, missing, header.names, prefix=prefix)
        if "unit" in names:
            refuse_index(names["unit"])

    images = path.is_dir() or path.suffix == ".npz" or "image_size" in said
    header: Header | None = None
    for field in ("label", "unit"):
        if said.get(field) == "":  # else who is protected would be left open by a slip
            raise ConfigError(f"{named(field)} is empty.", hint=_EMPTY[field, prefix])
    if images:
        refuse(said)
        said["text"] = None
        size = "Side in pixels that images are brought to"
        settle("image_size", size, "28", sure=False)
        settle("label", "Column of the label; in a folder any word", "label", sure=True)
        if path.is_dir():
            said.setdefault("unit", "file")
    else:
        header = read_header(path, setting=named("data"))
        columns, delimiter = header.names, header.delimiter
        refuse(said)
        usual = "\t" if split_suffix(path)[0] == ".tsv" else ","
        said["delimiter"] = None if delimiter in (None, usual) else delimiter
        text, listed = likely(columns, "text"), f"Column of the text, of {', '.join(columns)}"
        settle("text", listed, text, sure=True)
        what = f"What a text is, in public words for the prompts ({NONE}: nothing said)"
        settle("document", what, NONE, sure=True)
        # Labels must be listed by a person: where there is none, no column is proposed.
        label = likely(columns, "label") if ask is not None else None
        settle("label", f"Column of the label ({NONE}: none)", label or NONE, sure=True)
    if said["label"] and not said.get("labels"):
        question = "All labels, with commas between; public, so not read from the file"
        said.pop("labels", None)
        settle("labels", question, None, sure=False)
    if isinstance(said.get("labels"), str):
        said["labels"] = label_list(said["labels"])
    whose = f"Column of the id of those who are protected ({NONE}: every row is one by itself)"
    unit = None if header is None else likely(header.names, "unit")
    settle("unit", whose, unit or NONE, sure=False)
    if said["unit"]:
        word = re.sub(r"[ _-]?id$", "", said["unit"].lower())
        proposal = word if re.fullmatch(r"[a-z][a-z0-9_.-]{0,63}", word) else "unit"
        settle("protects", "What such a one is called", proposal, sure=True)
    settle("public_size", _how_many(said), NONE, sure=True)
    for field in _WHOLE_NUMBERS:
        if said.get(field) is not None:
            said[field] = int(said[field])
    return Answers(path=path, **said)


def _check_labels(option: str, labels: Any) -> None:
    """Refuse no label, and a line of labels that was read as one."""
    if not isinstance(labels, str):
        return
    found = label_list(labels)
    if not found:
        raise ConfigError(f"{option}={labels!r} names no label.", hint="Write: Bug,Question")
    quoted = labels.strip().startswith('"')
    if len(found) == 1 and not quoted and (marks := [m for m in _NO_COMMAS if m in found[0]]):
        meant = ",".join(part.strip() for part in found[0].split(marks[0]) if part.strip())
        raise ConfigError(
            f"{option}={found[0]!r} is one label: labels have commas between them, not "
            f"{marks[0]!r}.",
            hint=f"Write {meant}, or double quotes around it if it is one.",
        )


def _how_many(said: Mapping[str, Any]) -> str:
    whose = f"{said.get('protects') or ('row' if said['unit'] is None else 'unit')}s"
    return (
        f"How many {whose} there are about, by what is known without the file; settings are judged "
        f"by it ({NONE}: not known)"
    )


def _check_whole(option: str, number: Any) -> None:
    field = option.removeprefix(OPTION).removeprefix(ARGUMENT).replace("-", "_")
    if number == NONE and field == "public_size":
        return
    if not re.fullmatch(r"[1-9]\d{0,17}", str(number)):
        raise ConfigError(
            f"{option}={number} is not a whole number from 1 on.", hint=_WHOLE_NUMBERS[field]
        )


def _check_word(option: str, word: Any) -> None:
    if not re.fullmatch(NAME, word):
        raise ConfigError(f"{option}={word!r} must be {WORDS[NAME]}.", hint="Write: patient")


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
}
"""Fields that are whole numbers, and what to write."""
_CHECKS: Mapping[str, Callable[[str, Any], None]] = {
    "document": _check_length,
    "labels": _check_labels,
    **dict.fromkeys(_WHOLE_NUMBERS, _check_whole),
    "protects": _check_word,
}
"""Field -> what refuses a value that its setting could not have."""
_EMPTY = {
    ("label", OPTION): f"Name a column, or write {NONE} for none.",
    ("unit", OPTION): "Name a column, or say --rows-are-units: every row is one by itself.",
    ("label", ARGUMENT): "Name a column, or give None for none.",
    ("unit", ARGUMENT): "Name a column, or give None: every row is one by itself.",
}
