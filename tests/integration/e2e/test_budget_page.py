"""The budget page: what it shows, what it must not, and that it says when a ledger was edited."""

from __future__ import annotations

import re
import sqlite3
from contextlib import suppress

import pytest

from privsyn.display.accounts import BudgetPage, crons_of, file_reports, web_address
from privsyn.dp.adjacency import Guarantee
from privsyn.dp.events import Gaussian
from privsyn.errors import BudgetExceeded, DataError
from privsyn.ledger.entries import DatasetSource
from tests.integration.e2e.small_project import build_project
from tests.integration.e2e.weekly_releases import EVENT, FIRST, WEEK, ledger_at, release_id, weekly

CANARY = "purple-walrus-4711"
COST = Guarantee(1.0, 1e-6)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    made = build_project(
        tmp_path_factory.mktemp("budget") / "project",
        account={"epsilon": 10.0, "period": {"days": 30, "epsilon": 4.0}},
        schedule={"invisible_ink": {"cron": "@weekly"}},
    )
    weekly(made.context(), 12, lost=4)
    return made


@pytest.fixture
def ctx(project):
    ctx = project.context()
    ctx.clock = lambda: FIRST + 11 * WEEK
    return ctx


def paged(ctx, **changes):
    page = BudgetPage(ctx.clock())
    given = {
        "runs": "http://127.0.0.1:8080",
        "reports": file_reports(ctx, ctx.workspace.root),
        "crons": crons_of(ctx),
    }
    page.add(ctx, **(given | changes))
    return page


def test_every_release_is_there_with_its_links(ctx):
    html = paged(ctx).html()
    for number in range(12):
        assert release_id(number) in html
        run = (FIRST + number * WEEK).isoformat().replace(":", "%3A").replace("+", "%2B")
        address = "http://127.0.0.1:8080/dags/privsyn_invisible_ink/runs/scheduled__"
        assert f'href="{address}{run}"' in html
        drawn = number != 4
        assert (f'href="releases/{release_id(number)}/report.html"' in html) is drawn
    assert html.count("LOST") == 1


def test_the_page_fetches_nothing_and_links_nowhere_but_to_the_web(ctx):
    assert web_address("javascript:alert(1)//") is None
    html = paged(ctx).html()
    assert not re.search(r"<script|<img|<link[^>]*https?:|url\(|@import", html)
    assert str(ctx.workspace.root) not in html


def test_names_are_escaped(project, tmp_path):
    other = project.copy(tmp_path / "odd")
    ctx = other.context()
    ledger = ledger_at(ctx, FIRST + 12 * WEEK, user="<b>zoe</b>")
    ledger.releases.reserve("letters", release_id(99), EVENT, method="m", guarantee=COST)
    html = paged(ctx).html()
    assert "<b>zoe" not in html
    assert "&lt;b&gt;zoe" in html


def test_what_a_refusal_says_of_the_private_file_is_not_on_it(project, tmp_path):
    other = project.copy(tmp_path / "refused")
    ctx = other.context()
    ledger = ledger_at(ctx, FIRST + 12 * WEEK)
    for number, content in ((20, "one"), (21, CANARY)):
        source = DatasetSource("v1", content)
        with suppress(DataError):
            ledger.releases.reserve(
                "letters", release_id(number), EVENT, method="m", guarantee=COST, source=source
            )
    with pytest.raises(BudgetExceeded):
        ledger.releases.reserve(
            "letters", release_id(22), Gaussian(0.2), method="m", guarantee=COST
        )
    assert [refusal.error for refusal in ledger.releases.refusals()] == [
        "DataError",
        "BudgetExceeded",
    ]
    page = paged(ctx)
    html = page.html()
    assert [refusal.error for refusal in page.sheets[0].refusals] == ["BudgetExceeded"]
    assert release_id(22) in html
    assert release_id(21) not in html
    assert CANARY not in html


def test_an_edited_ledger_is_shown_and_said_to_be(project, tmp_path, command):
    other = project.copy(tmp_path / "edited")
    with sqlite3.connect(other.root / ".privsyn" / "ledger.db") as edited:
        edited.execute("update ledger_entry set loss = 0")
    code, _, wrong = command(other.root, "ledger", "page", "budget.html")
    html = (other.root / "budget.html").read_text()
    assert code == 4
    assert "was edited" in wrong
    assert "was edited" in html
    assert "What fits" not in html
    assert release_id(3) in html
