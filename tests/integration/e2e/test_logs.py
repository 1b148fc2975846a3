"""Where nobody looks on, what a run prints ends up in a log: nothing of the records is in it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from privsyn import cli
from privsyn.display.tables import at_a_terminal
from tests.integration.e2e.small_project import environment

OF_RECORDS = ("rows can be used", "held-out", "accuracy", "note (internal)")


class Terminal(io.StringIO):
    """A stream that a person sees."""

    def isatty(self):
        return True


def printed(project, monkeypatch, *, person):
    """What `privsyn run` prints: to a person, or into a file although colors are forced."""
    monkeypatch.chdir(project.root)
    monkeypatch.setattr("sys.argv", ["privsyn", "run", "--no-publish"])
    streams = [Terminal() if person else io.StringIO() for _ in range(2)]
    for name, stream in zip(("out", "err"), streams, strict=True):
        console = Console(file=stream, force_terminal=True, width=200, color_system=None)
        monkeypatch.setattr(f"privsyn.cli.run.{name}", console)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    return "".join(stream.getvalue() for stream in streams)


def test_a_run_says_of_the_records_only_to_a_person(make_project, monkeypatch):
    project = make_project()
    for key, value in environment(project).items():
        monkeypatch.setenv(key, value)
    logged = printed(project, monkeypatch, person=False)
    assert not any(words in logged for words in OF_RECORDS)
    assert "privsyn report " in logged
    assert "partition: done" in logged  # said of every stage, however long it took
    assert "evaluate: done" in logged
    assert "done in" not in logged
    shown = printed(project, monkeypatch, person=True)  # the same release once more
    assert "rows can be used" in shown
    assert "utility (internal)" in shown


def test_colors_that_are_forced_make_no_terminal(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    assert not at_a_terminal(Console(file=io.StringIO()))
    assert at_a_terminal(Console(file=Terminal()))
