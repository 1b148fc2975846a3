"""The validation result as one HTML page: no script, nothing fetched, light and dark, printable."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

from privsyn.dp.accountant import shown
from privsyn.dp.adjacency import Adjacency
from privsyn.release.cautions import MOVES
from privsyn.validation.charts import MAX_BARS, histogram_chart, label_chart
from privsyn.validation.gx import Check, ValidationResult
from privsyn.validation.image_profile import COLUMNS, ImageProfile
from privsyn.validation.profile import Profile, Row

STYLE = Path(__file__).with_name("page.css")
TICK = "M4 12.5l5 5L20 6.5"
CROSS = "M5.5 5.5l13 13M18.5 5.5l-13 13"


@dataclass(frozen=True)
class Picture:
    """A picture on the page: of the synthetic records or of how they came about.

    Attributes:
        title: What it shows.
        png: The file.
    """

    title: str
    png: bytes


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
    name = " ".join(_text(release.get(key)) for key in ("dataset", "version")).strip()
    head = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">",
        '<link rel="icon" href="data:,">',
        f"<title>Validation of {_text(release.get('release_id'))}</title>",
        f"<style>{STYLE.read_text(encoding='utf-8')}</style></head><body><main>",
        f'<header><p class="kicker">Validation of synthetic data</p><h1>{name or "Release"}</h1>',
        f'<p class="sub">{_subtitle(result, release)}</p></header>',
    ]
    body = [
        _verdict(result),
        _warning(release),
        _cautions(release),
        f'<div class="two">{_guarantee(release)}{_facts(result, release)}</div>',
        _checks(result),
        *_content(result.profile, str(release.get("release_id", "")), sheet),
        _exhibits(exhibits),
        _footer(result),
    ]
    return "\n".join([*head, *body, "</main></body></html>\n"])


def _subtitle(result: ValidationResult, release: Mapping[str, Any]) -> str:
    parts = [f"{result.rows:,} synthetic {CONTENTS[type(result.profile)].things}"]
    if "method" in release:
        parts.append(f"by {_text(release['method'])}")
    if "reserved" in release:
        parts.append(f"(cost reserved on {_text(_date(release['reserved']))})")
    return " ".join(parts)


def _date(moment: str) -> str:
    """An ISO time for people; anything else as it is."""
    try:
        read = datetime.fromisoformat(moment)
    except ValueError:
        return moment
    return f"{read:%d %b %Y at %H:%M} {read.tzname() or ''}".strip()


def _icon(path: str, size: int, label: str = "") -> str:
    role = f'role="img" aria-label="{label}"' if label else 'aria-hidden="true"'
    return (
        f'<svg {role} width="{size}" height="{size}" viewBox="0 0 24 24" fill="none" '
        f'stroke="currentColor" stroke-width="2.6" stroke-linecap="round" '
        f'stroke-linejoin="round"><path d="{path}"/></svg>'
    )


def _verdict(result: ValidationResult) -> str:
    total, failed = len(result.expectations), len(result.failed)
    if result.success:
        return (
            f'<section class="verdict pass">{_icon(TICK, 34)}<div><strong>Passed</strong>'
            f"All {total} checks hold.</div></section>"
        )
    return (
        f'<section class="verdict fail">{_icon(CROSS, 34)}<div><strong>Failed</strong>'
        f"{failed} of {total} checks {'does' if failed == 1 else 'do'} not hold. The file stays in "
        "quarantine and is not published; its privacy cost stays charged.</div></section>"
    )


def _warning(release: Mapping[str, Any]) -> str:
    if release.get("class", "dp-release") == "dp-release":
        return ""
    return (
        '<section class="card warning"><strong>Not private.</strong> This file was drawn with '
        "noise that can be predicted, for tests only. The guarantee below does not hold.</section>"
    )


def _cautions(release: Mapping[str, Any]) -> str:
    found = "".join(f"<li>{_text(caution)}</li>" for caution in release.get("cautions") or ())
    if not found:
        return ""
    title = "Before you rely on this guarantee"
    return f'<section class="card warning"><strong>{title}</strong><ul>{found}</ul></section>'


def _guarantee(release: Mapping[str, Any]) -> str:
    epsilon, delta = release.get("epsilon"), release.get("delta")
    if epsilon is None or delta is None:
        return ""
    numbers = [
        f"<div><small>epsilon</small>{_number(epsilon, up=True)}</div>",
        f"<div><small>delta</small>{_number(delta, up=True)}</div>",
    ]
    if (left := release.get("account_left")) is not None:
        numbers.append(
            f"<div><small>room for one more release (Gaussian noise)</small>{_number(left)}</div>"
        )
    unit = _text(release.get("unit", "record"))
    move = _move(release).format(unit=unit)
    used = release.get("max_records_per_unit", 1)
    bound = f" At most {used:,} records of each {unit} are used." if used > 1 else ""
    facts = [
        ("Unit", unit),
        ("Adjacency", _text(release.get("adjacency")).replace("_", " ")),
        ("Account", _text(release.get("account"))),
    ]
    return (
        f'<section class="card"><h2>Privacy guarantee</h2><div class="numbers">{"".join(numbers)}'
        f"</div><p>{move}: the probability of any outcome grows at most by the factor "
        f"e<sup>epsilon</sup> = {_factor(epsilon)}, plus delta.{bound}</p>{_risk(release)}"
        f"{_list(facts)}</section>"
    )


def _risk(release: Mapping[str, Any]) -> str:
    said = "".join(
        f"<li>{_text(words[:1].upper() + words[1:])}.</li>" for words in release.get("risk") or ()
    )
    return f"<p>In words:</p><ul>{said}</ul>" if said else ""


def _factor(epsilon: float) -> str:
    """``e ** epsilon``, rounded up."""
    if epsilon > 13:
        power, rest = divmod(epsilon / math.log(10), 1)
        return f"{math.ceil(10 * 10**rest) / 10:g} &times; 10<sup>{int(power)}</sup>"
    factor = math.exp(epsilon)
    return f"{math.ceil(factor):,}" if factor >= 100 else f"{math.ceil(100 * factor) / 100:g}"


def _list(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts if value)
    return f"<dl>{rows}</dl>"


def _move(release: Mapping[str, Any]) -> str:
    try:
        return MOVES[Adjacency(release["adjacency"])]
    except (KeyError, ValueError):
        return "Change the data of any one {unit}"


def _facts(result: ValidationResult, release: Mapping[str, Any]) -> str:
    facts = [
        ("Release", _code(release.get("release_id"))),
        ("Dataset", _text(release.get("dataset"))),
        ("Version", _text(release.get("version"))),
        ("Rows", f"{result.rows:,}"),
        ("Certificate", _code(release.get("certificate_sha256"))),
    ]
    return f'<section class="card"><h2>Release</h2>{_list(facts)}</section>'


def _checks(result: ValidationResult) -> str:
    ordered = [*result.failed, *(check for check in result.expectations if check.success)]
    rows = "".join(_check(check) for check in ordered)
    left_out = ""
    if result.left_out:
        names = "; ".join(_text(title) for title in result.left_out)
        left_out = f'<p class="note">Left out, since the config does not ask for them: {names}.</p>'
    return (
        '<section class="card checks"><h2>Checks</h2><table><thead><tr><th>Outcome</th>'
        "<th>Expectation</th><th>Found</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>{left_out}</section>"
    )


def _check(check: Check) -> str:
    style, path, word = ("pass", TICK, "Holds") if check.success else ("fail", CROSS, "Fails")
    where = f" on {_text(check.column)}" if check.column else ""
    return (
        f'<tr class="{"held" if check.success else "failed"}"><td>'
        f'<span class="state {style}">{_icon(path, 16)}{word}</span></td>'
        f"<td>{_text(check.title)}<small><code>{_text(check.name)}</code>{where}</small></td>"
        f'<td class="detail">{_text(check.detail)}</td></tr>'
    )


def _content(
    profile: Profile | ImageProfile, release_id: str, sheet: bytes | None
) -> tuple[str, str]:
    """The charts, and samples."""
    of = CONTENTS[type(profile)]
    return _shape(profile, of.chart(profile)), of.samples(profile, release_id, sheet)


def _lengths(profile: Profile) -> str:
    if not any(profile.words.counts):
        return ""
    chart = histogram_chart(profile.words, profile.median, of="words per text", things="texts")
    return (
        f'<section class="card"><h2>Length of the texts</h2>{chart}'
        f'<p class="note">Shortest {profile.shortest:,}, longest {profile.longest:,} words.</p>'
        "</section>"
    )


def _brightness(profile: ImageProfile) -> str:
    if not any(profile.means.counts):
        return ""
    of = "mean value of an image, 0 black to 255 white"
    chart = histogram_chart(profile.means, profile.median, of=of, things="images")
    sizes = "; ".join(f"{count:,} of {_text(size)}" for size, count in profile.sizes)
    return (
        f'<section class="card"><h2>Brightness of the images</h2>{chart}'
        f'<p class="note">Darkest {profile.darkest:.0f}, brightest {profile.brightest:.0f}. '
        f"Sizes: {sizes}.</p></section>"
    )


def _shape(profile: Profile | ImageProfile, lengths: str) -> str:
    if not profile.labels or not lengths:
        return lengths
    hidden = len(profile.labels) - MAX_BARS
    more = f'<p class="note">And {hidden} more labels.</p>' if hidden > 0 else ""
    return (
        f'<div class="two">{lengths}<section class="card"><h2>Rows per label</h2>'
        f"{label_chart(profile.labels)}{more}</section></div>"
    )


def _samples(profile: Profile, release_id: str, sheet: bytes | None) -> str:
    if not profile.samples:
        return ""
    figures = "".join(_sample(row, f"{release_id}-") for row in profile.samples)
    return (
        '<section class="card"><h2>Samples, at even distances through the file</h2>'
        f'<div class="samples">{figures}</div></section>'
    )


def _sheet(profile: ImageProfile, release_id: str, sheet: bytes | None) -> str:
    if sheet is None:
        return ""
    names = [label for label, _ in profile.labels][: len(profile.samples) // COLUMNS]
    rows = "Images at even distances through the file."
    if names:
        rows = f"One row per label, from the top: {_text(', '.join(names))}."
    return (
        f'<section class="card"><h2>Samples</h2>{_image(sheet, "Samples of the synthetic images")}'
        f'<p class="note">{rows}</p></section>'
    )


@dataclass(frozen=True)
class Contents:
    """What the page shows of one kind of records.

    Attributes:
        things: What they are called.
        chart: Of their profile.
        samples: Some of them, from profile, release id and contact sheet.
    """

    things: str
    chart: Callable[[Any], str]
    samples: Callable[[Any, str, bytes | None], str]


CONTENTS: Mapping[type, Contents] = {
    Profile: Contents("texts", _lengths, _samples),
    ImageProfile: Contents("images", _brightness, _sheet),
}
"""By the kind's profile."""


