"""A new project: what it must know about its private file, given or asked, and its files.

The files (params.yaml, dvc.yaml, dags and .gitignore) are made from those that the package ships.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from privsyn.config import Config, override, parse_config
from privsyn.data.artifacts import atomic_file
from privsyn.data.readers.columns import (
    PEOPLE,
    Header,
    called_after_people,
    refuse_index,
    refuse_missing,
)
from privsyn.data.readers.formats import read_header
from privsyn.data.readers.streams import parts, split_suffix
from privsyn.data.settings import LONGEST_DOCUMENT, PLACEHOLDER
from privsyn.dp.adjacency import plural
from privsyn.errors import ConfigError, PrivsynError
from privsyn.methods.base import READ_MODELS
from privsyn.methods.registry import METHODS, load_method, settings_model
from privsyn.methods.shared.label_choice import split_by
from privsyn.models.model_identity import size_here, size_in_words
from privsyn.publishing import PROJECT_FILES, in_git
from privsyn.section import MANY, NAME, PAPER, PRESET, SMALL, WORDS
from privsyn.stages.plan import for_texts
from privsyn.validation.settings import PATTERNS

_PACKAGE = Path(__file__).parents[1]
TEMPLATE = _PACKAGE / "template" if (_PACKAGE / "template").is_dir() else _PACKAGE.parent
"""The repository's own project files: ``setup.py`` copies them into a wheel."""


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
        settings: Any others, ``a.b.c=value``.
        preset: Values of the methods: paper or small. None: by the size of the language model.

    Raises:
        ConfigError: An answer is not usable as a setting, or there is no such preset.
    """
    raw: dict[str, Any] = yaml.safe_load((TEMPLATE / "params.yaml").read_text(encoding="utf-8"))
    raw["pipeline"] = [method]
    if answers is not None:
        raw |= answers.sections()
        for key, value in (changes or {}).items():
            section, _, name = key.partition(".")
            raw[section][name] = value
        if answers.image_size is not None:
            raw["methods"]["private_evolution"] = {PRESET: SMALL, "modality": "image"}
    config = parse_config(raw, settings)
    papers = _papers(config, preset)
    for name in papers:
        modality = {key: raw["methods"][name][key] for key in _KEPT if key in raw["methods"][name]}
        raw["methods"][name] = {PRESET: PAPER} | modality | dict(_UNLIKE.get(name, {}))
    if papers and not (size_here(config.models) or (0, True))[1]:
        # The papers' prompts are for chat models; null continues a list of records.
        for name in ("invisible_ink", "private_prediction"):
            override(raw, f"methods.{name}.prompt=null")
    texts = _SAMPLE_TEXTS if answers is None and papers else getattr(answers, "texts", None)
    if texts is not None:
        config = parse_config(raw, settings)
        words = config.dataset.words
        for item in [one for name in METHODS for one in for_texts(config, name, texts, words)]:
            override(raw, item)
        _split(raw, config.dataset.labels, texts, getattr(answers, "label_shares", None))
    for item in settings:
        override(raw, item)
    text = _render(raw)
    # Read back before it becomes a project.
    parse_config(yaml.safe_load(text))
    return text


_KEPT = ("modality",)
"""Settings that a paper's values leave as they are."""
_UNLIKE: Mapping[str, Mapping[str, Any]] = {
    # A comparison costs several times a token, and spares few tokens of free text.
    "private_prediction": {"svt_threshold": None},
    # Solved for: the paper's noise is what its epsilon asks for at its sizes.
    "dp_lora": {"noise_multiplier": None},
}
"""Settings of a new project that would not suit the paper's values at other sizes."""
_SAMPLE_TEXTS = 100
"""Texts of the invented messages, where a paper's number would be made for its own data."""


def _papers(config: Config, preset: str | None) -> tuple[str, ...]:
    """The methods that get their paper's values.

    Raises:
        ConfigError: There is no such preset.
    """
    if preset not in (None, PAPER, SMALL):
        raise ConfigError(f"settings={preset} is not known.", hint=f"Write {PAPER} or {SMALL}.")
    if preset is not None:
        return tuple(METHODS) if preset == PAPER else ()
    size, _ = size_here(config.models) or (0, True)
    # Of the others no value hangs on the size of a language model.
    return tuple(name for name in METHODS if size >= MANY and _reads_model(config, name))


