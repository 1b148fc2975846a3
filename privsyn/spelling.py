"""What to say of a setting that is wrong, and which name was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from datetime import date as Date
from typing import Any

from pydantic import BaseModel, ValidationError


def explain(model: type[BaseModel], error: ValidationError, prefix: str) -> str:
    """What is wrong with a config, in one line: setting, value, limit, nearest known name."""
    lines = []
    for problem in error.errors(include_url=False):
        key = prefix + ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden" and not _NAMES.fullmatch(key):
            lines.append("a name that is more than letters and digits is not a known setting.")
        elif problem["type"] == "extra_forbidden":
            near = _elsewhere(model, problem["loc"], prefix) or nearest(
                str(problem["loc"][-1]), _known_keys(model, problem["loc"][:-1])
            )
            meant = f" Did you mean {near}?" if near else ""
            lines.append(f"{key} is not a known setting.{meant}")
        elif problem["type"] == "missing":
            lines.append(f"{key} is missing.")
        elif problem["type"] == "value_error":
            lines.append(
                f"{key}: {problem['ctx']['error']}." if key else f"{problem['ctx']['error']}."
            )
        elif key.split(".")[0] == "services":  # an address may hold a password
            lines.append(f"{key}: {_lower_first(problem['msg'])}.")
        else:
            lines.append(
                f"{key}={_shown(problem['input'])}: {_lower_first(problem['msg'])}."
                + _quoting(problem)
            )
    return " ".join(lines)


_NAMES = re.compile(r"[\w. -]*")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


_LONGEST_SHOWN = 100


def _quoting(problem: Any) -> str:
    """What to do where YAML read a word as something else than text."""
    value = problem["input"]
    if problem["type"] != "string_type":
        return ""
    if isinstance(value, bool):
        words = "Yes, On or True" if value else "No, Off or False"
        return f' YAML reads {words} as {str(value).lower()}: put it in quotes, such as "Yes".'
    if isinstance(value, int | float | Date):
        return f' Put it in quotes: "{value}".'
    if isinstance(value, Mapping) and len(value) == 1:
        (name, inner), *_ = value.items()
        if isinstance(name, str) and (inner is None or isinstance(inner, str)):
            held = name if inner is None else f"{name}: {inner}"
            return f' YAML reads braces as a mapping: put it in quotes, "{{{held}}}".'
    return ""


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def nearest(key: str, known: Sequence[str]) -> str | None:
    """The known name closest to a misspelt one, whatever its case; None when nothing is near."""
    folded = {name.casefold(): name for name in reversed(known)}
    found = difflib.get_close_matches(key.casefold(), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def _known_keys(model: type[BaseModel], location: Sequence[Any]) -> list[str]:
    """Field names at a place in a nested model."""
    for part in location:
        inner = _section(model, str(part))
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _section(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    """The model of a field; None where the field is none, or no section."""
    field = model.model_fields.get(name)
    kinds = () if field is None else (field.annotation, *getattr(field.annotation, "__args__", ()))
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)


def _elsewhere(model: type[BaseModel], location: Sequence[Any], prefix: str) -> str | None:
    """The one known key of the same method or section whose last part is that of an unknown key."""
    top = list(map(str, location[: 0 if prefix else 1]))
    if len(location) == len(top):
        return None
    section = _section(model, top[0]) if top else model
    ways = [] if section is None else _ways(section, str(location[-1]))
    return prefix + ".".join([*top, *ways[0]]) if len(ways) == 1 else None


def _ways(model: type[BaseModel], name: str, depth: int = 4) -> list[list[str]]:
    """Where a name is a field, at or below a model."""
    found = [[name]] if name in model.model_fields else []
    for field in model.model_fields if depth else ():
        inner = _section(model, field)
        found += [[field, *way] for way in _ways(inner, name, depth - 1)] if inner else []
    return found
