"""Progress: what is done of what, on a terminal and in a log."""

import io

import pytest
from rich.console import Console

from privsyn.display.progress import LONG, show_progress
from privsyn.progress import under_way


@pytest.mark.parametrize("seconds", [0.001, 3600.0])
def test_a_log_hears_the_same_however_long_a_stage_takes(seconds, monkeypatch):
    """How long it takes follows the records."""
    now, printed = iter(range(10_000)), io.StringIO()
    monkeypatch.setattr("time.monotonic", lambda: seconds * next(now))
    with show_progress(Console(file=printed, width=40)) as progress:
        for stage in ("plan", "reserve", *LONG, "partition"):
            with under_way(progress, stage):
                pass
        for done in (0, 1, 49, 50, 51, 500, 505, 1000):
            progress("generate 1/2", done, 1000, "tokens")
    assert printed.getvalue().splitlines() == [
        *(f"{stage}: begins" for stage in LONG),
        "generate 1/2: 0 of 1,000 tokens",
        "generate 1/2: 50 of 1,000 tokens",
        "generate 1/2: 500 of 1,000 tokens",
        "generate 1/2: 1,000 of 1,000 tokens",
    ]


def test_a_notebook_hears_what_a_log_hears():
    printed = io.StringIO()
    with show_progress(Console(file=printed, force_jupyter=True)) as progress:
        progress("generate", 1, 4, "tokens")
    assert not printed.getvalue()  # rich hands lines to the notebook itself


def terminal():
    printed = io.StringIO()
    return Console(file=printed, force_terminal=True, width=120, color_system=None), printed


def on_screen(progress, printed):
    """What stands on the screen now; a stage that begins draws it anew."""
    before = printed.tell()
    with under_way(progress, "another"):
        return printed.getvalue()[before:]


def test_a_stage_is_on_the_screen_with_its_time_until_it_ends_or_fails():
    console, printed = terminal()
    with show_progress(console) as progress:
        with under_way(progress, "reserve"):
            row = printed.getvalue().splitlines()[-1]
            assert row.split()[1:] == ["reserve", "0:00:00"]  # behind the spinner
        with under_way(progress, "generate"):
            progress("generate 1/2", 12, 13, "steps")
            assert "12/13 steps" in on_screen(progress, printed)
            progress("generate 2/2", 1, 13, "steps")
            now = on_screen(progress, printed)
            assert "generate 2/2" in now
            assert "1/13 steps" in now
            assert "generate 1/2" not in now
        assert "generate" not in on_screen(progress, printed)
        with pytest.raises(ValueError, match="no"), under_way(progress, "preflight"):
            raise ValueError("no")
        assert "preflight" not in on_screen(progress, printed)
