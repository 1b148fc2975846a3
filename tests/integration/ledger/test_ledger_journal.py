"""The journal in the ledger's database, its writer killed."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from privsyn.ledger.ledger import Ledger
from privsyn.vault import VARIABLE
from tests import preloaded
from tests.unit.ledger.ledger_cases import Clock
from tests.unit.ledger.test_ledger_journal import PART, begin, never, opened

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv(VARIABLE, "A" * 43 + "=")


KILLED = """
import os, signal, sys
from pathlib import Path
from privsyn.ledger.ledger import Ledger
from privsyn.vault import Vault
from privsyn.vault import LedgerJournal
from tests.unit.ledger.ledger_cases import Clock

url, name, folder = sys.argv[1:]
ledger = Ledger(url, clock=Clock())
place = Vault(f"file://{folder}/vault", None).find(ledger.draws, name)
lease = ledger.leases.acquire(name, "shard-0", ttl=3600)
journal = LedgerJournal.open(ledger.draws, place, lease, {"release": "r"})
calls = 0

def draw():
    global calls
    calls += 1
    if calls == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return int.from_bytes(os.urandom(4), "big")

for n in range(0, 9, 3):
    print(journal.draw_all([(f"t{n + k}", draw) for k in range(3)]), flush=True)
"""


def test_what_a_killed_writer_had_used_its_successor_replays(postgres_url, tmp_path):
    ledger = Ledger(postgres_url, clock=Clock())
    place = begin(ledger, tmp_path)
    done = subprocess.run(
        [preloaded.python(), "-c", KILLED, postgres_url, place.release_id, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    used = [value for line in done.stdout.splitlines() for value in json.loads(line)]
    assert len(used) == 3
    with (
        ledger.leases.acquire(place.release_id, PART) as lease,
        opened(ledger, place, lease) as journal,
    ):
        assert journal.draw_all([(f"t{n}", never) for n in range(3)]) == used
        assert len(journal) == 3  # of the call it died in nobody saw a draw
