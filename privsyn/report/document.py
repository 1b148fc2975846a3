"""A document about a release: sections made of blocks, as one HTML page and as JSON.

Both come from the same objects, so they say the same. A section says who may see it; a document
that may leave the room refuses one that must not. To add to a document, make a section of the
blocks in ``blocks.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from privsyn.evaluation.metrics import Class
from privsyn.report.blocks import Block, Tone
from privsyn.report.charts import MAX_BARS, histogram_chart, label_chart
from privsyn.report.html import render

SCHEMA = "privsyn-report/1"

Grade = Literal["good", "fair", "poor"]

LEAVES: Class = "dp-release"
STAYS: Class = "internal"


@dataclass(frozen=True)
class Section:
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
    blocks: tuple[Block, ...] = ()
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
    sections: tuple[Section, ...]
    footer: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        inside = [section.key for section in self.sections if section.cls != LEAVES]
        if self.cls == LEAVES and inside:
            raise ValueError(f"a document that may leave the room holds {', '.join(inside)}")

    def with_sections(self, *more: Section) -> Document:
        """The same document, and these sections at its end."""
        return replace(self, sections=(*self.sections, *more))

    def to_json(self) -> dict[str, Any]:
        """The document as plain JSON values."""
        return {
            "schema": SCHEMA,
            "class": self.cls,
            "release": dict(self.release),
            "sections": [section.to_json() for section in self.sections],
        }

    def to_html(self) -> str:
        """The document as one HTML page: no script, nothing fetched, light, dark and printable."""
        return str(
            render(
                "document.html",
                document=self,
                release_id=self.release.get("release_id", ""),
                histogram_chart=histogram_chart,
                label_chart=label_chart,
                most_bars=MAX_BARS,
            )
        )
