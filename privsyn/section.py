"""Sections of params.yaml: frozen models that refuse unknown keys and explain wrong values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from datetime import date as Date
from typing import Any, ClassVar, Final

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
)

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
RELEASE = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$"
VERSION = r"^[A-Za-z0-9{][A-Za-z0-9_.:%{}-]{0,63}$"
CONNECTION = r"^[A-Za-z0-9_.-]+$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
SHA256 = r"^[0-9a-f]{64}$"
ASSET = r"^[a-z][a-z0-9+.-]*://\S+$"
EVENT = r"^(partition_key|extra\.\w+)$"

WORDS: Mapping[str, str] = {
    NAME: "up to 64 letters (A to Z), digits, dots, dashes and underscores, a letter or digit "
    "first",
    RELEASE: "the id of a release: letters (A to Z), digits, dots, colons, dashes and underscores",
    VERSION: "up to 64 letters (A to Z), digits, dots, colons, dashes and underscores, a letter or "
    "digit first; {date:%Y-%m} stands for the run's date",
    CONNECTION: "letters (A to Z), digits, dots, dashes and underscores",
    VARIABLE: "the name of an environment variable: letters (A to Z), digits and underscores, no "
    "digit first",
    SHA256: "a SHA-256 digest: 64 digits or letters a to f",
    ASSET: "an address such as s3://bucket/file, without spaces",
    EVENT: "partition_key, or extra.KEY of the event",
}
"""Pattern of a setting -> what it requires, for messages."""


class Section(BaseModel):
    """A frozen part of the config that refuses unknown keys."""

    # frozen: settings that enter a release id must not change after it was computed.
    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Sets of values by name, which a line ``settings: NAME`` of the section stands for."""
    image_presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """The same where records are images; empty: there are no others."""


OVERRIDES = "PRIVSYN_OVERRIDES"
"""Environment variable with settings of the deployment; they may hold passwords."""

PRESET: Final = "settings"
"""Key of a section, and line of a trigger form, that names a preset, and not a setting: a plan and
a certificate hold the values that it stands for."""
PAPER: Final = "paper"
"""The preset of a method's paper."""
SMALL: Final = "small"
"""The preset for language models of fewer than ``MANY`` parameters."""
MANY: Final = 10**9


def explain(
    model: type[BaseModel],
    error: ValidationError,
    prefix: str,
    further: Mapping[str, type[BaseModel]] | None = None,
) -> str:
    """Explain a config's errors in one line: setting, value, limit, nearest known name.

    Args:
        model: The validated model.
        error: The error of validation.
        prefix: Prefix of its settings, with a dot; empty for the whole config.
        further: Sections that are plain mappings in the model, by the prefix of their settings.
    """
    lines = []
    for problem in error.errors(include_url=False):
        key = (prefix + ".".join(str(part) for part in problem["loc"])).rstrip(".")
        if problem["type"] == "extra_forbidden" and not _NAMES.fullmatch(key):
            # Not quoted: a pasted line may hold a password.
            lines.append("a name that is more than letters and digits is not a known setting.")
        elif problem["type"] == "extra_forbidden":
            near = (
                _elsewhere(model, problem["loc"], prefix)
                or nearest(str(problem["loc"][-1]), _known_keys(model, problem["loc"][:-1]))
                or _endings(model, problem["loc"], further or {})
            )
            meant = f"Did you mean {near}?" if near else _there(model, problem["loc"], prefix)
            lines.append(f"{key} is not a known setting. {meant}".rstrip())
        elif problem["type"] == "missing":
            lines.append(f"{key} is missing.")
        elif problem["type"] == "value_error":
            lines.append(
                f"{key}: {problem['ctx']['error']}." if key else f"{problem['ctx']['error']}."
            )
        elif key.split(".")[0] == "services":  # no value: a URL may hold a password
            lines.append(f"{key}: {_requirement(model, problem)}.")
        else:
            lines.append(
                f"{key}={_value_text(problem['input'])}: {_requirement(model, problem)}."
                + _quoting(problem)
            )
    return " ".join(lines)


def _there(model: type[BaseModel], location: Sequence[Any], prefix: str) -> str:
    """The known keys of the section of an unknown key."""
    where = prefix + ".".join(str(part) for part in location[:-1])
    known = _known_keys(model, location[:-1])
    if not known:
        return "See params.yaml."
    more = ", ..." if len(known) > _KEYS else ""
    there = f"{where.rstrip('.')} has" if where else "The sections are"
    return f"{there} {', '.join(known[:_KEYS])}{more}: see params.yaml."


_KEYS = 30
"""Most keys of a section that are listed."""
_NAMES = re.compile(r"[\w. -]*")


def _value_text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


_LONGEST_SHOWN = 100


def _quoting(problem: Any) -> str:
    """The next step if YAML read a word as another type than text."""
    value = problem["input"]
    if problem["type"] != "string_type":
        return ""
    if isinstance(value, bool):
        words = "Yes, On or True" if value else "No, Off or False"
        return f' YAML reads {words} as {str(value).lower()}: put it in quotes, such as "Yes".'
    if value is None:
        return " YAML reads null and ~ as nothing: in quotes they are text."
    if isinstance(value, int | float | Date):  # not the value: 010 is 8 by now, and 1.10 is 1.1
        return " YAML reads it as a number or a date: put it in quotes, as you wrote it."
    if isinstance(value, Mapping) and len(value) == 1:
        (name, inner), *_ = value.items()
        if isinstance(name, str) and (inner is None or isinstance(inner, str)):
            shown = name if inner is None else f"{name}: {inner}"
            return f' YAML reads braces as a mapping: put it in quotes, "{{{shown}}}".'
    return ""


