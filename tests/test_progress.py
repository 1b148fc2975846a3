"""Progress: what is done of what, and how long it still takes."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from privsyn.progress import Pace, duration, show_progress


def follow(*counts: tuple[float, int]) -> list[str]:
    """Lines of a log for (time, tokens done of 1000)."""
    times = iter(when for when, _ in counts)
    printed = io.StringIO()
    with show_progress(Console(file=printed, width=40), clock=lambda: next(times)) as progress:
        for _, done in counts:
            progress("generate 1/2", done, 1000, "tokens")
    return printed.getvalue().splitlines()


def test_a_log_hears_of_every_tenth_with_the_time_left():
    lines = follow((0, 0), (1, 10), (50, 500), (51, 505), (100, 1000))
    assert lines == [
        "generate 1/2: 0 of 1,000 tokens",
        "generate 1/2: 500 of 1,000 tokens, about 50 s left",
        "generate 1/2: 1,000 of 1,000 tokens",
    ]


def test_a_slow_stage_is_heard_of_twice_a_minute():
    lines = follow((0, 0), (29, 1), (31, 2), (45, 3), (62, 4))
    assert [line.split()[2] for line in lines] == ["0", "2", "4"]
    assert lines[-1].endswith("about 3 h 3 min left")


def test_a_resumed_stage_counts_its_pace_from_where_it_went_on():
    lines = follow((0, 800), (1, 801), (10, 891), (11, 901))
    assert lines[-1].endswith("901 of 1,000 tokens, about 10 s left")


def test_what_a_resumed_stage_reads_at_once_is_no_pace():
    lines = follow((0, 0), (1, 400), (10, 409), (41, 440))
    assert next(line for line in lines if "left" in line).endswith(
        "440 of 1,000 tokens, about 9 min 20 s left"
    )


def test_loading_a_model_is_not_taken_for_the_pace():
    lines = follow((0, 0), (60, 5), (61, 100), (70, 1000))
    assert lines[1] == "generate 1/2: 5 of 1,000 tokens"
    assert lines[2].endswith("100 of 1,000 tokens, about 9 s left")


def test_a_second_release_has_a_pace_of_its_own():
    lines = follow((0, 0), (1, 10), (50, 500), (100, 1000), (110, 0), (111, 10), (121, 510))
    assert lines[-1].endswith("510 of 1,000 tokens, about 10 s left")


def test_what_is_read_back_from_a_journal_says_nothing_of_the_pace():
    lines = follow((0, 0), (1, 900), (61, 910), (121, 920))
    assert lines[-1].endswith("920 of 1,000 tokens, about 8 min left")


@pytest.mark.parametrize("total", [0, 1])
def test_nothing_to_do_is_no_division_by_zero(total):
    printed = io.StringIO()
    with show_progress(Console(file=printed, width=80)) as progress:
        progress("train", 0, total)
        progress("train", total, total)
    assert "train: 0 of" in printed.getvalue()
    assert Pace().left(0, 5, 0.0) is None


def test_a_terminal_shows_a_bar_that_leaves_nothing_behind():
    printed = io.StringIO()
    console = Console(file=printed, force_terminal=True, width=120, color_system=None)
    with show_progress(console) as progress:
        progress("generate 1/1", 0, 64, "tokens")
        progress("generate 1/1", 32, 64, "tokens")
    assert "32/64 tokens" in printed.getvalue()
    assert printed.getvalue().endswith("\x1b[2K")  # its line is cleared


def test_the_bar_of_a_second_release_is_not_done_with_that_of_the_first():
    printed = io.StringIO()
    console = Console(file=printed, force_terminal=True, width=120, color_system=None)
    with show_progress(console) as progress:
        progress("evaluate", 4, 4, "measurements")
        progress("evaluate", 0, 4, "measurements")
    last = [line for line in printed.getvalue().split("\x1b[2K") if "evaluate" in line][-1]
    assert "0/4 measurements" in last
    assert not last.startswith(" ")  # its spinner turns


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (75, "1 min 15 s"),
        (599, "9 min 59 s"),
        (3599, "1 h"),
        (3700, "1 h 2 min"),
        (90000, "25 h"),
    ],
)
def test_times_are_said_as_people_do(seconds, said):
    assert duration(seconds) == said
