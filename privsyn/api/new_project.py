"""A new project: params.yaml, dvc.yaml, dags and .gitignore, from what the package ships."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from privsyn.api.interview import ProjectAnswers
from privsyn.config import Config, parse_config
from privsyn.data.artifacts import atomic_file
from privsyn.errors import ConfigError
from privsyn.methods.registry import METHODS
from privsyn.models.model_identity import size_here
from privsyn.publishing.git import PROJECT_FILES, in_git
from privsyn.section import MANY, PAPER, PRESET, SMALL
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

LARGE = ("invisible_ink", "private_prediction", "dp_lora")
"""Methods that read a language model's logits or gradients: for a large model they have the paper's
values."""

COMMENTS = {
    "dataset.name": "the lineage: this dataset over all its versions",
    "dataset.version": "opaque and public; {date:%Y-%m} makes one version a month",
    "dataset.document": "what a record is, for the prompts: public; e.g. a message to a clinic",
    "dataset.label": "column of the label",
    "dataset.labels": "public; records with any other label are dropped",
    "dataset.unit": "column of the id of who is protected; null: rows, not people, are protected",
    "dataset.max_records_per_unit": "so many records of a unit are used at most",
    "dataset.holdout": "share of units kept for internal evaluation",
    "dataset.delimiter": "between the columns",
    "validation.forbid": "masked in the texts: a model makes such up by itself",
    "account.unit": "what is protected",
    "account.epsilon": "lifetime cap over all releases",
    "account.period": "e.g. {days: 30, epsilon: 10}",
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
        for key, value in answers.stated().items():
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
        methods = LARGE
    lines: dict[str, Any] = {f"methods.{name}.{PRESET}": PAPER for name in methods}
    if methods and not chat:
        # The papers' prompts are for chat models; null and plain continue a list of records.
        lines |= {"methods.invisible_ink.prompt": None, "methods.private_prediction.task": "plain"}
    return lines


def presets_in_words(config: Config) -> str:
    """Which preset the methods of a new project have, and why."""
    named: dict[str, list[str]] = {}
    for name in METHODS:
        named.setdefault(str(config.preset(name)), []).append(name)
    which = "; ".join(f"{preset} for {', '.join(names)}" for preset, names in named.items())
    known = size_here(config.models)
    size = f"about {known[0] / 1e9:.1f} billion parameters" if known else "a size not known here"
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
    folder: Path, params_text: str, keep: Callable[[], None] | None = None
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
        if keep is not None:
            keep()
        # Last: a folder without params.yaml is not a project, so a failed init can be repeated.
        _write(folder / "params.yaml", params_text)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}.") from None
    return [folder / "params.yaml", *written], unchanged


def _write(file: Path, content: str) -> None:
    with atomic_file(file, mode=0o644) as stream:
        stream.write(content.encode())
