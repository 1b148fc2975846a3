"""The document that may leave the room: complete, self-contained, safe whatever a folder holds."""

import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from privsyn import layout
from privsyn.errors import PrivsynError, VerificationError
from privsyn.evaluation.metrics import metrics_of
from privsyn.evaluation.report import inside
from privsyn.release import certificate
from privsyn.report.document import LEAVES, STAYS, Answer, Block, Document, ReportSection
from privsyn.report.outward import outward
from privsyn.validation.settings import ValidationConfig
from privsyn.validation.suite import validate_file
from tests.unit.report.release_folder import note_checks, seal_folder, write_rows
from tests.unit.validation.synthetic_files import LABELS, good_rows

VOID = {"meta", "link", "path", "line", "rect", "br", "img"}


class Page(HTMLParser):
    """Text of a page; checks on the way that every element is closed."""

    def __init__(self, html):
        super().__init__()
        self.open: list[str] = []
        self.parts: list[str] = []
        self.tags: set[str] = set()
        self.feed(html)
        self.close()
        assert self.open == []
        self.text = re.sub(r"\s+", " ", " ".join(self.parts))

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.parts.append(data)


@pytest.fixture
def made(tmp_path):
    def make(rows, labels=LABELS, **plan):
        folder = tmp_path / "invisible_ink-00ff"
        file = write_rows(folder, rows)
        seal_folder(folder, len(rows), labels, plan=plan)
        note_checks(folder, validate_file(file, ValidationConfig(), labels, (40, 40)))
        return folder

    return make


def page_of(folder):
    return Page(outward(folder).to_html())


def test_a_passed_release_answers_what_a_reader_comes_with(made):
    html = outward(made(good_rows())).to_html()
    page = Page(html)
    for expected in (
        "Public report on synthetic data",
        "portal 2026-11",
        "40 synthetic texts by InvisibleInk (budget set aside on 2026-11-20)",
        "What is it? 40 synthetic texts by InvisibleInk, in place of the private dataset portal",
        "Who answers for it? Not stated: who publishes it, whom to ask, its license, what it is",
        "How private is it? Epsilon 10 at delta 1e-05: weak protection",
        "right 50 times in 100 from a release made without it, at most 75 times in 100",
        "For whom? Every single patient; up to 4 records of each are used.",
        "How good is it? All 14 format checks passed, which say nothing of quality.",
        "Compared with what? Nothing on this page.",
        "May I hand it out? That is for a person to decide, and not for this tool.",
        "4 questions of the privacy review that nobody answered: Were settings tuned",
        "All 14 passed. They say nothing of quality.",
        "Taken from the file at even distances, and not picked.",
        "Take any one patient out of the data, or add one",
        "the factor e^epsilon, plus delta. At most 4 records of each patient are used.",
        "Spent with it 5.3% of the cap",
        "privsyn verify invisible_ink-00ff --require-ledger --ledger URL",
        "median",
        "number i",
        "guidance 3",
    ):
        assert expected in page.text, expected
    assert (
        page.text.index("Samples")
        < page.text.index("For specialists")
        < min(
            page.text.index(f" {word} ")
            for word in ("Adjacency", "Class", "distinct 1")
            if f" {word} " in page.text
        )
    )
    assert "Not private" not in page.text
    assert page.tags.isdisjoint({"script", "img", "iframe", "object"})
    assert not re.search(r"(src|href)=\"(?!data:)|url\(|@import|https?:", html)
    for way in ("prefers-color-scheme: dark", "@media print", "max-width: 40rem"):
        assert way in html


def test_a_name_from_the_invented_examples_is_said_to_be_one(made):
    rows = good_rows()
    rows[3]["text"] += " Please ask Dr. Okafor, Nina or Tom."
    rows[7]["text"] = "The desk told me to ask Okafor about the bill that came today."
    examples = [{"text": "Can Dr. Okafor call me on Tuesday? Thanks, Nina", "label": None}]
    said = "2 of 40 texts hold a name from the invented examples that prompts show"
    page = page_of(made(rows, dataset={"examples": examples}))
    assert f"{said} (dataset.examples), which are public and no records: Nina, Okafor." in page.text
    page = page_of(made(rows, settings={"text": {"examples": examples}}))
    assert said in page.text
    assert (
        "invented examples" not in page_of(made(good_rows(), dataset={"examples": examples})).text
    )


