"""Every state, every call in it, and every call repeated."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privsyn.dp.events import ZCDP, Pure
from privsyn.errors import (
    BudgetError,
    BudgetExceeded,
    LeaseHeld,
    PaidBefore,
    PrivsynError,
    ReleaseLost,
    VerificationError,
)
from privsyn.ledger.entries import Entry, State
from privsyn.ledger.ledger import Ledger
from tests.unit.ledger.ledger_cases import PURE, RENYI, begin, finish, reserve

A, B, C = "a" * 64, "b" * 64, "c" * 64

REACH: dict[State, list[Callable[[Ledger], object]]] = {
    State.RESERVED: [],
    State.BEGUN: [lambda ledger: ledger.releases.begin("r", "/s", "n")],
    State.COMMITTED: [
        lambda ledger: ledger.releases.begin("r", "/s", "n"),
        lambda ledger: ledger.releases.commit("r", A, B),
    ],
    State.LOST: [
        lambda ledger: ledger.releases.begin("r", "/s", "n"),
        lambda ledger: ledger.releases.lose("r", "why"),
    ],
    State.VOID: [lambda ledger: ledger.releases.void("r", "why")],
}

CALLS: dict[str, Callable[[Ledger], Entry]] = {
    "reserve": lambda ledger: reserve(ledger, "r"),
    "begin": lambda ledger: ledger.releases.begin("r", "/s", "n"),
    "commit": lambda ledger: ledger.releases.commit("r", A, B),
    "void": lambda ledger: ledger.releases.void("r", "why"),
    "lose": lambda ledger: ledger.releases.lose("r", "why"),
}

R, G, K, L, V = State.RESERVED, State.BEGUN, State.COMMITTED, State.LOST, State.VOID
NO, GONE = BudgetError, ReleaseLost
OUTCOMES: dict[State, dict[str, State | type[Exception]]] = {
    R: {"reserve": R, "begin": G, "commit": NO, "void": V, "lose": NO},
    G: {"reserve": G, "begin": G, "commit": K, "void": NO, "lose": L},
    K: {"reserve": K, "begin": NO, "commit": K, "void": NO, "lose": NO},
    L: {"reserve": L, "begin": GONE, "commit": GONE, "void": GONE, "lose": L},
    V: {"reserve": R, "begin": NO, "commit": NO, "void": V, "lose": NO},
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("state", list(State))
def test_every_call_in_every_state(lite, clock, state, call):
    lite.accounts.open(PURE)
    reserve(lite, "r")
    for step in REACH[state]:
        step(lite)
    before, rows = lite.releases.get("r"), len(lite.history())
    assert before.state is state
    clock.pass_(minutes=1)
    expected = OUTCOMES[state][call]
    if isinstance(expected, State):
        after = CALLS[call](lite)
        assert after.state is expected
        assert after == lite.releases.get("r")
        assert (after == before) == (expected is state)  # no change leaves no trace
        assert len(lite.history()) == rows + (expected is not state)
        assert CALLS[call](lite) == after  # and the call may be repeated
    else:
        with pytest.raises(expected, match="release r is") as refused:
            CALLS[call](lite)
        assert type(refused.value) is expected
        assert lite.releases.get("r") == before
    assert lite.accounts.balance("clinic").spent == (
        0 if lite.releases.get("r").state is State.VOID else 1
    )
    lite.verify()


@pytest.mark.parametrize("call", [name for name in CALLS if name != "reserve"])
def test_an_unknown_release_is_named(lite, call):
    lite.accounts.open(PURE)
    with pytest.raises(BudgetError, match="release r is not in the ledger"):
        CALLS[call](lite)
    with pytest.raises(BudgetError, match="account other is not in the ledger"):
        reserve(lite, "r", account="other")


def test_a_void_release_gives_back_once_and_is_charged_anew(ledger, clock):
    ledger.accounts.open(PURE)
    first = reserve(ledger, "r", Pure(2.0))
    ledger.releases.void("r", "aborted")
    assert ledger.accounts.balance("clinic").left == 3
    reserve(ledger, "s", Pure(2.0))
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "r", Pure(2.0))
    assert ledger.releases.get("r").state is State.VOID
    ledger.releases.void("s", "aborted")
    clock.pass_(days=1)
    again = reserve(ledger, "r", Pure(2.0))
    assert again.state is State.RESERVED
    assert again.reason is None
    assert again.reserved_at == clock.now
    assert again.number > first.number
    ledger.verify()


def test_a_known_release_with_another_cost_is_refused(lite):
    lite.accounts.open(RENYI)
    reserve(lite, "r", ZCDP(0.01))
    for event in (ZCDP(0.02), ZCDP(0.005), Pure(0.01)):
        with pytest.raises(VerificationError, match="release r is in the ledger with cost"):
            reserve(lite, "r", event)
    with pytest.raises(VerificationError, match="method"):
        reserve(lite, "r", ZCDP(0.01), method="other")
    # another machine's last digit is no other release, and what was charged first stays
    assert reserve(lite, "r", ZCDP(0.01 * (1 + 1e-14))).event["rho"] == 0.01


def test_another_digest_at_commit_is_refused(lite):
    lite.accounts.open(PURE)
    finish(lite, "r")
    for pair in ((C, B), (A, C)):
        with pytest.raises(VerificationError, match="committed with another"):
            lite.releases.commit("r", *pair)
    with pytest.raises(ValueError, match="64 lower-case hex"):
        lite.releases.commit("r", "A" * 64, B)


@pytest.mark.parametrize("state", list(State))
def test_offspring_is_of_a_committed_release_alone(lite, state):
    lite.accounts.open(PURE)
    reserve(lite, "r")
    for step in REACH[state]:
        step(lite)
    if state is not State.COMMITTED:
        with pytest.raises((BudgetError, ReleaseLost), match="r is"):
            lite.releases.derive("r", C, A)
        return
    before = lite.releases.get("r"), lite.accounts.balance("clinic").spent, len(lite.history())
    row = lite.releases.derive("r", C, A)
    assert lite.releases.derive("r", C, A) == row
    assert lite.releases.derive("r", A, C) != row
    assert dict(row.body) == {
        "artifact_sha256": C,
        "certificate_sha256": A,
        "salt": row.body["salt"],
    }
    assert (lite.releases.get("r"), lite.accounts.balance("clinic").spent) == before[:2]
    assert len(lite.history("r")) == len(lite.history()) - 1 == before[2] + 1
    assert lite.verify().rows == before[2] + 2
    with pytest.raises(ValueError, match="64 lower-case hex"):
        lite.releases.derive("r", "A" * 64, B)


def test_a_replaced_scratch_waits_for_whoever_draws(ledger, clock):
    ledger.accounts.open(PURE)
    begin(ledger, "r")
    lease = ledger.leases.acquire("r", "shard-1", ttl=60)
    for _ in range(2):  # this process's own lease counts as well: a thread of it may be drawing
        with pytest.raises(LeaseHeld, match="is drawing its shard-1"):
            ledger.releases.begin("r", "/s", "fresh")
    assert ledger.releases.begin("r", "/s", "n").state is State.BEGUN  # to resume never waits
    ledger.leases.renew(lease)
    assert ledger.releases.commit("r", A, B, lease=lease).state is State.COMMITTED

    for name, end in (
        ("s", lambda lease: ledger.leases.release(lease)),
        ("t", lambda lease: clock.pass_(seconds=60)),
    ):
        begin(ledger, name)
        end(ledger.leases.acquire(name, "shard-1", ttl=60))
        for nonce in ("fresh", "n"):  # final: not even the first scratch may go on
            with pytest.raises(ReleaseLost, match="scratch was replaced"):
                ledger.releases.begin(name, "/s", nonce)
        assert ledger.releases.get(name).state is State.LOST
    assert ledger.accounts.balance("clinic").spent == 3
    ledger.verify()


def test_a_driver_elsewhere_can_neither_resume_nor_end_a_release(ledger, monkeypatch):
    """Without its scratch, that is: a worker with a disk of its own must not end what it sees."""
    ledger.accounts.open(PURE)
    begin(ledger, "r")
    before = ledger.history()
    with pytest.raises(LeaseHeld, match=r"begun in /s on .*and /elsewhere on .* its cost is paid"):
        ledger.releases.begin("r", "/elsewhere", "another")
    with monkeypatch.context() as patch:
        patch.setattr("platform.node", lambda: "other-host")
        for scratch in ("/s", "/elsewhere"):
            with pytest.raises(LeaseHeld, match="on other-host"):
                ledger.releases.begin("r", scratch, "another")
    assert ledger.history() == before
    assert ledger.releases.begin("r", "/s", "n").state is State.BEGUN
    ledger.releases.lose("r", "its folder is gone")
    with pytest.raises(ReleaseLost):
        ledger.releases.begin("r", "/elsewhere", "n")


def test_what_a_release_is_is_its_nonce_not_its_host_or_folder(ledger, monkeypatch):
    """A second worker on the shared folder, a renamed machine, a new container, a moved folder."""
    ledger.accounts.open(PURE)
    first = begin(ledger, "r")
    for host, scratch in (
        ("worker-1", "/x/../s"),
        ("worker-2", "/s"),
        ("worker-2", "/mnt/s"),
        ("worker-1", "/moved"),
    ):
        monkeypatch.setattr("platform.node", lambda host=host: host)
        assert ledger.releases.begin("r", scratch, "n") == first
        with ledger.leases.acquire("r", "shard-0"), pytest.raises(LeaseHeld, match="is drawing it"):
            ledger.leases.acquire("r", "shard-0")  # one part, one process: wherever they are
    assert len(ledger.history("r")) == 2


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", "x" * 129, "naïve"])
def test_names_that_cannot_be_file_names_are_refused(lite, name):
    lite.accounts.open(PURE)
    with pytest.raises(ValueError, match="must match"):
        reserve(lite, name)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(st.sampled_from(list(CALLS)), st.integers(0, 3), st.floats(0.05, 1.5)),
        min_size=4,
        max_size=14,
    )
)
def test_no_order_of_calls_exceeds_the_cap(tmp_path_factory, calls):
    ledger = Ledger(f"sqlite:///{tmp_path_factory.mktemp('walk')}/ledger.db")
    ledger.accounts.open(RENYI)
    spent_at_begin = {}
    for call, number, cost in calls:
        name = f"r{number}"
        try:
            if call == "reserve":
                reserve(ledger, name, ZCDP(cost / 9))
            elif call == "begin":
                spent_at_begin[name] = ledger.releases.begin(name, "/s", name).loss
            elif call == "commit":
                ledger.releases.commit(name, A, B)
            else:
                getattr(ledger.releases, call)(name, "why")
        except PrivsynError:
            pass
    balance = ledger.accounts.balance("clinic")
    assert balance.spent <= balance.budget
    assert sum(spent_at_begin.values()) <= balance.spent * (1 + 1e-12)  # begun is never given back
    assert ledger.verify().entries == len(ledger.releases.all())


def test_what_an_older_version_made_is_not_charged_again(ledger):
    ledger.accounts.open(PURE)

    def asked(release, digest=A):
        return reserve(ledger, release, Pure(0.5), settings_digest=digest)

    asked("old")
    asked("other", B)
    asked("unnamed", None)
    with pytest.raises(PaidBefore, match=r"release new is release old \(RESERVED\)") as refused:
        asked("new")
    assert "raise privacy.draw by one" in str(refused.value)
    assert ledger.releases.find("new") is None
    assert ledger.releases.refusals()[-1].error == "PaidBefore"
    ledger.releases.begin("old", "/s", "n")
    with pytest.raises(PaidBefore, match="privsyn ledger lose old, then privsyn sweep"):
        asked("new")
    ledger.releases.commit("old", A, B)
    with pytest.raises(PaidBefore, match="privsyn restore old"):
        asked("new")
    assert asked("old").state is State.COMMITTED
    ledger.releases.give_up("other", "by hand")
    assert asked("another", B).state is State.RESERVED  # what was given back was not paid for
    ledger.verify()


def test_a_release_is_given_up_in_any_state_but_committed(lite):
    lite.accounts.open(PURE)
    reserve(lite, "r")
    assert lite.releases.give_up("r", "why").state is State.VOID
    assert lite.releases.give_up("r", "why").state is State.VOID
    begin(lite, "r")
    assert lite.releases.give_up("r", "why").state is State.LOST
    assert lite.accounts.balance("clinic").spent == 1
    finish(lite, "s")
    with pytest.raises(BudgetError, match="release s is COMMITTED"):
        lite.releases.give_up("s", "why")
