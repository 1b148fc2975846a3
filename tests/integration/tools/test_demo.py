"""What `make demo DATA=...` means, and what a watcher of the run gets to see."""

import io
import logging
import os
import pty
import re
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from privsyn.config import load_config
from tools.local import demo

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


def test_a_label_may_hold_a_comma():
    assert config(DATA="a.csv", LABELS='Bug, "Praise, thanks"').dataset.labels == (
        "Bug",
        "Praise, thanks",
    )


def test_a_unit_column_allows_removal():
    changed = config(DATA="/data/My notes!.csv", UNIT="author", TEXT="body")
    assert (changed.dataset.unit, changed.dataset.text) == ("author", "body")
    assert (changed.dataset.label, changed.dataset.labels) == (None, ())
    assert changed.account.adjacency == "add_remove"
    assert changed.dataset.name == "My-notes"


def test_what_the_sample_is_said_to_be_is_said_of_no_other_data(tmp_path):
    params = tmp_path / "params.yaml"
    said = "label_descriptions: {Billing: money}"
    params.write_text(PARAMS.read_text().replace("label_descriptions: {}", said))
    assert load_config(params).dataset.label_descriptions

    for settings in (demo.own_data({"DATA": "tickets.jsonl"}), demo.DIGITS_DEMO):
        dataset = load_config(params, settings).dataset
        assert (dataset.document, dataset.label_descriptions) == (None, {})


def test_the_prompts_say_what_the_user_says_a_record_is():
    assert (
        config(DATA="a.jsonl", DOCUMENT="a support ticket").dataset.document == "a support ticket"
    )


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
        ("generate was killed by SIGKILL", 1),
        (None, 1),
    ],
)
def test_the_demo_ends_with_the_code_of_its_error(error, code):
    assert demo._exit_code(error) == code


def test_a_mistake_in_the_settings_is_one_line_and_code_2(capsys, tmp_path):
    assert demo.main(["--params", str(tmp_path / "params.yaml")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("columns", [80, 200])
def test_on_a_terminal_the_board_is_all_there_is(tmp_path, columns):
    """On a real one: what a library takes for a terminal decides where its words go."""
    (tmp_path / "params.yaml").write_text(PARAMS.read_text())
    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (40, columns))
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("watched_demo.py")), "params.yaml"],
        cwd=tmp_path,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={key: value for key, value in os.environ.items() if key != "COLUMNS"}
        | {"TERM": "xterm-256color", "PYTHONPATH": str(PARAMS.parent)},
    ) as child:
        os.close(terminal)
        shown = b""
        with suppress(OSError):  # the terminal is gone with its last process
            while part := os.read(controller, 65536):
                shown += part
        os.close(controller)
        assert child.wait() == 3
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "loc=" not in text
    # At the end whole at any width, with the time it took.
    assert re.search(r"^ok  reserve +[0-9.]+ s  a folder: /x{120}\r?$", text, re.MULTILINE)
    assert "Lower privacy.epsilon." in text.splitlines()[-1]
    assert (tmp_path / ".airflow" / "demo" / "demo.log").read_text().count("loc=") >= 81


@pytest.mark.parametrize(
    ("flags", "method", "chosen"),
    [
        ("flags : avx512f avx512_bf16 amx_tile", "private_evolution", True),
        ("Features : fp asimd bf16 i8mm", "invisible_ink", True),
        ("flags : avx512f avx512vl", "private_evolution", False),
        ("flags : avx512_bf16", "dp_lora", False),  # it trains
        (None, "private_evolution", False),
    ],
)
def test_weights_are_in_bfloat16_where_the_cpu_is_made_for_it(flags, method, chosen, tmp_path):
    cpu = tmp_path / "cpuinfo"
    if flags:
        cpu.write_text(f"processor : 0\n{flags}\n")
    settings = demo.quick(method, cpu)
    assert ("models.dtype=bfloat16" in settings) == chosen
    assert load_config(PARAMS, settings).models.dtype == ("bfloat16" if chosen else "float32")
