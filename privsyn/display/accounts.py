"""Accounts with their releases, for a terminal, as JSON, and as the budget page.

The page shows what the ledger holds of a release, which is public, and links. What a refusal says
of the private file (that it changed, or was paid for elsewhere) is not on it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from rich.console import Console

from privsyn import layout
from privsyn.display.tables import facts, show, table
from privsyn.dp.accountant import format_epsilon, percent
from privsyn.dp.events import load
from privsyn.errors import AccountMismatch, BudgetExceeded, VerificationError
from privsyn.ledger.balances import Balance, Preview, Statement, Step
from privsyn.ledger.decisions import Decision
from privsyn.ledger.entries import Entry, Refusal, State, describe_requester, describe_user
from privsyn.ledger.ledger import Ledger
from privsyn.ledger.spec import NONE, Terms
from privsyn.report.document import render
from privsyn.stages.base import Context
from privsyn.stages.lineage import noted_run
from privsyn.stages.plan import lasts_until
from privsyn.stages.reserve import leftovers, unfinished_releases


def accounts(console: Console, statements: list[Statement]) -> None:
    """Print accounts and their releases."""
    if not statements:
        show(console, "The ledger has no account yet.")
    for statement in statements:
        spec, balance = statement.spec, statement.balance
        rows = [
            (
                str(entry.number),
                entry.release_id,
                entry.state.value,
                f"({format_epsilon(entry.epsilon)}, {entry.delta:g})",
                f"{entry.reserved_at:%Y-%m-%d %H:%M}",
                describe_requester(entry.reserved_by),
                entry.reason or "",
            )
            for entry in statement.releases
        ]
        # A column that no row fills gets no name either, so that it takes no room.
        why = "why" if any(entry.reason for entry in statement.releases) else ""
        who = "by" if any(entry.reserved_by for entry in statement.releases) else ""
        table(
            console,
            ("#", "release", "state", "guarantee", "reserved (UTC)", who, why),
            rows,
            title=f"{spec.name}: cap ({spec.epsilon:g}, {spec.delta:g}) per {spec.unit}, "
            f"{spec.adjacency}; {percent(balance.share)} spent, remaining: one release up to "
            f"epsilon {balance.left_epsilon:.4g} (Gaussian noise; other methods: privsyn plan)",
        )
        if spec.terms != NONE:
            facts(console, _terms(spec.terms), title=f"{spec.name}: rules", style="")
        if statement.decisions:
            table(
                console,
                ("decided (UTC)", "what", "approver", "comment", "row"),
                [
                    (
                        f"{decision.at:%Y-%m-%d %H:%M}",
                        f"{'approved' if decision.approved else 'REJECTED'} to {decision.what} "
                        f"{decision.name} ({decision.digest[:12]})",
                        decision.approver + _writer_note(decision),
                        decision.comment,
                        str(decision.seq),
                    )
                    for decision in statement.decisions
                ],
                title=f"{spec.name}: decisions",
            )
        # A schedule that is refused every hour would push everything else off the screen.
        refused = statement.refusals[-REFUSALS_SHOWN:]
        if refused:
            table(
                console,
                ("refused (UTC)", "release", "by", "why"),
                [
                    (
                        f"{refusal.at:%Y-%m-%d %H:%M}",
                        refusal.release_id or "-",
                        describe_requester(refusal.refused_by),
                        f"{refusal.error}: {refusal.message}",
                    )
                    for refusal in refused
                ],
                title=f"{spec.name}: {len(statement.refusals)} refused, at no cost"
                + (f"; the last {len(refused)}" if len(refused) < len(statement.refusals) else ""),
            )


def _terms(terms: Terms) -> dict[str, str]:
    """The rules of an account, by name."""
    values = {key: value for key, value in terms.dump().items() if key != "file"}
    return {
        key: ", ".join(map(str, value)) if isinstance(value, list) else f"{value}"
        for key, value in values.items()
    }


def _writer_note(decision: Decision) -> str:
    """Who wrote a decision down, where that is another name."""
    user = decision.by.get("user")
    return "" if user in (None, decision.approver) else f" (written by {user})"


REFUSALS_SHOWN = 10
"""The newest that ``ledger show`` prints; ``--json`` has all."""


def account_rows(ledger: Ledger) -> list[dict[str, Any]]:
    """Accounts and their releases for JSON."""
    return [statement.as_dict() for statement in ledger.accounts.statements()]


BARS = 40
"""Releases in the picture: the newest."""
ROWS = 200
"""Releases in the table: the newest."""
USUAL = 12
"""Releases among which the commonest is the usual one: the newest."""
REFUSALS = 5
PUBLIC_REFUSALS = (BudgetExceeded.__name__, AccountMismatch.__name__)
"""Refusals that follow from settings and the ledger alone."""


@dataclass(frozen=True)
class Links:
    """Where more of a release is to be seen; None where it is not.

    Attributes:
        run: Its DAG run.
        mlflow: Its MLflow run.
        report: Its validation page.
    """

    run: str | None = None
    mlflow: str | None = None
    report: str | None = None


Reports = Callable[[Entry], str | None]
"""Address of the validation page of a release."""


@dataclass(frozen=True)
class BudgetBar:
    """A release in the picture. Parts in percent of the whole cap."""

    title: str
    label: str
    before: float
    taken: float


@dataclass(frozen=True)
class ReleaseRow:
    """A release in the table."""

    entry: Entry
    guarantee: str
    taken: float | None
    by: str
    links: Links


@dataclass(frozen=True)
class Sheet:
    """An account as the page shows it.

    Attributes:
        statement: The account and its releases, or of several as they stand.
        project: Of an Airflow with several.
        bars: The picture.
        rows: The table, newest first.
        fits: What still fits, in sentences.
        refusals: The newest public ones.
    """

    statement: Statement
    project: str | None
    bars: tuple[BudgetBar, ...]
    rows: tuple[ReleaseRow, ...]
    fits: tuple[str, ...]
    refusals: tuple[Refusal, ...]

    @property
    def balance(self) -> Balance:
        """What is spent and left."""
        return self.statement.balance


@dataclass
class BudgetPage:
    """Sheets of one or several ledgers, and what was wrong with them.

    Attributes:
        now: Time of the page (UTC).
        sheets: Accounts, in the order they were added.
        problems: A ledger that was edited or cannot be read.
    """

    now: datetime
    sheets: list[Sheet] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    # privacy: an address may hold a password
    _edited: dict[str, VerificationError | None] = field(default_factory=dict, repr=False)

    def add(
        self,
        ctx: Context,
        *,
        runs: str | None,
        reports: Reports,
        crons: Mapping[str, Sequence[str]],
        only: Collection[str] | None = None,
        project: str | None = None,
    ) -> None:
        """Add the accounts of a project's ledger.

        Args:
            ctx: The project.
            runs: Address of the Airflow UI; None: runs are named, and no link.
            reports: Address of a release's validation page.
            crons: Schedules that spend, by account.
            only: Of these accounts alone; None: all of the ledger.
            project: Its name, where there are several.

        Raises:
            LedgerUnavailable: The ledger cannot be read.
            VerificationError: The ledger was edited; its accounts are on the page, and so is that.
        """
        # Checked first and raised last: an edited ledger must still be seen, with the warning above
        # it. Once a page, as projects share a ledger and every row of it is gone through.
        where = ctx.config.services.ledger or ctx.workspace.ledger_url
        if where not in self._edited:
            self._edited[where] = _edit_of(ctx.ledger)
        edited = self._edited[where]
        if edited is not None:
            self.problem(str(edited))
        for statement in ctx.ledger.accounts.statements(only=only):
            name = statement.spec.name
            steps = {step.entry.release_id: step for step in statement.usage(ROWS)}
            usual = usual_release(statement.releases)
            fits: tuple[str, ...] = ()
            if usual is None:
                fits = ("No release yet: the first one says what the usual size is.",)
            # What still fits would be computed from charges that somebody may have changed.
            elif edited is None:
                preview = statement.preview(load(usual.event), self.now)
                fits = tuple(_fits(statement, usual, preview, crons.get(name, ()), self.now))
            self.sheets.append(
                Sheet(
                    statement,
                    project,
                    tuple(map(_bar, list(steps.values())[-BARS:])),
                    tuple(
                        _row(ctx, entry, steps.get(entry.release_id), runs, reports)
                        for entry in reversed(statement.releases[-ROWS:])
                    ),
                    fits,
                    # privacy: other refusals follow from the private file, such as that it changed.
                    tuple(r for r in statement.refusals if r.error in PUBLIC_REFUSALS)[-REFUSALS:],
                )
            )
        if edited is not None:
            raise edited

    def problem(self, message: str) -> None:
        """Put a warning on the page, once."""
        if message not in self.problems:
            self.problems.append(message)

    def html(self) -> str:
        """The page, self-contained."""
        return render("budget.html", page=self, percent=percent, epsilon=_epsilon)


def _edit_of(ledger: Ledger) -> VerificationError | None:
    """What somebody edited in a ledger."""
    try:
        ledger.check()
    except VerificationError as error:
        return error
    return None


def crons_of(ctx: Context) -> dict[str, list[str]]:
    """The schedules of a project that spend, by its account."""
    crons = [schedule.cron for schedule in ctx.config.schedule.values() if schedule.cron]
    return {ctx.config.account.name: crons}


def usual_release(entries: Sequence[Entry]) -> Entry | None:
    """The release whose event is the commonest of the newest charged ones; of a draw the newest."""
    charged = [entry for entry in entries if entry.is_charged][-USUAL:]
    # Compared as text: an event is a nested mapping, which has no hash.
    names = [json.dumps(dict(entry.event), sort_keys=True) for entry in charged]
    counts = Counter(names)
    # The index breaks ties, so that the newest of equally common events is taken.
    best = max(range(len(names)), key=lambda i: (counts[names[i]], i), default=None)
    return None if best is None else charged[best]


def _fits(
    statement: Statement, usual: Entry, preview: Preview, crons: Sequence[str], now: datetime
) -> list[str]:
    balance, copies = preview.balance, preview.copies
    size = f"like the usual one ({usual.method}, {_guarantee(usual)})"
    if not copies:
        room = _epsilon(balance.left_epsilon)
        return [
            f"No further release {size} fits the cap. The largest one of Gaussian noise that does "
            f"has epsilon {room}."
        ]
    what = "release" if copies == 1 else "releases"
    sentences = [f"Room for at least {copies:,} more {what} {size}."]
    # With a period the account refills, so copies may fit later though the next one does not now.
    if balance.period is not None and not preview.fits:
        sentences.append(
            f"The next one fits only when earlier ones are older than {balance.period.days} days."
        )
    until = lasts_until(crons, copies, now) if crons else None
    if until is not None:
        sentences.append(
            f"On the schedule {' and '.join(crons)}, with new data or a new draw at every run, the "
            f"budget lasts until {until:%d %b %Y}."
        )
    elif (pace := _pace(statement.releases)) is not None:
        days = pace / timedelta(days=1)
        try:
            # Many copies at a slow pace go beyond the year 9999, where dates end.
            until = now + pace * copies
        except OverflowError:
            until = None
        sentences.append(
            f"At the pace of the newest releases, one every {days:.3g} days, the budget lasts "
            + (f"until {until:%d %b %Y}." if until else "longer than dates reach.")
        )
    return sentences


def _pace(entries: Sequence[Entry]) -> timedelta | None:
    """Mean time between the newest charged releases; None for fewer than three."""
    moments = [entry.reserved_at for entry in entries if entry.is_charged][-USUAL:]
    # Two moments are one gap, which is no pace yet; a clock that was set back gives none.
    if len(moments) < 3 or moments[-1] <= moments[0]:
        return None
    return (moments[-1] - moments[0]) / (len(moments) - 1)


def _bar(step: Step) -> BudgetBar:
    entry, before, after = step.entry, 100 * step.before, 100 * step.after
    return BudgetBar(
        f"{entry.reserved_at:%d %b %Y}: {entry.release_id}, {_guarantee(entry)}; "
        f"{percent(step.after)} spent after it",
        f"{entry.reserved_at:%d %b}",
        before,
        after - before,
    )


def _row(
    ctx: Context, entry: Entry, step: Step | None, runs: str | None, reports: Reports
) -> ReleaseRow:
    who = entry.reserved_by or {}
    run = None
    if runs is not None and who.get("dag_id") and who.get("run_id"):
        # A run's id holds colons and a plus sign, and its text comes from whoever started the run.
        run = f"{runs}/dags/{quote(who['dag_id'])}/runs/{quote(who['run_id'], safe='')}"
    noted = noted_run(ctx.workspace, entry.release_id)
    ui = web_address(ctx.config.services.mlflow_ui)
    return ReleaseRow(
        entry,
        f"{format_epsilon(entry.epsilon)}, {entry.delta:g}",
        None if step is None else step.after - step.before,
        describe_user(who) if run else describe_requester(who),
        Links(run, f"{ui}{noted}" if ui and noted else None, reports(entry)),
    )


def web_address(text: str | None) -> str | None:
    """An address of the web, without its last slash; None for anything else."""
    # Only http: a javascript: address from the config would run in the page of whoever clicks it.
    return text.rstrip("/") if text and urlsplit(text).scheme in ("http", "https") else None


def _guarantee(entry: Entry) -> str:
    return f"epsilon {format_epsilon(entry.epsilon)}, delta {entry.delta:g}"


def _epsilon(value: float) -> str:
    return f"{value:.4g}"


def file_reports(ctx: Context, folder: Path) -> Reports:
    """Validation pages of the releases that lie here, as seen from a folder."""

    def report(entry: Entry) -> str | None:
        page = layout.page_of(ctx.workspace.release(entry.release_id))
        # Relative, so that the page and its releases can be moved or served together.
        return quote(os.path.relpath(page, folder)) if page.is_file() else None

    return report


@dataclass(frozen=True)
class Gauge:
    """A number of the ledger that somebody watches. Internal: it tells when releases end.

    Attributes:
        name: Without the prefix ``privsyn_``.
        about: What it counts, with its unit.
        value: Now.
        labels: Such as the account.
    """

    name: str
    about: str
    value: float
    labels: dict[str, str]

    def __str__(self) -> str:
        """The line of Prometheus's text format."""
        # Names of accounts and states hold no quotes: see section.NAME.
        labels = ",".join(f'{key}="{value}"' for key, value in self.labels.items())
        return f"privsyn_{self.name}{f'{{{labels}}}' if labels else ''} {self.value:g}"


