"""What `make demo DATA=...` means, and what a watcher of the run gets to see."""

import json
from pathlib import Path

import pytest

from privsyn.config import load_config
from privsyn.data.columns import MISSING, OTHER
from privsyn.data.sample import ROWS
from tools.local import demo
from tools.local.sample import write_sample_if_asked

pytestmark = pytest.mark.airflow
PARAMS = Path(__file__).parents[3] / "params.yaml"


def config(**given):
    return load_config(PARAMS, demo.own_data(given))


def test_without_data_the_project_is_as_configured():
    empty = dict.fromkeys(("DATA", "LABELS", "TEXT", "LABEL", "UNIT", "TEST", "EPSILON"), "")
    assert demo.own_data(empty) == []


def test_a_file_of_ones_own_has_an_account_of_its_own_and_rows_as_units():
    changed = config(DATA="news.train.jsonl.gz", LABELS="World, Sci/Tech", EPSILON="4")
    assert changed.dataset.path == Path("news.train.jsonl.gz").resolve()
    assert (changed.dataset.name, changed.account.name) == ("news", "news")
    assert changed.dataset.labels == ("World", "Sci/Tech")
    assert (changed.dataset.text, changed.dataset.label) == ("text", "label")
    assert changed.dataset.unit is None
    assert changed.account.adjacency == "replace_null"
    assert changed.privacy.epsilon == 4


def test_a_unit_column_allows_removal():
    changed = config(DATA="/data/My notes!.csv", UNIT="author", TEXT="body")
    assert (changed.dataset.unit, changed.dataset.text) == ("author", "body")
    assert (changed.dataset.label, changed.dataset.labels) == (None, ())
    assert changed.account.adjacency == "add_remove"
    assert changed.dataset.name == "My-notes"


def test_the_sample_with_columns_is_written_as_its_settings_declare_it(tmp_path):
    changed = load_config(PARAMS, demo.sample_asked({"WITH_COLUMNS": "yes", "IMAGES": ""}))
    assert changed.account.name == changed.dataset.name != load_config(PARAMS).dataset.name
    assert changed.columns.why_not(list(changed.dataset.columns)) is None

    write_sample_if_asked(changed, tmp_path)
    lines = (tmp_path / changed.dataset.path).read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert len(records) == ROWS
    for name, column in changed.dataset.columns.items():
        found = {column.cells[column.cell(record[name])] for record in records}
        assert found == set(column.cells) - {OTHER, MISSING}
    assert demo.sample_asked({"COLUMNS": "160"}) == []


def test_a_test_file_takes_the_place_of_the_holdout():
    changed = config(DATA="a.jsonl", TEST="b.jsonl")
    assert changed.dataset.test_path == Path("b.jsonl").resolve()
    assert changed.dataset.holdout == 0


def test_a_mistake_in_the_settings_is_one_line_and_code_2(capsys, tmp_path):
    assert demo.main(["--params", str(tmp_path / "params.yaml")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
