"""The HTML page: complete, self-contained, and safe whatever the texts hold."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from privsyn.derived.student.checks import render_model_page
from privsyn.release.verification import Check
from privsyn.validation.gx import ValidationResult, validate_file
from privsyn.validation.page import render_page
from privsyn.validation.settings import ValidationConfig
from tests.validation.synthetic_files import LABELS, Write, good_rows

FACTS = {
    "release_id": "invisible_ink-00ff",
    "class": "dp-release",
    "method": "InvisibleInk",
    "epsilon": 10.0,
    "delta": 1e-5,
    "adjacency": "add_remove",
    "unit": "patient",
    "max_records_per_unit": 4,
    "dataset": "portal",
    "version": "2026-11",
    "reserved": "2026-11-20T10:55:02+00:00",
    "account": "portal-account",
    "account_left": 2.5,
    "certificate_sha256": "ab" * 32,
}
VOID = {"meta", "link", "path", "line", "rect", "br"}


class Page(HTMLParser):
    """Text of a page; checks on the way that every element is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.parts: list[str] = []
        self.tags: set[str] = set()
        self.feed(html)
        self.close()
        assert self.open == []
        self.text = re.sub(r"\s+", " ", " ".join(self.parts))

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.parts.append(data)


def result_of(write: Write, rows: list[Any], labels: tuple[str, ...] = LABELS) -> ValidationResult:
    return validate_file(write(rows), ValidationConfig(), labels, (40, 40))


def test_a_passed_release(write: Write) -> None:
    html = render_page(result_of(write, good_rows()), FACTS)
    page = Page(html)
    for expected in (
        "Passed All 11 checks hold.",
        "portal 2026-11",
        "40 synthetic texts by InvisibleInk (cost reserved on 20 Nov 2026 at 10:55 UTC)",
        "Take any one patient out of the data, or add one",
        "= 22,027, plus delta. At most 4 records of each patient are used.",
        "room for one more release (Gaussian noise) 2.5",
        "portal-account",
        "ab" * 32,
        "median",
        "number i",
    ):
        assert expected in page.text
    assert "Not private" not in page.text
    assert page.tags.isdisjoint({"script", "img", "iframe", "object"})
    assert not re.search(r"(src|href)=\"(?!data:)|url\(|@import|https?:", html)
    assert "prefers-color-scheme: dark" in html


def test_a_failed_release_leads_with_what_failed(write: Write) -> None:
    rows = good_rows()
    rows[3]["label"] = "Unknown"
    page = Page(render_page(result_of(write, rows), FACTS))
    assert "Failed 1 of 11 checks does not hold. The file stays in quarantine" in page.text
    first = page.text.index("Every label is a declared one")
    assert first < page.text.index("The file holds as many rows")
    assert "1 of 40 rows (2.5%): line 4" in page.text


def test_texts_are_shown_and_never_run(write: Write) -> None:
    hostile = '<script>alert(1)</script><img src=x onerror="a"> \x1b[31m \x07 \ud800 &amp; </main>'
    rows = [{"id": f'"><b>{i}', "text": f"{hostile} {i}", "label": "<i>"} for i in range(40)]
    html = render_page(result_of(write, rows, ("<i>", "</svg>")), FACTS | {"dataset": "<u>"})
    page = Page(html)
    assert page.tags.isdisjoint({"script", "img", "i", "b", "u"})
    assert "<script>alert(1)</script>" in page.text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", html)
    html.encode()


@pytest.mark.parametrize("rows", [[], [b"\xff", b"{"], [{"id": "a", "text": ""}]])
def test_a_file_with_nothing_to_show_still_has_a_page(write: Write, rows: list[Any]) -> None:
    page = Page(render_page(result_of(write, rows), FACTS))
    assert "Failed" in page.text


def test_absent_facts_are_left_out(write: Write) -> None:
    page = Page(render_page(result_of(write, good_rows()), {}))
    assert "Passed" in page.text
    assert "None" not in page.text
    assert "guarantee" not in page.text


def test_a_release_with_test_noise_says_so(write: Write) -> None:
    page = Page(render_page(result_of(write, good_rows()), FACTS | {"class": "not-private"}))
    assert "Not private." in page.text
    assert "does not hold" in page.text


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"adjacency": "replace_one"}, "Swap any one patient in the data for any other"),
        ({"adjacency": "replace_null"}, "Swap any one patient in the data for an empty one"),
        ({"epsilon": 0.5}, "= 1.65, plus"),
        ({"epsilon": 8.0004}, "8.001"),
        ({"epsilon": 20.0}, "4.9 \u00d7 10 8"),
        ({"epsilon": 5000.0}, "10 2171"),
        ({"reserved": "yesterday"}, "(cost reserved on yesterday)"),
    ],
)
def test_facts_are_put_into_words(write: Write, facts: dict[str, Any], text: str) -> None:
    assert text in Page(render_page(result_of(write, good_rows()), FACTS | facts)).text


def test_many_labels_are_cut(write: Write) -> None:
    labels = tuple(f"label_{i}" for i in range(77))
    rows = [{**row, "label": labels[i]} for i, row in enumerate(good_rows())]
    page = Page(render_page(result_of(write, rows, labels), FACTS))
    assert "And 57 more labels." in page.text


def test_the_page_of_a_model_is_safe_too() -> None:
    checks = [Check("<b>", None, '"><script>'), Check("tokens", False, "\x1b[31m")]
    html = render_model_page(checks, {"release_id": "<i>", "student layers": "<u>", "none": None})
    page = Page(html)
    assert page.tags.isdisjoint({"script", "i", "b", "u"})
    assert "Not checked <b>" in page.text
    assert "Failed 2 checks." in page.text
    assert "student layers <u>" in page.text
    assert "none" not in page.text
    assert "\x1b" not in html
