import threading

import pytest

from privsyn.errors import BudgetError, LeaseHeld, LedgerUnavailable, ReleaseLost
from privsyn.ledger import leases
from privsyn.ledger.leases import Holder
from privsyn.ledger.ledger import Ledger
from tests.unit.ledger.ledger_cases import PURE, begin, reserve

A, B = "a" * 64, "b" * 64


@pytest.fixture
def begun(ledger):
    ledger.accounts.open(PURE)
    begin(ledger, "r")
    return ledger


@pytest.fixture
def elsewhere(monkeypatch):
    """From here on this process takes itself for one on another machine."""
    monkeypatch.setattr(
        Holder, "me", classmethod(lambda cls: cls("other-machine", "other-host", 7, 7))
    )
    return monkeypatch


def test_one_holder_a_part(begun):
    first = begun.leases.acquire("r", "shard-0")
    other = begun.leases.acquire("r", "shard-1")
    assert (first.token, other.token) == (1, 1)
    with pytest.raises(LeaseHeld, match="shard-0: process"):
        begun.leases.acquire("r", "shard-0")
    begun.leases.release(first)
    again = begun.leases.acquire("r", "shard-0")
    assert again.token == 2
    begun.leases.release(first)  # an old lease cannot give the new one back
    with pytest.raises(LeaseHeld):
        begun.leases.acquire("r", "shard-0")


def test_only_a_begun_release_is_leased(begun):
    reserve(begun, "s")
    with pytest.raises(BudgetError, match="s is RESERVED, not BEGUN"):
        begun.leases.acquire("s", "shard-0")
    begun.releases.lose("r", "why")
    with pytest.raises(ReleaseLost):
        begun.leases.acquire("r", "shard-0")
    with pytest.raises(ValueError, match="part='a/b'"):
        begun.leases.acquire("r", "a/b")


def test_a_silent_holder_elsewhere_counts_until_its_time_is_up(begun, clock, elsewhere):
    late = begun.leases.acquire("r", "shard-0", ttl=60)
    elsewhere.undo()
    clock.pass_(seconds=59)
    with pytest.raises(LeaseHeld, match="process 7 on other-host"):
        begun.leases.acquire("r", "shard-0")
    begun.leases.renew(late)
    clock.pass_(seconds=59)
    with pytest.raises(LeaseHeld):
        begun.leases.acquire("r", "shard-0")
    clock.pass_(seconds=1)
    new = begun.leases.acquire("r", "shard-0")
    assert new.token == late.token + 1
    with pytest.raises(LeaseHeld, match="overtaken by token 2"):
        begun.leases.renew(late)
    with pytest.raises(LeaseHeld, match="overtaken by token 2"):
        begun.releases.commit("r", A, B, lease=late)
    begun.leases.renew(new)
    assert begun.releases.commit("r", A, B, lease=new).state == "COMMITTED"
    begun.leases.renew(new)  # the committer's own heartbeat may still come in


def test_commit_and_begin_wait_for_a_live_holder(begun, clock, elsewhere):
    begun.leases.acquire("r", "shard-3", ttl=60)
    elsewhere.undo()
    with pytest.raises(LeaseHeld, match="process 7 on other-host is drawing its shard-3"):
        begun.releases.commit("r", A, B)
    with pytest.raises(LeaseHeld, match="shard-3"):
        begun.releases.begin("r", "/s", "another")
    assert begun.releases.get("r").state == "BEGUN"
    clock.pass_(seconds=60)
    with pytest.raises(ReleaseLost):
        begun.releases.begin("r", "/s", "another")


def test_a_given_up_release_ends_its_leases(begun):
    lease = begun.leases.acquire("r", "shard-0")
    begun.releases.lose("r", "another shard failed")
    with pytest.raises(ReleaseLost, match="another shard failed"):
        begun.leases.renew(lease)


def test_a_process_id_used_again_is_not_the_holder():
    me = Holder.me()
    assert not me.known_dead
    assert Holder(me.machine, me.host, me.pid, me.started - 1).known_dead
    assert Holder(me.machine, me.host, 2**22 + 1, 1).known_dead
    assert not Holder("other", me.host, 2**22 + 1, 1).known_dead  # cannot be told from here


