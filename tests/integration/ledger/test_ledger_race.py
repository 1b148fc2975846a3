"""Many processes, one account: no update is lost and nothing is spent twice."""

from __future__ import annotations

import os
import threading

import pytest

from privsyn.dp.events import ZCDP, Pure
from privsyn.dp.filters import filter_budget, filter_order
from privsyn.errors import BudgetExceeded
from privsyn.ledger import balances, chain
from privsyn.ledger.ledger import Ledger
from tests.unit.ledger.ledger_cases import (
    PURE,
    RENYI,
    fill_the_disk,
    hang_in_a_write,
    processes,
    race,
    reserve,
)

ORDER = filter_order(3.0, 1e-6)
THIRD = ZCDP(filter_budget(3.0, 1e-6, ORDER) / ORDER / 3 * (1 - 1e-12))


@pytest.mark.parametrize(("spec", "event"), [(PURE, Pure(1.0)), (RENYI, THIRD)])
def test_eight_processes_want_a_third_each(url, spec, event):
    """They also find no database, so they race for its migrations and for the account."""
    gate, results = processes.Barrier(8), processes.Queue()
    workers = [
        processes.Process(target=race, args=(url, spec, event, number, gate, results))
        for number in range(8)
    ]
    for worker in workers:
        worker.start()
    told = [results.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join(timeout=300)
    assert sorted(outcome for outcome, _ in told) == ["in"] * 3 + ["out"] * 5
    assert len({key for _, key in told}) == 1  # one account, one partition key
    ledger = Ledger(url)
    assert len(ledger.releases.all()) == 3
    assert ledger.accounts.balance("clinic").spent <= ledger.accounts.balance("clinic").budget
    assert ledger.verify().rows == 4


def meet_before_writing(ledger, monkeypatch, patience):
    """Two threads that both want to have read the balance before either writes."""
    meeting = threading.Barrier(2)
    check = balances.check_fits
    outcomes: list[str] = []

    def check_and_wait(*arguments):
        check(*arguments)
        try:
            meeting.wait(timeout=patience)
        except threading.BrokenBarrierError:
            pass  # the other one is kept out: as it should be

    def one(release):
        try:
            reserve(ledger, release, Pure(2.0))
            outcomes.append("in")
        except BudgetExceeded:
            outcomes.append("out")

    one_at_a_time = threading.Lock()
    append = chain.append

    def append_alone(*arguments):
        # the history's unique numbers stop most collisions: here the lock alone is on trial
        with one_at_a_time:
            return append(*arguments)

    monkeypatch.setattr(balances, "check_fits", check_and_wait)
    monkeypatch.setattr(chain, "append", append_alone)
    threads = [threading.Thread(target=one, args=(f"r{number}",)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    return sorted(outcomes)


def test_reading_and_writing_are_one_step(ledger, monkeypatch):
    ledger.accounts.open(PURE)
    assert meet_before_writing(ledger, monkeypatch, patience=0.5) == ["in", "out"]
    ledger.verify()


def test_a_writer_killed_in_the_middle_leaves_nothing(url):
    ledger = Ledger(url)
    ledger.accounts.open(PURE)
    reserve(ledger, "r")
    gate = processes.Event()
    child = processes.Process(target=hang_in_a_write, args=(url, gate))
    child.start()
    assert gate.wait(300)
    assert ledger.releases.get("r").state == "RESERVED"  # readers go on meanwhile
    child.kill()
    child.join()
    assert ledger.verify().rows == 2
    reserve(ledger, "s")


def test_a_full_disk_leaves_a_whole_ledger(tmp_path):
    url = f"sqlite:///{tmp_path}/ledger.db"
    ledger = Ledger(url)
    ledger.accounts.open(PURE)
    results = processes.Queue()
    child = processes.Process(target=fill_the_disk, args=(url, 3 * 4096, results))
    child.start()
    done, kind, text = results.get(timeout=300)
    child.join()
    assert kind == "LedgerUnavailable"
    assert "cannot be used" in text
    assert len(ledger.releases.all()) == done > 0
    assert ledger.verify().entries == done
    reserve(ledger, "afterwards")
    assert os.listdir(tmp_path) == ["ledger.db"]
