"""A ledger with a release a week, without drawing one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from privsyn.dp.accountant import guarantee
from privsyn.dp.events import Gaussian
from privsyn.ledger.ledger import Ledger

FIRST = datetime(2026, 8, 30, 11, 28, tzinfo=UTC)
WEEK = timedelta(weeks=1)
EVENT = Gaussian(4.5)


def release_id(number):
    return f"invisible_ink-{number:016x}"


def ledger_at(ctx, moment, **who):
    url = ctx.config.services.ledger or ctx.workspace.ledger_url
    return Ledger(url, clock=lambda: moment, requester=who)


def weekly(ctx, count, event=EVENT, *, lost=-1):
    """Releases of one event, committed but for one; each validated, its MLflow run known."""
    account = ctx.config.account.name
    ctx.clock = lambda: FIRST - WEEK
    ctx.open_account()
    for number in range(count):
        name, moment = release_id(number), FIRST + number * WEEK
        run = f"scheduled__{moment.isoformat()}"
        who = {"user": "zoe", "dag_id": "privsyn_invisible_ink", "run_id": run}
        ledger = ledger_at(ctx, moment, **who)
        cost = guarantee(event, ctx.config.account.delta)
        ledger.releases.reserve(account, name, event, method="invisible_ink", guarantee=cost)
        ledger.releases.begin(name, f"/scratch/{name}", "n")
        if number == lost:
            ledger.releases.lose(name, "given up by hand")
            continue
        ledger.releases.commit(name, "a" * 64, "b" * 64)
        folder = ctx.workspace.release(name)
        folder.mkdir(parents=True)
        (folder / "certificate.json").write_text("{}")
        (folder / "report.html").write_text("page")
    ctx.clock = lambda: FIRST + (count - 1) * WEEK + timedelta(hours=1)