def test_without_start_times_the_process_id_decides(monkeypatch):
    monkeypatch.setattr(leases, "_start_time", lambda pid: None)
    me = Holder.me()
    assert not me.known_dead
    assert Holder(me.machine, me.host, 2**22 + 1, None).known_dead


def test_the_heartbeat_keeps_a_lease_and_ends_with_the_block(url):
    ledger = Ledger(url)
    ledger.accounts.open(PURE)
    begin(ledger, "r")
    beats = threading.Semaphore(0)
    with ledger.leases.acquire("r", "shard-0", ttl=3) as lease:
        renew = lease._renew
        lease._renew = lambda own: (renew(own), beats.release())
        for _ in range(4):  # more than a lease's life
            assert beats.acquire(timeout=300)
        lease.check()
        with pytest.raises(LeaseHeld):
            ledger.leases.acquire("r", "shard-0")
    assert not any(thread.name == "lease shard-0" for thread in threading.enumerate())
    assert ledger.leases.acquire("r", "shard-0").token == 2


def test_a_lease_runs_out_by_the_time_that_passes(begun, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(leases, "elapsed", lambda: now)
    lease = begun.leases.acquire("r", "shard-0", ttl=60)
    now += 59.9
    lease.check()
    begun.leases.renew(lease)  # by hand: outside a block nobody else does
    now += 59.9
    lease.check()
    now += 0.2
    with pytest.raises(LeaseHeld, match=r"last renewed 60 s ago and lives 60 s.*Run again"):
        lease.check()
    begun.leases.renew(lease)  # nobody came meanwhile, and now nobody can
    lease.check()


def test_a_renewal_counts_from_when_it_was_asked_for(begun, clock, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(leases, "elapsed", lambda: now)

    def slow():
        nonlocal now
        now += 50
        return clock.now

    monkeypatch.setattr(begun.database, "clock", slow)
    lease = begun.leases.acquire("r", "shard-0", ttl=60)
    now += 9
    lease.check()
    now += 1
    with pytest.raises(LeaseHeld):
        lease.check()
    begun.leases.renew(lease)
    lease.check()
    now += 10
    with pytest.raises(LeaseHeld):
        lease.check()


def test_a_heartbeat_that_breaks_ends_the_lease(begun):
    lease = begun.leases.acquire("r", "shard-0", ttl=30)
    lease.ttl = 0.03  # beats at once; the ledger would let it live on

    def broken(own):
        raise ZeroDivisionError("text of a record")

    lease._renew = broken
    with pytest.raises(LedgerUnavailable, match=r"\(ZeroDivisionError\)") as told, lease:  # noqa: PT012
        lease._thread.join(timeout=300)
        lease.ttl = 30
        lose_it(lease)
    assert told.value.retryable  # what broke it has nothing to do with the draws
    assert "text of a record" not in str(told.value)


def lose_it(lease):
    lease._thread.join(timeout=300)
    assert not lease._thread.is_alive()
    lease.check()


def test_the_heartbeat_notices_a_lost_release(begun):
    with pytest.raises(ReleaseLost), begun.leases.acquire("r", "shard-0", ttl=0.1) as lease:  # noqa: PT012
        begun.releases.lose("r", "another shard failed")
        lose_it(lease)


def test_the_error_in_the_block_goes_first(begun):
    with (  # noqa: PT012
        pytest.raises(ZeroDivisionError),
        begun.leases.acquire("r", "shard-0", ttl=0.1) as lease,
    ):
        begun.releases.lose("r", "another shard failed")
        lease._thread.join(timeout=300)
        raise ZeroDivisionError
    assert begun.releases.get("r").state == "LOST"


def test_a_ledger_that_stays_away_ends_the_lease(lite, tmp_path, monkeypatch):
    lite.accounts.open(PURE)
    begin(lite, "r")
    file = tmp_path / "state" / "ledger.db"
    with pytest.raises(LedgerUnavailable), lite.leases.acquire("r", "shard-0", ttl=0.2) as lease:  # noqa: PT012
        file.write_bytes(b"not a database at all, not any more" * 100)
        lose_it(lease)
