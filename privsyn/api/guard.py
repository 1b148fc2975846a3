"""What may pass through the public API: arguments into it, and exceptions out of it.

A traceback holds frames, and a notebook that shows one shows their values: a data frame that was
passed in, a text that was being read. So no frame of privsyn leaves: an error is raised anew
with its message, which holds no record text, and without cause and context.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date as Date
from numbers import Integral, Real
from os import PathLike
from typing import Any, ParamSpec, TypeVar

from privsyn.api.frames import are_rows
from privsyn.data.readers.columns import looks_like_name
from privsyn.errors import ConfigError, Defect, PrivsynError
from privsyn.section import nearest


def refuse_misfits(
    work: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any]
) -> None:
    """Refuse arguments that a function does not have, lacks, or has no use for.

    What an argument may be is what its annotation says. A text that may be somebody's is not shown:
    a word or a few is, since names of columns, methods and labels are public.

    Args:
        work: The function, or its method with ``self`` or ``cls`` in front.
        given: Its arguments by place.
        named: Its arguments by name.

    Raises:
        ConfigError: As said.
    """
    form, name = inspect.signature(work), work.__qualname__
    names = [key for key in form.parameters if key not in ("self", "cls")]
    try:
        bound = form.bind(*given, **named)
    except TypeError:
        # Python's own message counts `self` and quotes names that the user did not write.
        raise _unbound(work, form, names, given, named) from None
    for key, value in bound.arguments.items():
        parameter = form.parameters[key]
        if key not in names or parameter.kind is parameter.VAR_KEYWORD:
            continue
        several = parameter.kind is parameter.VAR_POSITIONAL
        for one in value if several else (value,):
            # Annotations are texts here (`from __future__`), so pandas is not imported to check a
            # frame.
            kinds = [part.strip() for part in str(parameter.annotation).split("|")]
            if not any(_fits(one, kind) for kind in kinds):
                raise ConfigError(
                    f"{name}: {key}={_value_text(one)} must be {_in_words(kinds)}.",
                    hint=_next_step(work, key, one, kinds),
                )


def _unbound(
    work: Callable[..., Any],
    form: inspect.Signature,
    names: Sequence[str],
    given: Sequence[Any],
    named: Mapping[str, Any],
) -> ConfigError:
    """What is wrong with a call that does not fit the function's form."""
    name, places = work.__qualname__, 0
    open_end = any(p.kind is p.VAR_KEYWORD for p in form.parameters.values())
    names = [key for key in names if not form.parameters[key].kind.name.startswith("VAR_")]
    for key in named:
        if key not in names and not open_end:
            argument = repr(key) if looks_like_name(key) else "of that name"
            # Not quoted otherwise: a key that came from a dict of records may be private text.
            near = nearest(key, names)
            return ConfigError(
                f"{name} has no argument {argument}; it has {', '.join(names) or 'none'}.",
                hint=f"Did you mean {near}?" if near else "",
            )
    for key, parameter in form.parameters.items():
        placed = parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        places += placed
        has = (placed and places <= len(given)) or key in named
        free = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if not has and not free and parameter.default is parameter.empty:
            return ConfigError(f"{name} needs the argument {key}.", hint=_argument_doc(work, key))
    if len(given) > places:
        return ConfigError(
            f"{name} takes {places - 1} argument(s) without a name, not {len(given) - 1}.",
            hint=f"Name the others: {', '.join(names)}.",
        )
    return ConfigError(f"{name} is given an argument twice: by its place and by its name.")


