"""Terms of an account and approvals, where they are enforced: in the ledger's own transaction."""

import dataclasses
import json
import re

import pytest
import sqlalchemy as sa

from privsyn.dp.accountant import guarantee
from privsyn.dp.adjacency import Guarantee
from privsyn.dp.events import ZCDP, Gaussian, Pure, RandomAllocation
from privsyn.errors import (
    AccountMismatch,
    ApprovalNeeded,
    BudgetError,
    BudgetExceeded,
    PolicyBroken,
    VerificationError,
)
from privsyn.ledger import chain, schema
from privsyn.ledger.approvals import Approvals
from privsyn.ledger.decisions import What
from privsyn.ledger.entries import Cost
from privsyn.ledger.ledger import Ledger
from privsyn.ledger.settings import AccountConfig, approval_of
from privsyn.ledger.spec import NONE, AccountSpec, Terms
from tests.unit.ledger.ledger_cases import PURE, RENYI, finish, reserve, terms

DELTA = 1e-6
SMALL, LARGE = ZCDP(0.001), ZCDP(0.02)  # epsilons of about .2 and 1
SECRET = RandomAllocation(Gaussian(10.0), 4)
RULES = {
    "policy": "strict", "epsilon": 0.8, "delta": 1e-6, "period_days": 30, "period_epsilon": 1.0,
    "methods": ("toy",), "adjacencies": ("add_remove",), "units": ("patient",),
    "internal_metrics": False, "amplification": False, "spend_above": 0.5, "publish": True,
    "two_people": True,
}  # fmt: skip
STRICT = terms(**RULES)


def held(**rules):
    return dataclasses.replace(RENYI, terms=terms(**rules))


def ask(ledger, release, event=LARGE, method="toy", **says):
    said = Guarantee(says.get("epsilon", 0.01), says.get("delta", DELTA))
    return reserve(ledger, release, event, method=method, guarantee=said)


def digest_of(ledger, release):
    request = ledger.approvals.find_request(release)
    assert request is not None
    return str(request.body["digest"])


def approve(ledger, release, by, *, approved=True, **who):
    digest = digest_of(ledger, release)
    ledger.approvals.decide(release, What.SPEND, digest, approved=approved, approver=by, **who)


def as_(user, ledger, driver="cli"):
    """The same ledger, asked by somebody else."""
    url = ledger.database.where
    if not url.startswith("sqlite"):
        url = ledger.database._engine.url.render_as_string(hide_password=False)
    return Ledger(url, clock=ledger.database.clock, requester={"user": user, "driver": driver})


# --- terms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": 1.0}, "epsilon 1, was 0.8"),
        ({"epsilon": None}, "epsilon without limit"),
        ({"delta": 1e-5}, "delta 1e-05, was 1e-06"),
        ({"period_epsilon": 2.0}, "period 2 in 30 days, was 1 in 30"),
        ({"period_days": 7}, "period 1 in 7 days"),
        ({"period_days": None, "period_epsilon": None}, "period without limit"),
        ({"methods": ("toy", "other")}, "methods toy, other, was toy"),
        ({"methods": None}, "methods any"),
        ({"adjacencies": None}, "adjacencies any"),
        ({"units": ("patient", "visit")}, "units patient, visit, was patient"),
        ({"internal_metrics": True}, "internal_metrics allowed"),
        ({"amplification": True}, "amplification allowed"),
        ({"spend_above": 0.6}, "spend_above 0.6, was 0.5"),
        ({"spend_above": None}, "spend_above without limit"),
        ({"publish": False}, "approval.publish not asked for"),
        ({"two_people": False}, "approval.two_people not asked for"),
    ],
)
def test_each_rule_may_become_stricter_and_no_laxer(lite, change, said):
    laxer = terms(**RULES | change)
    lite.accounts.open(dataclasses.replace(RENYI, terms=laxer))
    lite.accounts.open(dataclasses.replace(RENYI, terms=STRICT))
    with pytest.raises(AccountMismatch, match=re.escape(said)):
        lite.accounts.open(dataclasses.replace(RENYI, terms=laxer))
    with pytest.raises(AccountMismatch):
        lite.accounts.preview(dataclasses.replace(RENYI, terms=laxer), SMALL)
    assert lite.accounts.terms("clinic") == STRICT
    assert [row.change for row in lite.history()] == ["OPENED", "TERMS", "TERMS"]
    assert lite.verify().accounts == 1


