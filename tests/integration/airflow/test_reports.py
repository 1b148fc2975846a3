"""Which DAG may show which release's validation page."""

from __future__ import annotations

import json

import pytest

from privsyn.release.workspace import Workspace
from tests.integration.e2e.small_project import build_project

pytestmark = pytest.mark.airflow
RELEASE = "invisible_ink-0123456789abcdef"


@pytest.fixture(params=["releases", "quarantine"])
def workspace(request, tmp_path):
    folder = tmp_path / request.param / RELEASE
    folder.mkdir(parents=True)
    (folder / "certificate.json").write_text("{}")
    (folder / "report.html").write_text("page")
    return Workspace(tmp_path)


def test_a_page_is_the_dag_s_of_its_method(workspace):
    from privsyn.airflow.links import report_page

    assert report_page(workspace, "privsyn_invisible_ink", RELEASE).read_text() == "page"
    for other in ("privsyn_keyphrase_seeding", "privsyn_ledger", "mine", ""):
        assert report_page(workspace, other, RELEASE) is None
    assert report_page(workspace, "privsyn_invisible_ink", RELEASE.replace("0123", "3210")) is None


def test_a_dag_of_one_s_own_shows_what_its_runs_validated(workspace):
    from privsyn.airflow.links import report_page, share_report

    share_report(workspace, RELEASE, "mine", "run 1")
    share_report(workspace, RELEASE, "mine", "run 2")
    assert report_page(workspace, "mine", RELEASE).read_text() == "page"
    assert report_page(workspace, "privsyn_invisible_ink", RELEASE) is None
    share_report(workspace, RELEASE, "privsyn_invisible_ink", "run 3")
    assert report_page(workspace, "privsyn_invisible_ink", RELEASE) is not None
    assert workspace.internal(RELEASE).stat().st_mode & 0o077 == 0


def test_the_internal_report_names_no_dag(workspace):
    from privsyn.airflow.links import report_page

    folder = workspace.internal(RELEASE)
    folder.mkdir(parents=True)
    (folder / "report.json").write_text('{"sections": [{"key": "short"}], "schema": "x"}')
    assert report_page(workspace, "sections", RELEASE) is None
    assert report_page(workspace, "privsyn_invisible_ink", RELEASE) is not None


def test_no_link_leads_a_page_elsewhere(workspace, tmp_path):
    from privsyn.airflow.links import report_page

    secret = tmp_path / "secret"
    secret.write_text("secret")
    page = workspace.locate(RELEASE) / "report.html"
    page.unlink()
    page.symlink_to(secret)
    assert report_page(workspace, "privsyn_invisible_ink", RELEASE) is None


def test_of_projects_in_one_folder_each_shows_what_its_account_paid_for(tmp_path):
    """Made by hand, so that no run says whose it is."""
    from privsyn.airflow.links import report_page, share_report
    from privsyn.airflow.project import Project

    root = tmp_path / "project"
    made = build_project(root).params.rename(root / "clinic.yaml")
    (root / "lab.yaml").write_text(made.read_text().replace("name: letters", "name: lab-letters"))
    folder = root / "releases" / RELEASE
    folder.mkdir(parents=True)
    (folder / "certificate.json").write_text(json.dumps({"plan": {"account": "letters"}}))
    (folder / "report.html").write_text("page")
    clinic, lab = (Project(root / f"{name}.yaml", name) for name in ("clinic", "lab"))

    def page(project):
        return report_page(
            Workspace(root), f"privsyn_{project.name}_invisible_ink", RELEASE, project
        )

    assert page(clinic) is not None
    assert page(lab) is None
    (folder / "certificate.json").write_text("{}")
    assert page(clinic) is None, "whose it is is not known"
    share_report(Workspace(root), RELEASE, "privsyn_lab_invisible_ink", "run 1")
    assert (page(clinic), page(lab) is not None) == (None, True)


def test_what_is_measured_beside_real_records_is_no_xcom(monkeypatch, tmp_path):
    from privsyn.airflow.publish import EvaluateOperator

    (tmp_path / "evaluation.json").write_text('{"metrics": []}')
    monkeypatch.setattr("privsyn.stages.evaluate.evaluate", lambda ctx, plan, retried: tmp_path)
    for name in ("read_plan", "note_lineage"):
        monkeypatch.setattr(EvaluateOperator, name, lambda *_: None)
    assert EvaluateOperator(task_id="evaluate").run_stage(None, {})[0] is None
