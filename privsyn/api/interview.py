"""What a new project has to be told of its private file: asked of a person, or given."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privsyn.data.readers.columns import refuse_index, refuse_missing
from privsyn.data.readers.header import Header, read_header
from privsyn.data.readers.streams import split_suffix
from privsyn.data.settings import LONGEST_DOCUMENT, PLACEHOLDER
from privsyn.errors import ConfigError, PrivsynError
from privsyn.models.language.articles import bare
from privsyn.section import NAME, WORDS


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
            {"dataset.text": self.text, "dataset.document": self.document and bare(self.document)}
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


def ask_for(
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
        if ask is not None and field not in given:
            return field.replace("_", " ")  # an answer, and no option that anybody wrote
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
        what = f"What a text is: The following is a ..., in public English words ({NONE}: not said)"
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
    field = re.sub("[ -]", "_", option.removeprefix(OPTION).removeprefix(ARGUMENT))
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