def test_terms_are_remembered_where_no_setting_names_them_any_more(ledger):
    ledger.accounts.open(held(epsilon=0.5, policy="strict"))
    with pytest.raises(AccountMismatch, match="held to policy strict"):
        ledger.accounts.open(RENYI)
    ledger.accounts.open(held(epsilon=0.5, policy="strict"))
    assert [row.change for row in ledger.history()] == ["OPENED", "TERMS"]
    assert ledger.accounts.terms("clinic").epsilon == 0.5
    assert ledger.accounts.terms("nobody") == NONE


def test_a_void_release_that_is_reserved_anew_is_held_to_the_terms_of_now(lite):
    lite.accounts.open(RENYI)
    ask(lite, "r")
    lite.releases.void("r", "not now")
    lite.accounts.open(held(epsilon=0.5))
    with pytest.raises(PolicyBroken, match="release r"):
        ask(lite, "r")
    assert lite.releases.get("r").state == "VOID"


@pytest.mark.parametrize("rule", ["two_people", "publish"])
@pytest.mark.parametrize("asks", ["account", "policy"])
def test_what_account_or_policy_asks_for_is_asked_for(tmp_path, rule, asks):
    """Another rule of the one waives none of the other."""
    one, other = {rule: True}, {"spend_above": 1.0}
    own, policy = (one, other) if asks == "account" else (other, one)
    shared = {"name": "clinic", "unit": "patient", "adjacency": "add_remove", "epsilon": 3.0}
    shared |= {"delta": 1e-6, "policy": "officer"}
    (tmp_path / "policies.yaml").write_text(
        json.dumps({"policies": {"officer": {"approval": policy}}})
    )
    found = approval_of(AccountConfig.model_validate(shared | {"approval": own}), tmp_path)
    assert (getattr(found, rule), found.spend_above) == (True, 1.0)


def test_only_on_record_do_terms_become_laxer(ledger):
    ledger.accounts.open(held(epsilon=0.5))
    with pytest.raises(BudgetError, match="reason"):
        ledger.accounts.loosen("clinic", NONE, " ")
    ledger.accounts.loosen("clinic", Terms(epsilon=2.0), "typing error, says the officer")
    ledger.accounts.open(held(epsilon=2.0))
    assert ledger.history()[-1].body["reason"] == "typing error, says the officer"
    assert ledger.verify().rows == 3


def test_a_laxer_row_that_gives_no_reason_is_found(lite):
    lite.accounts.open(held(epsilon=0.5))
    with lite.database.write() as connection:  # a whole, rightly chained row
        lite.database.append(connection, "clinic", None, chain.TERMS, {"terms": {}})
    with pytest.raises(VerificationError, match="weakens the terms of account clinic"):
        ask(lite, "r1", SMALL)


@pytest.mark.parametrize(
    ("rules", "asked", "said"),
    [
        ({"epsilon": 0.5}, {}, r"privacy\.epsilon=0\.\d+ is above 0\.5"),
        ({"delta": 1e-7}, {"event": SMALL}, r"privacy\.delta=1e-06 is above 1e-07"),
        ({"methods": ("other",)}, {"event": SMALL}, "method=toy is not allowed: use other"),
        ({"adjacencies": ("replace_one",)}, {"event": SMALL}, "adjacency=add_remove is not"),
        ({"units": ("visit",)}, {"event": SMALL}, "unit=patient is not allowed: use visit"),
        ({"amplification": False}, {"event": SECRET}, "set account.amplification=false"),
        ({"period_days": 9, "period_epsilon": 0.5}, {}, "most for all releases of any 9 days"),
    ],
)
def test_the_ledger_refuses_whatever_a_plan_says_of_itself(lite, rules, asked, said):
    """The plan says that it costs an epsilon of .01: the event is what is priced."""
    lite.accounts.open(held(**rules))
    with pytest.raises(PolicyBroken, match=said):
        ask(lite, "r1", **asked)
    assert lite.releases.all() == []
    assert lite.releases.refusals()[-1].error == "PolicyBroken"


def test_an_audit_finds_a_cost_that_counts_on_what_its_terms_forbid(lite):
    lite.accounts.open(RENYI)
    ask(lite, "r1", SECRET)
    body = {key: value for key, value in lite.history()[-1].body.items() if key in PRICES}
    lite.accounts.open(held(amplification=False))
    assert lite.verify().entries == 1  # it was allowed then
    with lite.database.write() as connection:
        lite.database.append(connection, "clinic", "r2", "RESERVED", body)
    with pytest.raises(VerificationError, match=r"set account\.amplification=false"):
        lite.verify()


PRICES = ("method", "event", "loss", "mu_squared", "epsilon", "delta")


