"""Templates of the HTML pages. Whatever they print is escaped, and without control characters."""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

HERE = Path(__file__).parent


def render(template: str, **values: Any) -> Markup:
    """A template of the folder ``templates``, filled in.

    Args:
        template: Its file.
        values: What its names stand for; a name without a value is an error.
    """
    return Markup(_environment().get_template(template).render(values))  # noqa: S704  is escaped


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["style"] = Markup((HERE / "page.css").read_text(encoding="utf-8"))  # noqa: S704  ours
    environment.filters |= {"grouped": _grouped, "rounded": _rounded, "base64": _base64}
    return environment


def _visible(value: object) -> object:
    """Nothing for None; control characters as their pictures."""
    if value is None:
        return ""
    if hasattr(value, "__html__"):
        return value
    return "".join(
        chr(0x2400 + ord(c)) if ord(c) < 32 and c not in "\t\n" else "\u2426" if c == "\x7f" else c
        for c in str(value)
    )


def _grouped(value: float) -> str:
    return f"{value:,}"


def _rounded(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}f}"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
