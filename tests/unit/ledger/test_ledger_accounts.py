import dataclasses
import json
import math
from datetime import timedelta
from random import Random

import pytest
import yaml

from privsyn.config import parse_config
from privsyn.dp.accountant import guarantee
from privsyn.dp.adjacency import Guarantee
from privsyn.dp.calibration import calibrate_rho
from privsyn.dp.events import (
    ZCDP,
    BoundedRange,
    Composed,
    DiscreteGaussian,
    Disjoint,
    Event,
    Gaussian,
    Pure,
    RandomAllocation,
    SampledGaussian,
)
from privsyn.errors import AccountMismatch, BudgetError, BudgetExceeded
from privsyn.ledger.accounts import Asked
from privsyn.ledger.entries import moment
from privsyn.ledger.ledger import Ledger
from privsyn.ledger.spec import AccountSpec, Split
from tests.unit.ledger.ledger_cases import PURE, RENYI, begin, finish, reserve


def test_opening_is_idempotent_and_draws_one_key(ledger):
    first = ledger.accounts.open(RENYI)
    again = ledger.accounts.open(RENYI)
    assert again == first
    assert len(first.partition_key.reveal()) == 32
    assert ledger.accounts.find("clinic") == first
    assert ledger.accounts.find("other") is None
    assert [account.name for account in ledger.accounts.all()] == ["clinic"]
    assert first.partition_key.reveal().hex() not in repr(first)


def test_keys_and_ids_are_not_derived_from_the_spec(tmp_path):
    made = [Ledger(f"sqlite:///{tmp_path}/{n}.db").accounts.open(RENYI) for n in (1, 2)]
    assert made[0].partition_key != made[1].partition_key
    assert made[0].key_id != made[1].key_id


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"epsilon": 5.0}, "account.epsilon"),
        ({"delta": 1e-5}, "account.delta"),
        ({"adjacency": "replace_one"}, "account.adjacency"),
        ({"unit": "visit"}, "account.unit"),
        ({"unit_column": "message_id"}, "dataset.unit=message_id: .*dataset.unit=patient_id"),
        ({"unit_column": None}, "dataset.unit=null: .*dataset.unit=patient_id"),
        ({"dataset": "labs"}, "dataset.name"),
        ({"period_days": 30, "period_epsilon": 1.0}, "account.period.days"),
    ],
)
def test_another_spec_under_the_name_is_refused(lite, change, setting):
    lite.accounts.open(RENYI)
    other = dataclasses.replace(RENYI, **change)
    with pytest.raises(AccountMismatch, match=setting):
        lite.accounts.open(other)
    with pytest.raises(AccountMismatch, match=setting):
        lite.accounts.preview(other, Pure(0.1))
    assert lite.accounts.find("clinic").spec == RENYI


def test_a_column_that_comes_later_is_another_unit(lite):
    rows_alone = dataclasses.replace(RENYI, unit_column=None, adjacency="replace_null")
    lite.accounts.open(rows_alone)
    with pytest.raises(AccountMismatch, match=r"dataset.unit=msg: .*opened with dataset.unit=null"):
        lite.accounts.open(dataclasses.replace(rows_alone, unit_column="msg"))
    assert lite.accounts.open(rows_alone).spec.unit_column is None


def test_a_second_account_on_a_lineage_is_refused(ledger):
    ledger.accounts.open(RENYI)
    for change in ({"name": "clinic-2"}, {"name": "Clinic"}, {"name": "b", "epsilon": 0.1}):
        second = dataclasses.replace(RENYI, **change)
        for call in (ledger.accounts.open, lambda spec: ledger.accounts.preview(spec, Pure(0.1))):
            with pytest.raises(AccountMismatch, match="portal already has the account clinic"):
                call(second)
    assert len(ledger.accounts.all()) == 1


