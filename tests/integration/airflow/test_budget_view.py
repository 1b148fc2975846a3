"""Who sees which accounts on Airflow's budget page."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.integration.e2e.small_project import build_project
from tests.integration.e2e.weekly_releases import release_id, weekly

pytestmark = pytest.mark.airflow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three projects: two on one ledger, which holds an account of nobody, too; one alone."""
    place = tmp_path_factory.mktemp("projects")
    shared = f"sqlite:///{place / 'ledger.db'}"
    for name, ledger in (("clinic", shared), ("lab", shared), ("alone", None)):
        made = build_project(
            place / name,
            dataset={"name": f"{name}-letters"},
            account={"name": f"{name}-account"},
            services={"ledger": ledger},
        )
        ctx = made.context()
        if ledger is None:
            weekly(ctx, 2)
            continue
        ctx.open_account()
        if name == "clinic":
            ctx.config = ctx.config.model_copy(
                update={
                    "account": ctx.config.account.model_copy(update={"name": "left-over"}),
                    "dataset": ctx.config.dataset.model_copy(update={"name": "left-over"}),
                }
            )
            ctx.open_account()
    (place / "broken.yaml").write_text("dataset: {name: x}")
    return place


@pytest.fixture
def seen(folder, monkeypatch):
    from privsyn.airflow.pages import budget_html
    from privsyn.airflow.project import projects

    monkeypatch.setenv("PRIVSYN_PARAMS", str(folder))

    def see(*names, base=""):
        return budget_html([p for p in projects() if p.name in names], base)

    return see


def test_a_user_sees_the_accounts_of_the_projects_they_may_read(seen):
    html = seen("clinic")
    assert "clinic-account" in html
    for other in ("lab-account", "alone-account", "left-over", "broken"):
        assert other not in html


def test_a_broken_project_is_named_and_hides_no_other(seen, folder):
    html = seen("clinic", "lab", "alone", "broken")
    assert "broken: " in html
    for account in ("clinic-account", "lab-account", "alone-account"):
        assert account in html
    assert "left-over" not in html, "no project names it"


def test_another_address_of_a_ledger_shows_no_other_project_s_account(
    seen, folder, monkeypatch, tmp_path
):
    for name in ("clinic", "lab"):
        (tmp_path / name).mkdir()
        params = yaml.safe_load((folder / name / "params.yaml").read_text())
        if name == "lab":
            params["services"]["ledger"] = f"sqlite:///{folder / 'lab' / '..' / 'ledger.db'}"
        (tmp_path / name / "params.yaml").write_text(yaml.safe_dump(params))
    monkeypatch.setenv("PRIVSYN_PARAMS", str(tmp_path))
    assert "lab-account" not in seen("clinic")
    assert "lab-account" in seen("clinic", "lab")


def test_a_ledger_that_projects_share_is_gone_through_once_a_page(seen, monkeypatch):
    from privsyn.ledger import audit

    checked, check = [], audit.check_account
    monkeypatch.setattr(audit, "check_account", lambda *a: checked.append(a) or check(*a))
    html = seen("clinic", "lab", "alone")
    assert "lab-account" in html
    assert len(checked) == 2


def test_links_stay_below_the_path_of_the_server(seen):
    html = seen("alone", base="/airflow")
    assert 'href="/airflow/dags/privsyn_invisible_ink/runs/' in html


def test_a_report_is_linked_where_its_page_would_be_shown(folder, monkeypatch):
    from privsyn.airflow.pages import budget_html
    from privsyn.airflow.project import projects

    monkeypatch.setenv("PRIVSYN_PARAMS", str(folder / "alone" / "params.yaml"))
    html = budget_html(projects(), "")
    page = f"/privsyn/privsyn_invisible_ink/reports/{release_id(1)}"
    assert f'href="{page}"' in html
    (folder / "alone" / "releases" / release_id(1) / "report.html").unlink()
    assert page not in budget_html(projects(), "")


def test_a_ledger_that_is_away_is_said_without_its_password(seen, monkeypatch):
    gone = ["services.ledger=postgresql://zoe:hunter2@127.0.0.1:1/x"]
    monkeypatch.setenv("PRIVSYN_OVERRIDES", json.dumps(gone))
    html = seen("clinic")
    assert "cannot be used" in html
    assert "hunter2" not in html
