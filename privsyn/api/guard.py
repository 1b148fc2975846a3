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
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date as Date
from numbers import Integral, Real
from os import PathLike
from typing import Any, ParamSpec, TypeVar

from privsyn.api.frames import are_rows, is_frame
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
    if not any(one.kind is one.VAR_KEYWORD for one in form.parameters.values()):
        refuse_unknown(name, work, named)
    try:
        bound = form.bind(*given, **named)
    except TypeError as wrong:  # says what is missing, given twice or one too many
        missing = next((key for key in form.parameters if repr(key) in str(wrong)), "")
        raise ConfigError(f"{name}: {wrong}.", hint=_argument_doc(work, missing)) from None
    for key, value in bound.arguments.items():
        parameter = form.parameters[key]
        if key in ("self", "cls") or parameter.kind is parameter.VAR_KEYWORD:
            continue
        # Annotations are texts here (`from __future__`), so pandas is not imported to check a
        # frame.
        kinds = [part.strip() for part in str(parameter.annotation).split("|")]
        for one in value if parameter.kind is parameter.VAR_POSITIONAL else (value,):
            if not any(_fits(one, kind) for kind in kinds):
                *first, last = [KINDS[kind][0] if kind in KINDS else f"a {kind}" for kind in kinds]
                words = f"{', '.join(first)} or {last}" if first else last
                raise ConfigError(
                    f"{name}: {key}={_value_text(one)} must be {words}.",
                    hint=_argument_doc(work, key),
                )


def refuse_unknown(name: str, work: Callable[..., Any], given: Iterable[str]) -> None:
    """Refuse names of arguments that a function does not have.

    Raises:
        ConfigError: As said.
    """
    names = [
        key
        for key, one in inspect.signature(work).parameters.items()
        if key not in ("self", "cls") and not one.kind.name.startswith("VAR_")
    ]
    for key in given:
        if key not in names:
            # Not quoted otherwise: a key that came from a dict of records may be private text.
            argument = repr(key) if looks_like_name(key) else "of that name"
            near = nearest(key, names)
            raise ConfigError(
                f"{name} has no argument {argument}; it has {', '.join(names) or 'none'}.",
                hint=f"Did you mean {near}?"
                if near
                else "A setting has its dotted name: **{'models.language': 'tiny'}.",
            )


def _fits(value: Any, kind: str) -> bool:
    if kind in KINDS:
        return KINDS[kind][1](value)
    # By name along the bases, so that a subclass fits and no optional package is imported.
    return any(base.__name__ == kind.rpartition(".")[2] for base in type(value).__mro__)


def _is_list_of_strings(value: Any) -> bool:
    """A set has no order, and that of labels makes the release."""
    ordered = hasattr(value, "__getitem__") and hasattr(value, "__len__")
    one = isinstance(value, str | bytes | Mapping)
    return ordered and not one and all(isinstance(item, str) for item in value)


KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "Any": ("anything", lambda value: True),
    "None": ("None", lambda value: value is None),
    "str": ("a string", lambda value: isinstance(value, str)),
    "Path": ("a path", lambda value: isinstance(value, PathLike)),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    # True is an int in Python, and texts=True would make one text.
    "int": ("a whole number", lambda v: isinstance(v, Integral) and not isinstance(v, bool)),
    "float": ("a number", lambda v: isinstance(v, Real) and not isinstance(v, bool)),
    "Date": ("a datetime.date", lambda value: isinstance(value, Date)),
    "Mapping[str, Any]": (
        "a dict with names for keys",
        lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value),
    ),
    "Sequence[str]": ("a list of strings", _is_list_of_strings),
    "Rows": ("a list of dicts", are_rows),
    "Frame": ("a data frame", is_frame),
}
"""What an annotation stands for: in words, and whether a value is one."""


def _value_text(value: Any) -> str:
    """A value where it is a word or a number; of anything else what it is."""
    # privacy: a long text may be a record that was passed in the wrong place.
    short = isinstance(value, str) and (not value or looks_like_name(value))
    shown = value is None or isinstance(value, bool | int | float) or short
    return repr(value) if shown else f"<{type(value).__name__}>"


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