def _requirement(model: type[BaseModel], problem: Any) -> str:
    """What a setting requires, in words of params.yaml."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind in ("tuple_type", "list_type"):
        return f"must be a list, such as {_as_list(problem['input'])}"
    if kind in ("model_type", "model_attributes_type"):
        return f"must be a section with the keys {', '.join(_within(model, problem['loc']))}"
    if kind == "string_pattern_mismatch" and context["pattern"] in WORDS:
        return f"must be {WORDS[context['pattern']]}"
    if kind == "too_short":
        return f"must be a list of at least {context['min_length']}"
    for beginning, words in _KINDS.items():
        if kind.startswith(beginning):
            return f"must be {words}"
    return _lower_first(problem["msg"]).replace("input should ", "must ", 1)


def option_problem(error: ValidationError) -> str:
    """A value of the command line that is not of its option's kind, and what it must be."""
    problem = error.errors()[0]
    return f"{_value_text(problem['input'])} {_requirement(Section, problem)}."


_KINDS = {
    "dict_": "a section of names, each with a value",
    "bool_": "true or false",
    "int_": "a whole number",
    "float_": "a number",
    "string_type": "text",
    "path_": "a path",
    "date_": "a day, such as 2026-12-31",
}
"""Prefix of pydantic's error type -> what is required instead."""


def _as_list(value: Any) -> str:
    """A value, written as the list that was meant."""
    if isinstance(value, str) and 0 < len(value) <= _LONGEST_SHOWN:
        return f"[{', '.join(part.strip() for part in value.split(',') if part.strip())}]"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"[{value}]"
    return "[A, B]"


def _within(model: type[BaseModel], location: Sequence[Any]) -> list[str]:
    """Keys of the section at a location, also if its parent has free names."""
    for part in location:
        model = _section(model, str(part)) or model
    return list(model.model_fields)


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def nearest(key: str, known: Sequence[str]) -> str | None:
    """The known name closest to a misspelled one, ignoring case; None if no name is close.

    Close means a typing error, or that one name contains the other or most of it.

    >>> nearest("lable", ["id", "label"]), nearest("user", ["user_id"])
    ('label', 'user_id')
    >>> nearest("kind", ["id"]), nearest("version", ["epsilon"])
    (None, None)
    """
    target = key.casefold()
    # Reversed, so that of two names that differ in case the first one wins.
    folded = {name.casefold(): name for name in reversed(known)}
    alike = difflib.get_close_matches(target, folded, n=max(1, len(folded)), cutoff=_ALIKE)
    slips = difflib.get_close_matches(target, folded, n=1, cutoff=_SLIP)
    whole = [name for name in alike if target in name or name in target]
    matches = slips or [name for name in whole if min(len(target), len(name)) >= _WORD]
    return folded[matches[0]] if matches else None


_SLIP, _ALIKE, _WORD = 0.75, 0.6, 3
"""Similarity of a typing error and of a contained name, and fewest letters of a contained name."""


def _known_keys(model: type[BaseModel], location: Sequence[Any]) -> list[str]:
    """Field names at a location in a nested model."""
    for part in location:
        inner = _section(model, str(part))
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _section(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    """The model of a field; None if it is not a section."""
    field = model.model_fields.get(name)
    kinds = () if field is None else (field.annotation, *getattr(field.annotation, "__args__", ()))
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)


def _elsewhere(model: type[BaseModel], location: Sequence[Any], prefix: str) -> str | None:
    """The only known key of the same section with the last part of an unknown key, or None."""
    # Within one top section only: epsilon of an account and of a release are different things.
    top = list(map(str, location[: 0 if prefix else 1]))
    if len(location) == len(top):
        return None
    section = _section(model, top[0]) if top else model
    ways = [] if section is None else _ways(section, str(location[-1]))
    return prefix + ".".join([*top, *ways[0]]) if len(ways) == 1 else None


def _endings(
    model: type[BaseModel], location: Sequence[Any], further: Mapping[str, type[BaseModel]]
) -> str | None:
    """Settings of all sections that end in an unknown name without dots, in words."""
    if len(location) != 1 or not further:
        return None
    name = str(location[0])
    ways = [".".join(way) for way in _ways(model, name)]
    for prefix, section in further.items():
        ways += [prefix + ".".join(way) for way in _ways(section, name)]
    *first, last = sorted(ways, key=lambda way: way.count("."))[:_MOST] or [""]
    return f"{', '.join(first)} or {last}" if first else last or None


_MOST = 4
"""Most settings of one name that are listed."""


def _ways(model: type[BaseModel], name: str, depth: int = 4) -> list[list[str]]:
    """Paths of all fields with this name, in a model or below it."""
    matches = [[name]] if name in model.model_fields else []
    for field in model.model_fields if depth else ():
        inner = _section(model, field)
        matches += [[field, *way] for way in _ways(inner, name, depth - 1)] if inner else []
    return matches
