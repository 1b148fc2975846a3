"""`privsyn ledger` and `privsyn sweep`: they say what is true, and end accordingly."""

from __future__ import annotations

import json
import sqlite3
from functools import partial
from itertools import pairwise

import pytest

from privsyn.errors import BudgetExceeded
from privsyn.layout import held_back
from privsyn.methods.invisible_ink import method
from privsyn.methods.shared.prompts import Prompt
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve
from tests.integration.e2e.small_project import finish, reserve_release


@pytest.fixture
def project(make_project):
    return make_project()


@pytest.fixture
def run(project, command):
    return partial(command, project.root)


def released(project, fake):
    ctx = project.context()
    planned = reserve_release(ctx)
    return planned, finish(ctx, planned, fake)


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("account.epsilon=1", "Lower privacy.epsilon to"),
        ('account.period={"days": 30, "epsilon": 1}', "more than the whole of account.period"),
    ],
)
def test_a_first_release_that_cannot_be_paid_opens_no_account(project, run, setting, why):
    """An open account is fixed for its life: a slip in its terms, which paid nothing, is not."""
    code, _, said = run("run", "-S", setting)
    assert code == 3
    assert "cannot pay for release of invisible_ink" in said
    assert "Nothing was spent" in said
    assert why in said
    assert project.context().ledger.accounts.all() == []
    assert plan(project.context(), "invisible_ink", open_account=True).account == "letters"
    code, _, said = run("run", "-S", setting)
    assert code == 3
    assert "which is fixed for its life" in said or "was opened with" in said


def test_verify_says_that_the_ledger_does_not_know_the_releases_here(project, run, fake):
    planned, _ = released(project, fake)
    code, said, _ = run("ledger", "verify")
    assert (code, said.startswith("the hash chain is intact: 4 rows")) == (0, True)
    for setting in ("services.ledger=sqlite:///other.db", "services.ledger=sqlite:///none.db"):
        if "other" in setting:
            plan(project.context("account.name=x", "dataset.name=x", setting), "invisible_ink")
        code, said, wrong = run("ledger", "verify", "-S", setting)
        assert (code, said) == (4, "")
        assert f"does not know 1 of the releases here, {planned.id} among them" in wrong
        assert not (project.root / "none.db").exists()


def test_a_wrong_url_is_no_reason_to_throw_a_release_away(run, project, fake):
    _, folder = released(project, fake)
    code, said, wrong = run("verify", str(folder), "--ledger", "sqlite:////nowhere/x.db")
    assert code == 3
    assert "there is no ledger at sqlite:////nowhere/x.db" in wrong
    assert "do not use this copy" not in said + wrong


def test_show_shows_an_edited_ledger_and_says_so(project, run, fake):
    released(project, fake)
    with sqlite3.connect(project.root / ".privsyn" / "ledger.db") as edited:
        edited.execute("update ledger_entry set loss = 0")
    code, said, wrong = run("ledger", "show")
    assert code == 4
    assert "letters: cap" in said
    assert wrong.startswith("The ledger was edited. What follows may be false")
    assert "was edited, loss" in wrong
    assert run("plan")[0] == 4
    assert run("ledger", "show", "--json")[0] == 4


def test_leftovers_are_named_and_swept(project, run, fake):
    planned, _ = released(project, fake)
    assert run("sweep")[1] == "nothing to delete\n"
    left = project.root / ".privsyn" / "scratch" / planned.id / "buckets"
    left.mkdir(parents=True)
    said = run("ledger", "show")[1]
    assert f"remain: {planned.id}. Delete them: privsyn sweep" in said
    assert f"deleted private files of {planned.id}" in run("sweep")[1]
    assert not left.exists()
    assert "private temporary files" not in run("ledger", "show")[1]