def test_what_stands_in_backticks_is_code_and_escaped(made):
    html = outward(made(good_rows())).to_html()
    assert "<code>privsyn verify</code>" in html
    assert "`" not in html
    for words, drawn in (
        ("a `b <i>` c", "a <code>b &lt;i&gt;</code> c"),
        ("<b>`x`", "&lt;b&gt;<code>x</code>"),
        ("one ` alone", "one ` alone"),
    ):
        item = Block("answers", Answer("?", words))
        page = Document(
            "dp-release", "", "", "", {}, (ReportSection("k", "t", "dp-release", (item,)),)
        )
        assert drawn in page.to_html()


def test_a_failed_release_says_what_failed_first(made):
    rows = good_rows()
    rows[3]["label"] = "Unknown"
    page = page_of(made(rows))
    assert "May I hand it out? No. It failed its checks and stays in quarantine" in page.text
    assert "1 of 14 failed." in page.text
    first = page.text.index("Every label is a declared one")
    assert first < page.text.index("The file holds as many rows")
    assert "1 of 40 rows (2.5%): line 4" in page.text


def test_texts_labels_and_settings_are_shown_and_never_run(made):
    hostile = '<script>alert(1)</script><img src=x onerror="a"> \x1b[31m \x07 \ud800 &amp; </main>'
    rows = [{"id": f'"><b>{i}', "text": f"{hostile} {i}", "label": "<i>"} for i in range(40)]
    settings = {"prompt": "</code><script>", "<u>": 1}
    folder = made(
        rows,
        ("<i>", "</svg>"),
        settings=settings,
        dataset={"name": "<u>"},
        unit="<s>person{{ 7*7 }}",
    )
    html = outward(folder).to_html()
    page = Page(html)
    assert page.tags.isdisjoint({"script", "img", "i", "b", "u", "s"})
    assert "<script>alert(1)</script>" in page.text
    assert "Every single <s>person{{ 7*7 }};" in page.text, "no fact is read as a template"
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", html)
    html.encode()
    json.dumps(outward(folder).to_json()).encode()


@pytest.mark.parametrize("rows", [[], [b"\xff", b"{"], [{"id": "a", "text": ""}]])
def test_a_file_with_nothing_to_show_still_has_a_page(made, rows):
    assert "format checks failed" in page_of(made(rows)).text


def test_a_release_with_test_noise_says_so(tmp_path):
    write_rows(tmp_path, good_rows())
    seal_folder(tmp_path, 40, LABELS, **{"class": "not-private"})
    page = page_of(tmp_path)
    assert "Not private This file was drawn" in page.text
    assert "May I hand it out? No. It was drawn with noise" in page.text


def test_an_internal_section_cannot_get_into_it(made):
    document = outward(made(good_rows()))
    assert {section.cls for section in document.sections} == {LEAVES}
    with pytest.raises(ValueError, match="holds the internal sections secret"):
        replace(document, sections=(ReportSection("secret", "Secret", STAYS),))


# --- folders that somebody else wrote -------------------------------------------------------------


def set_in(folder, name, *path):
    """Put the last of a path in the place that the others lead to."""
    *keys, last, value = path
    body = json.loads((folder / name).read_text())
    place = body
    for key in keys:
        place = place[key]
    place[last] = value
    (folder / name).write_text(json.dumps(body))


@pytest.mark.parametrize(
    "edit",
    [
        ("certificate.json", "plan", "dataset", None),
        ("certificate.json", "plan", "epsilon", "many"),
        ("certificate.json", "plan", "adjacency", "no_such"),
        ("certificate.json", "account", "cap", []),
        ("certificate.json", "artifact", "file", "../secret.jsonl"),
        ("certificate.json", "artifact", "file", "/etc/passwd"),
        ("certificate.json", "artifact", "file", "gone.jsonl"),
        ("certificate.json", "derived", {}),
        ("certificate.json", "accuracy", [1]),
        ("certificate.json", "accuracy", {"value": "a"}),
        ("validation.json", "expectations", 3),
        ("validation.json", "expectations", [{"name": "a"}]),
        ("validation.json", "numbers", [{"name": "a", "value": "b", "note": ""}]),
    ],
)
def test_an_edited_folder_is_refused_in_one_line(made, edit):
    folder = made(good_rows())
    (folder.parent / "secret.jsonl").write_text('{"id": "a", "text": "the secret"}\n')
    set_in(folder, *edit)
    with pytest.raises(PrivsynError) as refused:
        outward(folder)
    assert "the secret" not in str(refused.value)


