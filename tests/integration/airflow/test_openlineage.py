"""What tasks tell OpenLineage: names, versions and costs, and nothing of a record or a path."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from privsyn import layout
from privsyn.release import certificate
from tests.integration.e2e.small_project import CANARY
from tests.integration.e2e.test_report import released

pytestmark = pytest.mark.airflow
TI = SimpleNamespace(dag_id="privsyn_invisible_ink")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    project, _, planned, _ = released(tmp_path_factory.mktemp("lineage") / "project")
    return project, planned


def operator(made, kind, **arguments):
    from privsyn.airflow import generate, publish

    project, planned = made
    found = {**vars(generate), **vars(publish)}[kind]
    return found(
        task_id="task",
        plan=planned.model_dump(mode="json"),
        params_path=str(project.params),
        **arguments,
    )


def told(operator, *, failed=False):
    """As the provider's own client writes it."""
    from openlineage.client.serde import Serde

    hook = "failure" if failed else "complete"
    found = getattr(operator, f"get_openlineage_facets_on_{hook}")(TI)
    return json.loads(Serde.to_json(found))


def test_a_private_file_is_an_input_by_name_and_version_alone(made):
    said = told(operator(made, "PartitionOperator"))
    (read,) = said["inputs"]
    assert (read["namespace"], read["name"]) == ("privsyn://default", "letters")
    assert list(read["facets"]) == ["version"]
    assert read["facets"]["version"]["datasetVersion"] == made[1].dataset.version
    assert said.get("outputs", []) == []


def test_a_published_release_is_an_output_with_its_cost_its_form_and_its_checks(made):
    project, planned = made
    said = told(operator(made, "PublishOperator"))
    (written,) = said["outputs"]
    assert written["name"] == "letters/invisible_ink"
    assert written["facets"]["version"]["datasetVersion"] == planned.id
    assert [one["name"] for one in written["facets"]["schema"]["fields"]] == ["id", "label", "text"]
    folder = project.root / "releases" / planned.id
    _, sealed = certificate.read(folder)
    paid = written["facets"]["privsyn_privacy"]
    assert paid["certificateSha256"] == certificate.digest(sealed)
    assert (paid["epsilon"], paid["delta"]) == (planned.epsilon, planned.delta)
    assert (paid["unit"], paid["adjacency"]) == (planned.unit, planned.adjacency.value)
    assert (paid["account"], paid["ledgerEntry"]) == (planned.account, sealed["ledger"]["entry"])
    assert said["run_facets"]["privsyn_privacy"] == paid
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == sealed["artifact"]["rows"]
    checks = said["inputs"][0]["inputFacets"]
    assert all(one["success"] for one in checks["dataQualityAssertions"]["assertions"])
    numbers = json.loads((folder / layout.QUALITY).read_text())
    assert checks["dataQualityMetrics"]["privsyn_numbers"] == numbers


def test_the_facet_is_what_its_schema_says(made):
    from privsyn.airflow import openlineage

    schema = json.loads(Path(openlineage.__file__).with_name("privacy_facet.json").read_text())
    assert schema["$id"] == openlineage.SCHEMA
    for failed in (True, False):  # before and after there is a certificate
        task = operator(made, "PublishOperator")
        facet = told(task, failed=failed)["run_facets"]["privsyn_privacy"]
        jsonschema.validate(facet, schema | {"additionalProperties": False})


def test_numbers_are_told_of_what_is_published_and_of_nothing_else(made):
    for kind in ("CertifyOperator", "ValidateOperator", "EvaluateOperator"):
        said = json.dumps(told(operator(made, kind)))
        assert "dataQuality" not in said, kind
    failed = told(operator(made, "PublishOperator"), failed=True)
    assert failed.get("outputs", []) == []
    assert "inputFacets" not in failed["inputs"][0] or not failed["inputs"][0]["inputFacets"]
    assert "certificateSha256" not in failed["run_facets"]["privsyn_privacy"]


