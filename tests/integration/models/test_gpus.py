"""Which process has which GPU."""

import subprocess
import sys

import pytest

from privsyn.models.gpus import lease, visible_cards

HOLD = """
import sys
from pathlib import Path
from privsyn.models.gpus import lease
with lease(sys.argv[2].split(","), Path(sys.argv[1]), poll=0.01) as card:
    print(card, flush=True)
    sys.stdin.readline()
"""


def holder(folder):
    """A process that takes a card and keeps it until it is told."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), "0,1"],
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
        with lease(["0", "1"], tmp_path, lambda: waits.append(1), poll=0.01) as card:
            assert card == second
        assert waits == []
        one.communicate("")


@pytest.mark.parametrize(
    ("named", "cards"),
    [("2,3", ["2", "3"]), ("", []), ("-1", []), ("GPU-8f/1, GPU-2", ["GPU-8f/1", "GPU-2"])],
)
def test_the_cards_are_those_cuda_shows(monkeypatch, named, cards):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert visible_cards() == cards
