"""Which DAG may show which release's validation page."""

from __future__ import annotations

import json

import pytest

from privsyn.airflow.pages import report_page
from privsyn.airflow.project import Project
from privsyn.release.workspace import Workspace
from tests.integration.e2e.small_project import build_project

pytestmark = pytest.mark.airflow
RELEASE = "invisible_ink-0123456789abcdef"


@pytest.fixture(params=["releases", "quarantine"])
def project(request, tmp_path):
    folder = tmp_path / request.param / RELEASE
    folder.mkdir(parents=True)
    (folder / "certificate.json").write_text("{}")
    (folder / "report.html").write_text("page")
    return Project(tmp_path / "params.yaml")


def page_of(project, dag_id, release_id=RELEASE):
    return report_page(project, Workspace(project.root), dag_id, release_id)


def test_a_page_is_the_dag_s_of_its_method(project, tmp_path):
    page = page_of(project, "privsyn_invisible_ink")
    assert page.read_text() == "page"
    for other in ("privsyn_keyphrase_seeding", "privsyn_ledger", "mine", ""):
        assert page_of(project, other) is None
    assert page_of(project, "privsyn_invisible_ink", RELEASE.replace("0123", "3210")) is None
    secret = tmp_path / "secret"
    secret.write_text("secret")
    page.unlink()
    page.symlink_to(secret)
    assert page_of(project, "privsyn_invisible_ink") is None


def test_of_projects_in_one_folder_each_shows_what_its_account_paid_for(tmp_path):
    root = tmp_path / "project"
    made = build_project(root).params.rename(root / "clinic.yaml")
    (root / "lab.yaml").write_text(made.read_text().replace("name: letters", "name: lab-letters"))
    folder = root / "releases" / RELEASE
    folder.mkdir(parents=True)
    (folder / "certificate.json").write_text(json.dumps({"plan": {"account": "letters"}}))
    (folder / "report.html").write_text("page")
    clinic, lab = (Project(root / f"{name}.yaml", name) for name in ("clinic", "lab"))
    assert page_of(clinic, "privsyn_clinic_invisible_ink") is not None
    assert page_of(clinic, "privsyn_lab_invisible_ink") is None
    assert page_of(lab, "privsyn_lab_invisible_ink") is None
    (folder / "certificate.json").write_text("{}")
    assert page_of(clinic, "privsyn_clinic_invisible_ink") is None, "whose it is is not known"


def test_what_is_measured_beside_real_records_is_no_xcom(monkeypatch, tmp_path):
    from privsyn.airflow.publish import EvaluateOperator

    (tmp_path / "evaluation.json").write_text('{"metrics": []}')
    monkeypatch.setattr("privsyn.stages.evaluate.measures", lambda ctx, plan: tmp_path)
    for name in ("read_plan", "note_lineage", "plan_file", "apart"):
        monkeypatch.setattr(EvaluateOperator, name, lambda *_: None)
    assert EvaluateOperator(task_id="evaluate").run_stage(None, {})[0] is None
