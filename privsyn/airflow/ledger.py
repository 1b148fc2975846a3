"""The daily look at the ledger: balances, its hash chain, releases that began and never ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

from privsyn.airflow.base import OWNER, START, StageOperator, dags_of
from privsyn.airflow.failures import retry_arguments
from privsyn.airflow.project import Project, params_file
from privsyn.config import environment_overrides, load_config
from privsyn.errors import BudgetError

if TYPE_CHECKING:
    from privsyn.stages.base import Context as StageContext

DOC = """\
### The privacy ledger, once a day

`balances` checks the hash chain of the ledger and reports every account: what is spent and what
release still fits. `unfinished` fails when a release has been reserved or begun for longer than a
day and is not finished: its cost stands, so either run its DAG again with the same settings, which
resumes it at no further cost, or accept it as spent. `sweep` wipes the private records that an
ended release left in scratch on this machine, as where only the failed tasks of a run were cleared.
"""


class LedgerBalancesOperator(StageOperator):
    """Verifies the ledger and reports its accounts. Fails when a row was changed or is missing."""

    template_fields: Sequence[str] = ()
    stage = "balances"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.dp.accountant import percent

        # First: a ledger that was restored from a backup is whole by its chain and lacks releases.
        ctx.check_releases()
        _gauge(ctx)
        audit = ctx.ledger.verify()
        balances = [statement.balance for statement in ctx.ledger.accounts.statements()]
        accounts = ", ".join(
            f"{balance.account}: {percent(balance.share)} spent, remaining: one release with "
            f"Gaussian noise up to epsilon {balance.left_epsilon:.4g}"
            for balance in balances
        )
        summary = f"the hash chain of {audit.rows} rows is intact. {accounts or 'No account yet'}"
        return [balance.as_dict() for balance in balances], summary


def _gauge(ctx: StageContext) -> None:
    """Hand the ledger's numbers to Airflow's own metrics, where these are switched on."""
    from privsyn.airflow.versions import gauge
    from privsyn.display.accounts import gauges

    for figure in gauges(ctx):
        gauge(f"privsyn.{figure.name}", figure.value, tags=figure.labels)


class UnfinishedReleasesOperator(StageOperator):
    """Fails when a release stands half way for too long.

    Args:
        hours: How long is too long.
    """

    template_fields: Sequence[str] = ("hours",)
    stage = "unfinished"

    def __init__(self, *, hours: float = 24, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hours = hours

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.stages.reserve import unfinished_releases

        stale = [entry.standing for entry in unfinished_releases(ctx, hours=float(self.hours))]
        if stale:
            raise BudgetError(
                f"releases are charged and not finished: {', '.join(stale)}.",
                hint="Run the DAG again with the same settings to resume them at no further cost; "
                "or, as after an upgrade, give them up: privsyn ledger lose, then privsyn sweep.",
            )
        return None, "every charged release is finished or in progress"


class SweepOperator(StageOperator):
    """Wipes what ended releases left in scratch, and ends their MLflow runs."""

    template_fields: Sequence[str] = ()
    stage = "sweep"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.students.cleanup import sweep

        wiped = sweep(ctx)
        summary = f"deleted private files of {', '.join(wiped)}" if wiped else "nothing to delete"
        return wiped, summary


def ledger_report_dags() -> dict[str, DAG]:
    """The DAGs ``privsyn_ledger``, one a project, by id. See factory.method_dags."""
    return dags_of("ledger", ledger_report_dag)


def ledger_report_dag(project: Project | None = None) -> DAG:
    """The DAG ``privsyn_ledger`` of a project, daily."""
    project = project or Project(params_file())
    config = load_config(project.params, environment_overrides())
    with DAG(
        dag_id=project.dag_id("ledger"),
        description="Balances, hash chain and unfinished releases",
        doc_md=DOC,
        schedule="@daily",
        start_date=START,
        catchup=False,
        is_paused_upon_creation=False,  # it looks, and spends nothing
        max_active_runs=1,
        tags=project.tags | {f"dataset:{config.dataset.name}"},
        default_args={"owner": OWNER, "params_path": str(project.params)} | retry_arguments(),
    ) as dag:
        LedgerBalancesOperator(task_id="balances")
        UnfinishedReleasesOperator(task_id="unfinished")
        SweepOperator(task_id="sweep")
    return dag
