"""The validation result as one HTML page: no script, nothing fetched, light and dark, printable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from privsyn.dp.accountant import shown
from privsyn.dp.adjacency import Adjacency
from privsyn.release.cautions import MOVES
from privsyn.validation.charts import MAX_BARS, histogram_chart, label_chart
from privsyn.validation.gx import ValidationResult
from privsyn.validation.html import render
from privsyn.validation.image_profile import COLUMNS, ImageProfile
from privsyn.validation.profile import Profile


@dataclass(frozen=True)
class Picture:
    """A picture on the page: of the synthetic records or of how they came about.

    Attributes:
        title: What it shows.
        png: The file.
    """

    title: str
    png: bytes


@dataclass(frozen=True)
class Contents:
    """What the page shows of one kind of records.

    Attributes:
        things: What they are called.
        template: Draws a chart of their profile, and some of them.
    """

    things: str
    template: str


CONTENTS: Mapping[type, Contents] = {
    Profile: Contents("texts", "texts.html"),
    ImageProfile: Contents("images", "images.html"),
}
"""By the kind's profile."""


def render_page(
    result: ValidationResult,
    release: Mapping[str, Any],
    sheet: bytes | None = None,
    exhibits: Sequence[Picture] = (),
) -> str:
    """The whole page as HTML.

    Args:
        result: What the checks found.
        release: Public facts; an absent one is left out. ``release_id``, ``method`` (title),
            ``epsilon``, ``delta``, ``adjacency``, ``unit``, ``max_records_per_unit``, ``dataset``,
            ``version``, ``reserved`` (ISO: when its cost was), ``account``, ``account_left``
            (epsilon), ``certificate_sha256``, and ``class``: anything but ``dp-release`` voids the
            guarantee and the page says so.
        sheet: Contact sheet of synthetic images, in place of sample texts.
        exhibits: The pictures of the release.
    """
    return render(
        "release.html",
        result=result,
        release=release,
        release_id=release.get("release_id", ""),
        name=" ".join(str(release.get(key) or "") for key in ("dataset", "version")).strip(),
        reserved=_date(release.get("reserved", "")),
        guarantee=_guarantee(release),
        contents=CONTENTS[type(result.profile)],
        sheet=sheet,
        columns=COLUMNS,
        exhibits=exhibits,
        histogram_chart=histogram_chart,
        label_chart=label_chart,
        most_bars=MAX_BARS,
    )


@dataclass(frozen=True)
class Number:
    """A number to print: digits, times a power of ten.

    Attributes:
        digits: May be empty beside a power.
        power: None where the digits are the number.
    """

    digits: str
    power: int | None = None


def _date(moment: str) -> str:
    """An ISO time for people; anything else as it is."""
    try:
        read = datetime.fromisoformat(moment)
    except ValueError:
        return moment
    return f"{read:%d %b %Y at %H:%M} {read.tzname() or ''}".strip()


def _guarantee(release: Mapping[str, Any]) -> Mapping[str, Any] | None:
    epsilon, delta = release.get("epsilon"), release.get("delta")
    if epsilon is None or delta is None:
        return None
    left, unit = release.get("account_left"), release.get("unit", "record")
    return {
        "epsilon": _number(epsilon, up=True),
        "delta": _number(delta, up=True),
        "left": None if left is None else _number(left),
        "factor": _factor(epsilon),
        "move": _move(release).format(unit=unit),
        "unit": unit,
        "used": release.get("max_records_per_unit", 1),
        "adjacency": str(release.get("adjacency") or "").replace("_", " "),
    }


def _factor(epsilon: float) -> Number:
    """``e ** epsilon``, rounded up."""
    if epsilon > 13:
        power, rest = divmod(epsilon / math.log(10), 1)
        return Number(f"{math.ceil(10 * 10**rest) / 10:g}", int(power))
    factor = math.exp(epsilon)
    return Number(
        f"{math.ceil(factor):,}" if factor >= 100 else f"{math.ceil(100 * factor) / 100:g}"
    )


def _move(release: Mapping[str, Any]) -> str:
    try:
        return MOVES[Adjacency(release["adjacency"])]
    except (KeyError, ValueError):
        return "Change the data of any one {unit}"


def _number(value: float, up: bool = False) -> Number:
    """Up to four digits; powers of ten where the number is very small or large.

    What a release costs is rounded up: never below the truth.
    """
    digits = shown(value, digits=4) if up else f"{value:.4g}"
    mantissa, e, exponent = digits.partition("e")
    if not e:
        return Number(digits)
    return Number("" if mantissa == "1" else mantissa, int(exponent))
