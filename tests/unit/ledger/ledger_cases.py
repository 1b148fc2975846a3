"""What the ledger tests share: specs, a clock set by hand, and work for other processes."""

import dataclasses
import multiprocessing
import os
import signal
import time
from datetime import UTC, datetime, timedelta

from privsyn.dp.adjacency import Guarantee
from privsyn.dp.events import Pure
from privsyn.errors import BudgetExceeded, PrivsynError
from privsyn.ledger.ledger import Ledger
from privsyn.ledger.spec import AccountSpec, Split, Terms

PURE = AccountSpec(
    "clinic", "portal", "patient", "add_remove", epsilon=3.0, delta=0.0, unit_column="patient_id"
)
RENYI = dataclasses.replace(PURE, delta=1e-6, split=Split(renyi=1, gaussian=0, repeats=0))
"""All of delta for the Renyi filter."""

# forks from a server that has the imports: eight interpreters would take the tests' whole time
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["pytest", "privsyn.ledger", "privsyn.dp.accountant"])


def terms(**rules):
    """Terms by the names of their rules, those of a period and of approvals among them."""
    period = {name: rules.pop(f"period_{name}", None) for name in ("days", "epsilon")}
    asked = {
        name: rules.pop(name) for name in ("spend_above", "publish", "two_people") if name in rules
    }
    if period["days"]:
        rules["period"] = period
    return Terms(**rules, approval=asked or None)


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self):
        self.now = datetime(2026, 1, 31, 12, tzinfo=UTC)

    def __call__(self):
        return self.now

    def pass_(self, **span):
        self.now += timedelta(**span)


def reserve(ledger, release, event=None, *, account="clinic", **says):
    says = {"method": "toy", "guarantee": Guarantee(1.0, 1e-6)} | says
    return ledger.releases.reserve(account, release, event or Pure(1.0), **says)


def begin(ledger, release, event=None):
    reserve(ledger, release, event)
    return ledger.releases.begin(release, "/s", "n")


def finish(ledger, release, event=None):
    begin(ledger, release, event)
    return ledger.releases.commit(release, "a" * 64, "b" * 64)


def race(url, spec, event, number, gate, results):
    """One of several processes that find no ledger and want more than the account has."""
    ledger = Ledger(url, timeout=300)
    gate.wait()
    try:
        key = ledger.accounts.open(spec).key_id
        reserve(ledger, f"r{number}", event)
        results.put(("in", key))
    except BudgetExceeded:
        results.put(("out", key))
    except PrivsynError as error:
        results.put((repr(error), ""))


def hold_lease(url, release, part, gate):
    ledger = Ledger(url)
    with ledger.leases.acquire(release, part, ttl=3600):
        gate.set()
        time.sleep(600)


def check_after_a_stop(url, release, ttl, ready, results):
    """Hold a lease without a heartbeat, as right after waking up, stop, and ask it."""
    lease = Ledger(url).leases.acquire(release, "shard-0", ttl=ttl)
    lease.check()
    ready.set()
    os.kill(os.getpid(), signal.SIGSTOP)
    results.put(_named(lease.check))


def _named(call):
    try:
        call()
    except PrivsynError as error:
        return type(error).__name__
    return "nothing"


def hang_in_a_write(url, gate):
    ledger = Ledger(url)
    with ledger.database.write() as connection:
        connection.exec_driver_sql("UPDATE ledger_entry SET state = 'VOID'")
        connection.exec_driver_sql("DELETE FROM ledger_history")
        gate.set()
        time.sleep(600)


def fill_the_disk(url, room, results):
    """Reserve with a limit on file size: to SQLite that is a full disk."""
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    path = url.removeprefix("sqlite:///")
    size = os.path.getsize(path) + room
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    ledger = Ledger(url)
    done = 0
    try:
        for number in range(1000):
            reserve(ledger, f"x{number}", Pure(1e-6))
            done += 1
    except PrivsynError as error:
        results.put((done, type(error).__name__, str(error)))
    else:
        results.put((done, "", ""))
