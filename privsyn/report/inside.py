"""The document that stays inside: all of the one that may leave, and every internal number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from privsyn.report.blocks import Answer, Answers, Bars, Picture, Words
from privsyn.report.document import STAYS, Document, ReportSection

WARNING = (
    'Sections marked "stays inside" read held-out real records and are not differentially '
    "private. Keep this page where the records are, and hand out the report in the release folder "
    "in its place. Choosing among releases by these numbers is a query on the records, and so is a "
    "setting that follows one of them: settings are published, and no account pays for that. Take "
    "from the advice which way to go, and how far from public numbers."
)

_NOT_THIS = {"May I hand it out?": "May I hand out the release?"}
"""Of questions that would be asked of this page too: what they are asked of."""

RISK = frozenset({"disclosure"})
"""Sections that say what the release may leak, and nothing of what it is worth."""


def inside(
    outward: Document,
    graded: Sequence[ReportSection],
    comparison: str,
    plots: Sequence[Picture] = (),
) -> Document:
    """The report that stays inside.

    Args:
        outward: The one that may leave the room.
        graded: Internal sections.
        comparison: What the release was compared with, in a sentence.
        plots: Pictures that evaluate drew.
    """
    short, *others = outward.sections
    (answers,) = (block for block in short.blocks if isinstance(block, Answers))
    internal = {
        "How good is it?": _grades(graded),
        "Compared with what?": comparison,
    }
    items = tuple(
        replace(item, answer=internal[item.question], tone="plain")
        if item.question in internal
        else replace(item, question=_NOT_THIS.get(item.question, item.question))
        for item in answers.items
    )
    answer = Answer("And this page?", "No: it stays where the real records are.", "bad")
    drawn = [ReportSection("plots", "Plots", STAYS, tuple(plots))] if plots else []
    return replace(
        outward,
        cls=STAYS,
        kicker="Internal report on synthetic data: stays inside",
        sections=(
            ReportSection("internal", "Internal", STAYS, (Words((WARNING,)),), tone="bad"),
            replace(short, cls=STAYS, blocks=(Answers((*items, answer)),)),
            *graded,
            *drawn,
            *others,
        ),
        footer=(
            "Sections that may leave the room are as in the release folder's report; numbers of "
            "the others as in evaluation.json.",
        ),
    )


def _grades(sections: Sequence[ReportSection]) -> str:
    worth = [section for section in sections if section.key not in RISK]
    graded = [section for section in worth if section.grade]
    if not graded:
        measured = any(isinstance(block, Bars) for section in worth for block in section.blocks)
        return "Not graded: see the numbers below." if measured else "Not measured: see below why."
    return " ".join(f"{section.title} {str(section.grade).upper()}." for section in graded)