def test_a_release_that_an_upgrade_renames_is_paid_for_by_name_alone(
    project, run, fake, monkeypatch
):
    earlier, _ = released(project, fake)
    prompt = Prompt(private="A {label}, in other words: {reference}", public="A {label}:")
    monkeypatch.setattr(method, "resolved_prompt", lambda *_: prompt)
    code, said, _ = run("plan", "--method", "invisible_ink", "--json")
    answer = json.loads(said)
    assert (code, answer["account"]["fits"]) == (BudgetExceeded.exit_code, False)
    assert answer["account"]["earlier"] == earlier.id != answer["release_id"]
    code, said, _ = run("plan", "--method", "invisible_ink")
    assert code == BudgetExceeded.exit_code
    assert f"is release {earlier.id} (COMMITTED) under another id" in " ".join(said.split())
    code, _, wrong = run("run", "--method", "invisible_ink")
    assert code == BudgetExceeded.exit_code
    assert "raise privacy.draw by one" in " ".join(wrong.split())
    code, said, _ = run("plan", "--method", "invisible_ink", "--json", "-S", "privacy.draw=1")
    assert (code, json.loads(said)["account"]["fits"]) == (0, True)


def test_what_nobody_finishes_is_listed_and_given_up(project, run):
    ctx = project.context()
    planned = reserve_release(ctx)
    _, said, _ = run("ledger", "show")
    assert f"charged and not finished: {planned.id} (RESERVED since" in " ".join(said.split())
    code, said, _ = run("ledger", "lose", planned.id)
    assert (code, " ".join(said.split())) == (0, f"{planned.id} is VOID; it cost nothing")
    _, said, _ = run("ledger", "show")
    assert "not finished" not in said


def test_metrics_are_what_the_ledger_holds(project, run, fake):
    planned, _ = released(project, fake)
    ctx = project.context("privacy.draw=1", "privacy.epsilon=0.5")
    reserve_release(ctx)
    ctx = project.context("privacy.draw=2", "privacy.epsilon=19")
    with pytest.raises(BudgetExceeded):
        reserve(ctx, plan(ctx, "invisible_ink", open_account=True))
    (project.context().workspace.scratch(planned.id)).mkdir(parents=True, exist_ok=True)
    code, said, wrong = run("ledger", "metrics")
    assert (code, wrong) == (0, "")
    lines = [line for line in said.splitlines() if not line.startswith("#")]
    values = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
    letters = '{account="letters"}'
    balance = project.context().ledger.accounts.balance("letters")
    assert values["privsyn_ledger_intact"] == values["privsyn_leftovers"] == 1
    assert values[f"privsyn_refusals{letters}"] == 1
    assert values[f"privsyn_account_spent_share{letters}"] == pytest.approx(balance.share, rel=1e-4)
    states = {
        state: values[f'privsyn_releases{{account="letters",state="{state}"}}']
        for state in ("RESERVED", "BEGUN", "COMMITTED", "LOST", "VOID")
    }
    assert states == {"RESERVED": 1, "BEGUN": 0, "COMMITTED": 1, "LOST": 0, "VOID": 0}
    assert values[f"privsyn_oldest_unfinished_seconds{letters}"] > 0
    # Help, type and lines of a name stand together, as the format asks.
    names = [line.split("{")[0].split()[0] for line in lines]
    assert [*dict.fromkeys(names)] == [
        line.split()[2] for line in said.splitlines() if line.startswith("# TYPE")
    ]
    assert len([*dict.fromkeys(names)]) == sum(a != b for a, b in pairwise(names)) + 1
    with sqlite3.connect(project.root / ".privsyn" / "ledger.db") as database:
        database.execute("UPDATE ledger_entry SET loss = loss / 2")
    database.close()
    code, said, _ = run("ledger", "metrics")
    assert code == 4
    assert "privsyn_ledger_intact 0" in said


@pytest.mark.parametrize("place", ["releases", "quarantine"])
def test_verify_says_what_is_not_to_be_handed_out(project, run, fake, place):
    _, folder = released(project, fake)
    if place == "quarantine":
        (project.root / place).mkdir()
        folder = folder.rename(project.root / place / folder.name)
    code, said, _ = run("verify", str(folder))
    assert code == 0
    assert "not checked handed out not validated yet" in " ".join(said.split())
    code, said, _ = run("verify", str(folder), "--json")
    assert json.loads(said)[-1]["name"] == "handed out"
    if place == "quarantine":
        for success, reason in ((False, "failed its checks"), (True, "in quarantine")):
            (folder / "validation.json").write_text(json.dumps({"success": success}))
            assert reason in held_back(folder)
        released_place = folder.rename(project.root / "releases" / folder.name)
        assert held_back(released_place) == ""
