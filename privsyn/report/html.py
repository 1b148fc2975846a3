"""Templates of the documents. What they print is escaped, and without control characters."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from privsyn.dp.accountant import shown

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
    environment.filters |= {
        "grouped": _grouped, "rounded": _rounded, "base64": _base64, "parts": parts, "said": _said,
        "coded": _coded,
    }  # fmt: skip
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


@dataclass(frozen=True)
class Parts:
    """A number to print: digits, times a power of ten.

    Attributes:
        digits: May be empty beside a power.
        power: None where the digits are the number.
    """

    digits: str
    power: int | None = None


def parts(value: float, up: bool = False, digits: int = 4) -> Parts:
    """So many digits; powers of ten where the number is very small or large.

    A number of a thousand or more is written whole.

    Args:
        value: The number.
        up: Rounded up: what a release costs is never told below the truth.
        digits: Significant ones at most.
    """
    if not math.isfinite(value):
        return Parts(f"{value}")
    if float(value).is_integer() and abs(value) < 1e7:
        return Parts(f"{int(value):,}")
    if 1000 <= abs(value) < 1e7 and not up:
        return Parts(f"{value:,.0f}")
    written = shown(value, digits=digits) if up else f"{value:.{digits}g}"
    mantissa, e, exponent = written.partition("e")
    if not e:
        return Parts(written)
    return Parts("" if mantissa == "1" else mantissa, int(exponent))


def _said(value: object) -> object:
    """A fact's value: numbers grouped or to four digits, words as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _coded(words: str) -> Markup:
    """Words with what stands in backticks as code; all of it escaped."""
    pieces = [escape(_visible(piece)) for piece in words.split("`")]
    if len(pieces) % 2 == 0:  # one backtick has no other
        return escape(_visible(words))
    tagged = [
        Markup("<code>{}</code>").format(piece) if index % 2 else piece
        for index, piece in enumerate(pieces)
    ]
    return Markup("").join(tagged)


def _grouped(value: float) -> str:
    return f"{value:,}"


def _rounded(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}f}"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
