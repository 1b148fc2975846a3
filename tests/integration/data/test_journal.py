"""Journals of processes that are killed: no draw is made twice, and no order of writes but one."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests import preloaded

ROOT = Path(__file__).parents[3]


def attempt(folder, where, number):
    command = [preloaded.python(), "-m", "tests.integration.data.journal_writer"]
    done = subprocess.run([*command, str(folder), where, str(number)], check=False, cwd=ROOT)
    return done.returncode


def killed_then_resumed(folder, where, number):
    """What is wrong after a kill and a resume; empty where the journal kept its promise."""
    assert attempt(folder, where, number) == -signal.SIGKILL
    early = {p.name: json.loads(p.read_text()) for p in folder.glob("used-*")}
    assert attempt(folder, "nowhere", 0) == 0
    calls = [int(line) for line in (folder / "calls").read_text().split()]
    final = json.loads((folder / "used-3").read_text())
    wrong = []
    if len(calls) > 6 + 1:
        wrong.append("drawn more than once beyond the one unwritten draw")
    if any(final[: len(values)] != values for values in early.values()):
        wrong.append("a value in use changed")
    if not set(final) <= set(calls) or len(final) != 6:
        wrong.append("not the draws that were made")
    return wrong


@pytest.mark.parametrize(
    ("where", "number"),
    [
        ("draw", 0), ("draw", 2), ("draw", 4), ("write", 0), ("write", 4), ("fsync", 2),
        ("fsync", 5), ("room", 0), ("room", 4),
    ],
)  # fmt: skip
def test_killed_anywhere_it_resumes_with_the_same_draws(tmp_path, where, number):
    assert killed_then_resumed(tmp_path, where, number) == []


def killed_with_a_file(folder, where):
    """Draws made in a killed and a resumed run, and whether the last one is that in use."""
    command = [preloaded.python(), "-m", "tests.integration.data.journal_file_writer", str(folder)]
    killed = subprocess.run([*command, where], check=False, cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL
    subprocess.run([*command, "nowhere"], check=True, cwd=ROOT)
    calls = (folder / "calls").read_text().split()
    return len(calls), (folder / "used").read_text() == calls[-1]


@pytest.mark.parametrize(
    ("where", "draws"), [("draw", 2), ("store", 2), ("entry", 2), ("line", 2), ("used", 1)]
)
def test_a_killed_draw_of_a_file_is_made_again_only_where_nobody_saw_it(tmp_path, where, draws):
    assert killed_with_a_file(tmp_path, where) == (draws, True)