def _reads_model(config: Config, method: str) -> bool:
    """Whether a method reads logits or gradients: for a large model it has the paper's values."""
    return bool(READ_MODELS.intersection(load_method(method).roles(config.method(method))))


def _split(
    raw: dict[str, Any], labels: Sequence[str], texts: int, shares: Sequence[float] | None
) -> None:
    """Write the public shares of the labels, for the methods that can follow them."""
    if shares is None:
        return
    counts = split_by(dict(zip(labels, shares, strict=True)), texts)
    for name in METHODS:
        if "label_split" in settings_model(name).model_fields:
            raw["methods"][name]["label_split"] = counts


def presets_in_words(config: Config) -> str:
    """Which preset the methods of a new project have, why, and what is not the paper's in it."""
    named: dict[str, list[str]] = {}
    for name in METHODS:
        named.setdefault(str(config.preset(name)), []).append(name)
    which = "; ".join(f"{preset} for {', '.join(names)}" for preset, names in named.items())
    known = size_here(config.models)
    size = f"{size_in_words(known[0])} parameters" if known else "a size not known here"
    changed = {key: None for name in named.get(PAPER, ()) for key in config.changed(name)}
    sized = (
        f" Sized by what you said, so not the papers' configurations: {', '.join(changed)}."
        if changed
        else ""
    )
    return (
        f"settings of the methods: {which}. models.language={config.models.language} has {size}; "
        f"{SMALL} is for models below 1 billion.{sized}"
    )


def yaml_of(value: Any) -> str:
    """A value on one line of YAML; a word that YAML would read as something else is quoted."""
    if isinstance(value, float) and "e" in str(value):
        # YAML 1.1 reads 1e-06 as text and 1.0e-6 as a number.
        digits, _, power = str(value).partition("e")
        return f"{digits}{'' if '.' in digits else '.0'}e{int(power):+d}"
    dumped: str = yaml.safe_dump(
        value, default_flow_style=True, width=10**9, allow_unicode=True, sort_keys=False
    )
    return dumped.removesuffix("\n").removesuffix("\n...")


class _Settings:
    """Lines of params.yaml: each setting is written once, where the template names it or its rest.

    Args:
        values: All settings, as sections in sections.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def line(self, key: str, comment: str = "") -> str:
        """A setting with its comment; GONE where there is none."""
        *parents, name = key.split(".")
        section = self._section(parents)
        if name not in section:
            return self.GONE
        return self._entry(name, section.pop(name), len(parents), comment)

    def rest(self, key: str) -> str:
        """The settings of a section that no line has named; GONE where there are none."""
        parents = key.split(".") if key else []
        section, lines = self._section(parents), []
        for name in list(section):
            value = section.pop(name)
            if value != {}:  # a section whose settings have their lines
                lines.append(self._entry(name, value, len(parents)))
        return "\n".join(lines) or self.GONE

    GONE = "\0"
    """A line that is left out."""

    def _section(self, parents: Sequence[str]) -> dict[str, Any]:
        section: dict[str, Any] = self._values
        for parent in parents:
            section = section.get(parent) or {}
        return section

    def _entry(self, name: str, value: Any, depth: int, comment: str = "") -> str:
        block = bool(value) and (
            all(isinstance(one, dict) for one in value)
            if isinstance(value, list)
            else isinstance(value, dict) and depth == _NESTED
        )
        indent = "  " * depth
        line = f"{indent}{name}:" if block else f"{indent}{name}: {yaml_of(value)}"
        line = f"{line:32}  # {comment}" if comment else line
        if not block:
            return line
        dumped = yaml.safe_dump(value, width=94, allow_unicode=True, sort_keys=False)
        return "\n".join([line, *(f"{indent}  {one}" for one in dumped.splitlines())])


_NESTED = 2
"""Depth of a method's settings, whose sections are written a line a setting."""