def gauges(ctx: Context) -> list[Gauge]:
    """What is worth an alarm: budgets, refusals, states, what is left undone. Spends nothing."""
    try:
        ctx.ledger.check()
        intact = True
    except VerificationError:
        intact = False
    figures = [
        Gauge("ledger_intact", "1 where the hash chain holds, else 0", float(intact), {}),
        Gauge("leftovers", "ended releases with records in scratch", len(leftovers(ctx)), {}),
    ]
    idle = unfinished_releases(ctx)
    for statement in ctx.ledger.accounts.statements():
        account, balance = {"account": statement.spec.name}, statement.balance
        states = Counter(entry.state for entry in statement.releases)
        ages = [
            (ctx.clock() - entry.changed_at).total_seconds()
            for entry in idle
            if entry.account == statement.spec.name
        ]
        figures += [
            Gauge("account_epsilon", "cap", statement.spec.epsilon, account),
            Gauge("account_spent_share", "part of the cap that is spent", balance.share, account),
            Gauge(
                "account_left_epsilon",
                "epsilon of the largest release of Gaussian noise that fits",
                balance.left_epsilon,
                account,
            ),
            Gauge("refusals", "refused so far, at no cost", len(statement.refusals), account),
            Gauge(
                "oldest_unfinished_seconds",
                "age of the oldest charged release that is not finished and that nobody draws",
                max(ages, default=0.0),
                account,
            ),
            *(
                Gauge("releases", "by state", states[state], account | {"state": state.value})
                for state in State
            ),
        ]
    return figures


def exposition(figures: list[Gauge]) -> str:
    """Gauges in Prometheus's text format, those of a name together."""
    lines: list[str] = []
    for name, about in dict.fromkeys((gauge.name, gauge.about) for gauge in figures):
        lines += [f"# HELP privsyn_{name} {about}", f"# TYPE privsyn_{name} gauge"]
        lines += [str(gauge) for gauge in figures if gauge.name == name]
    return "".join(f"{line}\n" for line in lines)
