"""Leases of processes that are killed or stand still."""

import contextlib
import os
import signal
import time

import pytest

from privsyn.errors import LeaseHeld
from privsyn.ledger.ledger import Ledger
from tests.unit.ledger.ledger_cases import PURE, check_after_a_stop, hold_lease, processes, reserve
from tests.unit.ledger.test_ledger_leases import A, B


def test_a_killed_holder_is_overtaken_at_once(url):
    ledger = Ledger(url)
    ledger.accounts.open(PURE)
    reserve(ledger, "r")
    ledger.releases.begin("r", "/s", "n")
    gate = processes.Event()
    child = processes.Process(target=hold_lease, args=(url, "r", "shard-0", gate))
    child.start()
    assert gate.wait(300)
    with pytest.raises(LeaseHeld, match=f"process {child.pid} on"):
        ledger.leases.acquire("r", "shard-0")
    with pytest.raises(LeaseHeld):
        ledger.releases.commit("r", A, B)
    child.kill()
    child.join()
    with ledger.leases.acquire("r", "shard-0") as lease:
        assert lease.token == 2
    ledger.verify()


def test_a_process_that_stood_still_finds_out_before_its_next_draw(url):
    ledger = Ledger(url)
    ledger.accounts.open(PURE)
    reserve(ledger, "r")
    ledger.releases.begin("r", "/s", "n")
    ready, results = processes.Event(), processes.Queue()
    child = processes.Process(target=check_after_a_stop, args=(url, "r", 1.5, ready, results))
    child.start()
    assert ready.wait(300)
    other = None
    while other is None:  # a stopped process is not dead: its lease has to run out
        time.sleep(0.05)
        with contextlib.suppress(LeaseHeld):
            other = ledger.leases.acquire("r", "shard-0")
    assert other.token == 2
    while results.empty() and child.is_alive():
        os.kill(child.pid, signal.SIGCONT)
        time.sleep(0.05)
    assert results.get(timeout=300) == "LeaseHeld"
    child.join(300)
    ledger.leases.release(other)