def _render(values: dict[str, Any]) -> str:
    """params.yaml with the template's comments."""
    pages = Environment(  # noqa: S701 - YAML: what is printed is quoted by yaml_of
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined
    )
    lines = _Settings(values)
    text = pages.get_template("params.jinja").render(line=lines.line, rest=lines.rest)
    return "".join(f"{line}\n" for line in text.splitlines() if line != _Settings.GONE)


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
        path: The file, or the folder of images.
        text: Column of the text; None for images.
        label: Column of the label, if there is one.
        labels: The public set of labels.
        label_shares: Their public shares; None: about equal, or not known.
        unit: Column of the unit id; None: every row is its own unit.
        protects: What a unit is: patient, customer.
        name: Of dataset and account; None: the file's.
        image_size: Side in pixels images are brought to; None for texts.
        image_mode: L for gray, RGB for color.
        document: What a record is, for prompts: public.
        examples: Pairs (label, text) of invented records, for prompts: public.
        public_size: How many units there are, as is known without the file; None: not said.
        words: About how many words a text has, likewise.
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
    label_shares: tuple[float, ...] | None = None
    unit: str | None = None
    protects: str | None = None
    name: str | None = None
    image_size: int | None = None
    image_mode: str = "RGB"
    document: str | None = None
    examples: tuple[tuple[str | None, str], ...] = ()
    public_size: int | None = None
    words: int | None = None
    texts: int | None = None
    curators: str | None = None
    contact: str | None = None
    license: str | None = None
    intended_use: str | None = None
    mask: bool = True

    @property
    def protected(self) -> str:
        """What a unit is called."""
        return self.protects or (word_of(self.unit) if self.unit else "record")

    def sections(self) -> dict[str, Any]:
        """The sections of params.yaml that follow.

        A file without unit ids has rows for units: one can be replaced by nothing but not removed,
        since later rows would move up.
        """
        name, delta = self.name or name_of(self.path), delta_for(self.public_size)
        images = None
        if self.image_size is not None:
            images = {"size": self.image_size, "mode": self.image_mode}
        content: dict[str, Any] = {"images": images}
        if images is None:
            content = {
                "text": self.text,
                "document": self.document,
                "words": self.words,
                "examples": [
                    {"label": label, "text": text} if label else {"text": text}
                    for label, text in self.examples
                ],
            }
        stated = {field: getattr(self, field) for field in _STATED}
        sections: dict[str, Any] = {
            "dataset": {
                "name": name,
                "path": str(self.path.expanduser().resolve()),
                "version": "v1",
                **content,
                "label": self.label,
                "labels": list(self.labels),
                "unit": self.unit,
                "max_records_per_unit": 1,
                "holdout": HOLDOUT,
            },
            "account": {
                "name": name,
                "unit": self.protected,
                # add_remove needs ids that stay the same when a unit is gone.
                "adjacency": "add_remove" if self.unit is not None else "replace_null",
                "epsilon": 10.0,
                "delta": delta,
                "public_size": self.public_size,
                "period": None,
            },
            "privacy": {"epsilon": 3.0, "delta": delta, "draw": 0},
            # The shipped patterns describe the invented messages.
            "validation": {
                "max_chars": max(4000, 12 * (self.words or 0)),
                "forbid": list(PATTERNS if self.mask else ()),
            },
        }
        if any(stated.values()):
            sections["deployment"] = {key: value for key, value in stated.items() if value}
        return sections


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
    interview = _Interview(path, given, ask, prefix)
    images = interview.content()
    interview.labels(examples=ask is not None and not images)
    interview.people()
    interview.sizes(images=images)
    interview.statements()
    if not images:
        interview.settle("mask", _MASK, YES)
        masked = _chosen("mask", str(interview.answers["mask"]), _CHOICES["mask"])
        interview.answers["mask"] = masked == YES
    return ProjectAnswers(path=path, **interview.answers)


