"""What a person is asked to approve, what is shown for it, and the answer's way into the ledger.

All that is shown is public: settings, cost, balance, the guarantee in words, the suite's result.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from privsyn import layout
from privsyn.dp.accountant import format_epsilon, percent
from privsyn.dp.adjacency import Guarantee
from privsyn.dp.events import Event, load
from privsyn.errors import ApprovalNeeded, BudgetError, VerificationError
from privsyn.files import read_json
from privsyn.ledger.accounts import Asked
from privsyn.ledger.decisions import Decision, What
from privsyn.ledger.entries import Change, Cost, State, describe_requester
from privsyn.ledger.spec import AccountSpec
from privsyn.release.advice import odds_of
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.report import verification
from privsyn.stages.audit import refuse_unapproved
from privsyn.stages.base import Context


@dataclass(frozen=True)
class Question:
    """What somebody is asked to approve.

    Attributes:
        what: To spend, or to publish.
        release_id: The release that is paid for.
        name: The release, or what was made from it.
        digest: Of the cost, or of the certificate: exactly this is approved, and nothing else.
        account: Account that pays.
        facts: What to know before an answer, by what it is about. Public.
    """

    what: What
    release_id: str
    name: str
    digest: str
    account: str
    facts: dict[str, str]

    @property
    def subject(self) -> str:
        """The question in a line."""
        doing = "spend the budget for" if self.what is What.SPEND else "publish"
        return f"{self.account}: {doing} {self.name}?"

    @property
    def page(self) -> str:
        """The facts as Markdown."""
        cells = {
            key: " ".join(text.split()).replace("|", "\\|") for key, text in self.facts.items()
        }
        rows = "\n".join(f"| {key} | {value} |" for key, value in cells.items())
        return f"| | |\n|---|---|\n{rows}"


def spending(ctx: Context, plan: Plan) -> Question | None:
    """The question whether a release's cost may be reserved; None where none is to be asked.

    Nobody is asked about what the account cannot pay: ``reserve`` refuses that, whoever approved
    it. Puts the request on record.

    Raises:
        BudgetError: The account is unknown.
    """
    event, guarantee = plan.privacy_event(), Guarantee(plan.epsilon, plan.delta)
    cost = Cost(plan.account, plan.id, plan.method, event, guarantee)
    if not ctx.ledger.approvals.is_due(cost):
        return None
    asked = Asked(event, plan.id, plan.settings_digest)
    if not ctx.ledger.accounts.preview_all(_paying(ctx, plan.account), [asked])[0].fits:
        return None
    return _spending(ctx, ctx.ledger.approvals.request(cost))


def cost_question(ctx: Context, release_id: str) -> Question:
    """The question about a cost that somebody asked to reserve.

    Raises:
        BudgetError: Nobody did.
    """
    request = ctx.ledger.approvals.find_request(release_id)
    if request is None:
        raise BudgetError(
            f"release {release_id}: nobody has asked to reserve this cost.",
            hint="Run it once: reserve asks.",
        )
    return _spending(ctx, request)


def _spending(ctx: Context, request: Change) -> Question:
    body, event = request.body, load(request.body["event"])
    spec = _paying(ctx, request.account)
    preview = ctx.ledger.accounts.preview(spec, event, request.release_id)
    after = max(one.limit.cap.share([*one.charges, one.request]) for one in preview.filters[:1])
    facts = _cost_lines(spec, body["method"], event, body["epsilon"], body["delta"])
    facts |= {
        "balance before": f"{percent(preview.balance.share)} of the cap spent",
        "balance after": f"{percent(after)}; {'it fits' if preview.fits else 'it does not fit'}",
        "asked by": describe_requester(body.get("by")) or "nobody known",
        "digest of the cost": request.body["digest"],
    }
    name = str(request.release_id)
    return Question(What.SPEND, name, name, body["digest"], request.account, facts)


def publication(ctx: Context, folder: Path) -> Question:
    """The question whether a finished folder may be published.

    Raises:
        VerificationError: It is not what was certified and committed.
        BudgetError: The ledger does not know it.
    """
    verification.raise_on_failure(folder, verification.verify(folder, ctx.ledger))
    release = ReleaseFacts.read(folder)
    plan, name, digest = release.plan, release.name, release.certificate_sha256
    balance = ctx.ledger.accounts.balance(plan.account)
    spec = _paying(ctx, plan.account)
    facts = _cost_lines(spec, plan.method, load(plan.event), plan.epsilon, plan.delta)
    before = f"cap ({balance.cap.epsilon:g}, {balance.cap.delta:g}), {percent(balance.share)} spent"
    facts |= {
        "balance": f"{before}, with this release in it: publishing costs nothing more",
        "class": release.kind,
        "records": f"{release.rows} in {release.file}",
        "validation": suite_text(folder),
        "internal numbers": f"not shown here; on the machine that made it, in "
        f"{ctx.workspace.internal(name)}. Do not decide by them: that "
        "it is published would answer a question about the records that no epsilon covers",
        "asked by": ctx.ledger.approvals.requester(plan.id, digest) or "nobody known",
        "digest of the certificate": digest,
    }
    return Question(What.PUBLISH, plan.id, name, digest, plan.account, facts)


def publishing(ctx: Context, folder: Path) -> Question | None:
    """The question whether a folder may be published; None where none is to be asked."""
    question = publication(ctx, folder)
    try:
        refuse_unapproved(ctx, folder)
    except ApprovalNeeded:
        return question
    return None


def question_of(ctx: Context, release_id: str, what: What | None) -> Question:
    """The question about a release that a person names, to spend or to publish.

    Args:
        ctx: Config and ledger.
        release_id: A release that waits, or what was made from one.
        what: None: to publish what is here and finished, to spend for anything else.

    Raises:
        BudgetError: Nothing of that name waits.
        VerificationError: What is to be published is not what was certified.
    """
    if what is not What.SPEND:
        verification.locate(ctx.workspace, ctx.ledger, release_id)
    folder = ctx.workspace.release(release_id)
    here = (folder / layout.CERTIFICATE).is_file()
    if what is What.SPEND or (what is None and not here):
        return cost_question(ctx, release_id)
    if not here:
        raise VerificationError(
            f"release {release_id} is not in {folder.parent}: there is nothing to publish.",
            hint="Look into quarantine/ for one that failed its suite.",
        )
    return publication(ctx, folder)


def decide(
    ctx: Context,
    question: Question,
    *,
    approved: bool,
    approver: str,
    approver_id: str | None = None,
    comment: str = "",
) -> Decision:
    """Record the answer to a question. See Approvals.decide.

    Raises:
        BudgetError: It is refused.
    """
    entry = ctx.ledger.releases.find(question.release_id)
    if question.what is What.SPEND and entry is not None and entry.state is not State.VOID:
        raise BudgetError(
            f"release {question.release_id} is {entry.state}: its cost is set aside already."
        )
    return ctx.ledger.approvals.decide(
        question.release_id,
        question.what,
        question.digest,
        approved=approved,
        approver=approver,
        approver_id=approver_id,
        comment=comment,
        name=question.name,
    )


def _paying(ctx: Context, name: str) -> AccountSpec:
    """The account that pays, as the ledger has it: settings may name another one by now."""
    account = ctx.ledger.accounts.find(name)
    return ctx.account if account is None else account.spec


def _cost_lines(
    spec: AccountSpec, method: str, event: Event, epsilon: float, delta: float
) -> dict[str, str]:
    words = " ".join(odds_of(event, spec.unit, spec.adjacency, delta))
    return {
        "account": f"{spec.name}: cap ({spec.epsilon:g}, {spec.delta:g}) per {spec.unit}, "
        f"{spec.adjacency}" + (f"; policy {spec.terms.policy}" if spec.terms.policy else ""),
        "method": method,
        "cost": f"epsilon {format_epsilon(epsilon)}, delta {delta:g}",
        "risk in words": words,
    }


def suite_text(folder: Path) -> str:
    """What the suite said of a release, in words."""
    try:
        result = read_json(folder / layout.VALIDATION)
        checks = result["expectations"]
        passed = sum(bool(check["success"]) for check in checks)
        verdict = "passed" if result["success"] else "FAILED"
    except (OSError, ValueError, LookupError, TypeError):
        return "not run"
    return f"{verdict}, {passed} of {len(checks)} format checks"