def test_spec_of_a_config():
    config = parse_config(
        yaml.safe_load(
            """
            dataset: {name: portal, path: data.jsonl, unit: patient_id}
            account: {name: clinic, unit: patient, adjacency: add_remove, epsilon: 3, delta: 1e-6,
                      period: {days: 30, epsilon: 1}}
            privacy: {epsilon: 1, delta: 1e-6}
            """
        )
    )
    assert AccountSpec.of(config) == dataclasses.replace(RENYI, period_days=30, period_epsilon=1.0)


def test_balance_of_an_empty_account_is_its_cap(ledger):
    ledger.accounts.open(RENYI)
    balance = ledger.accounts.balance("clinic")
    assert balance.cap == Guarantee(3.0, 1e-6)
    assert (balance.spent, balance.spent_epsilon, balance.share) == (0, 0, 0)
    assert balance.left == balance.budget
    # the order is the one that admits the most zCDP, so a first release may use the whole cap
    assert balance.left_epsilon == pytest.approx(3.0, abs=1e-9)
    assert balance.order == pytest.approx(8.926, abs=0.01)


def test_what_is_left_is_exactly_what_still_fits(lite):
    lite.accounts.open(RENYI)
    reserve(lite, "first", ZCDP(calibrate_rho(Guarantee(1.0, 1e-6))))
    balance = lite.accounts.balance("clinic")
    most = balance.left / balance.order
    assert guarantee(ZCDP(most), 1e-6).epsilon == pytest.approx(balance.left_epsilon)
    with pytest.raises(BudgetExceeded) as refused:
        reserve(lite, "more", ZCDP(most * 1.000001))
    assert f"left {balance.left:.4g} of" in str(refused.value)
    reserve(lite, "most", ZCDP(most * 0.999999))
    after = lite.accounts.balance("clinic")
    assert after.share == pytest.approx(1, abs=1e-5)
    assert after.spent_epsilon <= 3.0
    assert after.spent_epsilon == pytest.approx(3.0, abs=1e-4)


def test_pure_epsilons_add_as_they_were_written(lite):
    lite.accounts.open(dataclasses.replace(PURE, epsilon=0.3))
    for number in range(3):
        reserve(lite, f"r{number}", Pure(0.1))
    balance = lite.accounts.balance("clinic")
    assert (balance.spent, balance.left, balance.left_epsilon) == (0.3, 0, 0)
    assert balance.order is None
    with pytest.raises(BudgetExceeded, match="used up"):
        reserve(lite, "r4", Pure(1e-9))
    lite.verify()


def test_accounts_refuse_events_whose_claim_does_not_hold(lite):
    lite.accounts.open(PURE)
    sampled = SampledGaussian(rate=0.01, noise_multiplier=2.0, steps=10)
    for event in (ZCDP(0.01), Gaussian(50.0), sampled, Composed((Pure(0.1), ZCDP(0.01)))):
        with pytest.raises(BudgetError, match="pure events only"):
            reserve(lite, "r", event)
        seen = lite.accounts.preview(PURE, event)
        assert not seen.fits
        assert seen.loss == float("inf")
    swap = AccountSpec("swap", "labs", "patient", "replace_one", epsilon=3.0, delta=1e-6)
    lite.accounts.open(swap)
    sampled = Composed((ZCDP(0.001), SampledGaussian(rate=0.01, noise_multiplier=2.0, steps=10)))
    with pytest.raises(BudgetError, match="replace_one"):
        reserve(lite, "r", sampled, account="swap")
    assert not lite.accounts.preview(swap, sampled).fits
    drawn = RandomAllocation(BoundedRange(0.1, 8), 20)
    with pytest.raises(BudgetError, match="a random allocation does not hold"):
        reserve(lite, "r", drawn, account="swap")


