"""Sections of params.yaml: frozen models that refuse unknown keys and explain wrong values."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import date as Date
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Final

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
VERSION = r"^[A-Za-z0-9{][A-Za-z0-9_.:%{}-]{0,63}$"
CONNECTION = r"^[A-Za-z0-9_.-]+$"
SHA256 = r"^[0-9a-f]{64}$"
ASSET = r"^[a-z][a-z0-9+.-]*://\S+$"
EVENT = r"^(partition_key|extra\.\w+)$"
ROLE = r"^[a-z]{1,20}$"

WORDS: Mapping[str, str] = {
    NAME: "up to 64 letters (A to Z), digits, dots, dashes and underscores, a letter or digit "
    "first",
    VERSION: "up to 64 letters (A to Z), digits, dots, colons, dashes and underscores, a letter or "
    "digit first; {date:%Y-%m} stands for the run's date",
    CONNECTION: "letters (A to Z), digits, dots, dashes and underscores",
    ASSET: "an address such as s3://bucket/file, without spaces",
    EVENT: "partition_key, or extra.KEY of the event",
    ROLE: "up to 20 small letters, a to z",
}
"""Pattern of a setting -> what it requires, for messages."""


def read_table(file: Path) -> Any:
    """The YAML value in a file that the package ships, by libyaml where it is there."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(file.read_text("utf-8"), Loader=loader)  # noqa: S506  # a SafeLoader


def read_presets(module: str, file: str = "presets.yaml") -> Mapping[str, Mapping[str, Any]]:
    """The presets of a method, from a file beside a module of it."""
    presets: Mapping[str, Mapping[str, Any]] = read_table(Path(module).with_name(file))
    return presets


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


@cache
def descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """What each setting of a section is for: the docstring below it, else what its type says.

    Pydantic could read these itself (``use_attribute_docstrings``), at every import and for a
    quarter of a second.
    """
    words = {name: field.description or "" for name, field in model.model_fields.items()}
    for kind in reversed(model.__mro__):
        if issubclass(kind, Section) and kind is not Section:
            (parsed,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
            for setting, below in pairwise(ast.iter_child_nodes(parsed)):
                match setting, below:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ) if name in words:
                        words[name] = " ".join(text.split())
    return words


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
        # pydantic marks the key of a mapping so; it stands in front of the mark already.
        location = [str(part) for part in problem["loc"] if part != "[key]"]
        key = (prefix + ".".join(location)).rstrip(".")
        if problem["type"] == "extra_forbidden" and not _NAMES.fullmatch(key):
            # Not quoted: a pasted line may hold a password.
            lines.append("a name that is more than letters and digits is not a known setting.")
        elif problem["type"] == "extra_forbidden":
            meant = _meant(model, location, prefix, further or {})
            lines.append(f"{key} is not a known setting. {meant}")
        elif problem["type"] == "missing":
            lines.append(f"{key} is missing.")
        elif problem["type"] == "value_error":
            lines.append(
                f"{key}: {problem['ctx']['error']}." if key else f"{problem['ctx']['error']}."
            )
        elif key.split(".")[0] == "services":  # no value: a URL may hold a password
            lines.append(f"{key}: {_requirement(model, problem)}.")
        else:
            lines.append(f"{key}={_value_text(problem['input'])}: {_requirement(model, problem)}.")
            if problem["type"] == "string_type":
                as_ = next((a for k, a in _READ_AS if isinstance(problem["input"], k)), "a list")
                lines.append(f"YAML reads it as {as_}: put it in quotes, as you wrote it.")
    return " ".join(lines)


def _meant(
    model: type[BaseModel],
    location: Sequence[str],
    prefix: str,
    further: Mapping[str, type[BaseModel]],
) -> str:
    """What an unknown key may be meant for, else the keys that its section has."""
    *parents, name = location
    # Within one top section only: epsilon of an account and of a release are different things.
    home = prefix or "".join(f"{part}." for part in parents[:1])
    paths = [
        f"{at}{path}" for at, one in {prefix: model, **further}.items() for path in _paths(one)
    ]
    same = [path for path in paths if path.startswith(home) and path.rpartition(".")[2] == name]
    *first, last = sorted(same, key=lambda path: path.count("."))[:_MOST] or [""]
    keys = list(_section(model, parents).model_fields)
    if near := f"{', '.join(first)} or {last}" if first else last or nearest(name, keys):
        return f"Did you mean {near}?"
    where = (prefix + ".".join(parents)).rstrip(".")
    return f"{f'{where} has' if where else 'The sections are'} {', '.join(keys)}: see params.yaml."


_MOST = 4
"""Most settings of one name that are listed."""


def _paths(model: type[BaseModel]) -> Iterator[str]:
    """Names (with dots) of all settings of a section, also nested ones."""
    for name in model.model_fields:
        yield name
        if (inner := _section(model, [name])) is not model:
            yield from (f"{name}.{path}" for path in _paths(inner))


def _section(model: type[BaseModel], location: Sequence[Any]) -> type[BaseModel]:
    """The section at a location; what names no section, such as a free name, leads no further."""
    for part in location:
        field = model.model_fields.get(str(part))
        kind = None if field is None else field.annotation
        kinds = (kind, *getattr(kind, "__args__", ()))
        model = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), model)
    return model


_NAMES = re.compile(r"[\w. -]*")


def _value_text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


_LONGEST_SHOWN = 100
_READ_AS: tuple[tuple[Any, str], ...] = (
    (bool, "true or false"),
    (type(None), "nothing"),
    ((int, float, Date), "a number or a date"),
    (Mapping, "a mapping"),
)
"""What YAML makes of a word that is not in quotes."""


def _requirement(model: type[BaseModel], problem: Any) -> str:
    """What a setting requires, in words of params.yaml."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind in ("tuple_type", "list_type"):
        value = problem["input"]
        plain = isinstance(value, str | int | float) and not isinstance(value, bool)
        plain = plain and 0 < len(str(value)) <= _LONGEST_SHOWN
        return f"must be a list, such as [{value if plain else 'A, B'}]"
    if kind in ("model_type", "model_attributes_type"):
        keys = _section(model, problem["loc"]).model_fields
        return f"must be a section with the keys {', '.join(keys)}"
    if kind == "string_pattern_mismatch" and context["pattern"] in WORDS:
        return f"must be {WORDS[context['pattern']]}"
    if kind == "too_short":
        return f"must be a list of at least {context['min_length']}"
    for beginning, words in _KINDS.items():
        if kind.startswith(beginning):
            return f"must be {words}"
    return str(problem["msg"]).replace("Input should ", "must ", 1)


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
