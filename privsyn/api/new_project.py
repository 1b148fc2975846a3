"""A new project: params.yaml, dvc.yaml, dags and .gitignore, from what the package ships."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from privsyn.api.interview import Answers
from privsyn.config import parse_config
from privsyn.data.artifacts import atomic_file
from privsyn.errors import ConfigError
from privsyn.methods.registry import METHODS
from privsyn.publishing.command import PROJECT_FILES
from privsyn.publishing.git import in_git
from privsyn.stages.plan import for_texts

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
    "dataset.unit": "column of the id of who is protected; null: rows, not people, are protected",
    "dataset.max_records_per_unit": "so many records of a unit are used at most",
    "dataset.holdout": "share of units kept for internal evaluation",
    "dataset.delimiter": "between the columns",
    "account.unit": "what is protected",
    "account.epsilon": "lifetime cap over all releases",
    "account.period": "e.g. {days: 30, epsilon: 10}",
    "account.public_size": "public estimate of how many of them there are: plan judges sizes by it",
}


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
    config = parse_config(yaml.safe_load(text))
    if answers is None or answers.texts is None:
        return text
    for name in METHODS:
        for override in for_texts(config, name, answers.texts):
            text = _with_override(text, override)
    parse_config(yaml.safe_load(text))
    return text


def _with_override(text: str, override: str) -> str:
    """The text with one setting of a method in place of the template's."""
    place, _, value = override.partition("=")
    _, method, key = place.split(".")
    pattern = rf"(?m)^(  {method}:\n(?:    .*\n)*?    {key}: )\S+"
    changed, count = re.subn(pattern, lambda found: found[1] + value, text)
    if count != 1:
        raise AssertionError(f"the template has {count} lines {place}")
    return changed


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
