"""One private file under two accounts: two budgets for the same people."""

import shutil

import pytest

from privsyn.dp.adjacency import Guarantee
from privsyn.errors import BudgetError
from privsyn.ledger.entries import DatasetSource
from privsyn.stages.base import open_plan
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve

RENAMED = ("account.name=other", "dataset.name=other")


@pytest.fixture
def paid(make_project):
    project = make_project()
    ctx = project.context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    ctx.ledger.releases.reserve(
        planned.account,
        planned.id,
        planned.privacy_event(),
        method=planned.method,
        guarantee=Guarantee(planned.epsilon, planned.delta),
        source=DatasetSource(
            planned.dataset.version, ctx.fingerprint(open_plan(ctx, planned).source)
        ),
    )
    return project, planned


def attempt(project, *overrides):
    ctx = project.context(*RENAMED, *overrides)
    planned = plan(ctx, "invisible_ink", open_account=True)
    return ctx, planned, lambda: reserve(ctx, planned)


@pytest.mark.parametrize("how", ["same", "copied", "linked", "packed"])
def test_an_account_refuses_it_whatever_it_is_called(paid, how):
    project, _ = paid
    path = project.data
    if how != "same":
        path = project.root / ("copy.jsonl.gz" if how == "packed" else "copy.jsonl")
        if how == "copied":
            shutil.copyfile(project.data, path)
        elif how == "linked":
            path.symlink_to(project.data)
        else:
            import gzip

            path.write_bytes(gzip.compress(project.data.read_bytes()))
    ctx, planned, go = attempt(project, f"dataset.path={path}")
    with pytest.raises(BudgetError, match="account letters has paid"):
        go()
    assert ctx.ledger.releases.find(planned.id) is None
    assert ctx.ledger.accounts.balance("other").spent == 0
    (refusal,) = ctx.ledger.releases.refusals()
    assert (refusal.account, refusal.release_id) == ("other", planned.id)


def test_another_file_and_the_account_itself_are_fine(paid):
    project, _ = paid
    own = project.context()
    assert reserve(own, plan(own, "invisible_ink", open_account=True)).account == "letters"
    project.write([{"unit": f"v{i}", "label": "Billing", "text": f"new {i}"} for i in range(40)])
    _, _, go = attempt(project)
    assert go().account == "other"
