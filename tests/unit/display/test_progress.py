"""Progress: what is done of what, and how long it still takes."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from privsyn.display import progress as shown
from privsyn.display.progress import LONG, Rate, duration, show_progress
from privsyn.progress import under_way


def follow(*counts: tuple[float, int]) -> list[str]:
    """What is told of each of (time, tokens done of 1000), the time left with it."""
    paces: dict[str, Rate] = {}
    return [
        f"{done} of 1,000 tokens"
        + (f", {left}" if (left := shown._time_left(paces, "generate", done, 1000, when)) else "")
        for when, done in counts
    ]


@pytest.mark.parametrize("seconds", [0.001, 1.0, 3600.0])
def test_a_log_hears_the_same_however_long_a_stage_takes(seconds):
    """How long it takes follows the records."""
    now, printed = iter(range(10_000)), io.StringIO()
    console = Console(file=printed, width=40)
    with show_progress(console, clock=lambda: seconds * next(now)) as progress:
        for done in (0, 1, 49, 50, 51, 500, 505, 1000):
            progress("generate 1/2", done, 1000, "tokens")
    assert printed.getvalue().splitlines() == [
        "generate 1/2: 0 of 1,000 tokens",
        "generate 1/2: 50 of 1,000 tokens",
        "generate 1/2: 500 of 1,000 tokens",
        "generate 1/2: 1,000 of 1,000 tokens",
    ]


def test_a_handful_of_steps_tells_no_time_left():
    """The first of a thousand are not like the others."""
    lines = follow((0, 0), (29, 1), (60, 5), (95, 8), (125, 9), (156, 11))
    assert [line.partition(" left")[1] for line in lines] == ["", "", "", "", "", " left"]
    lines = follow((0, 800), (29, 801), (60, 805), (95, 809), (126, 811))
    assert [line.partition(" left")[1] for line in lines] == ["", "", "", "", " left"]


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
    assert lines[1] == "5 of 1,000 tokens"
    assert lines[2].endswith("100 of 1,000 tokens, about 9 s left")


def test_a_second_release_has_a_pace_of_its_own():
    lines = follow((0, 0), (1, 10), (50, 500), (100, 1000), (110, 0), (111, 10), (121, 510))
    assert lines[-1].endswith("510 of 1,000 tokens, about 10 s left")


def test_what_is_read_back_from_a_journal_says_nothing_of_the_pace():
    lines = follow((0, 0), (1, 900), (61, 910), (121, 920))
    assert lines[-1].endswith("920 of 1,000 tokens, about 8 min left")


def test_a_few_steps_that_take_no_time_say_nothing_of_those_that_do():
    lines = follow((0, 0), (0.1, 1), (0.2, 2), (0.3, 7), (31, 71), (61, 135))
    assert [line.partition("tokens")[2] for line in lines] == [
        *("", "", "", ""),
        ", about 6 min 50 s left",
        ", about 6 min 50 s left",
    ]


@pytest.mark.parametrize("total", [0, 1])
def test_nothing_to_do_is_no_division_by_zero(total):
    printed = io.StringIO()
    with show_progress(Console(file=printed, width=80)) as progress:
        progress("train", 0, total)
        progress("train", total, total)
    assert "train: 0 of" in printed.getvalue()
    assert Rate().seconds_left(0, 5, 0.0) is None


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


def test_a_terminal_tells_the_time_left_as_a_log_does():
    console, printed = terminal()
    times = iter([0, 1, 50, 50])
    with show_progress(console, clock=lambda: next(times)) as progress:
        with under_way(progress, "generate"):
            for done in (0, 10, 500):
                progress("generate 1/1", done, 1000, "tokens")
            assert "about 50 s left" in on_screen(progress, printed)
            progress("generate 1/1, reading", 0, 4, "texts")
            now = on_screen(progress, printed)
    assert "0/4 texts" in now
    assert "left" not in now


def test_parts_of_a_stage_that_take_unlike_times_are_named_and_tell_no_time_left():
    printed, times = io.StringIO(), iter([0, 50, 52, 200])
    with show_progress(Console(file=printed, width=40), clock=lambda: next(times)) as progress:
        for _ in range(2):
            with under_way(progress, "evaluate"):
                for done, name in enumerate(("public model alone", "MAUVE")):
                    progress(f"evaluate: {name}", done, 2, "measurements")
    assert (
        printed.getvalue().splitlines()
        == [
            "evaluate: public model alone: 0 of 2 measurements",
            "evaluate: MAUVE: 1 of 2 measurements",
        ]
        * 2
    )


def terminal() -> tuple[Console, io.StringIO]:
    printed = io.StringIO()
    return Console(file=printed, force_terminal=True, width=120, color_system=None), printed


def on_screen(progress: Any, printed: io.StringIO) -> str:
    """What stands on the screen now; a stage that begins draws it anew."""
    before = printed.tell()
    with under_way(progress, "another"):
        return printed.getvalue()[before:]


def test_a_stage_that_counts_nothing_is_named_with_its_time_from_the_beginning():
    console, printed = terminal()
    with show_progress(console) as progress, under_way(progress, "reserve"):
        row = printed.getvalue().splitlines()[-1]
        assert row.split()[1:] == ["reserve", "0:00:00"]  # behind the spinner


def test_a_stage_that_ended_is_gone_whatever_it_had_counted():
    console, printed = terminal()
    with show_progress(console) as progress:
        with under_way(progress, "generate"):
            progress("generate 1/1", 12, 13, "steps")
            assert "12/13 steps" in on_screen(progress, printed)
        assert "generate" not in on_screen(progress, printed)
        with under_way(progress, "validate"):
            now = on_screen(progress, printed)
            assert "validate" in now
            assert "generate" not in now


def test_a_stage_that_failed_is_gone_too():
    console, printed = terminal()
    with show_progress(console) as progress:
        with pytest.raises(ValueError, match="no"), under_way(progress, "preflight"):
            raise ValueError("no")
        assert "preflight" not in on_screen(progress, printed)


def test_the_next_part_of_a_stage_takes_the_place_of_the_one_before():
    console, printed = terminal()
    with show_progress(console) as progress, under_way(progress, "generate"):
        progress("generate 1/2", 12, 13, "steps")
        progress("generate 2/2", 1, 13, "steps")
        now = on_screen(progress, printed)
    assert "generate 2/2" in now
    assert "1/13 steps" in now
    assert "generate 1/2" not in now


def test_what_is_counted_to_its_end_gives_way_to_the_stage_that_goes_on():
    console, printed = terminal()
    with show_progress(console) as progress, under_way(progress, "load models"):
        progress("fetch smollm2", 270, 270, "MB")
        now = on_screen(progress, printed)
    assert "load models" in now
    assert "fetch" not in now
    assert "270" not in now


def test_what_is_counted_around_stages_stays_beside_them():
    console, printed = terminal()
    with show_progress(console) as progress:
        progress("tune", 1, 5, "trials")
        with under_way(progress, "evaluate"):
            progress("evaluate", 3, 4, "measurements")
            now = on_screen(progress, printed)
        assert "1/5 trials" in now
        assert "3/4 measurements" in now
        now = on_screen(progress, printed)
        assert "1/5 trials" in now
        assert "evaluate" not in now


def test_a_log_hears_that_a_long_stage_begins_by_its_name_and_not_by_the_clock():
    said = []
    for seconds in (0.0, 1e6):
        printed = io.StringIO()
        times = iter([0.0, seconds])
        console = Console(file=printed, width=40)
        with show_progress(console, clock=lambda times=times: next(times)) as progress:
            for stage in ("plan", "reserve", *LONG, "partition", "evaluate"):
                with under_way(progress, stage):
                    pass
        said.append(printed.getvalue().splitlines())
    assert said[0] == said[1] == [f"{stage}: begins" for stage in LONG]


def test_progress_that_hears_of_counts_alone_is_left_in_peace():
    heard = []
    with under_way(lambda *counts: heard.append(counts), "reserve"):
        pass
    assert heard == []


def test_a_notebook_shows_a_stage_until_it_ends(monkeypatch):
    seen = []

    class Handle:
        def update(self, html):
            seen.append(html.data)

    monkeypatch.setattr(shown, "_display", lambda _: Handle())
    console = Console(file=io.StringIO(), force_jupyter=True)
    with show_progress(console) as progress:
        with under_way(progress, "generate"):
            assert seen[-1] == "<div>generate <progress></progress></div>"
            progress("generate 1/1", 12, 13, "steps")
            assert seen[-1].count("<div>") == 1
            assert "12 of 13 steps" in seen[-1]
        assert seen[-1] == ""


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
