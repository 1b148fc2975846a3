"""What a terminal of 80 columns shows: nothing breaks inside a word, and tables fit."""

from __future__ import annotations

import io

from rich.console import Console

from privsyn.display.tables import note

WORDS = (
    "a release at delta=1e-05 costs more of the account than its epsilon says: the account's "
    "cap is at 1e-06 (account.delta=1e-06)"
)


def terminal(width):
    return Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)


def printed(console):
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
    console = Console(file=io.StringIO(), width=80)
    note(console, WORDS)
    assert printed(console) == [f"note: {WORDS}"]
