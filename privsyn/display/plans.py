"""What a release would cost, and whether its account pays for it, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from privsyn.display.tables import Displayable, Table, Verbatim
from privsyn.dp.accountant import format_epsilon, percent
from privsyn.dp.risk import odds, risk
from privsyn.ledger.balances import Preview
from privsyn.ledger.caps import MOST_COPIES
from privsyn.ledger.releases import paid_before
from privsyn.ledger.spec import ReleaseRequest
from privsyn.methods.base import PromptsModel
from privsyn.models.settings import ServerConfig
from privsyn.progress import under_way
from privsyn.release.advice import account_odds, odds_of, of_each, several
from privsyn.release.plan import Plan
from privsyn.sentences import Rows
from privsyn.stages.base import Context
from privsyn.stages.check import check, count, lines, none_usable
from privsyn.stages.plan import (
    about_words,
    lasts_until,
    methods_of,
    plan,
    plan_pipeline,
    preview,
    report,
    report_all,
)


@dataclass(frozen=True, repr=False)
class Planned(Displayable):
    """What a release would cost, and whether its account pays for it. Shows itself as a table.

    Attributes:
        ctx: Config and ledger, with the settings.
        plan: The plan: all public.
        account: What its reservation would meet.
        settings: What was asked for on top of the project's settings.
        minutes: What each kind of work takes on this machine, by a trial; None without one.
    """

    ctx: Context
    plan: Plan
    account: Preview
    settings: tuple[str, ...] = ()
    minutes: Mapping[str, float] | None = None

    @classmethod
    def of(
        cls, ctx: Context, method: str, settings: tuple[str, ...] = (), *, time: bool = False
    ) -> Planned:
        """Plan a release of a method. Opens no data file; writes nothing.

        Args:
            ctx: Config and ledger, with the settings.
            method: Which.
            settings: What was asked for on top of the project's settings.
            time: Have its models work for some seconds, and say how long a release takes.
        """
        with under_way(ctx.on_progress, f"plan {method}: noise and cost"):
            planned = plan(ctx, method)
        trial: Mapping[str, float] | None = None
        if time:
            from privsyn.stages.duration import minutes  # a plan needs no torch

            with under_way(ctx.on_progress, f"plan {method}: a trial of its models"):
                trial = minutes(ctx, planned)
        return cls(ctx, planned, preview(ctx, planned), settings, trial)

    @property
    def epsilon(self) -> float:
        """Its cost in epsilon, at ``delta``."""
        return self.plan.epsilon

    @property
    def delta(self) -> float:
        """Its delta."""
        return self.plan.delta

    @property
    def fits(self) -> bool:
        """Whether the account could pay for it now, or has."""
        return self.account.entry is not None or self.account.fits

    def as_json(self) -> dict[str, Any]:
        """The plan and its account as one JSON-able answer."""
        timed = {} if self.minutes is None else {"minutes": dict(self.minutes)}
        return report(self.plan, self.account) | timed

    def _tables(self) -> tuple[Table, ...]:
        """One table: cost, guarantee and account."""
        plan, balance = self.plan, self.account.balance
        odds = odds_of(
            plan.privacy_event(), plan.unit, plan.adjacency, plan.delta, plan.dataset.unit
        )
        facts = self._facts()

        def says(table: str) -> str:
            return str(SAYS.first(table, facts)["says"])

        rows = {
            "fits": says("fits"),
            "guarantee": guarantee_text(plan),
            "accuracy": says("accuracy"),
            "columns": says("columns"),
            "in words": " ".join(odds),
            f"synthetic {plan.things}": "; ".join(SAYS.says("number", **facts)),
            "takes": says("takes"),
            "time": says("time"),
            "account": f"{plan.account}: cap epsilon {balance.cap.epsilon:g}, "
            f"{percent(balance.share)} spent",
            "a guess is right": "; ".join(
                f"{right} {when}" for when, right in account_odds(balance).items()
            ),
            "remaining": says("remaining"),
            "release": Verbatim(plan.release_id or "assigned when the account is created"),
            "model server": says("requests"),
            "approval": says("approval"),
        }
        filled = {name: text for name, text in rows.items() if text}
        return (Table.of(f"{plan.method}: what it would cost", filled, plan.warnings),)

    def _facts(self) -> dict[str, Any]:
        """What the sentences of plan.yaml follow from."""
        config, plan, account = self.ctx.config, self.plan, self.account
        schedule = config.schedule.get(plan.method)
        cron, copies = schedule and schedule.cron, account.copies
        settings = plan.settings  # as numbers: settings that are files are read by their door alone
        tokens = settings.get("max_tokens", (settings.get("text") or {}).get("max_tokens"))
        approvals, marginals = self.ctx.account.terms.approvals, plan.marginals
        worst = plan.derived.get("texts_at_worst")
        request = ReleaseRequest(plan.method, plan.epsilon, plan.delta)
        judged = request.at_price_of(plan.privacy_event(), account.balance.cap.delta).epsilon
        return _fitting(plan, account) | {
            "units": several(plan.unit, plan.dataset.unit),
            "size": config.account.public_size,
            "fewest": plan.row_bounds[0],
            "most": plan.row_bounds[1],
            "worst": None if worst is None else int(worst),
            "tokens": tokens,
            "words": tokens and about_words(tokens),
            "bought": plan.accuracy and format_epsilon(plan.accuracy.event.epsilon),
            "marginals": marginals,
            "tables": len(marginals.tables) if marginals else 0,
            "asked": [name for name, one in plan.dataset.columns.items() if one.ask is not None],
            "unbounded": not math.isfinite(account.loss),
            "too_large": any(not one.limit.cap.fits((), one.request) for one in account.filters),
            "taken": percent(account.takes) if math.isfinite(account.takes) else "",
            "room": account.room,
            "copies": copies,
            "most_copies": MOST_COPIES,
            "cron": cron,
            "until": lasts_until([cron], copies, datetime.now(UTC)) if cron and copies else None,
            "server": config.models.server,
            "requests": _requests(plan, config.models.server),
            "above": approvals.spend_above,
            "spends_above": account.entry is None
            and approvals.spend_above is not None
            and judged > approvals.spend_above,
            "publishes": approvals.publish,
            "minutes": self.minutes,
        }


SAYS = Rows(Path(__file__).with_name("plan.yaml"))


def guarantee_text(plan: Plan) -> str:
    """What a release promises, on a line."""
    used = of_each(plan.dataset, plan.max_records_per_unit)
    return (
        f"epsilon {format_epsilon(plan.epsilon)}, delta {plan.delta:g}, per {plan.unit} "
        f"({used}), {plan.adjacency}"
    )


def _requests(plan: Plan, server: ServerConfig | None) -> int | None:
    """How often a model server is asked; None where none writes the texts."""
    method, settings = plan.load_method()
    if server is None or "text" not in plan.models or not isinstance(method, PromptsModel):
        return None
    return method.requests(
        settings, [cell.label for cell in method.cells(settings, plan.dataset.labels)]
    )


def _fitting(plan: Plan, account: Preview) -> dict[str, Any]:
    """What is said of whether a release fits follows from these."""
    full = [one for one in account.filters if not one.fits]
    earlier, name = account.earlier, plan.release_id or plan.method
    return {
        "plan": plan,
        "account": account,
        "state": account.entry and account.entry.state.value,
        "earlier": earlier and str(paid_before(name, earlier)),
        "full": " and ".join(f"{one.limit.setting}={one.limit.cap.epsilon:g}" for one in full),
    }


@dataclass(frozen=True, repr=False)
class RecordCounts(Displayable):
    """Exact counts of private records, and what they call for: internal, for the owner's eyes.

    Attributes:
        ctx: The project.
        files: The counts by path.
        advice: What the counts and the settings call for.
    """

    ctx: Context
    files: Mapping[str, Mapping[str, Any]]
    advice: Sequence[str]

    @classmethod
    def of(cls, ctx: Context) -> RecordCounts:
        """Read the private file and count. Opens no account; writes nothing.

        Raises:
            DataError: A file is missing, empty, damaged or lacks a column.
        """
        files = count(ctx)
        return cls(ctx, files, check(ctx, files, ctx.config.first_method))

    def as_json(self) -> dict[str, Any]:
        """Counts and advice as one JSON-able answer."""
        return {"class": "internal", "files": self.files, "advice": list(self.advice)}

    def refuse_empty(self) -> None:
        """Refuse a file without a record that can be used.

        Raises:
            DataError: There is one; names the columns and what they hold.
        """
        for path, counts in self.files.items():
            if not counts["kept"]:
                raise none_usable(self.ctx, path, counts)

    def _tables(self) -> tuple[Table, ...]:
        """A table a file; the advice stands below the last one."""
        tables = [
            Table.of(f"{path} (internal: exact counts of records)", lines(self.ctx, counts))
            for path, counts in self.files.items()
        ]
        return *tables[:-1], replace(tables[-1], notes=tuple(self.advice))


@dataclass(frozen=True, repr=False)
class Pipeline(Displayable):
    """What the releases of a pipeline would cost, charged in its order.

    Attributes:
        plans: The plans.
        accounts: What each reservation would meet, after those before it.
    """

    plans: Sequence[Plan]
    accounts: Sequence[Preview]

    @classmethod
    def of(cls, ctx: Context) -> Pipeline:
        """Plan every method that ``pipeline`` names. Opens no data file; writes nothing.

        Raises:
            ConfigError: It names none.
        """
        plans, accounts = zip(*plan_pipeline(ctx, methods_of(ctx.config)), strict=True)
        return cls(plans, accounts)

    @property
    def fits(self) -> bool:
        """Whether the account can pay for all of them."""
        return all(one.fits for one in self.accounts)

    def as_json(self) -> dict[str, Any]:
        """See ``report_all``."""
        return report_all(self.plans, self.accounts)

    def _tables(self) -> tuple[Table, ...]:
        first, after = self.accounts[0].balance, percent(self.accounts[-1].share_after)
        each = list(zip(self.plans, self.accounts, strict=True))
        refused = [planned.method for planned, account in each if not account.fits]
        rows = tuple(
            (
                planned.method,
                f"({format_epsilon(planned.epsilon)}, {planned.delta:g})",
                odds(risk(planned.privacy_event()).right),
                f"{percent(account.share_after)} spent",
                SAYS.first("fits", _fitting(planned, account))["says"],
            )
            for planned, account in each
        )
        cap = f"{self.plans[0].account}: cap ({first.cap.epsilon:g}, {first.cap.delta:g})"
        totals = {
            "account": f"{cap}, {percent(first.share)} spent, {after} after these",
            "fits": f"no: {refused[0]} is the first that does not fit. Name fewer methods in "
            "pipeline, or lower privacy.epsilon"
            if refused
            else "yes",
        }
        columns = ("method", "guarantee", "guesses right", "account after it", "fits")
        return Table("", columns, rows), Table.of("", totals)
