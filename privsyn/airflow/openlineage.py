"""What tasks tell OpenLineage, where its provider is installed: datasets, and what they cost.

All of it is public: names and versions of datasets, never a path; of a release what its certificate
says, and of its checks and numbers those that are made from the synthetic file alone, once it is
published. Imported by the provider's listener, after the task; parsing a DAG needs none of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attr
from airflow.providers.openlineage.conf import namespace
from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    RunFacet,
    data_quality_assertions_dataset,
    data_quality_metrics_input_dataset,
    dataset_version_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)

from privsyn import layout
from privsyn.airflow.project import Project, params_file, projects
from privsyn.errors import PrivsynError
from privsyn.methods.shared.distill import STUDENTS
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.release.workspace import Workspace

FACET = "privsyn_privacy"
SCHEMA = "urn:privsyn:openlineage:privacy:1"
"""The facet's schema: privacy_facet.json, beside this file."""


@attr.define(slots=False)
class _Privacy:
    """What a release costs. Public. Epsilon and delta are the ledger's price of it, of one unit.

    Of a release that is certified, class, certificate and number in the ledger are there, too.
    """

    releaseId: str  # named as OpenLineage does
    account: str
    epsilon: float
    delta: float
    adjacency: str
    unit: str
    maxRecordsPerUnit: int
    releaseClass: str | None = None
    certificateSha256: str | None = None
    ledgerEntry: int | None = None

    @staticmethod
    def _get_schema() -> str:
        return SCHEMA


@attr.define(slots=False)
class PrivacyRunFacet(_Privacy, RunFacet):  # type: ignore[misc]
    """What the release of a run costs. Public. See _Privacy."""


@attr.define(slots=False)
class PrivacyDatasetFacet(_Privacy, DatasetFacet):  # type: ignore[misc]
    """What a released dataset cost. Public. See _Privacy."""


def lineage_of(operator: Any, dag_id: str, *, failed: bool = False) -> OperatorLineage | None:
    """What a task read, wrote and cost. None before there is a plan.

    Args:
        operator: The StageOperator of the task, after it ran.
        dag_id: Its DAG.
        failed: The task failed: nothing is told of what it found or wrote.
    """
    try:
        plan = operator.read_plan()
    except PrivsynError:  # a failed plan leaves none
        return None
    flow, project = operator.flow, _project(operator, dag_id)
    made = operator.student or plan.id
    folder = Workspace(project.root).release(made)
    # privacy: a task may fail because of what records hold; then no fact of the release is sent.
    facts = None if failed else _facts(folder)
    kind = plan.method if operator.student is None else STUDENTS
    inputs, outputs = [], []
    if flow.private:
        inputs.append(_dataset(InputDataset, project, plan.dataset.name, plan.dataset.version))
    if flow.reads:
        read = _dataset(InputDataset, project, f"{plan.dataset.name}/{kind}", made)
        # Numbers of a release with predictable noise tell of the records.
        if flow.quality and facts is not None and facts.is_private:
            read.inputFacets = _quality(folder, facts)
        inputs.append(read)
    if flow.writes and facts is not None:
        written = _dataset(OutputDataset, project, f"{plan.dataset.name}/{kind}", made)
        written.facets |= {
            FACET: PrivacyDatasetFacet(**_privacy(plan, made, facts)),
            "schema": schema_dataset.SchemaDatasetFacet(
                fields=[
                    schema_dataset.SchemaDatasetFacetFields(
                        name=name, type="string", description=of
                    )
                    for name, of in facts.columns.items()
                ]
            ),
        }
        written.outputFacets = {
            "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=facts.rows
            )
        }
        outputs.append(written)
    paid = {FACET: PrivacyRunFacet(**_privacy(plan, made, facts))} if flow.paid else {}
    return OperatorLineage(inputs=inputs, outputs=outputs, run_facets=paid)


def _project(operator: Any, dag_id: str) -> Project:
    """The project of a task: by its params.yaml, which a DAG of one's own may name."""
    params = Path(operator.params_path) if operator.params_path else params_file()
    try:
        known = [one for one in projects() if one.params.resolve() == params.resolve()]
    except PrivsynError:
        known = []
    return known[0] if known else Project(params)


def _dataset(kind: Any, project: Project, name: str, version: str) -> Any:
    """A dataset by name and version. Deployments are told apart by the provider's namespace."""
    within = "" if project.name is None else f"{project.name}/"
    return kind(
        namespace=f"privsyn://{namespace()}",
        name=f"{within}{name}",
        facets={"version": dataset_version_dataset.DatasetVersionDatasetFacet(version)},
    )


def _facts(folder: Path) -> ReleaseFacts | None:
    """The facts of a release that lies where releases do; never of one in quarantine."""
    try:
        return ReleaseFacts.read(folder)
    except (OSError, PrivsynError):
        return None


def _privacy(plan: Plan, made: str, facts: ReleaseFacts | None) -> dict[str, Any]:
    cost: dict[str, Any] = {
        "releaseId": made,
        "account": plan.account,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "adjacency": plan.adjacency.value,
        "unit": plan.unit,
        "maxRecordsPerUnit": plan.max_records_per_unit,
    }
    if facts is None:
        return cost
    return cost | {
        "releaseClass": facts.kind,
        "certificateSha256": facts.certificate_sha256,
        "ledgerEntry": facts.ledger_entry,
    }


def _quality(folder: Path, facts: ReleaseFacts) -> dict[str, Any]:
    """Checks and numbers of a published release: functions of the synthetic file alone."""
    try:
        validation = json.loads((folder / layout.VALIDATION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    assertions = [
        data_quality_assertions_dataset.Assertion(
            assertion=one["name"],
            success=one["success"],
            column=one["column"],
            description=one["title"],
            actual=one["detail"],
        )
        for one in validation.get("expectations", ())
    ]
    metrics = data_quality_metrics_input_dataset.DataQualityMetricsInputDatasetFacet(
        columnMetrics={}, rowCount=facts.rows
    )
    numbers = {
        one["name"]: one["value"]
        for one in validation.get("numbers", ())
        # privacy: fails closed; a number without a class is not sent to a lineage server.
        if one.get("class") == "dp-release"
    }
    return {
        "dataQualityAssertions": data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(
            assertions=assertions
        ),
        "dataQualityMetrics": metrics.with_additional_properties(privsyn_numbers=numbers),
    }