def test_preview_creates_nothing(tmp_path):
    path = tmp_path / "not" / "there" / "ledger.db"
    ledger = Ledger(f"sqlite:///{path}")
    rho = calibrate_rho(Guarantee(3.0, 1e-6))
    seen = ledger.accounts.preview(RENYI, ZCDP(rho))
    assert seen.fits
    assert seen.key_id is None
    assert not ledger.accounts.preview(RENYI, ZCDP(rho * 1.01)).fits
    assert ledger.releases.find("r") is None
    assert (
        ledger.releases.all()
        == ledger.history()
        == ledger.accounts.all()
        == ledger.accounts.statements()
        == []
    )
    assert ledger.verify().rows == 0
    for call in (ledger.accounts.balance, ledger.releases.get, ledger.accounts.statements):
        with pytest.raises(BudgetError, match="not in the ledger"):
            call("clinic")
    assert not path.parent.parent.exists()


@pytest.mark.parametrize("seed", range(30))
def test_a_planned_pipeline_is_admitted_as_it_is_charged(lite, seed):
    """Kinds and caps at random: no summary decides otherwise than one reservation after another."""
    rng = Random(seed)
    whole = {"epsilon": rng.choice([1.0, 2.0, 4.5, 10.0])}
    if rng.random() < 0.3:
        whole |= {"period_days": 30, "period_epsilon": whole["epsilon"] / 2}
    spec = dataclasses.replace(RENYI, **whole, split=Split())
    kinds = [
        Gaussian(rng.uniform(1.0, 6.0)),
        Pure(rng.uniform(0.1, 2.0)),
        Disjoint((BoundedRange(rng.uniform(0.05, 0.4), 48),), 4),
        SampledGaussian(0.1, rng.uniform(0.8, 2.0), 30),
        RandomAllocation(Disjoint((BoundedRange(0.2, 48),), 2), 20),
    ]
    asked = [Asked(rng.choice(kinds), f"r{number}") for number in range(5)]
    lite.accounts.open(spec)
    planned = lite.accounts.preview_all(spec, asked)
    for one, seen in zip(asked, planned, strict=True):
        try:
            reserve(lite, one.release_id, one.event)
        except BudgetExceeded:
            assert not seen.fits
        else:
            assert seen.fits
        balance = lite.accounts.balance("clinic")
        shares = [balance.share, balance.period.share if balance.period else 0.0]
        assert seen.share_after == pytest.approx(max(shares), abs=1e-12)
    again = lite.accounts.preview_all(spec, asked)
    assert [one.entry is not None for one in again] == [one.fits for one in planned]
    assert not any(one.charges for one in again)


def test_the_period_is_a_second_filter_and_renews_nothing(ledger, clock):
    ledger.accounts.open(dataclasses.replace(PURE, epsilon=2.5, period_days=30, period_epsilon=1.0))
    finish(ledger, "jan", Pure(0.75))
    clock.pass_(days=10)
    with pytest.raises(BudgetExceeded, match=r"in 30 days.*It fits from 2026-03-02 12:00 UTC on"):
        reserve(ledger, "feb", Pure(0.75))
    assert ledger.accounts.balance("clinic").left_epsilon == 0.25
    with pytest.raises(BudgetExceeded, match=r"more than the whole of account.period.epsilon=1"):
        reserve(ledger, "big", Pure(1.5))
    clock.pass_(days=20, seconds=-1)
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "feb", Pure(0.75))
    clock.pass_(seconds=1)
    finish(ledger, "feb", Pure(0.75))
    clock.pass_(days=30)
    finish(ledger, "mar", Pure(0.75))
    clock.pass_(days=3000)
    balance = ledger.accounts.balance("clinic")
    assert (balance.spent, balance.left, balance.left_epsilon) == (2.25, 0.25, 0.25)
    assert (balance.period.entries, balance.period.spent) == (0, 0)
    with pytest.raises(BudgetExceeded, match=r"to 0.25 or less"):
        reserve(ledger, "apr", Pure(0.75))
    ledger.verify()


MONTH = dataclasses.replace(PURE, epsilon=20.0, period_days=30, period_epsilon=1.0)


