"""What is kept beside the charges: who asked, what was refused, which file, how many draws."""

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from privsyn.dp.events import Pure
from privsyn.errors import (
    AccountMismatch,
    BudgetError,
    BudgetExceeded,
    DataError,
    LedgerUnavailable,
    VerificationError,
)
from privsyn.ledger.database import _parse
from privsyn.ledger.entries import DatasetSource, State
from privsyn.ledger.ledger import Ledger
from tests.unit.ledger.ledger_cases import PURE, begin, reserve

ANN = {"user": "ann", "driver": "airflow", "dag_id": "privsyn_toy", "run_id": "manual__1"}
BOB = {"user": "bob", "driver": "cli"}


def of(ledger, release, version, content, *, account="clinic"):
    """Reserve a release made from a file."""
    return reserve(
        ledger, release, Pure(0.1), account=account, source=DatasetSource(version, content)
    )


# Who


def noted(url, who):
    """Who asked, as a ledger keeps it: on PostgreSQL with the role that wrote the row."""
    parsed = _parse(url)
    role = {"db_user": str(parsed.username)} if parsed.get_backend_name() == "postgresql" else {}
    return who | role


def test_every_row_says_who(url, clock):
    ann, bob = (Ledger(url, clock=clock, requester=who) for who in (ANN, BOB))
    ann.accounts.open(PURE)
    reserve(ann, "r")
    bob.releases.begin("r", "/s", "n")
    bob.releases.commit("r", "a" * 64, "b" * 64)
    derived = bob.releases.derive("r", "c" * 64, "d" * 64)
    assert ann.releases.derive("r", "c" * 64, "d" * 64) == derived  # whoever notes it again
    by_ann, by_bob = noted(url, ANN), noted(url, BOB)
    assert [row.body["by"] for row in bob.history()] == [by_ann] * 2 + [by_bob] * 3
    assert bob.releases.get("r").reserved_by == by_ann
    assert json.loads(json.dumps(bob.releases.get("r").as_dict()))["reserved_by"] == by_ann
    bob.verify()


def test_a_void_release_is_whose_who_reserves_it_again(url):
    ann, bob = (Ledger(url, requester=who) for who in (ANN, BOB))
    ann.accounts.open(PURE)
    reserve(ann, "r")
    ann.releases.void("r", "why")
    assert reserve(bob, "r").reserved_by == noted(url, BOB)


# Refusals


def test_refusals_are_rows_and_cost_nothing(url, clock):
    ledger = Ledger(url, clock=clock, requester=BOB)
    ledger.accounts.open(PURE)
    reserve(ledger, "r", Pure(2.0))
    rows = len(ledger.history())
    clock.pass_(hours=1)
    with pytest.raises(BudgetExceeded) as refused:
        reserve(ledger, "s", Pure(2.0))
    with pytest.raises(VerificationError):
        reserve(ledger, "r", Pure(1.0))
    with pytest.raises(AccountMismatch):
        ledger.accounts.open(dataclasses.replace(PURE, epsilon=9.0))
    first, second, third = ledger.releases.refusals()
    assert (first.account, first.release_id, first.method) == ("clinic", "s", "toy")
    assert (first.epsilon, first.delta, first.error) == (1.0, 1e-6, "BudgetExceeded")
    who = noted(url, BOB)
    assert (first.message, first.refused_by, first.at) == (str(refused.value), who, clock.now)
    assert (second.release_id, second.error) == ("r", "VerificationError")
    assert (third.release_id, third.error, third.account) == (None, "AccountMismatch", "clinic")
    assert [row.number for row in (first, second, third)] == [1, 2, 3]
    # Beside the chain: what is refused may depend on the data, and hashes of rows are certified.
    assert len(ledger.history()) == rows
    assert ledger.accounts.balance("clinic").spent == 2
    (statement,) = ledger.accounts.statements()
    assert statement.refusals == (first, second, third)
    assert json.loads(json.dumps(statement.as_dict()))["refusals"][0]["refused_by"] == who
    ledger.verify()


def test_what_a_retry_may_mend_is_no_refusal(lite):
    lite.accounts.open(PURE)
    begin(lite, "r")
    with lite.leases.acquire("r", "shard-0"), pytest.raises(Exception, match="drawing"):
        lite.leases.acquire("r", "shard-0")
    with pytest.raises(Exception, match="does not hold its draws"):
        lite.releases.begin("r", "/t", "m")
    assert lite.releases.refusals() == []


def test_a_refusal_that_cannot_be_written_is_still_raised(lite, monkeypatch):
    lite.accounts.open(PURE)
    monkeypatch.setattr(
        lite.database,
        "_note_refusal",
        lambda *_: (_ for _ in ()).throw(LedgerUnavailable("no room")),
    )
    with pytest.raises(BudgetExceeded):
        reserve(lite, "r", Pure(9.0))


# Sources


def test_a_file_that_changed_under_its_version_is_refused(ledger):
    ledger.accounts.open(PURE)
    of(ledger, "r", "v1", "aa")
    for release in ("r", "s"):  # paid or not
        if release == "r":
            ledger.releases.begin("r", "/s", "n")
            ledger.releases.commit("r", "a" * 64, "b" * 64)
        with pytest.raises(DataError, match=r"dataset\.version=v1: .*release r was made from"):
            of(ledger, release, "v1", "bb")
    assert of(ledger, "r", "v1", "aa").state is State.COMMITTED
    assert ledger.releases.find("s") is None
    of(ledger, "s", "v1", "aa")  # another draw of the same
    of(ledger, "t", "v2", "bb")


