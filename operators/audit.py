"""The DAG of the canary audit: throw-away releases of invented records, one a method, attacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import DAG, Param

from privsyn.airflow.base import StageOperator
from privsyn.airflow.factory import OWNER, START, by_project
from privsyn.airflow.failures import patience
from privsyn.airflow.project import Project, params_file
from privsyn.config import ScheduleConfig, environment_overrides, load_config
from privsyn.errors import ConfigError, VerificationError

if TYPE_CHECKING:
    from privsyn.stages.base import Context as StageContext

CONFIRMATION = "attack throw-away releases"
"""What has to be typed."""

DOC = f"""\
### Canary audit: what attacks prove of epsilon

For whoever changed a method, a mechanism or a model. `audit`, mapped over the methods, draws a
**throw-away release of invented canaries** each, by the same stages as a release, and attacks it as
one who knows all but the coins, the sampling and the noise. `verdict` fails where more is shown
than was claimed. Nothing of this project's data is read, and nothing charged to its accounts: each
release has a project, a ledger and a key of its own under `.privsyn/audits/`, which is deleted
afterwards.

It takes minutes a method, and a run has to be wanted: no schedule, and `confirm` has to hold the
words `{CONFIRMATION}`.
"""


class ConfirmAuditOperator(StageOperator):
    """Refuses a run that nobody confirmed; the methods to be audited are its XCom.

    Args:
        confirm: What was typed.
        methods: What was asked for; empty: all.
    """

    template_fields: Sequence[str] = ("confirm", "methods")
    ui_color: ClassVar[str] = "#f9e0dd"
    stage: ClassVar[str] = "confirm"

    def __init__(
        self, *, confirm: Any = "{{ params.confirm }}", methods: Any = "{{ params.methods }}",
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.confirm = confirm
        self.methods = methods

    def settings(self, context: Mapping[str, Any]) -> list[str]:
        """Those of the deployment: the form of this DAG holds none."""
        return list(environment_overrides())

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.canaries.bench import METHODS

        if self.confirm != CONFIRMATION:
            raise ConfigError(
                "nobody confirmed this audit.",
                hint=f"Trigger the DAG with confirm set to: {CONFIRMATION}",
            )
        asked = list(self.methods or METHODS)
        if unknown := [name for name in asked if name not in METHODS]:
            raise ConfigError(
                f"methods={unknown[0]} has no audit.", hint=f"Name some of {', '.join(METHODS)}."
            )
        return asked, f"to be audited: {', '.join(asked)}"


class CanaryAuditOperator(ConfirmAuditOperator):
    """Draws a throw-away release of one method and attacks it; what was shown is its XCom.

    Nothing private is in it: the records are invented.

    Args:
        method: The method.
        units: Canaries.
    """

    template_fields: Sequence[str] = (*ConfirmAuditOperator.template_fields, "method", "units")
    ui_color: ClassVar[str] = "#f9e0dd"
    stage: ClassVar[str] = "audit"

    def __init__(self, *, method: str, units: Any = "{{ params.canaries }}", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.method = method
        self.units = units

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator. Cleared by itself it asks for the confirmation again."""
        from privsyn.canaries.bench import Bench, audited, discard
        from privsyn.data.artifacts import private_folder

        super().run_stage(ctx, context)
        private_folder(ctx.workspace.state)
        folder = ctx.workspace.state / "audits" / self.method
        try:
            found = audited(folder, Bench(self.method, units=int(self.units)))
        finally:
            discard(folder)
        said = (
            "{right} of {named} right: epsilon at least {least_epsilon:.2f}, claimed {claimed:.3f}"
        )
        return found, f"{self.method}: {said.format(**found)}"


class AuditVerdictOperator(ConfirmAuditOperator):
    """Fails where more was shown of a method than its release claimed.

    Args:
        found: What the audits left.
    """

    template_fields: Sequence[str] = (*ConfirmAuditOperator.template_fields, "found")
    ui_color: ClassVar[str] = "#f9e0dd"
    stage: ClassVar[str] = "verdict"

    def __init__(self, *, found: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.found = found

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        rows = list(self.found)
        above = [row["method"] for row in rows if row["least_epsilon"] > row["claimed"]]
        if above:
            raise VerificationError(
                f"more is shown than was claimed, with 95% confidence, of {', '.join(above)}.",
                hint="Release nothing by it. By chance a method is found so once in 20 at most.",
            )
        return None, f"nothing above its claim: {', '.join(row['method'] for row in rows)}"


def audit_dags() -> dict[str, DAG]:
    """The DAGs ``privsyn_audit``, one a project, by id. See factory.method_dags."""
    return by_project(audit_dag, lambda: "audit")


def audit_dag(project: Project | None = None) -> DAG:
    """The DAG ``privsyn_audit`` of a project: triggered by hand, with a confirmation."""
    project = project or Project(params_file())
    config = load_config(project.params, environment_overrides())
    with DAG(
        dag_id=project.dag_id("audit"),
        description="Canaries in throw-away releases of each method, attacked",
        doc_md=DOC,
        schedule=None,
        start_date=START,
        catchup=False,
        max_active_runs=1,  # a method has one folder
        render_template_as_native_obj=True,
        is_paused_upon_creation=True,
        tags=project.tags | {f"dataset:{config.dataset.name}"},
        params={
            "confirm": Param(
                "", type="string", title="Confirm", description=f"Type: {CONFIRMATION}"
            ),
            "methods": Param(
                [], type="array", items={"type": "string"}, description="Methods; none: all."
            ),
            "canaries": Param(
                128, type="integer", minimum=16, maximum=4096,
                description="Canaries of a release, each in with probability 1/2.",
            ),
        },
        default_args={"owner": OWNER, "params_path": str(project.params)}
        | patience(ScheduleConfig()),
    ) as dag:  # fmt: skip
        confirm = ConfirmAuditOperator(task_id="confirm")
        audits = CanaryAuditOperator.partial(task_id="audit").expand(method=confirm.output)
        AuditVerdictOperator(task_id="verdict", found=audits.output)
    return dag
