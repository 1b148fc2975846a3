"""What sections of a document are made of.

A new kind of block is a class here and a macro of its ``kind`` in templates/blocks.html, which
escapes whatever it prints.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

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
    """A number of a table.

    Attributes:
        name: What it is called.
        value: The number.
        note: What it is, with its unit.
        low: Lower end of its 95% interval; None where it has none.
        high: Upper end.
    """

    name: str
    value: float
    note: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Bar:
    """One number beside others of its kind, 0 to 1.

    Attributes:
        name: What it is of.
        value: The number.
        low: Lower end of its 95% interval; None where it has none.
        high: Upper end.
        ours: Whether it is the release's own and not a baseline.
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    ours: bool = False


@dataclass(frozen=True)
class Checked:
    """The outcome of a check.

    Attributes:
        title: What it says.
        passed: None where it could not be made.
        detail: What was found.
        name: Its technical name.
    """

    title: str
    passed: bool | None
    detail: str
    name: str = ""


@dataclass(frozen=True)
class SampleRecord:
    """A record to read."""

    text: str
    label: str | None
    id: str


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


@dataclass(frozen=True)
class Block:
    """A part of a section. ``kind`` names the macro that draws it."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """The block as plain JSON values."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class Answers(Block):
    """Questions and answers."""

    items: tuple[Answer, ...]
    kind: ClassVar[str] = "answers"


@dataclass(frozen=True)
class Figures(Block):
    """Large numbers. What a release costs is rounded up where it is shown: never below the truth.

    Attributes:
        items: The numbers; their notes are not shown.
        up: Rounded up and not to the nearest.
    """

    items: tuple[Number, ...]
    up: bool = True
    kind: ClassVar[str] = "figures"


@dataclass(frozen=True)
class Facts(Block):
    """Names and values."""

    items: tuple[Fact, ...]
    kind: ClassVar[str] = "facts"


@dataclass(frozen=True)
class Words(Block):
    """Sentences: a list of points, or paragraphs."""

    items: tuple[str, ...]
    points: bool = False
    kind: ClassVar[str] = "words"


@dataclass(frozen=True)
class Commands(Block):
    """Commands to give."""

    items: tuple[str, ...]
    kind: ClassVar[str] = "commands"


@dataclass(frozen=True)
class Missing(Block):
    """What could not be measured, and why."""

    items: tuple[str, ...]
    kind: ClassVar[str] = "missing"


@dataclass(frozen=True)
class Numbers(Block):
    """A table of numbers."""

    items: tuple[Number, ...]
    kind: ClassVar[str] = "numbers"


@dataclass(frozen=True)
class Bars(Block):
    """Numbers side by side.

    Attributes:
        items: The numbers, 0 to 1.
        of: What they are.
    """

    items: tuple[Bar, ...]
    of: str
    kind: ClassVar[str] = "bars"


@dataclass(frozen=True)
class Checks(Block):
    """A table of checks, those that fail first.

    Attributes:
        items: The checks.
        left_out: What was not asked for.
    """

    items: tuple[Checked, ...]
    left_out: tuple[str, ...] = ()
    kind: ClassVar[str] = "checks"


@dataclass(frozen=True)
class HistogramChart(Block):
    """How often each size of a number occurs.

    Attributes:
        edges: One more than there are counts; a bin holds its lower edge.
        counts: Things per bin; the last bin also holds everything beyond.
        longer: Things beyond the last edge.
        median: In the unit of the edges.
        of: What the number is, such as ``words per text``.
        things: What is counted.
    """

    edges: tuple[int, ...]
    counts: tuple[int, ...]
    longer: int
    median: float
    of: str
    things: str
    kind: ClassVar[str] = "histogram"


@dataclass(frozen=True)
class Counts(Block):
    """Things per name, such as rows per label; twenty are drawn at most.

    Attributes:
        items: Name and count, in order.
        of: What is counted.
    """

    items: tuple[tuple[str, int], ...]
    of: str
    kind: ClassVar[str] = "counts"


@dataclass(frozen=True)
class SampleRecords(Block):
    """Records to read."""

    items: tuple[SampleRecord, ...]
    kind: ClassVar[str] = "samples"


@dataclass(frozen=True)
class Picture(Block):
    """A picture, of which the JSON holds the digest.

    Attributes:
        title: What it shows.
        png: The file.
        wide: As wide as the section.
    """

    title: str
    png: bytes
    wide: bool = False
    kind: ClassVar[str] = "picture"

    def to_json(self) -> dict[str, Any]:
        """See Block."""
        digest = hashlib.sha256(self.png).hexdigest()
        return {"kind": self.kind, "title": self.title, "sha256": digest}
