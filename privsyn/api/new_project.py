"""A new project: what it must know about its private file, given or asked, and its files.

The files (params.yaml, dvc.yaml, dags and .gitignore) are made from those that the package ships.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from privsyn.address import Address
from privsyn.address import source as parse_source
from privsyn.config import Config, override, parse_config
from privsyn.data.artifacts import atomic_file
from privsyn.data.readers.columns import (
    PEOPLE,
    Header,
    called_after_people,
    refuse_index,
    refuse_missing,
)
from privsyn.data.readers.formats import FORMATS, read_header
from privsyn.data.readers.streams import is_folder, parts, split_suffix
from privsyn.data.readers.tables import table_at
from privsyn.data.settings import LONGEST_DOCUMENT, PLACEHOLDER, Query, text_columns
from privsyn.dp.adjacency import plural
from privsyn.errors import ConfigError
from privsyn.methods.base import READ_MODELS
from privsyn.methods.registry import COLUMNS_ALONE, FIRST, METHODS, load_method
from privsyn.models.model_identity import size_here
from privsyn.publishing import PROJECT_FILES, in_git
from privsyn.section import MANY, NAME, PAPER, PRESET, SMALL, WORDS, explain, read_table
from privsyn.stages.plan import for_texts
from privsyn.validation.settings import PATTERNS

_PACKAGE = Path(__file__).parents[1]
TEMPLATE = _PACKAGE / "template" if (_PACKAGE / "template").is_dir() else _PACKAGE.parent
"""The repository's own project files: ``setup.py`` copies them into a wheel."""


