"""What `make demo DATA=...` means, and what a watcher of the run gets to see."""

import io
import logging
from pathlib import Path

import pytest
from rich.console import Console

from operators import demo
from privsyn.config import load_config

pytestmark = pytest.mark.airflow
PARAMS = Path(__file__).parents[2] / "params.yaml"


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


def test_a_test_file_takes_the_place_of_the_holdout():
    changed = config(DATA="a.jsonl", TEST="b.jsonl")
    assert changed.dataset.test_path == Path("b.jsonl").resolve()
    assert changed.dataset.holdout == 0


def test_the_board_tells_stages_apart_and_keeps_the_error():
    shown = io.StringIO()
    board = demo.Board(Console(file=shown, width=200))
    for event, text in (
        ("started", "reserve: started"),
        ("failed", "reserve: BudgetExceeded: asked 3, left 1, short by 2."),
    ):
        record = logging.makeLogRecord({"msg": text, "event": event, "stage": "reserve"})
        board.handle(record)
    board.handle(logging.makeLogRecord({"msg": "not a stage"}))
    assert board.error == "BudgetExceeded: asked 3, left 1, short by 2."
    assert "short by 2" in shown.getvalue()
    assert "not a stage" not in shown.getvalue()
    assert board.__rich__().row_count == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("BudgetExceeded: x", 3),
        ("ConfigError: x", 2),
        ("ValidationFailed: x", 5),
        ("generate was ended by SIGKILL", 1),
        (None, 1),
    ],
)
def test_the_demo_ends_with_the_code_of_its_error(error, code):
    assert demo._exit_code(error) == code


def test_a_mistake_in_the_settings_is_one_line_and_code_2(capsys, tmp_path):
    assert demo.main(["--params", str(tmp_path / "params.yaml")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