def test_a_larger_delta_makes_no_release_small(ledger):
    """Whoever names privacy.delta would else choose the epsilon that the rules see."""
    wide = guarantee(LARGE, 0.3)
    assert wide.epsilon < 0.5 < guarantee(LARGE, DELTA).epsilon
    ledger.accounts.open(held(spend_above=0.5))
    with pytest.raises(ApprovalNeeded):
        ask(ledger, "r1", LARGE, epsilon=wide.epsilon, delta=0.3)
    assert ledger.approvals.is_due(Cost("clinic", "r1", "toy", LARGE, wide))
    ledger.accounts.open(held(spend_above=0.5, epsilon=0.8))
    with pytest.raises(PolicyBroken, match=r"at account\.delta=1e-06 .*, is above 0\.8"):
        ask(ledger, "r1", LARGE, epsilon=wide.epsilon, delta=0.3)
    ask(ledger, "r2", SMALL, epsilon=wide.epsilon, delta=0.3)
    assert ledger.verify().entries == 1


def test_a_release_let_in_at_a_larger_delta_is_found(lite, monkeypatch):
    lite.accounts.open(held(epsilon=0.5))
    with monkeypatch.context() as patched:
        patched.setattr(AccountSpec, "refuse", lambda *_: None)
        ask(lite, "r1", LARGE, delta=0.3)
    with pytest.raises(VerificationError, match="does not allow release r1"):
        lite.verify()


def test_all_rules_that_are_broken_are_named(lite):
    lite.accounts.open(held(epsilon=0.5, delta=1e-7, methods=("other",)))
    with pytest.raises(PolicyBroken) as caught:
        ask(lite, "r1")
    assert str(caught.value).count("; ") == 2


def test_the_period_of_a_policy_is_a_cap_over_its_window(ledger, clock):
    ledger.accounts.open(held(period_days=30, period_epsilon=1.0))
    finish(ledger, "r1", LARGE)
    with pytest.raises(BudgetExceeded, match="clinic in 30 days") as caught:
        ask(ledger, "r2", LARGE)
    assert "2026-03-02" in caught.value.hint
    assert not ledger.accounts.preview(held(period_days=30, period_epsilon=1.0), LARGE).fits
    clock.pass_(days=30, seconds=1)
    ask(ledger, "r2", LARGE)
    assert ledger.verify().entries == 2


# --- approvals to spend ---------------------------------------------------------------------------


def test_a_large_cost_waits_for_an_approval_and_a_small_one_does_not(ledger):
    ledger.accounts.open(held(spend_above=0.5))
    assert ask(ledger, "small", SMALL).state == "RESERVED"
    with pytest.raises(ApprovalNeeded, match="before somebody has approved") as caught:
        ask(ledger, "large")
    assert caught.value.exit_code == 8
    assert "privsyn approve large --spend" in caught.value.hint
    with pytest.raises(ApprovalNeeded):
        ask(ledger, "large")
    asked = [row for row in ledger.history("large") if row.change == chain.REQUESTED]
    assert len(asked) == 1, "the request is on record once"
    approve(ledger, "large", "officer")
    assert ask(ledger, "large").state == "RESERVED"
    assert ask(ledger, "large").state == "RESERVED"  # again, and nothing is asked
    approved = ledger.approvals.spend_approval("large")
    assert approved is not None
    assert approved.approver == "officer"
    approve(ledger, "large", "director")  # this one let nothing in
    assert ledger.approvals.spend_approval("large") == approved
    assert ledger.approvals.spend_approval("small") is None
    assert ledger.verify().entries == 2


def test_a_rejection_undoes_an_approval_until_somebody_approves_again(lite):
    lite.accounts.open(held(spend_above=0.5))
    with pytest.raises(ApprovalNeeded):
        ask(lite, "r1")
    for said in (False, True, False):
        approve(lite, "r1", "officer", approved=said)
    with pytest.raises(ApprovalNeeded, match="officer rejected it on"):
        ask(lite, "r1")
    approve(lite, "r1", "officer")
    ask(lite, "r1")


@pytest.mark.parametrize(
    "change",
    [
        {"event": ZCDP(0.03)},
        {"method": "other"},
        {"epsilon": 0.02},
        {"delta": 1e-7},
        {"release": "r2"},
    ],
)
def test_an_approval_is_of_one_cost_of_one_release(lite, change):
    lite.accounts.open(held(spend_above=0.5))
    with pytest.raises(ApprovalNeeded):
        ask(lite, "r1")
    approve(lite, "r1", "officer")
    with pytest.raises(ApprovalNeeded):
        ask(lite, **({"release": "r1"} | change))
    assert lite.releases.all() == []


