"""Which process has which GPU."""

from __future__ import annotations

import subprocess
import sys

import pytest

from privsyn.models.gpus import lease, visible_cards

HOLD = """
import sys
from pathlib import Path
from privsyn.models.gpus import lease
with lease(sys.argv[2].split(","), int(sys.argv[3]), Path(sys.argv[1]), poll=0.01) as mine:
    print(*mine, flush=True)
    sys.stdin.readline()
"""


def holder(folder, cards="0,1", number=1):
    """A process that takes cards and keeps them until it is told."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), cards, str(number)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_each_process_has_a_card_of_its_own_and_the_next_waits(tmp_path):
    with holder(tmp_path) as one, holder(tmp_path) as two:
        first, second = (process.stdout.readline().strip() for process in (one, two))
        assert {first, second} == {"0", "1"}
        waits = []
        with holder(tmp_path) as three:
            two.kill()  # the kernel gives its card back
            assert three.stdout.readline().strip() == second
            three.communicate("")
        two.communicate()
        with lease(["0", "1"], 1, tmp_path, lambda: waits.append(1), poll=0.01) as mine:
            assert mine == [second]
        assert waits == []
        one.communicate("")


def test_all_are_taken_at_once_or_none(tmp_path):
    with lease(["0", "1", "2"], 2, tmp_path) as mine:
        assert mine == ["0", "1"]
        with holder(tmp_path, "0,1,2", 2) as two, lease(["0", "1", "2"], 1, tmp_path) as other:
            assert other == ["2"]
            two.kill()
            two.communicate()
    with lease(["0"], 4, tmp_path) as mine:
        assert mine == ["0"]


@pytest.mark.parametrize(
    ("named", "cards"),
    [("2,3", ["2", "3"]), ("", []), ("-1", []), ("GPU-8f/1, GPU-2", ["GPU-8f/1", "GPU-2"])],
)
def test_the_cards_are_those_cuda_shows(monkeypatch, named, cards):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert visible_cards() == cards
