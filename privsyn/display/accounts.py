"""Accounts with their releases, for a terminal, as JSON, and as the budget page.

The page shows what the ledger holds of a release, which is public, and links. What a refusal says
of the private file (that it changed, or was paid for elsewhere) is not on it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from privsyn import layout
from privsyn.display.plans import SAYS
from privsyn.display.tables import Displayable, Table
from privsyn.dp.accountant import format_epsilon, percent
from privsyn.dp.events import load
from privsyn.errors import AccountMismatch, BudgetExceeded, VerificationError
from privsyn.ledger.balances import Preview, Statement, Step
from privsyn.ledger.decisions import Decision
from privsyn.ledger.entries import Entry, Refusal, State, describe_requester, describe_user
from privsyn.ledger.ledger import Ledger
from privsyn.ledger.spec import NONE
from privsyn.release.advice import ODDS, account_odds
from privsyn.report.document import render
from privsyn.stages.base import Context
from privsyn.stages.plan import lasts_until
from privsyn.stages.reserve import leftovers, unfinished_releases


@dataclass(frozen=True, repr=False)
class Statements(Displayable):
    """The accounts of a ledger with their releases: what ``privsyn ledger show`` prints.

    Attributes:
        statements: An account each.
    """

    statements: Sequence[Statement]

    def as_json(self) -> list[dict[str, Any]]:
        """Accounts and their releases as one JSON-able answer."""
        return [statement.as_dict() for statement in self.statements]

    def _tables(self) -> list[Table]:
        """Of each account its releases, rules, decisions and refusals, where there are any."""
        shown: list[Table] = []
        for statement in self.statements:
            spec, balance = statement.spec, statement.balance
            title = (
                f"{spec.name}: cap ({spec.epsilon:g}, {spec.delta:g}) per {spec.unit}, "
                f"{spec.adjacency}; {percent(balance.share)} spent, remaining: one release up to "
                f"epsilon {balance.left_epsilon:.4g} (Gaussian noise; other methods: privsyn plan)"
            )
            shown.append(_table_of(title, _RELEASES, statement.releases))
            shown.append(
                Table.of(f"{spec.name}: {ODDS.format(unit=spec.unit)}", account_odds(balance))
            )
            if spec.terms != NONE:
                rules = {
                    key: ", ".join(map(str, value)) if isinstance(value, list) else f"{value}"
                    for key, value in spec.terms.dump().items()
                }
                shown.append(Table.of(f"{spec.name}: rules", rules))
            if statement.decisions:
                title = f"{spec.name}: decisions"
                shown.append(_table_of(title, _DECISIONS, statement.decisions))
            # A schedule that is refused every hour would push everything else off the screen.
            if refused := statement.refusals[-REFUSALS_SHOWN:]:
                count = f"{len(refused)} of {len(statement.refusals)} refused, at no cost"
                shown.append(_table_of(f"{spec.name}: {count}", _REFUSALS, refused))
        return shown or [Table("The ledger has no account yet.")]


def _table_of(
    title: str, columns: Mapping[str, Callable[[Any], str]], items: Iterable[Any]
) -> Table:
    """Items as rows; a column that no item fills is left out."""
    rows = [[cell(item) for cell in columns.values()] for item in items]
    filled = [n for n, _ in enumerate(columns) if not rows or any(row[n] for row in rows)]
    names = list(columns)
    return Table(
        title,
        tuple(names[n] for n in filled),
        tuple(tuple(row[n] for n in filled) for row in rows),
    )


_RELEASES: Mapping[str, Callable[[Entry], str]] = {
    "#": lambda entry: str(entry.number),
    "release": lambda entry: entry.release_id,
    "state": lambda entry: entry.state.value,
    "guarantee": lambda entry: f"({format_epsilon(entry.epsilon)}, {entry.delta:g})",
    "reserved (UTC)": lambda entry: f"{entry.reserved_at:%Y-%m-%d %H:%M}",
    "by": lambda entry: describe_requester(entry.reserved_by),
    "why": lambda entry: entry.reason or "",
}
_DECISIONS: Mapping[str, Callable[[Decision], str]] = {
    "decided (UTC)": lambda one: f"{one.at:%Y-%m-%d %H:%M}",
    "what": lambda one: (
        f"{'approved' if one.approved else 'REJECTED'} to {one.what} {one.name} ({one.digest[:12]})"
    ),
    "approver": lambda one: one.approver + _writer_note(one),
    "comment": lambda one: one.comment,
    "row": lambda one: str(one.seq),
}
_REFUSALS: Mapping[str, Callable[[Refusal], str]] = {
    "refused (UTC)": lambda one: f"{one.at:%Y-%m-%d %H:%M}",
    "release": lambda one: one.release_id or "-",
    "by": lambda one: describe_requester(one.refused_by),
    "why": lambda one: f"{one.error}: {one.message}",
}


def _writer_note(decision: Decision) -> str:
    """Who wrote a decision down, where that is another name."""
    user = decision.by.get("user")
    return "" if user in (None, decision.approver) else f" (written by {user})"


REFUSALS_SHOWN = 10
"""The newest that ``ledger show`` prints; ``--json`` has all."""


BARS = 40
"""Releases in the picture: the newest."""
ROWS = 200
"""Releases in the table: the newest."""
REFUSALS = 5
PUBLIC_REFUSALS = (BudgetExceeded.__name__, AccountMismatch.__name__)
"""Refusals that follow from settings and the ledger alone."""


Reports = Callable[[Entry], str | None]
"""Address of the validation page of a release."""


@dataclass(frozen=True)
class Sheet:
    """An account as the page shows it.

    Attributes:
        statement: The account and its releases, or of several as they stand.
        project: Of an Airflow with several.
        steps: The picture.
        rows: The table, newest first: of a release its ``entry``, the part of the cap that it
            took, who asked for it, and where more of it is to be seen.
        fits: What still fits, in sentences.
        refusals: The newest public ones.
    """

    statement: Statement
    project: str | None
    steps: tuple[Step, ...]
    rows: tuple[dict[str, Any], ...]
    fits: tuple[str, ...]
    refusals: tuple[Refusal, ...]


@dataclass
class BudgetPage:
    """Sheets of one or several ledgers, and what was wrong with them.

    Attributes:
        now: Time of the page (UTC).
        sheets: Statements, in the order they were added.
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
            self._edited[where] = edit_of(ctx.ledger)
        edited = self._edited[where]
        if edited is not None:
            self.problem(str(edited))
        for statement in ctx.ledger.accounts.statements(only=only):
            name = statement.spec.name
            steps = {step.entry.release_id: step for step in statement.usage(ROWS)}
            newest = next((one for one in statement.releases[::-1] if one.is_charged), None)
            fits: tuple[str, ...] = ()
            if newest is None:
                fits = ("No release yet: the first one says what another one costs.",)
            # What still fits would be computed from charges that somebody may have changed.
            elif edited is None:
                preview = statement.preview(load(newest.event), self.now)
                fits = _another(newest, preview, crons.get(name, ()), self.now)
            self.sheets.append(
                Sheet(
                    statement,
                    project,
                    tuple(steps.values())[-BARS:],
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
        return render(
            "budget.html",
            page=self,
            percent=percent,
            guarantee=_guarantee,
            odds=account_odds,
            odds_of=ODDS,
        )


def edit_of(ledger: Ledger) -> VerificationError | None:
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


def _another(
    newest: Entry, preview: Preview, crons: Sequence[str], now: datetime
) -> tuple[str, ...]:
    """How many more releases like the newest one an account pays for, and until when."""
    copies = preview.copies
    return SAYS.says(
        "another",
        balance=preview.balance,
        copies=copies,
        like=f"like the newest one ({newest.method}, {_guarantee(newest)})",
        fits=preview.fits,
        crons=crons,
        until=lasts_until(crons, copies, now) if crons and copies else None,
    )


def _row(
    ctx: Context, entry: Entry, step: Step | None, runs: str | None, reports: Reports
) -> dict[str, Any]:
    who = entry.reserved_by or {}
    run = None
    if runs is not None and who.get("dag_id") and who.get("run_id"):
        # A run's id holds colons and a plus sign, and its text comes from whoever started the run.
        run = f"{runs}/dags/{quote(who['dag_id'])}/runs/{quote(who['run_id'], safe='')}"
    links = {"DAG run": run, "Report": reports(entry)}
    return {
        "entry": entry,
        "taken": None if step is None else step.after - step.before,
        "by": describe_user(who) if run else describe_requester(who),
        "links": {name: address for name, address in links.items() if address},
    }


def web_address(text: str | None) -> str | None:
    """An address of the web, without its last slash; None for anything else."""
    # Only http: a javascript: address from the config would run in the page of whoever clicks it.
    return text.rstrip("/") if text and urlsplit(text).scheme in ("http", "https") else None


def _guarantee(entry: Entry) -> str:
    return f"epsilon {format_epsilon(entry.epsilon)}, delta {entry.delta:g}"


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
    intact = float(edit_of(ctx.ledger) is None)
    figures = [
        Gauge("ledger_intact", "1 where the hash chain holds, else 0", intact, {}),
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
        values = {
            "account_epsilon": statement.spec.epsilon,
            "account_spent_share": balance.share,
            "account_left_epsilon": balance.left_epsilon,
            "refusals": len(statement.refusals),
            "oldest_unfinished_seconds": max(ages, default=0.0),
        }
        figures += [Gauge(name, _ABOUT[name], value, account) for name, value in values.items()]
        figures += [
            Gauge("releases", "by state", states[state], account | {"state": state.value})
            for state in State
        ]
    return figures


_ABOUT = {
    "account_epsilon": "cap",
    "account_spent_share": "part of the cap that is spent",
    "account_left_epsilon": "epsilon of the largest release of Gaussian noise that fits",
    "refusals": "refused so far, at no cost",
    "oldest_unfinished_seconds": "age of the oldest charged release that is not finished and that "
    "nobody draws",
}


def exposition(figures: list[Gauge]) -> str:
    """Gauges in Prometheus's text format, those of a name together."""
    lines: list[str] = []
    for name, about in dict.fromkeys((gauge.name, gauge.about) for gauge in figures):
        lines += [f"# HELP privsyn_{name} {about}", f"# TYPE privsyn_{name} gauge"]
        lines += [str(gauge) for gauge in figures if gauge.name == name]
    return "".join(f"{line}\n" for line in lines)
