"""Policies and approvals by every driver but Airflow: whoever owns the rules has the last word."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest
import yaml

from privsyn.data.artifacts import write_json_atomic
from privsyn.errors import (
    AccountMismatch,
    ApprovalNeeded,
    BudgetError,
    BudgetExceeded,
    ConfigError,
    PolicyBroken,
    VerificationError,
)
from privsyn.export import export
from privsyn.ledger.decisions import What
from privsyn.ledger.entries import describe_requester
from privsyn.report import verification
from privsyn.stages import base
from privsyn.stages.approval import cost_question, decide, publication, publishing, spending
from privsyn.stages.audit import held_out, refuse_unapproved
from privsyn.stages.evaluate import evaluate
from privsyn.stages.plan import plan
from privsyn.stages.publish import publish
from privsyn.stages.reserve import reserve
from privsyn.stages.validate import validate
from privsyn.students.parent import publish_folder
from tests.integration.e2e.small_project import finish, reserve_release

POLICIES = {
    "policies": {
        "strict": {
            "epsilon": 5,
            "delta_exponent": 2.5,
            "methods": ["dp_lora"],
            "internal_metrics": False,
        },
        "internal": {
            "epsilon": 10,
            "internal_metrics": False,
            "approval": {"spend_above": 5, "publish": True, "two_people": True},
        },
        "open": {"epsilon": 20},
    }
}


@pytest.fixture
def governed(make_project):
    """A project whose account is held to a policy of the file beside its params.yaml."""

    def make(policy, name="project", **account):
        account = {"policy": policy, "public_size": 1000} | account
        project = make_project(name, account=account)
        (project.root / "policies.yaml").write_text(yaml.safe_dump(POLICIES))
        return project

    return make


def as_(user, project, *overrides):
    ctx = project.context("evaluate.by=nothing", *overrides)
    ctx.origin = {"driver": "cli", "user": user}
    return ctx


def say(ctx, question, user, approved=True):
    return decide(ctx, question, approved=approved, approver=user)


def test_a_policy_that_was_taken_on_is_not_left_again(governed):
    project = governed("internal")
    plan(as_("alice", project), "invisible_ink", open_account=True)
    for weaker in ("account.policy=open", "account.policy=null"):
        with pytest.raises(AccountMismatch, match="held to policy internal"):
            plan(as_("alice", project, weaker), "invisible_ink", open_account=True)
    POLICY = POLICIES["policies"]["internal"]
    laxer = {"policies": {"internal": POLICY | {"approval": None}}}
    (project.root / "policies.yaml").write_text(yaml.safe_dump(laxer))
    with pytest.raises(AccountMismatch, match=r"approval\.publish not asked for, was"):
        plan(as_("alice", project), "invisible_ink", open_account=True)
    stricter = {"policies": {"internal": POLICY | {"epsilon": 9}}}
    (project.root / "policies.yaml").write_text(yaml.safe_dump(stricter))
    plan(as_("alice", project), "invisible_ink", open_account=True)
    assert as_("alice", project).ledger.accounts.terms("letters").epsilon == 9


@pytest.mark.parametrize(
    ("content", "overrides", "said"),
    [
        (None, (), "cannot be read"),
        ("policies: [", (), "is not valid YAML"),
        ("policies:\n  open: {}\n  open: {epsilon: 9}", (), "names 'open' twice, again at line 3"),
        ("policies:\n  open:\n    epsilon: 2\n    epsilon: 9", (), "'epsilon' twice.* line 4"),
        ("[]", (), "must hold `policies:`"),
        ("policies: {open: {epsilom: 3}}", (), r"policies\.open\.epsilom .*Did you mean epsilon"),
        ("policies: {opem: {}}", (), "account.policy=open is not in policies.yaml.*mean opem"),
        ("policies: {open: {delta_exponent: 1}}", ("account.public_size=null",), "public_size"),
    ],
)
def test_a_file_of_policies_that_does_not_do_is_told(governed, content, overrides, said):
    project = governed("open")
    file = project.root / "policies.yaml"
    file.unlink() if content is None else file.write_text(content)
    with pytest.raises(ConfigError, match=said):
        plan(project.context(*overrides), "invisible_ink")


def test_internal_metrics_stay_uncomputed_whatever_the_settings_say(governed, fake):
    project = governed("internal", approval=None)
    ctx = as_("alice", project, "privacy.epsilon=4")
    planned = reserve_release(ctx)
    finish(ctx, planned, fake)
    laxer = project.context("privacy.epsilon=4", "account.policy=null")
    with pytest.raises(PolicyBroken, match=r"policy internal.*evaluate\.by=nothing"):
        evaluate(laxer, planned)
    assert not (laxer.workspace.internal(planned.id) / "evaluation.json").exists()


def test_two_people_make_and_publish_a_release(governed, fake, cli):
    """Alice asks, Bob approves; nothing that is like it, or edited, passes in its place."""
    project = governed("internal")
    alice, bob = as_("alice", project), as_("bob", project)
    planned = plan(alice, "invisible_ink", open_account=True)
    with pytest.raises(ApprovalNeeded):
        reserve(alice, planned)
    with pytest.raises(ApprovalNeeded, match="alice asked for it"):
        say(alice, cost_question(alice, planned.id), "alice")
    question = cost_question(bob, planned.id)
    assert "epsilon 8," in question.facts["cost"]
    assert question.facts["asked by"] == f"alice (process of {base.os_user()}) cli"
    say(bob, question, "bob")
    changed = as_("alice", project, "methods.invisible_ink.top_k=7")  # the plan, and its settings
    with pytest.raises(ApprovalNeeded):
        reserve(changed, plan(changed, "invisible_ink", open_account=True))
    reserve(alice, planned)
    with pytest.raises(BudgetError, match="its cost is set aside already"):
        say(bob, question, "bob", approved=False)
    finish(alice, planned, fake)
    validate(alice, planned)

    with pytest.raises(ApprovalNeeded, match=f"approve {planned.id} --publish"):
        publish(alice, planned)
    folder = alice.workspace.release(planned.id)
    with pytest.raises(ApprovalNeeded):
        export(folder, "jsonl", project.root / "out", ctx=alice)
    with pytest.raises(ApprovalNeeded):  # and so for what is made from a release
        publish_folder(alice, planned, folder)
    plan_file = project.root / "plan.json"
    write_json_atomic(plan_file, planned.model_dump(mode="json"))
    told = cli(project, "stage", "publish", "--plan", str(plan_file))
    assert told[0] == 8
    assert told[1] == ""
    assert "privsyn approve" in told[2]
    assert not alice.workspace.pointer(planned.id).exists()
    assert cli(project, "approve", planned.id, user="alice")[0] == 8
    code, said, _ = cli(project, "approve", planned.id, "--comment", "as agreed", user="bob")
    assert (code, "approved to publish by bob" in said) == (0, True)
    assert "format checks" in said
    assert "privsyn run" in said
    rows = len(alice.ledger.approvals.decisions(planned.id))
    code, said, err = cli(project, "approve", planned.id, user="bob")
    assert (code, said) == (3, "")
    assert "has already approved to" in err
    assert len(alice.ledger.approvals.decisions(planned.id)) == rows
    code, said, _ = cli(project, "ledger", "show")
    for fact in ("policy", "spend_above", "as agreed", "approved to spend"):
        assert fact in said, fact

    sealed = folder / "certificate.json"
    kept = sealed.read_bytes()
    sealed.write_bytes(kept.replace(b'"rows": 6', b'"rows": 7'))
    with pytest.raises(VerificationError):
        publish(alice, planned)
    sealed.write_bytes(kept)
    named = {check.name: check for check in verification.verify(folder, alice.ledger)}
    assert "row" in named["ledger approval"].detail
    assert named["approval to publish"].detail.startswith("approved by bob on")
    exported = project.root / "out"
    export(folder, "jsonl", exported, ctx=alice)
    assert (exported / "README.md").is_file()
    publish(alice, planned)
    assert alice.workspace.pointer(planned.id).exists()

    say(bob, publication(bob, folder), "bob", approved=False)
    with pytest.raises(ApprovalNeeded, match="bob rejected it"):
        publish(alice, planned)
    assert alice.ledger.verify().entries == 1


@pytest.fixture
def cli(command, monkeypatch):
    """The command line in this process, by a user of the machine; what a scheduler says of itself
    in its environment names nobody."""
    monkeypatch.setenv("PRIVSYN_OVERRIDES", json.dumps(["evaluate.by=nothing"]))
    monkeypatch.setenv("COLUMNS", "200")

    def run(project, *arguments, user="carol"):
        monkeypatch.setattr(base, "os_user", lambda: user)
        return command(project.root, *arguments)

    return run


def test_what_is_shown_is_of_the_account_that_pays(governed):
    """And not of the one that the settings of who looks name."""
    project = governed("internal")
    alice = as_("alice", project)
    planned = plan(alice, "invisible_ink", open_account=True)
    with pytest.raises(ApprovalNeeded):
        reserve(alice, planned)
    other = as_("bob", project, "account.name=other", "dataset.name=other", "account.epsilon=900")
    other.open_account()
    assert cost_question(other, planned.id).facts == cost_question(alice, planned.id).facts
    assert "letters: cap (20, 1e-06)" in cost_question(other, planned.id).facts["account"]


@pytest.mark.airflow
def test_a_rejection_in_airflow_undoes_what_was_approved_while_it_waited(governed, fake):
    from privsyn.airflow.approval import AskOperator
    from privsyn.airflow.failures import StageFailed

    project = governed("internal")
    alice, bob = as_("alice", project), as_("bob", project)
    planned = plan(alice, "invisible_ink", open_account=True)

    def answer(stage, option, asked):
        task = AskOperator(task_id="approve", stage=stage, plan=planned.model_dump(mode="json"))
        event = {"chosen_options": [option], "responded_by_user": {"id": "7", "name": "carol"}}
        return task._decide(alice, {}, event=event, digest=asked)

    with pytest.raises(ApprovalNeeded):
        reserve(alice, planned)
    question = cost_question(bob, planned.id)
    say(bob, question, "bob")
    said = answer("approve_spend", "Approve", question.digest)[1]
    assert said.startswith("approved meanwhile")
    with pytest.raises(StageFailed, match="carol rejected it"):
        answer("approve_spend", "Reject", question.digest)
    with pytest.raises(ApprovalNeeded, match="carol rejected it"):
        reserve(alice, planned)
    say(bob, question, "bob")
    reserve(alice, planned)
    finish(alice, planned, fake)
    validate(alice, planned)
    question = publication(bob, alice.workspace.release(planned.id))
    say(bob, question, "bob")
    with pytest.raises(StageFailed, match="carol rejected it"):
        answer("approve_publish", "Reject", question.digest)
    with pytest.raises(ApprovalNeeded, match="carol rejected it"):
        publish(alice, planned)


def test_nobody_is_asked_about_what_the_account_cannot_pay(make_project):
    project = make_project(account={"approval": {"spend_above": 5}})
    first = as_("alice", project, "privacy.epsilon=19")
    planned = plan(first, "invisible_ink", open_account=True)
    question = spending(first, planned)
    assert "it fits" in question.facts["balance after"]
    say(first, question, "bob")
    reserve(first, planned)
    second = as_("alice", project, "privacy.epsilon=19", "privacy.draw=1")
    planned = plan(second, "invisible_ink", open_account=True)
    assert spending(second, planned) is None
    with pytest.raises(BudgetExceeded, match="cannot pay"):
        reserve(second, planned)
    assert second.ledger.approvals.find_request(planned.id) is None


def test_a_scheduler_s_environment_names_no_approver(governed, cli, monkeypatch):
    project = governed("internal")
    alice = as_("alice", project)
    planned = plan(alice, "invisible_ink", open_account=True)
    with pytest.raises(ApprovalNeeded):
        reserve(alice, planned)
    monkeypatch.setenv("PRIVSYN_ORIGIN", json.dumps({"driver": "airflow", "user": "bob"}))
    told = cli(project, "approve", planned.id, "--by", "bob", user="alice")
    assert told[0] == 8
    assert alice.ledger.approvals.decisions(planned.id) == []


def test_whom_a_process_asks_for_stands_beside_whom_it_runs_as(governed, cli, monkeypatch):
    project = governed("internal")
    monkeypatch.setenv("PRIVSYN_ORIGIN", json.dumps({"driver": "airflow", "user": "bob"}))
    assert cli(project, "run", user="mallory")[0] == 8
    anybody = as_("anybody", project)
    asked = anybody.ledger.approvals.find_request(plan(anybody, "invisible_ink").id).body["by"]
    assert asked == {"driver": "airflow", "user": "bob", "os_user": "mallory"}
    assert describe_requester(asked) == "bob (process of mallory) airflow"


def test_what_does_not_wait_is_not_approved(governed, fake, cli):
    project = governed("open")
    for words, said in (
        (("approve", "invisible_ink-0000"), "is neither a folder nor a release of this project"),
        (("approve", "invisible_ink-0000", "--publish"), "is not here"),
        (("reject", "x", "--spend", "--publish"), "exclude each other"),
    ):
        code, _, err = cli(project, *words)
        assert (code != 0, said in err) == (True, True), err
    ctx = as_("alice", project)
    planned = reserve_release(ctx)
    finish(ctx, planned, fake)
    with pytest.raises(BudgetError):
        ctx.ledger.approvals.decide(planned.id, What.SPEND, "a" * 64, approved=True, approver="bob")
    copied = project.copy(project.root.with_name("copied"))
    shutil.rmtree(copied.root / "releases" / planned.id)
    assert cli(copied, "approve", planned.id, "--publish")[0] == 4


def test_a_policy_that_tightens_during_a_run_leaves_no_refusal(make_project, fake):
    project = make_project()
    running = project.context()
    planned = reserve_release(running)
    project.context('account.approval={"publish": true}').open_account()
    finish(running, planned, fake)
    assert held_out(running, planned)
    assert running.ledger.releases.refusals() == []
    # The next release is held to the stricter terms.
    with pytest.raises(AccountMismatch, match="the settings would weaken it"):
        plan(project.context("privacy.draw=1"), "invisible_ink", open_account=True)
    # Another cap is another account, whatever is charged.
    with pytest.raises(AccountMismatch, match=r"account\.epsilon"):
        project.context("account.epsilon=21").charged_account()


def test_an_approval_that_tightens_during_a_run_is_asked_for_without_a_refusal(make_project, fake):
    """The run began when one person could let it out; now the one who asked may not."""
    project = make_project()
    loose = as_("alice", project, 'account.approval={"publish": true}')
    planned = reserve_release(loose)
    finish(loose, planned, fake)
    project.context('account.approval={"publish": true, "two_people": true}').open_account()
    folder = loose.workspace.release(planned.id)
    question = publishing(loose, folder)
    assert question is not None
    with pytest.raises(ApprovalNeeded, match="two_people asks for another one"):
        say(loose, question, "alice")
    with pytest.raises(ApprovalNeeded):
        refuse_unapproved(loose, folder)
    say(as_("bob", project), question, "bob")
    refuse_unapproved(loose, folder)
    refused = [refusal.message for refusal in loose.ledger.releases.refusals()]
    assert not [message for message in refused if "weaken" in message]


def test_a_larger_delta_of_the_form_gets_past_no_rule(governed, cli):
    project = governed("internal")
    wide = ("privacy.delta=0.3", "privacy.epsilon=4.9")
    with pytest.raises(PolicyBroken, match=r"account\.delta=1e-06 .*, is above 10"):
        plan(as_("alice", project, *wide), "invisible_ink")
    code, said, _ = cli(project, "plan", "-S", "privacy.delta=0.001", "-S", "privacy.epsilon=4")
    assert (code, "its cost is reserved (epsilon above 5)" in said) == (0, True)


def test_an_edited_plan_gets_past_no_rule(governed):
    """The plan's file says of itself that it costs less, and is handed to the ledger."""
    project = governed("internal")
    ctx = as_("alice", project)
    planned = plan(ctx, "invisible_ink", open_account=True)
    cheap = planned.model_copy(update={"epsilon": 0.1, "target_epsilon": 0.1})
    with pytest.raises(ConfigError, match="made from other settings"):
        reserve(ctx, cheap)
    with pytest.raises(ApprovalNeeded):
        ctx.ledger.releases.reserve(
            "letters",
            cheap.id,
            cheap.privacy_event(),
            method=cheap.method,
            guarantee=dataclasses.replace(cheap.target, epsilon=0.1),
        )
    assert ctx.ledger.releases.all() == []


def test_plan_names_every_rule_that_a_release_breaks(governed):
    with pytest.raises(PolicyBroken) as caught:
        plan(governed("strict").context(), "invisible_ink")
    start, *rest = str(caught.value).split("; ")
    delta, method, internal = rest
    assert start.endswith(
        "privacy.epsilon=8 is above 5, the most that one release may ask: lower it to 5 or less"
    )
    assert "=1e-06 is above 3.16228e-08 = account.public_size=1000 ** -2.5, the most" in delta
    assert method == "method=invisible_ink is not allowed: use dp_lora"
    assert "set evaluate.by=nothing" in internal
    assert "account letters (policy strict)" in str(caught.value)