def test_a_number_that_is_not_to_leave_is_not_shown(made):
    """Whatever wrote it into the checks of the release."""
    folder = made(good_rows())
    file = folder / layout.VALIDATION
    said = json.loads(file.read_text())
    numbers = [
        {"name": "free number", "value": 0.125, "note": "of these records"},
        {"name": "secret number", "value": 0.625, "note": "of real ones", "class": "internal"},
    ]
    file.write_text(json.dumps(said | {"numbers": numbers}))
    page = page_of(folder)
    assert "free number" in page.text
    assert "secret number" not in page.text
    assert "0.625" not in outward(folder).to_html()


def test_no_link_or_pipe_of_a_folder_is_followed(made):
    folder = made(good_rows())
    secret = folder.parent / "secret.png"
    secret.write_bytes(b"the secret")
    (folder / "exhibits").mkdir()
    (folder / "exhibits" / "a.png").symlink_to(secret)
    os.mkfifo(folder / "exhibits" / "b.png")
    assert "exhibits" not in {section.key for section in outward(folder).sections}
    (folder / "validation.json").unlink()
    (folder / "validation.json").symlink_to(secret)
    assert "It was not checked yet." in page_of(folder).text
    (folder / "synthetic.jsonl").unlink()
    (folder / "synthetic.jsonl").symlink_to(secret)
    with pytest.raises(VerificationError, match="lacks its records"):
        outward(folder)


def a_student(folder, epsilon):
    write_rows(folder, [{"file": "model/a.bin"}, {"file": "model/b.bin"}])
    parent = seal_folder(
        folder, 2, media=layout.MODEL_ROWS, plan={"epsilon": epsilon, "target_epsilon": epsilon}
    )
    settings = {"epochs": 3, "student": "4.4M"}
    sealed: dict[str, Any] = {
        "artifact": parent["artifact"],
        "class": "dp-release",
        "derived": {"distill": {"settings": settings, "student": {"loss": 2.5}}},
        "name": "invisible_ink-00ff.student-1",
        "parents": [parent],
        "software": {},
    }
    sealed["seal"] = certificate.seal_of(sealed)
    (folder / layout.CERTIFICATE).write_bytes(certificate.canonical(sealed))
    check = {"name": "", "title": "model loads", "column": None, "success": True, "detail": ""}
    said = {"success": True, "expectations": [check]}
    numbers = [one.to_json() for one in metrics_of({"student.loss": 2.5}, "dp-release")]
    (folder / layout.VALIDATION).write_text(json.dumps(said | {"numbers": numbers}))
    return folder


def test_a_student_is_cautioned_as_its_release_is(tmp_path):
    page = page_of(a_student(tmp_path / "weak", epsilon=10.0))
    assert "privacy.epsilon=10 is weak protection against somebody" in page.text
    assert "what follows from 1 caution below" in page.text
    page = page_of(a_student(tmp_path / "strong", epsilon=1.0))
    assert "weak protection" not in page.text
    assert "caution" not in page.text


def test_a_student_s_page_is_of_a_model_and_not_of_records(tmp_path):
    page = page_of(a_student(tmp_path / "it", epsilon=1.0))
    for expected in (
        "A model in 2 files, taught by synthetic texts",
        "beside the commonest word and the public model alone",
        "privsyn report invisible_ink-00ff",
        "What the model is",
        "cross entropy of a token of the synthetic texts",
        "Files 2",
        "Settings it was made with, and those of the release it was made from",
        "distill.epochs 3",
    ):
        assert expected in page.text, expected
    assert "Rows" not in page.text


def test_settings_of_another_kind_of_records_are_not_shown(made):
    settings = {"modality": "image", "rounds": 2, "text": {"max_tokens": 48}}
    text = page_of(made(good_rows(), settings=settings)).text
    assert "rounds 2" in text
    assert "text.max_tokens" not in text
    text = page_of(made(good_rows(), settings=settings | {"modality": "text"})).text
    assert "text.max_tokens 48" in text


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