def params(
    answers: ProjectAnswers | None,
    method: str | None,
    changes: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> str:
    """params.yaml for a private file; without one that of the invented messages.

    A method that reads a language model of a billion parameters or more has its paper's values.

    Args:
        answers: The owner's answers about the file.
        method: The one of ``pipeline``. None: the one that suits the records.
        changes: Settings of ``dataset`` and ``account`` in place of those that follow.
        settings: Any others, ``a.b.c=value``.

    Raises:
        ConfigError: An answer is not usable as a setting.
    """
    raw: dict[str, Any] = read_table(TEMPLATE / "params.yaml")
    raw["pipeline"] = [
        method or (COLUMNS_ALONE if answers is not None and answers.is_table else FIRST)
    ]
    if answers is not None:
        raw |= {"dataset": {}, "account": {}, "privacy": {}, "validation": {}}
        for key, value in (answers.settings() | dict(changes or {})).items():
            section, _, name = key.partition(".")
            raw[section][name] = value
        if answers.image_size is not None:
            raw["methods"]["private_evolution"] = {PRESET: SMALL, "modality": "image"}
    config = parse_config(raw, settings)
    size, chats = size_here(config.models) or (0, True)
    papers = [name for name in METHODS if size >= MANY and _reads_model(config, name)]
    for name in papers:
        raw["methods"][name] = {PRESET: PAPER} | dict(_UNLIKE.get(name, {}))
    if papers and not chats:
        # The papers' prompts are for chat models; null continues a list of records.
        for name in ("invisible_ink", "private_prediction"):
            override(raw, f"methods.{name}.prompt=null")
    texts = _SAMPLE_TEXTS if answers is None and papers else getattr(answers, "texts", None)
    if texts is not None:
        config = parse_config(raw, settings)
        words = config.dataset.words
        for item in [one for name in METHODS for one in for_texts(config, name, texts, words)]:
            override(raw, item)
    for item in settings:
        override(raw, item)
    text = "".join(f"{line}\n" for line in _lines(raw, _comments()))
    # Read back before it becomes a project.
    parse_config(yaml.safe_load(text))
    return text


_UNLIKE: Mapping[str, Mapping[str, Any]] = {
    # A comparison costs several times a token, and spares few tokens of free text.
    "private_prediction": {"svt_threshold": None},
    # Solved for: the paper's noise is what its epsilon asks for at its sizes.
    "dp_lora": {"noise_multiplier": None},
}
"""Settings of a new project that would not suit the paper's values at other sizes."""
_SAMPLE_TEXTS = 100
"""Texts of the invented messages, where a paper's number would be made for its own data."""


def _reads_model(config: Config, method: str) -> bool:
    """Whether a method reads logits or gradients: for a large model it has the paper's values."""
    return bool(READ_MODELS.intersection(load_method(method).roles(config.method(method))))


def yaml_of(value: Any) -> str:
    """A value on one line of YAML; a word that YAML would read as something else is quoted."""
    dumped: str = yaml.safe_dump(
        value, default_flow_style=True, width=10**9, allow_unicode=True, sort_keys=False
    )
    return dumped.removesuffix("\n").removesuffix("\n...")


def _comments() -> dict[str, tuple[list[str], str]]:
    """The lines above each setting of the shipped params.yaml, and the comment behind it."""
    comments: dict[str, tuple[list[str], str]] = {}
    above: list[str] = []
    parents: list[str] = []
    for line in (TEMPLATE / "params.yaml").read_text(encoding="utf-8").splitlines():
        if not line or line.lstrip().startswith("#"):
            above.append(line)
        elif setting := re.match(r"( *)(\w+):", line):
            parents = [*parents[: len(setting[1]) // 2], setting[2]]
            comments[".".join(parents)] = above, line.partition("  # ")[2]
            above = []
    return comments


def commented(line: str, comment: str) -> str:
    """A line of YAML with its comment behind it, if it has one."""
    return f"{line:32}  # {comment}" if comment else line


def _lines(
    values: Mapping[str, Any],
    comments: Mapping[str, tuple[list[str], str]],
    parents: tuple[str, ...] = (),
) -> Iterator[str]:
    """Lines of params.yaml, in the order and with the comments of the shipped one."""
    places = {key: place for place, key in enumerate(comments)}
    keys = {".".join((*parents, name)): name for name in values}
    for key in sorted(keys, key=lambda key: places.get(key, len(places))):
        name, value, indent = keys[key], values[keys[key]], "  " * len(parents)
        above, comment = comments.get(key, ([], ""))
        yield from above
        is_section = not parents or parents in (("methods",), ("schedule",))
        if isinstance(value, dict) and is_section:
            yield commented(f"{indent}{name}:", comment)
            yield from _lines(value, comments, (*parents, name))
            continue
        # What has no line of its own here is written below its name, or in braces on its line.
        of_dicts = isinstance(value, list) and all(isinstance(one, dict) for one in value)
        block = bool(value) and (of_dicts or (isinstance(value, dict) and len(parents) > 1))
        line = f"{indent}{name}:" if block else f"{indent}{name}: {yaml_of(value)}"
        yield commented(line, comment)
        if block:
            dumped = yaml.safe_dump(value, width=94, allow_unicode=True, sort_keys=False)
            yield from (f"{indent}  {one}" for one in dumped.splitlines())


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
    """Write a project's files. A file that is there is left as it is, but for what git ignores.

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
    config = parse_config(yaml.safe_load(params_text))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            if (folder / name).exists():
                unchanged.append(folder / name)
                continue
            _write(folder / name, content)
            written.append(folder / name)
        shipped = (TEMPLATE / ".gitignore").read_text(encoding="utf-8").splitlines()
        ignored = {folder / ".gitignore": shipped}
        for file, lines in _private_lines(folder, config).items():
            ignored[file] = [*ignored.get(file, ()), *lines]
        written += [file for file, lines in ignored.items() if _add_lines(file, lines)]
        if write_data is not None:
            write_data()
        # Last: a folder without params.yaml is not a project, so a failed init can be repeated.
        _write(folder / "params.yaml", params_text)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}.") from None
    return [folder / "params.yaml", *dict.fromkeys(written)], unchanged


def _private_lines(folder: Path, config: Config) -> dict[Path, list[str]]:
    """By .gitignore or .dvcignore the lines that keep the private files out of git and DVC.

    Only for files in the project, or in the git repository around it: of a dated path its whole
    folder, as the next file has another name.
    """
    home = folder.resolve()
    repository = next((top for top in (home, *home.parents) if (top / ".git").exists()), home)
    lines: dict[Path, list[str]] = {}
    for path in (config.dataset.path, config.dataset.test_path):
        if not isinstance(path, Path):  # an address, or nothing
            continue
        path = home / path
        top = home if path.is_relative_to(home) else repository
        if not path.is_relative_to(top):
            continue
        steps = path.relative_to(top).parts
        if not steps or steps[0] == ".privsyn":  # ignored whole
            continue
        dated = next((n for n, step in enumerate(steps) if "{" in step), None)
        if dated == 0:
            steps = (re.sub(r"\{[^}]*\}", "*", steps[0]),)
        else:
            # Marks that git would take for a pattern stand for themselves.
            steps = tuple(re.sub(r"([\\*?\[ ])", r"\\\1", step) for step in steps[:dated])
        for file in (".gitignore", ".dvcignore") if top == home else (".gitignore",):
            at = folder / file if top == home else top / file
            lines.setdefault(at, []).append("/" + "/".join(steps))
    return lines


def _add_lines(file: Path, needed: Sequence[str]) -> bool:
    """Add the lines that a file lacks, whoever wrote it; whether there were any."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    missing = [line for line in dict.fromkeys(needed) if line not in lines]
    if missing:
        _write(file, "\n".join([*lines, *missing]) + "\n")
    return bool(missing)


def _write(file: Path, content: str) -> None:
    with atomic_file(file, mode=0o644) as stream:
        stream.write(content.encode())


@dataclass(frozen=True)
class ProjectAnswers:
    """What a user says of a private file.

    Attributes:
        path: The file, the folder of images, the table, or the query.
        text: Column of the text; None for images, and for a table of columns alone.
        roles: Of a conversation, where the text is a column of turns.
        label: Column of the label, if there is one.
        labels: The public set of labels.
        unit: Column of the unit id; None: every row is its own unit.
        protects: What a unit is: patient, customer.
        name: Of dataset and account; None: the file's.
        image_size: Side in pixels images are brought to; None for texts.
        image_mode: L for gray, RGB for color.
        columns: Columns beside the text, as ``dataset.columns`` declares them: public.
        document: What a record is, for prompts: public.
        examples: Pairs (label, text) of invented records, for prompts: public.
        public_size: How many units there are, as is known without the file; None: not said.
        words: About how many words a text has, likewise.
        texts: How many synthetic records a release is to hold; None: as many as are usual.
    """

    path: Path | Address | Query
    text: str | None = "text"
    roles: tuple[str, ...] = ()
    label: str | None = None
    labels: tuple[str, ...] = ()
    unit: str | None = None
    protects: str | None = None
    name: str | None = None
    image_size: int | None = None
    image_mode: str = "RGB"
    columns: Mapping[str, Any] = field(default_factory=dict)
    document: str | None = None
    examples: tuple[tuple[str | None, str], ...] = ()
    public_size: int | None = None
    words: int | None = None
    texts: int | None = None

    @property
    def is_table(self) -> bool:
        """Whether records are columns alone."""
        return self.text is None and self.image_size is None

    @property
    def protected(self) -> str:
        """What a unit is called."""
        return self.protects or (word_of(self.unit) if self.unit else "record")

    def settings(self) -> dict[str, Any]:
        """The settings of params.yaml that follow, by dotted name.

        A file without unit ids has rows for units: one can be replaced by nothing but not removed,
        since later rows would move up.
        """
        name, delta = self.name or name_of(self.path), delta_for(self.public_size)
        content: dict[str, Any] = {
            "dataset.images": {"size": self.image_size, "mode": self.image_mode}
        }
        if self.image_size is None:
            content = {
                "dataset.text": self.text,
                **({"dataset.roles": list(self.roles)} if self.roles else {}),
                "dataset.images": None,
                **({"dataset.columns": dict(self.columns)} if self.columns else {}),
                "dataset.document": self.document,
                "dataset.words": self.words,
                "dataset.examples": [
                    {"label": label, "text": text} if label else {"text": text}
                    for label, text in self.examples
                ],
            }
        place, key = self.path, "query" if isinstance(self.path, Query) else "path"
        return {
            "dataset.name": name,
            f"dataset.{key}": place.model_dump() if isinstance(place, Query) else str(place),
            "dataset.version": "v1",
            **content,
            "dataset.label": self.label,
            "dataset.labels": list(self.labels),
            "dataset.unit": self.unit,
            "dataset.max_records_per_unit": 1,
            "dataset.holdout": HOLDOUT,
            "account.name": name,
            "account.unit": self.protected,
            # add_remove needs ids that stay the same when a unit is gone.
            "account.adjacency": "add_remove" if self.unit is not None else "replace_null",
            "account.epsilon": 10.0,
            "account.delta": delta,
            "account.public_size": self.public_size,
            "account.period": None,
            "privacy.epsilon": 3.0,
            "privacy.delta": delta,
            "privacy.draw": 0,
            # The shipped patterns describe the invented messages.
            "validation.max_chars": max(4000, 12 * (self.words or 0)),
            "validation.forbid": list(PATTERNS),
        }


def delta_for(public_size: int | None) -> float:
    """A delta for so many units: a power of ten of at most size ** -1.1, from 1e-9 to 1e-6.

    >>> [delta_for(size) for size in (None, 1500, 400_000, 10**7, 10**12)]
    [1e-06, 1e-06, 1e-07, 1e-08, 1e-09]
    """
    # Below 1 / size: else publishing one whole record would satisfy the guarantee.
    digits = 6 if public_size is None else math.ceil(1.1 * math.log10(max(public_size, 1)))
    return float(f"1e-{min(max(digits, 6), 9)}")


def place_of(data: str | Path | Mapping[str, Any]) -> Path | Address | Query:
    """Where a user says that records are: a path, an address, or a connection and its query.

    Raises:
        ConfigError: It is none of these, or holds a password.
    """
    if isinstance(data, Mapping):
        try:
            return Query.model_validate(dict(data))
        except ValidationError as error:
            raise ConfigError(explain(Query, error, "dataset.query.")) from None
    try:
        place = parse_source(str(data))
    except ValueError as error:
        raise ConfigError(f"data: {error}.") from None
    return place if isinstance(place, Address) else Path(place).expanduser().resolve()


def name_of(path: Path | Address | Query) -> str:
    """A dataset's name after its file or connection: letters, digits, dots and dashes."""
    last = path.connection.rpartition("/")[2] if isinstance(path, Query) else path.name
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", last.split(".")[0]).strip("-._")
    return name[:64] or "data"


def word_of(column: str) -> str:
    """What a unit is called, after the column of its id; ``unit`` where the name does not say.

    >>> [word_of(name) for name in ("customer_id", "patientId", "Patient no.", "userid", "uid")]
    ['customer', 'patient', 'patient', 'user', 'unit']
    """
    people = re.search(PEOPLE, column.lower())
    word = people[0] if people else re.sub(r"[\W_]*(id|no|nr|key)?\W*$", "", column.lower())
    return word if re.fullmatch(r"[a-z][a-z0-9-]{3,63}", word) else "unit"


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


_NUMBER, _DAY = r"(-?\d+(?:\.\d+)?)", r"(\d{4}-\d{2}-\d{2})"


def column_of(words: str, answer: str = "the answer") -> dict[str, Any]:
    """A column as it is declared, from what a person says that it can hold.

    >>> column_of("18 to 95")
    {'range': [18.0, 95.0], 'bins': 10}
    >>> column_of("1 to 5")
    {'range': [1.0, 5.0], 'bins': 5}
    >>> column_of("0.0 to 1.5 in 3 bins")
    {'range': [0.0, 1.5], 'bins': 3, 'decimals': 1}
    >>> column_of("2024-01-01 to 2026-12-31")
    {'dates': ['2024-01-01', '2026-12-31']}
    >>> column_of("web, phone")
    {'values': ['web', 'phone']}
    >>> column_of("yes, no ask: Is it urgent?")
    {'values': ['yes', 'no'], 'ask': 'Is it urgent?'}

    Raises:
        ConfigError: It is none of these.
    """
    if days := re.fullmatch(f"{_DAY} to {_DAY}(?: by (month|year))?", words.strip()):
        first, last, by = days.groups()
        return {"dates": [first, last]} | ({"by": by} if by else {})
    if limits := re.fullmatch(f"{_NUMBER} to {_NUMBER}(?: in (\\d+) bins)?", words.strip()):
        low, high, bins = limits.groups()
        decimals = max(len(one.partition(".")[2]) for one in (low, high))
        numbers = max(1, round((float(high) - float(low)) * 10**decimals) + 1)
        column = {"range": [float(low), float(high)], "bins": int(bins or min(10, numbers))}
        return column | ({"decimals": decimals} if decimals else {})
    words, _, question = words.partition(" ask: ")
    if values := label_list(words):
        return {"values": list(values)} | ({"ask": question.strip()} if question else {})
    raise ConfigError(
        f"{answer} names nothing that the column can hold.",
        hint="Write what it can hold: web,phone or 18 to 95 or 2024-01-01 to 2026-12-31.",
    )


def declared(columns: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Columns as they are declared, of which some are said in a person's words.

    Raises:
        ConfigError: See ``column_of``.
    """
    return {
        name: column_of(one, f"columns: {name}={one}") if isinstance(one, str) else dict(one)
        for name, one in columns.items()
    }


def in_data(columns: Mapping[str, Any]) -> list[str]:
    """Those of ``declared`` that the data have; a model answers the others."""
    return [name for name, one in declared(columns).items() if "ask" not in one]


Ask = Callable[[str, str, Callable[[str], Any]], Any]
"""Asks a person a question, with a proposal that Enter takes, until the third argument takes the
answer; what it raises says what is wrong with it. What it makes of the answer is returned."""
NONE = "none"
"""An answer that stands for nothing."""
OPTION, ARGUMENT = "--", "argument "
"""What stands before a field's name on the command line, and in Python."""


def ask_for(
    path: Path | Address | Query,
    given: Mapping[str, Any],
    ask: Ask | None,
    *,
    prefix: str = OPTION,
    columns: Sequence[str] | None = None,
) -> ProjectAnswers:
    """What a private file's columns mean: as given, else asked, else by their names.

    Only the header is read. Labels are public and are never taken from the data; who is protected
    is never guessed without a person's consent.

    Args:
        path: The file, a folder of images, a table, or a query.
        given: Fields of Answers that need not be asked; ``unit`` may be given as None.
        ask: None: there is nobody to ask.
        prefix: What stands before a field's name where the user gives it: OPTION or ARGUMENT.
        columns: Those of data in memory, which have no header to read.

    Raises:
        ConfigError: Something was neither given nor can be asked.
        DataError: The file cannot be read, or has no such column.
    """
    header = None if columns is None else Header(tuple(columns))
    stream = path if isinstance(path, Query) else header is None and table_at(path)
    if stream and header is None:
        header = read_header(stream)
    interview = _Interview(path, given, ask, prefix, header)
    interview.content()
    interview.labels()
    interview.people()
    interview.columns()
    interview.sizes()
    return ProjectAnswers(path=path, **interview.answers)


class _Interview:
    """Questions about a private file, in the order of their answers; what was given is not asked.

    Attributes:
        answers: Fields of Answers.
    """

    def __init__(
        self,
        path: Path | Address | Query,
        given: Mapping[str, Any],
        ask: Ask | None,
        prefix: str,
        header: Header | None,
    ) -> None:
        self._path, self._given, self._ask, self._prefix = path, given, ask, prefix
        folder = path if header is None and isinstance(path, Path) and path.is_dir() else None
        table = folder and _table(folder)
        arrays = not isinstance(path, Query) and path.suffix == ".npz"
        self._images = bool(folder and not table) or arrays or "image_size" in given
        self._header = header
        if header is None and not self._images:
            self._header = read_header(table or path, setting=self._option("data"))
        # Before any question: a slip on the command line is not found after the tenth answer.
        self.answers = {field: self._read(field, value) for field, value in given.items()}

    def settle(
        self, field: str, question: str, proposal: str | None = None, *, sure: bool = True
    ) -> None:
        """Fill a field in; ``sure``: the proposal does where nobody can be asked."""
        if field in self.answers:
            return
        read = partial(self._read, field)
        if self._ask is not None:
            self.answers[field] = self._ask(question, proposal or "", read)
        # privacy: who is protected and which labels there are is never `sure`: a person has to say
        # it.
        elif sure and proposal:
            self.answers[field] = read(proposal)
        else:
            option = self._option(field)
            if field == "unit" and self._prefix == OPTION:
                option = "--unit COLUMN or --rows-are-units"
            end = "" if question.endswith("?") else "."
            raise ConfigError(f"{option} is missing.", hint=f"{question}{end}")

    def content(self) -> None:
        """Ask what a record is."""
        if self._images:
            self.answers["text"] = None
            self.settle("image_size", _ASKS["image_size"], "28", sure=False)
            self.settle("image_mode", _ASKS["image_mode"], "RGB", sure=False)
            self.settle("label", "Which column holds the label? (in a folder any word)", "label")
            if is_folder(self._path):
                self.answers.setdefault("unit", "file")
        elif self._header is not None:
            columns = self._header.names
            listed = ", ".join(columns[:_SHOWN]) + (", ..." if len(columns) > _SHOWN else "")
            question = f"Which column holds the text? ({listed}; {NONE}: a table alone)"
            self.settle("text", question, likely(columns, "text"))
            if not self._is_table:
                self.settle("document", _ASKS["document"], NONE)
            # Labels must be listed by a person: where there is none, no column is proposed.
            label = likely(columns, "label") if self._ask is not None else None
            question = f"Which column holds the label? ({NONE}: no labels)"
            self.settle("label", question, label or NONE)

    def labels(self) -> None:
        """Ask for the labels and, of texts, for examples."""
        if self.answers["label"]:
            self.settle("labels", _ASKS["labels"], sure=False)
        labels = self.answers.get("labels", ())
        if self._ask is None or self._images or self._is_table:
            return
        examples = []
        invented: Sequence[str | None] = labels[:_EXAMPLES] or (None, None)
        for number, label in enumerate(invented, 1):
            of = f" of {label}" if label else ""
            question = _ASKS["example"].format(number=number, all=len(invented), of=of)
            if text := self._ask(question, NONE, partial(self._read, "example")):
                examples.append((label, text))
        self.answers["examples"] = tuple(examples)

    def people(self) -> None:
        """Ask who is protected."""
        unit = None if self._header is None else likely(self._header.names, "unit")
        looks = f" {unit} looks like one." if unit else ""
        self.settle("unit", _ASKS["unit"].format(looks=looks), sure=False)
        if self.answers["unit"]:
            self.settle("protects", "What is one of them called?", word_of(self.answers["unit"]))

    def columns(self) -> None:
        """Ask what stands beside the text: by the header and a person's words, never by values."""
        if self._is_table and self._ask is None and not self.answers.get("columns"):
            hint = "A table alone is made of them: age='18 to 95', channel=web,phone."
            raise ConfigError(f"{self._option('columns')} is missing.", hint=hint)
        if self._ask is None or self._header is None or "columns" in self.answers:
            return
        used = {*text_columns(self.answers["text"])}
        used |= {self.answers[field] for field in ("label", "unit")}
        left = [name for name in self._header.names if name not in used][:_SHOWN]
        if not left:
            return
        names = self._ask(_ASKS["columns"].format(columns=", ".join(left)), NONE, self._beside)
        self.answers["columns"] = {
            name: self._ask(_ASKS["holds"].format(column=name), "", column_of) for name in names
        }

    def _beside(self, answer: str) -> tuple[str, ...]:
        names = () if answer.strip().casefold() in (NONE, "") else label_list(answer)
        for name in names:
            self._column("columns", name)
        return names

    def _declared(self, answer: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
        if not isinstance(answer, Mapping):
            pairs = [one.partition("=")[::2] for one in answer]
            names = [name for name, _ in pairs]
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise ConfigError(
                    f"{self._option('columns')}={twice} is given twice.",
                    hint="Say once what it can hold.",
                )
            answer = dict(pairs)
        for name in in_data(answer):
            self._column("columns", name)
        return declared(answer)

    def sizes(self) -> None:
        """Ask how many people there are, how long texts are, and how many are wanted."""
        answers = self.answers
        whose = answers.get("protects") or ("row" if answers["unit"] is None else "unit")
        self.settle("public_size", _ASKS["public_size"].format(units=plural(whose)), NONE)
        if not (self._images or self._is_table):
            lengths = sorted(len(text.split()) for _, text in answers.get("examples", ()))
            usual = str(lengths[len(lengths) // 2]) if lengths else NONE
            self.settle("words", _ASKS["words"], usual)
        labels = len(answers.get("labels") or ())
        number = usual_number(labels, answers["public_size"], images=self._images)
        if self._is_table:  # no model writes them
            number = answers["public_size"] or _ROWS
        self.settle("texts", "How many synthetic records do you want in all?", str(number))

    @property
    def _is_table(self) -> bool:
        return not self._images and self.answers.get("text", "") is None

    def _option(self, field: str) -> str:
        if self._ask is not None and field not in self._given:
            return field.replace("_", " ")  # an answer, and no option that anybody wrote
        return self._prefix + (field.replace("_", "-") if self._prefix == OPTION else field)

    def _read(self, field: str, value: Any) -> Any:
        """A field's value from an answer.

        Raises:
            ConfigError: It would not do.
            DataError: There is no such column.
        """
        answer = value.strip() if isinstance(value, str) else value
        if field in ("text", "label", "unit"):
            return self._column(field, answer)
        if field == "columns":
            return self._declared(answer or {})
        if isinstance(answer, str) and answer.casefold() in (NONE, "") and field not in _NEEDED:
            return None
        try:
            return _READ[field](answer) if field in _READ and answer is not None else answer
        except ValueError as wrong:
            raise ConfigError(f"{self._option(field)}={value} {wrong}") from None

    def _column(self, field: str, name: str | None) -> str | None:
        header, option = self._header, self._option(field)
        known = () if header is None else header
        if name == "":
            raise ConfigError(
                f"{option} needs an answer: nobody but you can say it.",
                hint=f"Name a column, or write {NONE} for none.",
            )
        if name is None or (name.casefold() == NONE and name not in known):
            return None
        if field == "unit":
            refuse_index(name)
        if header is None or name in header:
            return name
        missing = {field: name}
        if field == "text" and (parts_of := PLACEHOLDER.findall(name)):
            named = {f"text ({n})": part for n, part in enumerate(parts_of, 1)}
            missing = {key: part for key, part in named.items() if part not in header}
        is_answer = self._ask is not None and field not in self._given
        refuse_missing(self._path, missing, header.names, prefix="" if is_answer else self._prefix)
        return name


def _labels(answer: str | Sequence[str]) -> tuple[str, ...]:
    """All labels of a line with commas between them."""
    if not isinstance(answer, str):
        return tuple(answer)
    names = label_list(answer)
    if not names:
        raise ValueError("names no label. Write: Bug,Question")
    return names


def _whole(number: Any) -> int:
    if not re.fullmatch(r"[1-9]\d{0,17}", str(number)):
        raise ValueError("is not a whole number from 1 on. Write one, such as 200.")
    return int(number)


def _mode(answer: str) -> str:
    modes = {"l": "L", "gray": "L", "rgb": "RGB", "color": "RGB"}
    if answer.casefold() not in modes:
        raise ValueError("is neither L nor RGB. Write: RGB")
    return modes[answer.casefold()]


def _word(answer: str) -> str:
    if not re.fullmatch(NAME, answer):
        raise ValueError(f"must be {WORDS[NAME]}. Write: patient")
    return answer


def _document(answer: str) -> str:
    if len(answer) > LONGEST_DOCUMENT:
        raise ValueError(f"has {len(answer)} characters, of at most {LONGEST_DOCUMENT}.")
    return answer


_READ: Mapping[str, Callable[[Any], Any]] = {
    "labels": _labels,
    "roles": _labels,
    "image_mode": _mode,
    "protects": _word,
    "document": _document,
    **dict.fromkeys(("image_size", "public_size", "words", "texts"), _whole),
}
"""Field -> what makes its value of an answer, or says what is wrong with it."""
_NEEDED = ("labels", "image_size", "image_mode", "texts", "protects")
"""Fields for which nothing is no answer."""


def usual_number(labels: int, public_size: int | None, *, images: bool = False) -> int:
    """How many synthetic records are proposed: by public numbers alone.

    Some for each label; of texts, where there are many people, about one for each eight of them
    that train, since private evolution has them vote on two candidates a text.
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
_ROWS = 1000
"""Rows of a table that are proposed where nobody says how many people there are."""
_PEOPLE_A_TEXT, _MOST = 8, 300
"""People that a proposed text has, so that votes outnumber candidates; and most texts that are
proposed for them, which take a small model some 16 CPU minutes."""


def _table(path: Path) -> Path | None:
    """The first of a folder's files where its files are rows; None for images and for a file."""
    files = [part for part in parts(path) if isinstance(part, Path)]
    of_texts = [suffix for suffix, one in FORMATS.items() if "texts" in one.holds]
    rows = [file for file in files if split_suffix(file)[0] in of_texts]
    # Beside images in subfolders there may be lists of them, which are not what is private.
    if len(rows) == len(files) or any(file.parent == path for file in rows):
        return files[0]
    return None


_SHOWN = 20
"""Columns that a question lists."""
_ASKS = read_table(Path(__file__).with_name("questions.yaml"))
"""The questions, by field."""