def _exhibits(pictures: Sequence[Picture]) -> str:
    if not pictures:
        return ""
    figures = "".join(
        f"<figure>{_image(picture.png, picture.title)}"
        f"<figcaption>{_text(picture.title)}</figcaption></figure>"
        for picture in pictures
    )
    return (
        '<section class="card"><h2>How it came about</h2>'
        f'<div class="exhibits">{figures}</div></section>'
    )


def _image(png: bytes, alt: str) -> str:
    data = base64.b64encode(png).decode("ascii")
    return f'<img class="picture" alt="{_text(alt)}" src="data:image/png;base64,{data}">'


def _sample(row: Row, prefix: str) -> str:
    chip = f'<span class="chip">{_text(row.label)}</span>' if row.label is not None else ""
    return (
        f'<figure><blockquote dir="auto">{_text(row.text)}</blockquote>'
        f"<figcaption>{chip}{_code((row.id or '').removeprefix(prefix))}</figcaption></figure>"
    )


def _footer(result: ValidationResult) -> str:
    return (
        "<footer><p>The checks read the synthetic file and the settings, and nothing private: the "
        "page is post-processing of the release and costs no privacy.</p>"
        f"<p>Suite {_text(result.suite)}, SHA-256 {_code(result.suite_sha256)}, run by Great "
        f"Expectations {_text(result.gx_version)}.</p></footer>"
    )


def _text(value: object) -> str:
    """A value as HTML text; control characters are shown as their pictures, not sent."""
    if value is None:
        return ""
    pictured = "".join(
        chr(0x2400 + ord(c)) if ord(c) < 32 and c not in "\t\n" else "\u2426" if c == "\x7f" else c
        for c in str(value)
    )
    return escape(pictured)


def _code(value: object) -> str:
    return f"<code>{_text(value)}</code>" if value else ""


def _number(value: float, up: bool = False) -> str:
    """Up to four digits; powers of ten where the number is very small or large.

    What a release costs is rounded up: never below the truth.
    """
    digits = shown(value, digits=4) if up else f"{value:.4g}"
    if "e" not in digits:
        return digits
    mantissa, _, exponent = digits.partition("e")
    power = f"10<sup>{int(exponent)}</sup>".replace("-", "&minus;")
    return power if mantissa == "1" else f"{mantissa} &times; {power}"