def test_a_begun_release_goes_on_whatever_became_of_the_file(ledger):
    """It is paid for, and its buckets are made."""
    ledger.accounts.open(PURE)
    of(ledger, "r", "v1", "aa")
    ledger.releases.begin("r", "/s", "n")
    assert of(ledger, "r", "v1", "bb").state is State.BEGUN
    assert [held.fingerprint for held in ledger.releases.sources()] == ["aa"]


def test_a_release_that_has_not_begun_takes_the_file_as_it_is(ledger):
    ledger.accounts.open(PURE)
    of(ledger, "r", "v1", "aa")
    of(ledger, "r", "v1", "bb")
    assert [held.fingerprint for held in ledger.releases.sources(account="clinic")] == ["bb"]
    ledger.releases.void("r", "the file was wrong")
    assert ledger.releases.sources() == []
    of(ledger, "r", "v1", "cc")


def test_the_same_file_under_another_version_is_refused(ledger):
    ledger.accounts.open(PURE)
    of(ledger, "r", "v1", "aa")
    with pytest.raises(DataError, match=r"same content as version v1.*higher privacy\.draw"):
        of(ledger, "s", "v2", "aa")
    assert ledger.accounts.balance("clinic").spent == pytest.approx(0.1)
    assert of(ledger, "s", "v1", "aa").state is State.RESERVED
    found = ledger.releases.sources(fingerprint="aa")
    assert [(held.release_id, held.version) for held in found] == [("r", "v1"), ("s", "v1")]


def test_another_file_in_the_place_of_a_reserved_one_is_judged_as_a_new_one(ledger):
    """Killed between reserve and begin, with the file replaced before the next run."""
    ledger.accounts.open(PURE)
    ledger.accounts.open(dataclasses.replace(PURE, name="labs", dataset="labs"))
    of(ledger, "theirs", "v1", "bb")
    of(ledger, "r", "v1", "aa", account="labs")
    for again in range(2):
        with pytest.raises(BudgetError, match="account clinic has paid"):
            of(ledger, "r", "v1", "bb", account="labs")
        assert [held.fingerprint for held in ledger.releases.sources(account="labs")] == ["aa"], (
            again
        )
    assert of(ledger, "r", "v1", "cc", account="labs").state is State.RESERVED

    of(ledger, "s", "v2", "dd", account="labs")
    with pytest.raises(DataError, match="same content as version v1"):
        of(ledger, "s", "v2", "cc", account="labs")

    ledger.releases.begin("r", "/s", "n")  # its buckets are made, whatever lies there now
    assert of(ledger, "r", "v1", "bb", account="labs").state is State.BEGUN


def test_a_reservation_that_named_no_file_is_judged_by_the_one_it_begins_with(ledger):
    ledger.accounts.open(PURE)
    ledger.accounts.open(dataclasses.replace(PURE, name="labs", dataset="labs"))
    of(ledger, "theirs", "v1", "bb")
    reserve(ledger, "r", Pure(0.1), account="labs")
    with pytest.raises(BudgetError, match="account clinic has paid"):
        of(ledger, "r", "v1", "bb", account="labs")


def test_no_fingerprint_comes_into_what_is_hashed_and_published(lite):
    lite.accounts.open(PURE)
    of(lite, "r", "v1", "f00dface")
    assert "f00dface" not in repr(lite.history()) + repr(lite.releases.all())


def test_the_source_key_is_one_secret_of_the_ledger(ledger, lite):
    ledger.accounts.open(PURE)
    key = ledger.releases.source_key().reveal()
    assert len(key) == 32
    assert ledger.releases.source_key().reveal() == key
    assert key.hex() not in repr(ledger.releases.source_key())


def test_without_a_ledger_there_is_no_source_key(lite):
    with pytest.raises(LedgerUnavailable, match="does not exist"):
        lite.releases.source_key()
    assert lite.releases.sources() == []
    assert lite.releases.refusals() == []
    assert not lite.exists()


# Counts of draws


def test_the_count_of_draws_is_told_with_the_lease_and_only_grows(ledger):
    ledger.accounts.open(PURE)
    begin(ledger, "r")
    assert ledger.leases.parts("r") == {}
    drawn = 7
    with ledger.leases.acquire("r", "shard-0") as lease:
        assert ledger.leases.parts("r") == {"shard-0": 0}  # held once is known for ever
        lease.count(lambda: drawn)
        ledger.leases.renew(lease)
        assert ledger.leases.parts("r") == {"shard-0": 7}
        drawn = 9
    assert ledger.leases.parts("r") == {"shard-0": 9}  # an end tells it too
    with ledger.leases.acquire("r", "shard-0") as lease:
        lease.count(lambda: 3)
        ledger.leases.renew(lease)
    assert ledger.leases.parts("r") == {"shard-0": 9}


def test_a_file_is_paid_for_by_one_account(url):
    """Two accounts ask for one file at the same time: both look, one of them pays."""
    names = [f"clinic{i}" for i in range(4)]
    for name in names:
        Ledger(url).accounts.open(dataclasses.replace(PURE, name=name, dataset=name))
    start = Barrier(len(names))

    def pay(name):
        ledger = Ledger(url)
        start.wait()
        try:
            of(ledger, f"r-{name}", "v1", "aa", account=name)
        except BudgetError as error:
            return str(error)
        return "paid"

    with ThreadPoolExecutor(len(names)) as pool:
        said = list(pool.map(pay, names))
    assert said.count("paid") == 1
    winner = names[said.index("paid")]
    assert all(f"account {winner} has paid" in words for words in said if words != "paid")
    ledger = Ledger(url)
    assert [entry.account for entry in ledger.releases.all()] == [winner]
    assert {refusal.account for refusal in ledger.releases.refusals()} == set(names) - {winner}
