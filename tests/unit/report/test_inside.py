"""The first answers of the document that stays inside."""

from privsyn.evaluation.report import inside
from privsyn.report.document import LEAVES, Answer, Block, Document, ReportSection


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
