"""Tasks around the ledger: plan, reserve as the setup, settle as its teardown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from operators.base import StageOperator

if TYPE_CHECKING:
    from privsyn.stages.base import Context as StageContext


class PlanOperator(StageOperator):
    """Computes cost and name of the release from the run's settings. Opens no data.

    Args:
        method: Which method.
    """

    template_fields: Sequence[str] = ("method",)
    stage: ClassVar[str] = "plan"

    def __init__(self, *, method: str, **kwargs: Any) -> None:
        super().__init__(plan=None, **kwargs)
        self.method = method

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.dp.accountant import shown
        from privsyn.stages.plan import plan

        planned = plan(ctx, self.method, open_account=True)
        said = (
            f"{planned.id}: epsilon {shown(planned.epsilon)}, delta {planned.delta:g} per "
            f"{planned.unit}, {planned.adjacency}; {planned.rows_said} texts"
        )
        return planned.model_dump(mode="json"), said


class ReserveBudgetOperator(StageOperator):
    """Sets the release's cost aside, once, however often it runs."""

    ui_color: ClassVar[str] = "#f7efd9"
    stage: ClassVar[str] = "reserve"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator. Fails at once when the account cannot pay."""
        from privsyn.stages.reserve import reserve

        planned = self.planned()
        entry = reserve(ctx, planned)
        balance = ctx.ledger.balance(planned.account)
        said = (
            f"{planned.id} is {entry.state}; account {planned.account} has "
            f"room for one more release of epsilon {balance.left_epsilon:.4g}"
        )
        return {"state": str(entry.state), "left_epsilon": balance.left_epsilon}, said


class SettleBudgetOperator(StageOperator):
    """Gives an untouched reservation back and wipes the scratch of a finished release."""

    ui_color: ClassVar[str] = "#f7efd9"
    stage: ClassVar[str] = "settle"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.stages.reserve import settle

        planned = self.planned()
        state = settle(ctx, planned)
        return state, f"{planned.id} is {state}"