@pytest.mark.parametrize("begun", [False, True])
def test_what_may_still_draw_counts_however_long_ago_it_was_reserved(ledger, clock, begun):
    """Else releases reserved, or begun, a month apart are drawn together on one day."""
    ledger.accounts.open(MONTH)
    reserve(ledger, "first", Pure(1.0))
    if begun:
        ledger.releases.begin("first", "/s", "n")
    for _ in range(5):
        clock.pass_(days=31)
        with pytest.raises(BudgetExceeded, match=r"It fits 30 days after release first, which is"):
            reserve(ledger, "second", Pure(1.0))
    assert ledger.accounts.balance("clinic").period.spent == 1
    if begun:
        ledger.releases.lose("first", "given up")
        clock.pass_(days=30)
    else:
        ledger.releases.void("first", "not wanted")
    reserve(ledger, "second", Pure(1.0))
    ledger.verify()


def test_the_window_begins_at_the_end_of_a_release(ledger, clock):
    ledger.accounts.open(MONTH)
    begin(ledger, "slow", Pure(1.0))
    clock.pass_(days=29)
    ledger.releases.commit("slow", "a" * 64, "b" * 64)  # may have drawn until now
    clock.pass_(days=29)
    with pytest.raises(BudgetExceeded, match="It fits from 2026-03-31 12:00 UTC on"):
        reserve(ledger, "next", Pure(1.0))
    clock.pass_(days=1)
    reserve(ledger, "next", Pure(1.0))
    ledger.verify()


def test_statements_are_what_a_person_wants_to_see(ledger, clock):
    ledger.accounts.open(RENYI)
    ledger.accounts.open(AccountSpec("labs", "labs", "sample", "replace_null", 1.0, 1e-6))
    reserve(ledger, "r1", ZCDP(0.02))
    clock.pass_(hours=1)
    reserve(ledger, "r2", ZCDP(0.03))
    ledger.releases.void("r2", "not wanted")
    clinic, labs = ledger.accounts.statements()
    assert [entry.release_id for entry in clinic.releases] == ["r1", "r2"]
    assert [entry.state for entry in clinic.releases] == ["RESERVED", "VOID"]
    assert clinic.releases[1].reserved_at == clock.now
    assert clinic.balance.entries == 1
    assert clinic.balance.share == pytest.approx(
        0.02 * clinic.balance.order / clinic.balance.budget
    )
    assert labs.releases == ()
    assert ledger.accounts.statements("labs") == [labs]
    assert ledger.accounts.statements(only={"labs", "unknown"}) == [labs]
    told = json.loads(json.dumps([clinic.as_dict(), labs.as_dict()]))
    assert told[0]["balance"]["cap"] == {"epsilon": 3.0, "delta": 1e-6}
    assert told[0]["releases"][0]["epsilon"] == 1.0
    key = ledger.accounts.find("clinic").partition_key.reveal().hex()
    assert key not in json.dumps(told)
    assert key not in repr([vars(clinic), vars(labs)])


LOSSES = [
    Pure(0.7),
    DiscreteGaussian(5.0, 3),
    Disjoint((Composed((Pure(0.3), Gaussian(9.0, 2), ZCDP(0.01))),), 3),
]


def renyi_loss(event: Event, order: float) -> float:
    """The loss at an order, from the formulas alone."""
    match event:
        case Pure(epsilon=e):
            top = math.log(math.exp(order * e) + math.exp((1 - order) * e))
            return (top - math.log1p(math.exp(e))) / (order - 1)
        case Gaussian(noise_multiplier=s, count=n) | DiscreteGaussian(noise_multiplier=s, count=n):
            return n * order / (2 * s * s)
        case ZCDP(rho=r, count=n):
            return n * order * r
        case Composed(events=events):
            return sum(renyi_loss(one, order) for one in events)
        case Disjoint(events=events):
            return max(renyi_loss(one, order) for one in events)
    raise AssertionError(event)


@pytest.mark.parametrize("event", LOSSES, ids=lambda event: type(event).__name__)
def test_a_release_is_charged_its_loss_at_the_accounts_own_order(lite, event):
    """Not the least over orders, scaled: that undercharges all but Gaussians and zCDP."""
    lite.accounts.open(RENYI)
    entry = reserve(lite, "r", event)
    order = lite.accounts.balance("clinic").order
    assert order == pytest.approx(8.93, abs=0.01)
    exact = renyi_loss(event, order)
    assert entry.loss == pytest.approx(exact, rel=1e-9)
    finish(lite, "s", event)
    assert lite.accounts.balance("clinic").spent == pytest.approx(2 * entry.loss, rel=1e-12)