def refuse_undotted(name: str, work: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Refuse a further argument without a dot: it is a misspelled argument and not a setting.

    Raises:
        ConfigError: As said.
    """
    names = [
        key
        for key, one in inspect.signature(work).parameters.items()
        if key != "self" and not one.kind.name.startswith("VAR_")
    ]
    for key in settings:
        if "." not in key:
            argument = repr(key) if looks_like_name(key) else "of that name"
            near = nearest(key, names)
            raise ConfigError(
                f"{name} has no argument {argument}; it has {', '.join(names)}.",
                hint=f"Did you mean {near}?"
                if near
                else "A setting has its dotted name: **{'models.language': 'tiny'}.",
            )


def _fits(value: Any, kind: str) -> bool:
    match kind:
        case "Any":
            return True
        case "None":
            return value is None
        case "str":
            return isinstance(value, str)
        case "Path":
            return isinstance(value, PathLike)
        case "bool":
            return isinstance(value, bool)
        case "int":
            # True is an int in Python, and texts=True would make one text.
            return isinstance(value, Integral) and not isinstance(value, bool)
        case "float":
            return isinstance(value, Real) and not isinstance(value, bool)
        case "Date":
            return isinstance(value, Date)
        case "Mapping[str, Any]":
            return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
        case "Sequence[str]":  # a set has no order, and that of labels makes the release
            ordered = hasattr(value, "__getitem__") and hasattr(value, "__len__")
            one = isinstance(value, str | bytes | Mapping)
            return ordered and not one and all(isinstance(item, str) for item in value)
        case "Rows":
            return are_rows(value)
        case _:
            # By name along the bases, so that a subclass fits and no optional package is imported.
            class_name = kind.rpartition(".")[2]
            return any(base.__name__ == class_name for base in type(value).__mro__)


_WORDS = {
    "None": "None",
    "str": "a string",
    "Path": "a path",
    "bool": "True or False",
    "int": "a whole number",
    "float": "a number",
    "Date": "a datetime.date",
    "Mapping[str, Any]": "a dict with names for keys",
    "Sequence[str]": "a list of strings",
    "Rows": "a list of dicts",
    "pd.DataFrame": "a pandas DataFrame",
}


def _in_words(kinds: Collection[str]) -> str:
    *first, last = [_WORDS.get(kind, f"a {kind}") for kind in kinds]
    return f"{', '.join(first)} or {last}" if first else last


def _value_text(value: Any) -> str:
    """A value where it is a word or a number; of anything else what it is."""
    # privacy: a long text may be a record that was passed in the wrong place.
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, str) and (not value or looks_like_name(value)):
        return repr(value)
    return f"<{type(value).__name__}>"


def _next_step(work: Callable[..., Any], key: str, value: Any, kinds: Collection[str]) -> str:
    if "Sequence[str]" in kinds and isinstance(value, str):
        parts = [part.strip() for part in value.split(",") if part.strip()]
        listed = parts if parts and all(map(looks_like_name, parts)) else ["A", "B"]
        return f"Write {key}={listed!r}."
    if "Sequence[str]" in kinds and isinstance(value, list | tuple):
        place, item = next((n, v) for n, v in enumerate(value) if not isinstance(v, str))
        shown = isinstance(item, bool | int | float)
        advice = f"write {str(item)!r}" if shown else "write it as a string"
        return f"{key}[{place}] is of type {type(item).__name__}: {advice}."
    return _argument_doc(work, key)


def _argument_doc(work: Callable[..., Any], key: str) -> str:
    """What the function's documentation says of an argument, on one line."""
    lines = inspect.getdoc(work) or ""
    match = re.search(rf"(?m)^    {key}: (.*(?:\n {{8}}.*)*)", lines)
    return f"{key}: {' '.join(match[1].split())}" if match else ""


P = ParamSpec("P")
T = TypeVar("T")


def guard(work: Callable[P, T]) -> Callable[P, T]:
    """A function of the API whose exceptions carry no frame, cause or context.

    Errors of privsyn keep their class and message. A foreign exception is a Defect, which says its
    type and place; an interruption says how to go on; an argument that does not fit is a mistake of
    the caller. With ``PRIVSYN_DEBUG`` set all pass as they
    are.
    """

    @functools.wraps(work)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        failure: BaseException
        try:
            # Inside the try: its error must lose its frames as well, which hold the arguments.
            refuse_misfits(work, args, kwargs)
            return work(*args, **kwargs)
        except PrivsynError as error:
            failure = error
        except KeyboardInterrupt as error:
            failure = error if os.environ.get("PRIVSYN_DEBUG") else KeyboardInterrupt(_INTERRUPTED)
        except Exception as error:
            failure = error if os.environ.get("PRIVSYN_DEBUG") else Defect.of(error)
        if os.environ.get("PRIVSYN_DEBUG"):
            raise failure
        del args, kwargs  # a verbose traceback shows what the names of this frame stand for
        # The raise below adds this frame alone, whose arguments are deleted.
        failure.__cause__ = failure.__context__ = failure.__traceback__ = None
        raise failure

    return wrapper


_INTERRUPTED = "interrupted; repeat the call to resume: what is drawn already is not charged again"
