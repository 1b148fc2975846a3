"""The task at which a run waits for a person: the standard provider's, with our record.

The answer is written into the ledger by the task that asked, from what Airflow's server hands it
with the name of who answered. No XCom carries it, and no state of the task stands for it: `reserve`
and `publish` ask the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Param

from privsyn.airflow.base import StageFunction, StageOperator
from privsyn.airflow.failures import StageFailed
from privsyn.airflow.versions import TaskAwaitingInput
from privsyn.errors import ApprovalNeeded

if TYPE_CHECKING:
    from privsyn.stages.approval import Question
    from privsyn.stages.base import Context as StageContext

COMMENT = "comment"
DIGEST = "digest"
ANSWER_WITHIN = timedelta(hours=72)
"""None by then is a refusal."""


class AskOperator(StageOperator, ApprovalOperator):  # type: ignore[misc]
    """Waits until somebody approves, and has the ledger record it; goes on where nothing is asked.

    Fails closed: there is no default answer, no answer in time is a refusal, and a rejection fails
    the task. An answer without a name, or to a question that has changed since, does not count.

    Args:
        stage: Whether the release's cost may be reserved, where it is above what may be unasked;
            or the release, or its student, published with exactly this certificate.
    """

    template_fields: Sequence[str] = ("plan",)

    def __init__(
        self,
        *,
        stage: Literal["approve_spend", "approve_publish", "approve_student"],
        **kwargs: Any,
    ) -> None:
        kwargs.pop("params", None)  # Airflow hands on those of the DAG, which are no answer
        comment = Param(
            "",
            type=["string", "null"],
            title="Why",
            description="Stored permanently. No record text.",
            source="task",
        )
        super().__init__(
            subject="Approve?",
            response_timeout=ANSWER_WITHIN,
            ignore_downstream_trigger_rules=True,
            fail_on_reject=True,
            params={COMMENT: comment},
            **kwargs,
        )
        self.stage = stage

    def question(self, ctx: StageContext, *, again: bool = False) -> Question | None:
        """What is asked; None where nothing is.

        It is approved already, needs no approval, or the account cannot pay for it.

        Args:
            ctx: Config and ledger.
            again: What an answer is about, though it be approved already.
        """
        from privsyn.report.verification import locate
        from privsyn.stages.approval import cost_question, publication, publishing, spending
        from privsyn.students.release import plan_student

        planned = self.read_plan()
        if self.stage == "approve_spend":
            return cost_question(ctx, planned.id) if again else spending(ctx, planned)
        name = plan_student(ctx, planned).id if self.stage == "approve_student" else planned.id
        folder = locate(ctx.workspace, ctx.ledger, name) or ctx.workspace.release(name)
        return publication(ctx, folder) if again else publishing(ctx, folder)

    def settings(self, context: Mapping[str, Any]) -> list[str]:
        """See StageOperator. The comment does not count as a setting."""
        values = {key: value for key, value in context["params"].items() if key != COMMENT}
        return super().settings({**context, "params": values})

    def execute(self, context: Mapping[str, Any], stage: StageFunction | None = None) -> None:
        """Put the question, and park the task."""
        question = StageOperator.execute(self, context, stage)
        if question is None:
            return
        # Set now and not in the constructor: what is asked is known only once there is a plan.
        self.subject, self.body = question.subject, question.page
        try:
            ApprovalOperator.execute(self, context)
        except TaskAwaitingInput as waiting:
            # What the page shows is what is answered, whatever has changed by then.
            waiting.kwargs = {DIGEST: question.digest}
            raise

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        question = self.question(ctx)
        if question is None:
            return (
                None,
                "no approval is needed: it is approved, below the limit, or the account cannot pay",
            )
        return question, f"waiting for approval of {question.name} ({question.what})"

    def execute_complete(
        self, context: Mapping[str, Any], event: dict[str, Any], digest: str = ""
    ) -> None:
        """Record the answer."""
        StageOperator.execute(self, context, partial(self._decide, event=event, digest=digest))

    def _decide(
        self, ctx: StageContext, context: Mapping[str, Any], *, event: dict[str, Any], digest: str
    ) -> tuple[None, str]:
        from privsyn.stages.approval import decide

        if "error" in event:
            raise StageFailed(
                "nobody gave a valid answer in time, which counts as a rejection.",
                kind=ApprovalNeeded,
                advice="Clear this task to ask again, or approve with: privsyn approve",
            )
        user = event.get("responded_by_user") or {}
        # The ledger records who decided: an answer without a name cannot be recorded.
        if not user.get("name"):
            raise StageFailed("the answer has no user name.", kind=ApprovalNeeded)
        # Fails closed: any other answer, an empty one included, is a rejection.
        approved = list(event.get("chosen_options") or ()) == [self.APPROVE]
        question = self.question(ctx)
        if question is None:
            if approved:
                return None, "approved meanwhile, or the account cannot pay any more"
            question = self.question(ctx, again=True)  # a rejection undoes that approval
        # What was approved is one cost or one certificate. If either has changed, a person must see
        # it.
        if question is None or question.digest != digest:
            raise StageFailed(
                f"what is asked has changed since {user['name']} was asked.",
                kind=ApprovalNeeded,
                advice="Clear this task to ask again.",
            )
        comment = (event.get("params_input") or {}).get(COMMENT) or ""
        decision = decide(
            ctx,
            question,
            approved=approved,
            approver=str(user["name"]),
            approver_id=str(user.get("id") or ""),
            comment=str(comment),
        )
        if not approved:
            why = f": {decision.comment}" if decision.comment else ""
            raise StageFailed(
                f"{decision.approver} rejected it ({question.what} {question.name}){why}.",
                kind=ApprovalNeeded,
            )
        return None, f"{decision.approver} approved; row {decision.seq} of the ledger's chain"
