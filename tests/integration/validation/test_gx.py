"""The shipped suite on synthetic files, run by Great Expectations itself."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from privsyn.errors import DataError
from privsyn.validation.settings import ValidationConfig
from privsyn.validation.suite import SHIPPED, validate_file
from tests.unit.validation.synthetic_files import LABELS, good_rows

ALL = ("email", "phone", "record_number")


def failed(result):
    return {check.title for check in result.failures}


def change(rows, index, **fields):
    rows[index] = {**rows[index], **fields}
    return rows


def test_a_good_file_passes(write):
    result = validate_file(write(good_rows()), ValidationConfig(forbid=ALL), LABELS, (40, 40))
    assert result.success
    assert result.failures == ()
    assert result.rows == 40
    assert len(result.expectations) == 14
    assert result.left_out == ("Texts are JSON", "Texts that are JSON satisfy the schema")
    plain = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert plain["success"] is True
    assert plain["expectations"][0] == {
        "name": "expect_table_row_count_to_be_between",
        "column": None,
        "title": "The file holds as many rows as the plan says",
        "success": True,
        "detail": "40 (expected 40)",
    }


@pytest.mark.parametrize(
    ("fields", "titles"),
    [
        ({"id": None}, {"Every row has an id", "Every line is a JSON object with text fields"}),
        ({"id": "invisible_ink-00ff-000001"}, {"No id occurs twice"}),
        ({"text": None}, {"Every row has a text", "Every line is a JSON object with text fields"}),
        (
            {"text": {"a": 1}},
            {"Every row has a text", "Every line is a JSON object with text fields"},
        ),
        ({"text": "a bell \x07 rings"}, {"No control characters but tab and line breaks"}),
        ({"text": "a null \x00 byte"}, {"No control characters but tab and line breaks"}),
        ({"text": "tab \t and line \r\n breaks"}, set()),
        ({"text": "write to ann.lee@clinic.example.org"}, {"No e-mail addresses"}),
        ({"text": "call (555) 013-4242 or 555-0142"}, {"No phone numbers"}),
        ({"text": "my number is MRN-482913"}, {"No record numbers"}),
        ({"label": None}, {"Every row has a label"}),
        ({"label": "billing"}, {"Every label is a declared one"}),
        ({"text": "one broken \ud800 character is below the limit"}, set()),
        ({"text": "x" * 1_000_000}, set()),
    ],
)
def test_each_flaw_fails_its_check(write, fields, titles):
    path = write(change(good_rows(), 7, **fields))
    result = validate_file(path, ValidationConfig(forbid=ALL), LABELS, (40, 40))
    assert failed(result) == titles
    assert result.success is (not titles)


def test_soft_bounds_hold_up_to_their_share(write):
    rows = good_rows()
    for i in range(4):
        change(rows, i, text="")
    path = write(rows)
    lenient = ValidationConfig(min_share=0.9)
    assert validate_file(path, lenient, LABELS, (40, 40)).success
    strict = ValidationConfig(min_share=0.93)
    assert failed(validate_file(path, strict, LABELS, (40, 40))) == {
        "Texts keep their length bounds, in characters",
        "Few texts repeat another one",
    }
    none = ValidationConfig(min_share=0, max_chars=5)
    assert validate_file(path, none, LABELS, (40, 40)).success


def test_wrong_number_of_rows_fails(write):
    result = validate_file(write(good_rows()[:-1]), ValidationConfig(), LABELS, (40, 40))
    assert [check.detail for check in result.failures] == ["39 (expected 40)"]


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [b""],
        [b"\xff\xfe\x00garbage"],
        [b'{"id": "a", "text": "torn'],
        [b"3", b"null", b'["id", "text"]'],
        [b'{"id": "a", "text": "\xff", "label": "Billing"}'],
        [b"[" * 100_000],
        [b'{"id": ' + b"9" * 10_000 + b', "text": "x"}'],
    ],
)
def test_an_empty_or_malformed_file_is_a_failed_result(write, lines):
    result = validate_file(write(lines), ValidationConfig(forbid=ALL), LABELS, (2, 2))
    assert not result.success
    assert "The file holds as many rows as the plan says" in failed(result) or len(lines) == 2
    if lines:
        assert "Every line is a JSON object with text fields" in failed(result)
    json.dumps(result.to_json(), allow_nan=False)


def test_a_malformed_line_is_named_by_its_number(write):
    rows: list[Any] = [*good_rows()]
    rows[4] = b"{torn"
    result = validate_file(write(rows), ValidationConfig(), LABELS, (40, 40))
    (check,) = (c for c in result.failures if c.column == "row_well_formed")
    assert check.detail == "1 of 40 rows (2.5%): line 5"


def test_a_missing_file_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match=r"synthetic file .*nowhere\.jsonl does not exist"):
        validate_file(tmp_path / "nowhere.jsonl", ValidationConfig(), LABELS, (1, 1))
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        validate_file(tmp_path, ValidationConfig(), LABELS, (1, 1))


def test_without_labels_the_label_checks_are_left_out(write):
    rows = [{"id": row["id"], "text": row["text"]} for row in good_rows()]
    result = validate_file(write(rows), ValidationConfig(), (), (40, 40))
    assert result.success
    assert "Every row has a label" in result.left_out


def test_structured_records_follow_their_schema(write):
    schema = {
        "type": "object",
        "required": ["title", "year"],
        "properties": {"year": {"$ref": "#/$defs/year"}},
        "$defs": {"year": {"type": "integer", "minimum": 1888}},
    }
    rows = [
        {"id": f"r-{i}", "text": json.dumps({"title": f"Film {i}", "year": 1900 + i})}
        for i in range(5)
    ]
    result = validate_file(write(rows), ValidationConfig(), (), (5, 5), schema=schema)
    assert result.success
    assert "Texts are JSON" not in result.left_out
    change(rows, 1, text=json.dumps({"title": "Too early", "year": 1066}))
    change(rows, 2, text="Film 2, 1902")
    result = validate_file(write(rows), ValidationConfig(), (), (5, 5), schema=schema)
    assert {check.title: check.detail for check in result.failures} == {
        "Texts are JSON": "1 of 5 rows (20%, allowed 5%): line 3",
        "Texts that are JSON satisfy the schema": "1 of 4 rows (25%, allowed 5%): line 2",
    }


def test_details_name_lines_and_never_quote(write):
    secret = "zebra 555-0142 \x07 MRN-482913"
    rows = [{**row, "text": secret, "label": "zebra", "id": "zebra"} for row in good_rows()]
    result = validate_file(write(rows), ValidationConfig(forbid=ALL), LABELS, (40, 40))
    assert len(result.failures) == 6
    assert "zebra" not in json.dumps([vars(check) for check in result.expectations])
    assert "40 of 40 rows (100%): lines 1, 2, 3, 4, 5 and 35 more" in [
        check.detail for check in result.failures
    ]


def test_patterns_with_groups_or_look_around_work(write):
    rows = change(good_rows(), 3, text="see PAT-99 and the rest")
    for pattern in (r"(MRN|PAT)-\d+", r"(?<=PAT-)\d+", r"(P)AT-(9)\2"):
        cfg = ValidationConfig(forbid=(pattern,))
        assert failed(validate_file(write(rows), cfg, LABELS, (40, 40))) == {"No record numbers"}
    rows = change(good_rows(), 3, text="see pat-99 and the rest")
    for pattern in (r"(?i)PAT-\d+", r"(p)at-(9)\2"):  # each is checked alone
        cfg = ValidationConfig(forbid=(r"(Q)\d", pattern))
        result = validate_file(write(rows), cfg, LABELS, (40, 40))
        assert [check.title for check in result.failures] == ["No record numbers"]


def test_the_digest_is_of_what_is_checked(write):
    path = write(good_rows())
    one = validate_file(path, ValidationConfig(), LABELS, (40, 40)).suite_sha256
    write(good_rows()[:3])
    assert validate_file(path, ValidationConfig(), LABELS, (40, 40)).suite_sha256 == one
    others = {
        validate_file(path, cfg, labels, rows).suite_sha256
        for cfg, labels, rows in (
            (ValidationConfig(max_chars=99), LABELS, (40, 40)),
            (ValidationConfig(), LABELS[:1], (40, 40)),
            (ValidationConfig(), LABELS, (41, 41)),
            (ValidationConfig(forbid=("email",)), LABELS, (40, 40)),
        )
    }
    assert len(others | {one}) == 5


def pattern(when):
    suite = json.loads((SHIPPED / "text.json").read_text())
    (found,) = (
        expectation["kwargs"]["regex"]
        for expectation in suite["expectations"]
        if expectation["meta"].get("privsyn", {}).get("when") == when
    )
    return re.compile(found)


FOUND = {
    ("email", True): "a@b.co|ann.lee+x@mail.clinic.org|<ann@clinic.example.com>|a_b%c@d-e.info",
    ("email", False): "meet @ 5|a@b|@handle|user at clinic.org",
    ("phone", True): (
        "555-0142|(555) 013-4242|555-013-4242|555.013.4242|555 013 4242|+1 555 013 4242|"
        "+49 30 901820|+442079460958|020 7946 0958|5550134242"
    ),
    ("phone", False): "2026-11-20|1999-2004|MRN-482913|10:30|3.14159|120/80|4,500|12 345",
}


@pytest.mark.parametrize(("when", "found"), FOUND)
def test_patterns_find_what_they_should(when, found):
    for text in FOUND[when, found].split("|"):
        for said in (text, f"call {text} today"):
            assert bool(pattern(when).search(said)) is found, said


def test_great_expectations_is_imported_only_when_run():
    code = (
        "import sys, privsyn.validation.suite, privsyn.report.document, "
        "privsyn.evaluation.classifiers, privsyn.evaluation.embeddings; "
        "print([m for m in ('great_expectations', 'pandas', 'sklearn', 'matplotlib', 'scipy') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
