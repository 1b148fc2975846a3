"""The daily look at the ledger: balances, its hash chain, releases that began and never ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import DAG

from operators.base import StageOperator
from operators.factory import OWNER, START
from operators.project import params_file
from privsyn.config import environment_overrides, load_config
from privsyn.errors import BudgetError

if TYPE_CHECKING:
    from privsyn.stages.base import Context as StageContext

DOC = """\
### The privacy ledger, once a day

`balances` checks the hash chain of the ledger and reports every account: what is spent and what
release still fits. `unfinished` fails when a release has been reserved or begun for longer than a
day and is not finished: its cost stands, so either run its DAG again with the same settings, which
resumes it at no further cost, or accept it as spent.
"""


class LedgerBalancesOperator(StageOperator):
    """Verifies the ledger and reports its accounts. Fails when a row was changed or is missing."""

    template_fields: Sequence[str] = ()
    ui_color: ClassVar[str] = "#f7efd9"
    stage: ClassVar[str] = "balances"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        audit = ctx.ledger.verify()
        balances = [statement.balance for statement in ctx.ledger.statements()]
        accounts = ", ".join(
            f"{balance.account}: {balance.share:.0%} spent, room for epsilon "
            f"{balance.left_epsilon:.4g}"
            for balance in balances
        )
        said = f"{audit.rows} rows in order. {accounts or 'No account yet'}"
        return [balance.as_dict() for balance in balances], said


class UnfinishedReleasesOperator(StageOperator):
    """Fails when a release stands half way for too long.

    Args:
        hours: How long is too long.
    """

    template_fields: Sequence[str] = ("hours",)
    ui_color: ClassVar[str] = "#f7efd9"
    stage: ClassVar[str] = "unfinished"

    def __init__(self, *, hours: float = 24, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hours = hours

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        limit = datetime.now(UTC) - timedelta(hours=float(self.hours))
        stale = [
            f"{entry.release_id} ({entry.state.value} since {entry.changed_at:%Y-%m-%d %H:%M})"
            for entry in ctx.ledger.entries()
            if entry.state.value in ("RESERVED", "BEGUN") and entry.changed_at < limit
        ]
        if stale:
            raise BudgetError(
                f"releases are charged and not finished: {', '.join(stale)}.",
                hint="Run the DAG again with the same settings to resume them at no further cost.",
            )
        return None, "every charged release is finished or at work"


def ledger_report_dag() -> DAG:
    """The DAG ``privsyn_ledger``, daily."""
    config = load_config(params_file(), environment_overrides())
    with DAG(
        dag_id="privsyn_ledger",
        description="Balances, hash chain and unfinished releases",
        doc_md=DOC,
        schedule="@daily",
        start_date=START,
        catchup=False,
        max_active_runs=1,
        tags={"privsyn", f"dataset:{config.dataset.name}"},
        default_args={"owner": OWNER, "retries": 2, "retry_delay": timedelta(minutes=5)},
    ) as dag:
        LedgerBalancesOperator(task_id="balances")
        UnfinishedReleasesOperator(task_id="unfinished")
    return dag
