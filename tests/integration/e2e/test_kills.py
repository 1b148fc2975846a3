"""SIGKILL after mechanism calls: nothing is drawn twice but what was never written."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.integration.e2e.small_project import METHODS, failures

ROOT = Path(__file__).parents[3]


@cache
def server():
    """Forks the attempts; ends with this process, whose end closes its stdin."""
    env = os.environ | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    started = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.e2e.dying_run"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env=env,
    )
    atexit.register(started.__exit__, None, None, None)
    return started


def attempt(project, counter, kill_at):
    """How an attempt in a process of its own ended: 0, or less the signal that killed it."""
    asked = server()
    asked.stdin.write(json.dumps([str(project.root), str(counter), kill_at]) + "\n")
    answer = asked.stdout.readline()
    assert answer, "the server of attempts ended; see its stderr"
    return int(answer)


def journalled(project):
    draws = {}
    scratch = project.root / ".privsyn" / "scratch"
    for file in sorted(f for f in scratch.glob("*/journal-*") if f.is_file()):
        for line in file.read_bytes().splitlines()[1:]:
            entry = json.loads(line[9:])
            draws[entry["k"]] = entry["v"]
    return draws


def killed(project, counter, kills):
    """How many attempts died until one ran through, and the draws that the last one left on file.

    Each kills itself after so many calls of the mechanism; 0 is never.
    """
    died, seen = 0, {}
    for kill_at in kills:
        code = attempt(project, counter, kill_at)
        if code == 0:
            return died, seen
        assert code == -signal.SIGKILL
        died += 1
        draws = journalled(project)
        assert draws.items() >= seen.items(), "a draw on file changed"
        seen = draws
    raise AssertionError("no attempt ran through")


def ended(project):
    """The context, entry and folder of the one release of a project; it is whole and verifies."""
    ctx = project.context()
    (entry,) = ctx.ledger.releases.all()
    assert entry.state == "COMMITTED"
    (folder,) = (project.root / "releases").glob("*-*")
    assert failures(folder, ctx.ledger) == {}
    return ctx, entry, folder


def test_killed_after_many_calls_draws_each_token_once(make_project, tmp_path):
    """Killed after the 1st, 2nd, 4th, 9th ... call of each attempt, until one runs through."""
    project = make_project(methods={"invisible_ink": {"max_tokens": 4, "texts_per_label": 4}})
    counter = tmp_path / "calls"
    kills, _ = killed(project, counter, (1, 2, 4, 9, 1, 0))
    ctx, _, folder = ended(project)
    rows = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
    assert len(rows) == 8
    # Planned: one call per token of each text, at most; a kill adds at most the unwritten one.
    planned_calls = 8 * 4
    assert counter.stat().st_size <= planned_calls + kills
    assert ctx.ledger.accounts.balance("letters").entries == 1


def test_private_prediction_keeps_thresholds_and_rounds_through_kills(make_project, tmp_path):
    """A threshold drawn anew within its round would be a round that nobody paid for."""
    project = make_project(methods={"private_prediction": METHODS["private_prediction"]})
    _, seen = killed(project, tmp_path / "calls", (1, 2, 3, 8, 21, 0))
    for cell in (0, 1):  # what was on file before is on file at the end
        assert len([key for key in seen if key.startswith(f"{cell}/threshold/")]) <= 12
    assert len(seen) > 5
    ended(project)


@pytest.mark.parametrize("kill_at", [1, 5])
def test_calls_exceed_the_journal_by_one_at_most(make_project, tmp_path, kill_at):
    project = make_project()
    counter = tmp_path / "calls"
    assert attempt(project, counter, kill_at) == -signal.SIGKILL
    assert counter.stat().st_size - len(journalled(project)) <= 1


def test_a_killed_run_may_be_taken_over_at_once_and_its_text_keeps_its_prefix(
    make_project, tmp_path
):
    project = make_project()
    counter = tmp_path / "calls"
    attempt(project, counter, 11)
    before = journalled(project)
    spent = project.context().ledger.accounts.balance("letters").spent
    assert attempt(project, counter, 12) == -signal.SIGKILL
    after = journalled(project)
    assert after.items() >= before.items()
    assert project.context().ledger.accounts.balance("letters").spent == spent