def test_nobody_approves_what_nobody_asked(lite):
    lite.accounts.open(held(spend_above=0.5))
    with pytest.raises(BudgetError, match="nobody has asked to reserve this cost"):
        lite.approvals.decide("r1", What.SPEND, "a" * 64, approved=True, approver="officer")
    with pytest.raises(ApprovalNeeded):
        ask(lite, "r1")
    with pytest.raises(BudgetError, match="needs the name"):
        approve(lite, "r1", " ")


def test_who_asks_does_not_approve_where_two_people_are_asked_for(ledger):
    alice, bob = as_("alice", ledger), as_("bob", ledger)
    ledger.accounts.open(held(spend_above=0.5, two_people=True))
    with pytest.raises(ApprovalNeeded):
        ask(alice, "r1")
    for name in ("alice", "bob"):  # her own name, or that of another, as she writes it
        with pytest.raises(ApprovalNeeded, match="alice asked for it"):
            approve(alice, "r1", name)
    assert ledger.approvals.decisions("r1") == [], "a refused decision is not kept"
    approve(bob, "r1", "bob")
    with pytest.raises(ApprovalNeeded, match="bob asked for it and approved it"):
        ask(bob, "r1")
    with pytest.raises(ApprovalNeeded, match="nobody knows who asked"):
        ask(ledger, "r1")
    ask(alice, "r1")
    assert ledger.verify().entries == 1


def test_of_airflow_the_name_that_answered_counts_and_not_the_run_s(ledger):
    run = as_("alice", ledger, driver="airflow")
    ledger.accounts.open(held(spend_above=0.5, two_people=True))
    with pytest.raises(ApprovalNeeded):
        ask(run, "r1")
    with pytest.raises(ApprovalNeeded):
        approve(run, "r1", "Alice A.", approver_id="alice")
    approve(run, "r1", "bob")
    ask(run, "r1")


def test_a_release_reserved_unapproved_is_found(lite, monkeypatch):
    lite.accounts.open(held(spend_above=0.5))
    monkeypatch.setattr(Approvals, "check_spend", lambda *_: None)
    ask(lite, "r1")
    monkeypatch.undo()
    with pytest.raises(VerificationError, match="r1 is not to be reserved before somebody"):
        lite.verify()


# --- approvals to publish -------------------------------------------------------------------------


def decide(ledger, release, digest, **how):
    how = {"approved": True, "approver": "officer"} | how
    return ledger.approvals.decide(release, What.PUBLISH, digest, **how)


def test_a_certificate_is_approved_and_no_other(ledger):
    ledger.accounts.open(held(publish=True))
    for release in ("r1", "r2"):
        ask(ledger, release, SMALL)
        ledger.releases.begin(release, f"/scratch/{release}", "n")
        ledger.releases.commit(release, "a" * 64, ("b" if release == "r1" else "c") * 64)
    ledger.releases.derive("r1", "d" * 64, "e" * 64)
    with pytest.raises(ApprovalNeeded, match="before somebody has approved it"):
        ledger.approvals.check_publication("r1", "b" * 64, name="r1")
    with pytest.raises(BudgetError, match="no certificate with the SHA-256 c"):
        decide(ledger, "r1", "c" * 64)
    decide(ledger, "r2", "c" * 64)
    with pytest.raises(ApprovalNeeded):
        ledger.approvals.check_publication("r1", "b" * 64, name="r1")
    decide(ledger, "r1", "b" * 64)
    approval = ledger.approvals.check_publication("r1", "b" * 64, name="r1")
    assert approval is not None
    assert approval.approver == "officer"
    with pytest.raises(ApprovalNeeded, match="What was approved before was something else"):
        ledger.approvals.check_publication("r1", "e" * 64, name="r1.student")
    decide(ledger, "r1", "e" * 64, name="r1.student")
    ledger.approvals.check_publication("r1", "e" * 64, name="r1.student")
    decide(ledger, "r1", "b" * 64, approved=False, comment="no  more\nthan this")
    with pytest.raises(ApprovalNeeded, match=r"rejected it on .*\(no more than this\)"):
        ledger.approvals.check_publication("r1", "b" * 64, name="r1")
    assert ledger.verify().entries == 2
    (statement,) = ledger.accounts.statements()
    assert json.dumps(statement.as_dict())
    assert len(statement.decisions) == 4


def test_who_made_a_release_does_not_approve_it_alone(lite):
    alice = as_("alice", lite)
    lite.accounts.open(held(publish=True, two_people=True))
    finish(alice, "r1", SMALL)
    with pytest.raises(ApprovalNeeded, match="alice asked for it"):
        decide(alice, "r1", "b" * 64, approver="alice")
    decide(as_("bob", lite), "r1", "b" * 64, approver="bob")
    alice.approvals.check_publication("r1", "b" * 64, name="r1")