def test_an_internal_number_is_told_with_no_release(made, tmp_path):
    project, planned = made
    other = tmp_path / "project"
    shutil.copytree(project.root / "releases" / planned.id, other / "releases" / planned.id)
    shutil.copy(project.params, other)
    file = other / "releases" / planned.id / layout.VALIDATION
    said = json.loads(file.read_text())
    said["numbers"] = [
        {"name": "ours", "value": 0.25, "class": "dp-release"},
        {"name": "theirs", "value": 0.75, "class": "internal"},
        {"name": "unsaid", "value": 0.5},
    ]
    file.chmod(0o644)
    file.write_text(json.dumps(said))
    task = operator((SimpleNamespace(params=other / "params.yaml"), planned), "PublishOperator")
    facets = told(task)["inputs"][0]["inputFacets"]
    assert facets["dataQualityMetrics"]["privsyn_numbers"] == {"ours": 0.25}


def test_of_a_release_in_quarantine_nothing_but_its_cost_is_told(made, tmp_path):
    project, planned = made
    other = tmp_path / "project"
    (other / "quarantine").mkdir(parents=True)
    shutil.copy(project.params, other)
    shutil.copytree(project.root / "releases" / planned.id, other / "quarantine" / planned.id)
    held = (SimpleNamespace(params=other / "params.yaml"), planned)
    said = told(operator(held, "PublishOperator"))
    assert said.get("outputs", []) == []
    assert "certificateSha256" not in said["run_facets"]["privsyn_privacy"]
    assert "dataQuality" not in json.dumps(said)


def test_numbers_of_a_release_that_is_not_private_are_not_told(made, tmp_path):
    project, planned = made
    other = tmp_path / "project"
    shutil.copytree(project.root / "releases" / planned.id, other / "releases" / planned.id)
    shutil.copy(project.params, other)
    file = other / "releases" / planned.id / layout.CERTIFICATE
    sealed = json.loads(file.read_text()) | {"class": "not-private"}
    file.write_text(json.dumps(sealed))
    said = told(
        operator((SimpleNamespace(params=other / "params.yaml"), planned), "PublishOperator")
    )
    assert said["outputs"][0]["facets"]["privsyn_privacy"]["releaseClass"] == "not-private"
    assert "dataQuality" not in json.dumps(said)


def test_no_record_and_no_path_is_told(made):
    project, planned = made
    rows = (project.root / "releases" / planned.id / layout.ARTIFACT).read_text().splitlines()
    for kind in ("PartitionOperator", "EvaluateOperator", "PublishOperator"):
        said = json.dumps(told(operator(made, kind)))
        for secret in (CANARY, str(project.root), "private.jsonl"):
            assert secret not in said, (kind, secret)
        assert not any(json.loads(row)["text"] in said for row in rows)


def test_a_task_without_a_plan_tells_nothing():
    from privsyn.airflow.budget import PlanOperator

    task = PlanOperator(task_id="plan", method="invisible_ink")
    assert task.get_openlineage_facets_on_failure(TI) is None


def test_projects_are_told_apart(made, monkeypatch, tmp_path):
    project, planned = made
    (tmp_path / "clinic").mkdir()
    shutil.copy(project.params, tmp_path / "clinic")
    monkeypatch.setenv("PRIVSYN_PARAMS", str(tmp_path))
    here = (SimpleNamespace(params=tmp_path / "clinic" / "params.yaml"), planned)
    (read,) = told(operator(here, "PartitionOperator"))["inputs"]
    assert read["name"] == "clinic/letters"


def test_an_error_that_may_depend_on_the_private_file_is_not_sent_away():
    from privsyn import errors
    from privsyn.airflow.failures import StageFailed

    private = StageFailed.of(errors.DataError("the file changed under its version."))
    assert "changed" not in str(private)
    assert "changed" in private.text
    refused = StageFailed.of(errors.PolicyBroken("privacy.epsilon=8 is above 4."))
    assert "above 4" in str(refused)