class _Interview:
    """Questions about a private file, in the order of their answers; what was given is not asked.

    Attributes:
        answers: Fields of Answers.
    """

    def __init__(self, path: Path, given: Mapping[str, Any], ask: Ask | None, prefix: str) -> None:
        self._path, self._given, self._ask, self._prefix = path, given, ask, prefix
        self._header: Header | None = None
        self.answers = dict(given)
        for field in ("label", "unit"):
            if given.get(field) == "":  # else who is protected would be left open by a slip
                raise ConfigError(f"{self._option(field)} is empty.", hint=_EMPTY[field, prefix])

    def settle(
        self, field: str, question: str, proposal: str | None = None, *, sure: bool = True
    ) -> None:
        """Fill a field in; ``sure``: the proposal does where nobody can be asked."""
        if field in self.answers:
            return
        if self._ask is not None:
            answer = self._answer(field, question, proposal or "")
        # privacy: who is protected and which labels there are is never `sure`: a person has to say
        # it.
        elif sure and proposal:
            answer = proposal
        else:
            option = _EITHER[self._prefix] if field == "unit" else self._option(field)
            raise ConfigError(f"{option} is missing.", hint=question)
        self.answers[field] = None if answer == "" or self._is_nothing(answer) else answer

    def _answer(self, field: str, question: str, proposal: str) -> str:
        """A person's answer; one that would not do is asked for again at once."""
        shown = question
        for tries_left in range(_TRIES, -1, -1):
            answer = self._ask(shown, proposal).strip() if self._ask else proposal
            try:
                self._refuse({field: answer})
                break
            except PrivsynError as wrong:
                if not tries_left:
                    raise
                shown = f"{wrong} {question}"
        return answer

    def content(self) -> bool:
        """Ask what a record is; whether records are images."""
        table, answers = _table(self._path), self.answers
        folder_of_images = self._path.is_dir() and table is None
        if folder_of_images or self._path.suffix == ".npz" or "image_size" in answers:
            self._refuse(answers)
            answers["text"] = None
            self.settle("image_size", _SIDE, "28", sure=False)
            self.settle("image_mode", _MODE, "RGB", sure=False)
            mode = self._option("image_mode"), str(answers["image_mode"])
            answers["image_mode"] = _chosen(*mode, _CHOICES["image_mode"])
            answers["image_size"] = int(answers["image_size"])
            self.settle("label", "Which column holds the label? (in a folder any word)", "label")
            if self._path.is_dir():
                answers.setdefault("unit", "file")
            return True
        self._header = read_header(table or self._path, setting=self._option("data"))
        columns = self._header.names
        self._refuse(answers)
        text, listed = likely(columns, "text"), f"Which column holds the text? ({_some(columns)})"
        self.settle("text", listed, text)
        self.settle("document", _WHAT, NONE)
        # Labels must be listed by a person: where there is none, no column is proposed.
        label = likely(columns, "label") if self._ask is not None else None
        self.settle("label", f"Which column holds the label? ({NONE}: no labels)", label or NONE)
        return False

    def labels(self, *, examples: bool) -> None:
        """Ask for the labels, their shares and, of texts, for examples."""
        answers = self.answers
        if answers["label"] and not answers.get("labels"):
            answers.pop("labels", None)
            self.settle("labels", _LABELS, sure=False)
        if isinstance(answers.get("labels"), str):
            answers["labels"] = label_list(answers["labels"])
        labels = answers.get("labels") or ()
        if len(labels) > 1:
            self.settle("label_shares", _SHARES.format(", ".join(labels)), YES)
        shares = answers.get("label_shares")
        if isinstance(shares, str):
            answers["label_shares"] = _shares(self._option("label_shares"), shares, len(labels))
        if examples and "examples" not in answers and self._ask is not None:
            answers["examples"] = _examples(self._ask, labels)

    def people(self) -> None:
        """Ask who is protected."""
        unit = None if self._header is None else likely(self._header.names, "unit")
        looks = f" {unit} looks like one." if unit else ""
        self.settle("unit", _WHOSE.format(looks), sure=False)
        if self.answers["unit"]:
            self.settle("protects", "What is one of them called?", word_of(self.answers["unit"]))

    def sizes(self, *, images: bool) -> None:
        """Ask how many people there are, how long texts are, and how many are wanted."""
        answers = self.answers
        whose = answers.get("protects") or ("row" if answers["unit"] is None else "unit")
        self.settle("public_size", _HOW_MANY.format(plural(whose)), NONE)
        if not images:
            lengths = sorted(len(text.split()) for _, text in answers.get("examples", ()))
            usual = str(lengths[len(lengths) // 2]) if lengths else NONE
            self.settle("words", _HOW_LONG, usual)
        for field in ("public_size", "words"):
            if answers.get(field) is not None:
                answers[field] = int(answers[field])
        labels = len(answers.get("labels") or ())
        number = usual_number(labels, answers["public_size"], images=images)
        self.settle("texts", "How many synthetic records do you want in all?", str(number))
        answers["texts"] = int(answers["texts"])

    def statements(self) -> None:
        """Ask what the first card of a report states; the first answer opens the others."""
        for field, question in _STATED.items():
            if field == "curators" or self.answers["curators"]:
                self.settle(field, f"{question} (public; {NONE}: not stated yet)", NONE)

    def _is_nothing(self, answer: str) -> bool:
        known = () if self._header is None else self._header
        return answer.casefold() in NOTHING and answer not in known

    def _option(self, field: str) -> str:
        if self._ask is not None and field not in self._given:
            return field.replace("_", " ")  # an answer, and no option that anybody wrote
        return self._prefix + (field.replace("_", "-") if self._prefix == OPTION else field)

    def _refuse(self, answers: Mapping[str, Any]) -> None:
        """Refuse an answer that would not do: at once, while it can be given again."""
        for field, value in answers.items():
            if field in _CHECKS and value is not None:
                _CHECKS[field](self._option(field), value)
            if field in _CHOICES and value is not None:
                _chosen(self._option(field), str(value), _CHOICES[field])
        if isinstance(answers.get("label_shares"), str):
            labels = self.answers.get("labels") or ()
            count = len(label_list(labels) if isinstance(labels, str) else labels)
            _shares(self._option("label_shares"), answers["label_shares"], count)
        if self._header is not None:
            self._refuse_columns(self._header, answers)

    def _refuse_columns(self, header: Header, answers: Mapping[str, Any]) -> None:
        text = answers.get("text", "text")
        if text in ("", None, *NOTHING) and text not in header:
            raise ConfigError(
                f"{self._option('text')}={text!r} names no column.",
                hint="A project of texts needs one, or a form over several.",
            )
        if "unit" in answers and self._ask is not None and answers["unit"] in ("", "-"):
            raise ConfigError("This needs an answer: nobody but you can say who is protected.")
        names = {
            field: answers[field]
            for field in _COLUMNS
            if answers.get(field) not in (None, "") and not self._is_nothing(answers[field])
        }
        in_text = PLACEHOLDER.findall(names.get("text", ""))
        if in_text and names["text"] not in header:
            del names["text"]
            names = {f"text ({n})": name for n, name in enumerate(in_text, 1)} | names
        missing = {field: name for field, name in names.items() if name not in header}
        may_ask = self._ask is not None and not missing.keys() & self._given.keys()
        refuse_missing(self._path, missing, header.names, prefix="" if may_ask else self._prefix)
        if "unit" in names:
            refuse_index(names["unit"])


def _examples(ask: Ask, labels: Sequence[str]) -> tuple[tuple[str | None, str], ...]:
    """Texts that the owner invents, one a label at most; those that they skip are left out."""
    answers: list[tuple[str | None, str]] = []
    invented: Sequence[str | None] = list(labels)[:_EXAMPLES] or [None, None]
    for number, label in enumerate(invented, 1):
        of = f" of {label}" if label else ""
        question = (
            f"Example {number} of {len(invented)}: write one text{of} as you imagine it, in the "
            "usual length and voice. Prompts show it, so it is public: never copy a record "
            f"({NONE}: skip)"
        )
        text = ask(question, NONE).strip()
        if text.casefold() not in NOTHING and 0 < len(text) <= _SLIP and len(text.split()) == 1:
            text = ask(f"{text!r} is one word; Enter takes it as a whole text. {question}", text)
        if text.strip() and text.strip().casefold() not in NOTHING:
            answers.append((label, text.strip()))
    return tuple(answers)


_SLIP = 20
"""Most characters of a single word that may be a slip: scripts without spaces have longer texts."""


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
_SIDE = "To how many pixels a side are images brought?"
_MODE = "Are the images gray (L) or in color (RGB)?"
_WHAT = (
    "In a few English words with their article, what is one text? For example: an SMS to a shop. "
    f"Prompts say it, so it is public ({NONE}: prompts say a text, and texts come from anywhere)"
)
_LABELS = (
    "Which labels are there? All of them, with commas between (they are public, so they are not "
    "read from the file)"
)
_SHARES = (
    "Are the labels about equally frequent, by what is publicly known? (yes: equally many texts of "
    "each, or not known; else their shares in the order {}, such as 60,30,10: they are published)"
)
_WHOSE = (
    "Which column says whose row it is, such as a patient's?{} Whoever it names is protected "
    f"({NONE} only if no two rows can be the same person's: rows, not people, are protected then)"
)
_HOW_MANY = (
    "About how many {} are there, by what is known without the file? A number that you may "
    f"publish: settings are judged by it ({NONE}: not known)"
)
_HOW_LONG = (
    "About how many words has a text, by what is known without the file? A number that you may "
    f"publish: lengths follow from it ({NONE}: not known)"
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
YES = "yes"


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


def _shares(option: str, text: str, labels: int) -> tuple[float, ...] | None:
    """Shares of the labels; None for equal ones.

    Raises:
        ConfigError: They are no numbers above 0, or not one for each label.
    """
    if text and YES.startswith(text.lower()):
        return None
    try:
        shares = tuple(float(part.strip().removesuffix("%")) for part in text.split(","))
    except ValueError:
        shares = ()
    if len(shares) != labels or not all(0 < share < math.inf for share in shares):
        raise ConfigError(
            f"{option}={text} is not a share above 0 for each of {labels} labels.",
            hint="Write yes, or numbers with commas between them, such as 60,30,10.",
        )
    return shares


def _check_whole(option: str, number: Any) -> None:
    field = re.sub("[ -]", "_", option.removeprefix(OPTION).removeprefix(ARGUMENT))
    if number in NOTHING and field in ("public_size", "words"):
        return
    if not re.fullmatch(r"[1-9]\d{0,17}", str(number)):
        raise ConfigError(
            f"{option}={number} is not a whole number from 1 on.", hint=_WHOLE_NUMBERS[field]
        )


def _check_word(option: str, word: Any) -> None:
    if not re.fullmatch(NAME, word):
        raise ConfigError(f"{option}={word!r} must be {WORDS[NAME]}.", hint="Write: patient")


def _chosen(option: str, answer: str, choices: tuple[str, str]) -> str:
    """The choice that an answer begins.

    Raises:
        ConfigError: It begins none.
    """
    for choice in choices:
        if answer and choice.lower().startswith(answer.lower()):
            return choice
    raise ConfigError(
        f"{option}={answer} is neither {choices[0]} nor {choices[1]}.", hint=f"Write: {choices[0]}"
    )


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
    "words": f"Write a public estimate, such as 40, or {NONE} where there is none.",
    "texts": "Write how many, such as 200.",
}
"""Fields that are whole numbers, and what to write."""
_CHECKS: Mapping[str, Callable[[str, Any], None]] = {
    "document": _check_length,
    "labels": _check_labels,
    **dict.fromkeys(_WHOLE_NUMBERS, _check_whole),
    "protects": _check_word,
}
"""Field -> what refuses a value that its setting could not have."""
_CHOICES = {"mask": (YES, "no"), "image_mode": ("RGB", "L")}
"""Field -> its two answers."""
_EMPTY = {
    ("label", OPTION): f"Name a column, or write {NONE} for none.",
    ("unit", OPTION): "Name a column, or say --rows-are-units if no two rows can be the same "
    "person's.",
    ("label", ARGUMENT): "Name a column, or give None for none.",
    ("unit", ARGUMENT): "Name a column, or give None if no two rows can be the same person's.",
}
_EITHER = {OPTION: "--unit COLUMN or --rows-are-units", ARGUMENT: "argument unit"}
