"""What a terminal of 80 columns shows: nothing breaks inside a word, and tables fit."""

from __future__ import annotations

import io

from rich.console import Console

from privsyn.display.releases import Compared, Comparison, Utility
from privsyn.display.tables import as_text, note
from privsyn.methods.registry import METHODS

WORDS = (
    "a release at delta=1e-05 costs more of the account than its epsilon says: the account's "
    "cap is at 1e-06 (account.delta=1e-06)"
)


def terminal(width: int) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)


def printed(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_note_breaks_between_words_and_goes_on_below_itself():
    console = terminal(80)
    note(console, WORDS)
    first, *further = printed(console)
    assert first.startswith("note: a release")
    assert further
    assert all(line.startswith("      ") and len(line) <= 80 for line in further)
    assert " ".join([first, *map(str.strip, further)]).split() == ["note:", *WORDS.split()]


def test_a_note_is_one_line_in_a_pipe():
    assert as_text(lambda console: note(console, WORDS)) == f"note: {WORDS}"


def test_a_comparison_fits_80_columns_whatever_the_method():
    rivals = {
        "chance": 0.233, "public": 0.601, "examples": 0.612, "everything": 0.65, "chosen": 0.7,
        "zero_shot": 0.655, "real": 0.854, "all_real": 0.9,
    }  # fmt: skip
    measured = Utility(
        0.69, 0.575, 0.777, "accuracy by an encoder", rivals, 0.312, 0.7, "The records added."
    )
    found = Comparison(
        "patient-portal",
        tuple(
            Compared(
                f"{method}-{'0' * 16}", method, "v1", 9.99995, 1e-6, share, 10_000, utility, ()
            )
            for method in METHODS
            for share, utility in ((0.0411, measured), (None, None))
        ),
        internal=True,
    )
    console = terminal(80)
    found.print(console)
    lines = printed(console)
    assert max(map(len, lines)) <= 80
    assert sum("4.2%" in line for line in lines) == len(METHODS), "rounded up: never too low"
    for method in METHODS:
        assert sum(line.startswith(f"{method}-{'0' * 16} ") for line in lines) == 6
    assert any("0.312" in line for line in lines)
    assert sum("0.700" in line for line in lines) == 2 * len(METHODS), "free, and its column"
