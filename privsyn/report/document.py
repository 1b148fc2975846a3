"""A document about a release: sections made of blocks, as one HTML page and as JSON.

Both come from the same objects, so they say the same. A section says who may see it; an outward
document refuses an internal section. To add to a document, make a section of the blocks below.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from privsyn import __version__
from privsyn.dp.accountant import format_epsilon
from privsyn.layout import Class

SCHEMA = "privsyn-report/1"

Grade = Literal["good", "fair", "poor"]

LEAVES: Class = "dp-release"
STAYS: Class = "internal"


Tone = Literal["plain", "bad"]


@dataclass(frozen=True)
class Fact:
    """A name and what it stands for.

    Attributes:
        name: What it is.
        value: Words or a number.
        code: Shown as code.
    """

    name: str
    value: str | float
    code: bool = False


@dataclass(frozen=True)
class Number:
    """A number of a table, or a bar beside others of its kind, 0 to 1.

    Attributes:
        name: What it is called.
        value: The number.
        note: What it is, with its unit.
        low: Lower end of its 95% interval; None where it has none.
        high: Upper end.
        ours: Of a bar: whether it is the release's own and not a baseline.
    """

    name: str
    value: float
    note: str = ""
    low: float | None = None
    high: float | None = None
    ours: bool = False


@dataclass(frozen=True)
class Answer:
    """A question that a reader comes with, and its answer in a sentence or two.

    Attributes:
        question: The question.
        answer: The answer; what stands in backticks is code.
        tone: ``bad`` where a reader has to beware.
        points: What the answer goes on with, a line each.
    """

    question: str
    answer: str
    tone: Tone = "plain"
    points: tuple[str, ...] = ()


Kind = Literal[
    "answers", "figures", "facts", "words", "commands", "missing", "numbers", "bars", "checks",
    "histogram", "counts", "samples", "picture",
]  # fmt: skip


class Block:
    """A part of a section, drawn by the macro of its kind in templates/blocks.html.

    Attributes:
        kind: ``answers`` lists Answers; ``facts`` Facts; ``numbers`` (a table) and
            ``figures`` (large, rounded up as a cost must be) Numbers; ``bars`` too, with ``of``
            for what they are; ``words`` sentences, and ``points`` if they are a list;
            ``commands`` and ``missing`` sentences; ``checks`` title, passed, detail and name of
            each, and ``left_out``; ``samples`` text, label and id of each; ``counts`` names with
            counts, and ``of``; ``histogram`` edges, counts and the median for options;
            ``picture`` ``title``, ``png`` and ``wide``.
        items: What it lists.
        options: What else its macro takes.
    """

    def __init__(self, kind: Kind, *items: Any, **options: Any) -> None:
        self.kind, self.items, self.options = kind, items, options

    def to_json(self) -> dict[str, Any]:
        """The block as plain JSON values; of a picture its digest."""
        values: dict[str, Any] = {"kind": self.kind, **self.options}
        # Bytes are no JSON value; a digest is enough to compare the picture that the page embeds.
        if self.kind == "picture":
            digest = hashlib.sha256(values["png"]).hexdigest()
            return {"kind": self.kind, "title": values["title"], "sha256": digest}
        # A histogram has no items: everything it draws is in its options.
        if self.kind != "histogram":
            values["items"] = [vars(one) if is_dataclass(one) else one for one in self.items]
        return values


@dataclass(frozen=True)
class ReportSection:
    """A question about a release, and its answer.

    Attributes:
        key: Names it: a word, which a page's address may end in.
        title: The question.
        cls: Who may see it.
        blocks: The answer.
        grade: The answer in a word; None where nothing is graded.
        advice: One line: what the grade means and what could be done.
        tone: ``bad`` for a warning.
        half: Half as wide as the page where there is room.
        for_specialists: Stands below the line under which specialists read on.
    """

    key: str
    title: str
    cls: Class
    blocks: Sequence[Block] = ()
    grade: Grade | None = None
    advice: str = ""
    tone: Tone = "plain"
    half: bool = False
    for_specialists: bool = False

    def to_json(self) -> dict[str, Any]:
        """The section as plain JSON values."""
        return {
            "key": self.key,
            "title": self.title,
            "class": self.cls,
            "grade": self.grade,
            "advice": self.advice,
            "blocks": [block.to_json() for block in self.blocks],
        }


@dataclass(frozen=True)
class Document:
    """A report.

    Attributes:
        cls: Who may see it.
        kicker: What it is, above its title.
        title: Its title.
        subtitle: A line below it.
        release: Public facts of the release.
        sections: In order.
        footer: Lines at its end.
    """

    cls: Class
    kicker: str
    title: str
    subtitle: str
    release: Mapping[str, Any]
    sections: tuple[ReportSection, ...]
    footer: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # privacy: the last stop before a page is written. A section that reads real records cannot
        # end up on an outward page by a mistake of its author.
        inside = [section.key for section in self.sections if section.cls != LEAVES]
        if self.cls == LEAVES and inside:
            raise ValueError(f"a public document holds the internal sections {', '.join(inside)}")

    def to_json(self) -> dict[str, Any]:
        """The document as plain JSON values."""
        return {
            "schema": SCHEMA,
            "wording": wording(),
            "class": self.cls,
            "release": dict(self.release),
            "sections": [section.to_json() for section in self.sections],
        }

    def to_html(self) -> str:
        """The document as one HTML page: no script, nothing fetched, light, dark and printable."""
        release_id = self.release.get("release_id", "")
        return str(render("document.html", document=self, release_id=release_id))


HERE = Path(__file__).parent


@cache
def wording() -> str:
    """Version of the words and the layout of pages: a digest of the sources that make them.

    Two builds with one version make the same page of a release, but for its pictures.
    """
    package = HERE.parent
    made_by = [
        *HERE.rglob("*"),
        *(package / "release").rglob("*"),
        *(package / "dp").glob("*.py"),
    ]
    made_by += (package / "validation").glob("*.py")
    sources = sorted(f for f in made_by if f.suffix in (".py", ".html", ".css", ".yaml", ".md"))
    whole = hashlib.sha256(__version__.encode())
    for source in sources:
        whole.update(source.name.encode() + b"\0" + source.read_bytes())
    return f"{__version__}+{whole.hexdigest()[:16]}"


def render(template: str, **values: Any) -> Markup:
    """A template of the folder ``templates``, filled in.

    Args:
        template: Its file.
        values: What its names stand for; a name without a value is an error.
    """
    # Safe to mark: autoescape is on for every template, and values are data of whoever wrote the
    # release, who is not trusted.
    return Markup(_environment().get_template(template).render(values))  # noqa: S704  is escaped


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        # A misspelled name must fail here and not leave a gap in a report.
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["style"] = Markup((HERE / "page.css").read_text(encoding="utf-8"))  # noqa: S704  ours
    environment.filters |= {
        "form": format, "base64": _base64, "written": print_number,
        "formatted": _formatted, "coded": _coded,
    }  # fmt: skip
    return environment


def _visible(value: object) -> object:
    """Nothing for None; control characters as their pictures."""
    if value is None:
        return ""
    if hasattr(value, "__html__"):
        return value
    return "".join(
        # U+2400 and on are the pictures of control characters. A raw one could hide text from a
        # reader, or break the page.
        chr(0x2400 + ord(c)) if ord(c) < 32 and c not in "\t\n" else "\u2426" if c == "\x7f" else c
        for c in str(value)
    )


def print_number(value: float, up: bool = False, digits: int = 4) -> str:
    """So many digits; of a number of a thousand or more all before the point.

    Args:
        value: The number.
        up: Rounded up: what a release costs is never told below the truth.
        digits: Significant ones at most.
    """
    if up:
        return format_epsilon(value, digits=digits)
    value = 0.0 if abs(value) < 1e-12 else value  # what floats leave of a difference of equals
    whole = 1000 <= abs(value) < 1e7 or float(value).is_integer()
    return f"{value:,.0f}" if whole and abs(value) < 1e7 else f"{value:.{digits}g}"


def _formatted(value: object) -> object:
    """A fact's value: numbers grouped or to four digits, words as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _coded(words: str) -> Markup:
    """Words with what stands in backticks as code; all of it escaped."""
    # Escape before the tags are added: the pieces may hold the owner's or a model's words.
    pieces = [escape(_visible(piece)) for piece in words.split("`")]
    if len(pieces) % 2 == 0:  # one backtick has no other
        return escape(_visible(words))
    tagged = [
        Markup("<code>{}</code>").format(piece) if index % 2 else piece
        for index, piece in enumerate(pieces)
    ]
    return Markup("").join(tagged)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