def test_a_clock_that_goes_back_takes_nothing_out_of_a_window(ledger, clock):
    """A release that a clock 40 days behind commits has not left a window of 30 days."""
    ledger.accounts.open(MONTH)
    begin(ledger, "one", Pure(0.9))
    clock.pass_(days=-40)
    ledger.releases.commit("one", "a" * 64, "b" * 64)
    committed = ledger.history("one")[-1]
    clock.pass_(days=40)
    times = [row.at for row in ledger.history()]
    assert times == sorted(times)
    assert moment(committed.body["clock"]) == clock.now - timedelta(days=40)
    with pytest.raises(BudgetExceeded, match="in 30 days cannot pay") as refused:
        reserve(ledger, "two", Pure(0.9))
    assert "clock" not in refused.value.hint
    audit = ledger.verify()
    assert (audit.late, audit.behind) == (1, timedelta(days=40))
    clock.pass_(days=30, seconds=1)
    reserve(ledger, "two", Pure(0.9))
    ledger.verify()


def test_a_clock_far_ahead_is_told_once_another_one_writes(ledger, clock):
    """What ends by it leaves no window for years, and every refusal says why."""
    ledger.accounts.open(MONTH)
    clock.pass_(days=3650)
    finish(ledger, "one", Pure(0.9))
    clock.pass_(days=-3650)
    assert "one of the two clocks is wrong" in ledger.clock_note()
    with pytest.raises(BudgetExceeded, match="one of the two clocks is wrong"):
        reserve(ledger, "two", Pure(0.9))
    reserve(ledger, "three", Pure(0.1))  # what fits is let in, at the time of the last row
    assert ledger.releases.get("three").reserved_at == clock.now + timedelta(days=3650)
    audit = ledger.verify()
    assert (audit.late, audit.behind) == (1, timedelta(days=3650))
    clock.pass_(days=3651)
    assert ledger.clock_note() == ""


def test_what_a_release_left_is_told_as_of_its_reservation(ledger, clock):
    """Whatever begins, ends, is lost or is reserved afterwards, and whatever the window holds."""
    ledger.accounts.open(MONTH)
    finish(ledger, "zero", Pure(0.1))
    clock.pass_(days=29)
    reserve(ledger, "gone", Pure(0.2))
    reserve(ledger, "one", Pure(0.3))
    row, fill = ledger.releases.reservation("one")
    assert (row.release_id, row.change) == ("one", "RESERVED")
    assert fill.spent == pytest.approx(0.6)
    assert fill.left_epsilon == pytest.approx(19.4)  # of the lifetime, not of the window
    ledger.releases.void("gone", "why")
    ledger.releases.begin("one", "/scratch/one", "n")
    clock.pass_(days=40)
    finish(ledger, "later", Pure(0.5))
    ledger.releases.lose("one", "why")
    assert ledger.releases.reservation("one") == (row, fill)
    assert ledger.releases.reservation("later")[1].spent == pytest.approx(0.9)
    reserve(ledger, "gone", Pure(0.2))  # anew: it is the newest life that is paid for
    row, fill = ledger.releases.reservation("gone")
    assert row == ledger.history("gone")[-1]
    assert fill.spent == pytest.approx(1.1)


def test_hashes_of_rows_hold_what_nobody_can_search_for(lite, clock):
    lite.accounts.open(PURE)
    for name in ("one", "two"):
        reserve(lite, name, Pure(0.1))
    salts = [row.body["salt"] for row in lite.history()]
    assert len(set(salts)) == 3
    assert all(len(bytes.fromhex(salt)) >= 16 for salt in salts)
    assert [entry.number for entry in lite.releases.all()] == [1, 2]