def test_who_made_something_of_another_s_release_does_not_approve_that(lite):
    alice, bob = as_("alice", lite), as_("bob", lite)
    lite.accounts.open(held(publish=True, two_people=True))
    finish(bob, "r1", SMALL)
    alice.releases.derive("r1", "d" * 64, "e" * 64)
    with pytest.raises(ApprovalNeeded, match="alice asked for it"):
        decide(alice, "r1", "e" * 64, approver="alice", name="r1.student")
    with pytest.raises(ApprovalNeeded, match="before somebody"):
        bob.approvals.check_publication("r1", "e" * 64, name="r1.student")
    decide(bob, "r1", "e" * 64, approver="bob", name="r1.student")
    bob.approvals.check_publication("r1", "e" * 64, name="r1.student")


def test_an_unfinished_release_is_not_approved_for_publishing(lite):
    lite.accounts.open(held(publish=True))
    ask(lite, "r1", SMALL)
    with pytest.raises(BudgetError, match="is RESERVED, not COMMITTED"):
        decide(lite, "r1", "b" * 64)


def test_an_account_that_asks_for_nothing_is_asked_nothing(lite):
    lite.accounts.open(RENYI)
    finish(lite, "r1", LARGE)
    assert lite.approvals.check_publication("r1", "b" * 64, name="r1") is None
    cost = Cost("clinic", "r2", "toy", LARGE, guarantee(LARGE, DELTA))
    assert not lite.approvals.is_due(cost)


@pytest.mark.parametrize("forged", ["edited", "added", "rightly chained"])
def test_a_forged_approval_is_none(ledger, forged):
    ledger.accounts.open(held(publish=True))
    finish(ledger, "r1", SMALL)
    decide(ledger, "r1", "b" * 64, approved=False)
    last = ledger.history()[-1]
    body = dict(last.body) | {"approver": "officer"}
    with ledger.database.write() as connection:
        if forged == "edited":
            connection.execute(
                sa.update(schema.history)
                .where(schema.history.c.seq == last.seq)
                .values(change=chain.APPROVED)
            )
        elif forged == "added":
            row = last.__dict__ | {"seq": last.seq + 1, "change": chain.APPROVED}
            row |= {"body": chain.canonical(body), "previous": last.hash}
            connection.execute(sa.insert(schema.history).values(**row))
            connection.execute(sa.update(schema.head).values(seq=last.seq + 1))
        else:  # by whoever computes the hash too: of a certificate that there is not
            body |= {"digest": "f" * 64}
            ledger.database.append(connection, "clinic", "r1", chain.APPROVED, body)
    with pytest.raises(VerificationError, match="history row"):
        ledger.approvals.check_publication("r1", "b" * 64, name="r1")


def test_pure_accounts_have_terms_too(lite):
    lite.accounts.open(dataclasses.replace(PURE, terms=terms(spend_above=0.5, epsilon=2.0)))
    with pytest.raises(ApprovalNeeded):
        ask(lite, "r1", Pure(1.0))
    with pytest.raises(PolicyBroken):
        ask(lite, "r2", Pure(2.5))


def test_a_policy_s_period_holds_beside_an_own_one_that_is_laxer_over_its_days(ledger, clock):
    """Of the account 5 a day, of its policy 1 in 30 days."""
    month = terms(period_days=30, period_epsilon=1.0)
    ledger.accounts.open(
        dataclasses.replace(PURE, epsilon=20.0, period_days=1, period_epsilon=5.0, terms=month)
    )
    finish(ledger, "one", Pure(0.9))
    for _ in range(2):
        clock.pass_(days=2)
        with pytest.raises(BudgetExceeded, match="in 30 days cannot pay"):
            finish(ledger, "two", Pure(0.9))
    clock.pass_(days=30)
    finish(ledger, "two", Pure(0.9))
    ledger.verify()


def test_an_approval_by_another_name_of_who_asked_does_not_outlive_stricter_terms(lite):
    lite.accounts.open(held(spend_above=0.5))
    alice = as_("alice", lite)
    with pytest.raises(ApprovalNeeded):
        ask(alice, "r")
    approve(alice, "r", by="al")  # of one person it would do
    lite.accounts.open(held(spend_above=0.5, two_people=True))
    with pytest.raises(ApprovalNeeded, match="alice asked for it and approved it"):
        ask(alice, "r")
    approve(as_("bob", lite), "r", by="bob")
    ask(alice, "r")
    lite.verify()
