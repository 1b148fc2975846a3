"""The first answers of the document that stays inside."""

from __future__ import annotations

from privsyn.evaluation.judge import Scores
from privsyn.evaluation.report import comparison, inside
from privsyn.report.document import LEAVES, Answer, Block, Document, ReportSection

IMAGES = {"downstream.accuracy": 0.608, "downstream.chance": 0.13}


def beside(value):
    return comparison(Scores.read(value))


def test_images_are_compared_with_as_many_real_ones_where_they_were_measured():
    assert beside(IMAGES).endswith("release 0.608, the commonest label 0.130.")
    more = IMAGES | {"downstream.real": 0.968, "downstream.real_records": 200.0}
    assert "200 real records 0.968, the commonest label 0.130." in beside(more)
    assert beside({}) == ""


def test_what_may_be_handed_out_is_the_release_and_not_this_page():
    short = Block("answers", Answer("May I hand it out?", "Yes: the whole folder."))
    outward = Document(
        LEAVES, "k", "t", "s", {}, (ReportSection("short", "In short", LEAVES, (short,)),)
    )
    page = inside(outward, (), "With nothing.")
    (answers,) = (block for section in page.sections for block in section.blocks[:1] if
                  block.kind == "answers")  # fmt: skip
    assert [(item.question, item.answer[:3]) for item in answers.items] == [
        ("May I hand out the release?", "Yes"),
        ("And this page?", "No:"),
    ]
