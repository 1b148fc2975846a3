"""Which DAG may show which release's validation page."""

from __future__ import annotations

import pytest

from privsyn.release.workspace import Workspace

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


def test_what_an_earlier_version_noted_counts_and_the_internal_report_does_not(workspace):
    from privsyn.airflow.links import report_page

    folder = workspace.internal(RELEASE)
    folder.mkdir(parents=True)
    (folder / "report.json").write_text('{"mine": ["run 1"]}')
    assert report_page(workspace, "mine", RELEASE) is not None
    (folder / "report.json").write_text('{"sections": [{"key": "short"}], "schema": "x"}')
    assert report_page(workspace, "sections", RELEASE) is None
    assert report_page(workspace, "privsyn_invisible_ink", RELEASE) is not None


def test_a_release_of_before_shows_its_validation_page(workspace):
    from privsyn.airflow.links import report_page

    folder = workspace.locate(RELEASE)
    (folder / "report.html").rename(folder / "validation.html")
    assert report_page(workspace, "privsyn_invisible_ink", RELEASE).name == "validation.html"


def test_no_link_leads_a_page_elsewhere(workspace, tmp_path):
    from privsyn.airflow.links import report_page

    secret = tmp_path / "secret"
    secret.write_text("secret")
    page = workspace.locate(RELEASE) / "report.html"
    page.unlink()
    page.symlink_to(secret)
    assert report_page(workspace, "privsyn_invisible_ink", RELEASE) is None
