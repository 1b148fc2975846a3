"""Suite files: ours as Great Expectations reads it, theirs as we read it."""

import json
import pickle
import warnings

import pytest

from privsyn.data.public_files import PublicFiles
from privsyn.data.settings import ImageConfig
from privsyn.errors import ConfigError
from privsyn.modalities.images import Images
from privsyn.modalities.text import TEXTS
from privsyn.validation.settings import ValidationConfig
from privsyn.validation.suite import SHIPPED, load_suite, validate_file
from tests.unit.validation.synthetic_files import LABELS, good_rows

NOT_NULL = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "text"}}


@pytest.fixture(scope="module")
def gx():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import great_expectations
    return great_expectations


def own(tmp_path, expectations, **more):
    (tmp_path / "own.json").write_text(
        json.dumps({"name": "own", "expectations": expectations, **more})
    )
    return ValidationConfig(suite="own.json")


def test_the_shipped_suite_is_great_expectations_own_format(gx):
    raw = json.loads((SHIPPED / "text.json").read_text())
    suite = gx.ExpectationSuite(**raw)
    assert len(suite.expectations) == len(raw["expectations"])  # it drops what it cannot read
    documented = raw["meta"]["privsyn"]
    assert set(suite.suite_parameter_options) == set(documented["parameters"])
    used = {e["meta"]["privsyn"]["when"] for e in raw["expectations"] if e["meta"]}
    assert used == set(documented["when"])
    columns = {e["kwargs"].get("column") for e in raw["expectations"]} - {None}
    assert columns <= set(documented["columns"])
    again = suite.to_json_dict()
    assert [e["type"] for e in again["expectations"]] == [e["type"] for e in raw["expectations"]]
    assert [e["kwargs"] for e in again["expectations"]] == [
        e["kwargs"] for e in raw["expectations"]
    ]


def test_every_documented_placeholder_has_a_value():
    suite = load_suite(ValidationConfig(), LABELS, (3, 3))
    raw = json.loads((SHIPPED / "text.json").read_text())
    assert set(suite.parameters) == set(raw["meta"]["privsyn"]["parameters"])


def test_every_documented_placeholder_of_images_has_a_value():
    form = ImageConfig(size=8, mode="L")
    suite = load_suite(ValidationConfig(), LABELS, (3, 3), modality=Images(form))
    raw = json.loads((SHIPPED / "images.json").read_text())
    assert suite.name == "images"
    assert set(raw["meta"]["privsyn"]["parameters"]) <= set(suite.parameters)
    assert set(raw["meta"]["privsyn"]["columns"]) == set(Images.suite_columns)
    assert suite.left_out == ()


@pytest.mark.parametrize(("named", "images"), [("text", True), ("images", False)])
def test_the_suite_of_the_other_kind_is_refused(named, images):
    modality = Images(ImageConfig(size=8)) if images else TEXTS
    with pytest.raises(ConfigError) as caught:
        load_suite(ValidationConfig(suite=named), LABELS, (3, 3), modality=modality)
    assert f"validation.suite={named} does not fit" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301


def test_a_suite_made_with_great_expectations_runs(gx, write, tmp_path):
    expectations = gx.expectations
    context = gx.get_context(mode="ephemeral")
    suite = context.suites.add(
        gx.ExpectationSuite(
            name="mine",
            expectations=[
                expectations.ExpectColumnValuesToMatchRegex(column="id", regex="^invisible_ink-"),
                expectations.ExpectColumnValueLengthsToBeBetween(
                    column="text", max_value={"$PARAMETER": "max_chars"}, severity="warning"
                ),
                expectations.ExpectColumnDistinctValuesToEqualSet(
                    column="label", value_set={"$PARAMETER": "labels"}
                ),
                expectations.ExpectTableRowCountToBeBetween(
                    min_value={"$PARAMETER": "max_rows / 2"}
                ),
            ],
        )
    )
    saved = suite.to_json_dict()
    assert saved["expectations"][0]["id"]  # ids of another context do not get in the way
    (tmp_path / "mine.json").write_text(json.dumps(saved))
    cfg = ValidationConfig(suite="mine.json", max_chars=1000)
    result = validate_file(write(good_rows()), cfg, LABELS, (40, 40), files=PublicFiles(tmp_path))
    assert result.success
    assert result.suite == "mine"
    assert [check.title for check in result.expectations[2:4]] == [
        "Column values to match regex",
        "Column value lengths to be between",
    ]
    result = validate_file(
        write(good_rows()[:19]), cfg, LABELS, (40, 40), files=PublicFiles(tmp_path)
    )
    assert {check.name for check in result.failures} == {
        "expect_column_distinct_values_to_equal_set",
        "expect_table_row_count_to_be_between",
    }


def test_no_suite_lets_torn_lines_or_missing_rows_pass(write, tmp_path):
    cfg = own(tmp_path, [{"type": "expect_column_to_exist", "kwargs": {"column": "text"}}])
    result = validate_file(
        write([*good_rows()[:-2], b"{torn"]), cfg, LABELS, (40, 40), files=PublicFiles(tmp_path)
    )
    assert {check.title for check in result.failures} == {
        "The file holds as many rows as the plan says",
        "Every line is a JSON object with text fields",
    }


def test_what_cannot_be_evaluated_fails(write, tmp_path):
    cfg = own(tmp_path, [{**NOT_NULL, "kwargs": {"column": "nope"}}, NOT_NULL])
    result = validate_file(write(good_rows()), cfg, LABELS, (40, 40), files=PublicFiles(tmp_path))
    (check,) = result.failures
    assert check.column == "nope"
    assert check.detail.startswith("not evaluated: ")
    assert "nope" in check.detail
    assert "Traceback" not in check.detail


@pytest.mark.parametrize(
    ("expectations", "message"),
    [
        ([], "checks nothing"),
        ([3], "expectation 1 must be an object"),
        ([{"type": "expect_column_values_to_not_be_null"}], "expectation 1 must be an object"),
        ([{"type": "expect_nothing", "kwargs": {}}], "expect_nothing not found"),
        ([{**NOT_NULL, "kwargs": {"colum": "text"}}], "colum extra fields not permitted"),
        ([{**NOT_NULL, "meta": {"privsyn": {"when": "label"}}}], "when='label' is not known"),
        ([{**NOT_NULL, "meta": {"privsyn": {"when": "json_schema"}}}], "checks nothing"),
        ([{**NOT_NULL, "kwargs": {"column": "id", "mostly": {"$PARAMETER": "min_shar"}}}],
         "needs the parameter 'min_shar'"),
        ([{"type": "expect_table_row_count_to_equal",
           "kwargs": {"value": {"$PARAMETER": "max_rows + x"}}}],
         "suite parameter"),
        ([{"type": "expect_column_values_to_match_json_schema",
           "kwargs": {"column": "text", "json_schema": {"$PARAMETER": "json_schema"}}}],
         "'json_schema', which the config does not set"),
    ],
)  # fmt: skip
def test_a_bad_suite_is_a_config_error(write, tmp_path, expectations, message):
    cfg = own(tmp_path, expectations)
    with pytest.raises(ConfigError, match=r"validation\.suite=own") as caught:
        validate_file(write(good_rows()), cfg, LABELS, (40, 40), files=PublicFiles(tmp_path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
