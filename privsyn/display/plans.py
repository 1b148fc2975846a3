"""What a release would cost, and whether its account pays for it, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from privsyn.display.tables import Displayable, Table, Verbatim
from privsyn.dp.accountant import format_epsilon, percent
from privsyn.dp.risk import odds, risk
from privsyn.ledger.balances import Preview
from privsyn.ledger.caps import MOST_COPIES
from privsyn.ledger.entries import State
from privsyn.ledger.releases import paid_before
from privsyn.ledger.spec import ReleaseRequest, Terms
from privsyn.methods.base import PromptsModel
from privsyn.modalities.registry import modality_of
from privsyn.models.settings import ServerConfig
from privsyn.progress import under_way
from privsyn.release.advice import account_odds, odds_of, of_each, several
from privsyn.release.plan import Plan
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
        config, plan, account, balance = (
            self.ctx.config, self.plan, self.account, self.account.balance
        )  # fmt: skip
        odds = odds_of(
            plan.privacy_event(), plan.unit, plan.adjacency, plan.delta, plan.dataset.unit
        )
        schedule = config.schedule.get(plan.method)
        rows = {
            "fits": _fits(plan, account),
            "guarantee": guarantee_text(plan),
            "accuracy": _accuracy_bought(plan),
            "columns": _columns_drawn(plan, config.account.public_size),
            "in words": " ".join(odds),
            f"synthetic {plan.things}": _number(plan, config.account.public_size),
            "takes": share_taken(account),
            "time": _time(self.minutes),
            "account": f"{plan.account}: cap epsilon {balance.cap.epsilon:g}, "
            f"{percent(balance.share)} spent",
            "a guess is right": "; ".join(
                f"{right} {when}" for when, right in account_odds(balance).items()
            ),
            "remaining": _remaining(account)
            + _until(schedule.cron if schedule else None, account.copies),
            "release": Verbatim(plan.release_id or "assigned when the account is created"),
            "model server": _requests(plan, config.models.server),
            "approval": _approvals(plan, account, self.ctx.account.terms),
        }
        filled = {name: text for name, text in rows.items() if text}
        return (Table.of(f"{plan.method}: what it would cost", filled, plan.warnings),)


def _time(minutes: Mapping[str, float] | None) -> str:
    """What drawing takes by a trial; empty without one."""
    if minutes is None:
        return ""
    parts = ", ".join(f"{value:.1f} for {name}" for name, value in minutes.items())
    return f"about {sum(minutes.values()):.1f} minutes here, without evaluation: {parts}"


def guarantee_text(plan: Plan) -> str:
    """What a release promises, on a line."""
    return (
        f"epsilon {format_epsilon(plan.epsilon)}, delta {plan.delta:g}, per {plan.unit} "
        f"({used_of_each(plan)}), {plan.adjacency}"
    )


def used_of_each(plan: Plan) -> str:
    """How many records of a unit are used; or that nobody is named as the unit."""
    by_file = modality_of(plan.dataset).by_file
    return of_each(plan.max_records_per_unit, plan.things, plan.dataset.unit, by_file=by_file)


def _number(plan: Plan, public_size: int | None) -> str:
    """How many records there will be, how long, and beside how many people."""
    fewest, most = plan.row_bounds
    parts = [f"{most:,}" if fewest == most else f"{most:,} at most"]
    if plan.label_shares:
        parts[0] += f", {plan.label_shares}"
    # The price of a text grows with its tokens, so the budget sets tokens and not texts.
    if "texts_at_worst" in plan.derived and fewest != most:
        worst = int(plan.derived["texts_at_worst"])
        parts.append(f"the budget pays for {worst:,} of full length, or more if they are shorter")
    settings = plan.settings  # as numbers: settings that are files are read by their door alone
    tokens = settings.get("max_tokens", (settings.get("text") or {}).get("max_tokens"))
    if tokens is not None:
        parts.append(f"each of at most {tokens} tokens (about {about_words(tokens)} words)")
    if public_size is not None:
        whom = several(plan.unit, plan.dataset.unit)
        parts.append(f"you have about {public_size:,} {whom} (account.public_size)")
    parts.append("change it with --texts N, in Python texts=N")
    return "; ".join(parts)


def _requests(plan: Plan, server: ServerConfig | None) -> str:
    """How many prompts go to a model server, by public settings alone; empty for none."""
    if server is None or "text" not in plan.models:
        return ""
    method, settings = plan.load_method()
    if not isinstance(method, PromptsModel):
        return ""
    labels = [cell.label for cell in method.cells(settings, plan.dataset.labels)]
    count, most = method.requests(settings, labels), server.max_requests
    few = "too few: raise the limit. " if count > most else ""
    return (
        f"{count:,} requests, repeats after a refusal not counted. {few}Limit: "
        f"models.server.max_requests={most:,} a process. evaluate asks for its public baseline "
        "beside"
    )


def _columns_drawn(plan: Plan, public_size: int | None) -> str:
    """The noise on the counts of declared columns, beside how many records a cell holds."""
    marginals = plan.marginals
    if marginals is None:
        return ""
    cells, share = marginals.largest, 1 - plan.dataset.holdout
    size = f", which hold about {public_size * share / cells:.2g} each" if public_size else ""
    many, chosen = len(marginals.tables), marginals.choice
    tables = f"{many} tables of counts" if many > 1 else "a table of counts"
    tables += f" and of {chosen.rounds} chosen pairs" if chosen else ""
    tables += ", the largest" if many > 1 or chosen else ""
    noise = f"with noise of {marginals.deviation:.3g} records on each"
    asked = [name for name, one in plan.dataset.columns.items() if one.ask is not None]
    asks = f"; {plan.models['answers'].source} answers {', '.join(asked)}" if asked else ""
    return f"{tables} of {cells:,} cells{size}, {noise}{asks}"


def _accuracy_bought(plan: Plan) -> str:
    """What of a release's cost pays for an accuracy that is published with it."""
    mechanism = plan.accuracy
    if mechanism is None:
        return ""
    scale, whom = mechanism.scale, several(plan.unit, plan.dataset.unit)
    return (
        f"an accuracy on held-out {whom} is part of that: epsilon "
        f"{format_epsilon(mechanism.event.epsilon)} by itself, with noise of scale {scale:.4g} "
        f"{whom} on how many are answered right and wrong"
    )


def _approvals(plan: Plan, account: Preview, terms: Terms) -> str:
    """What a person has to approve of a release."""
    steps = []
    # A release that is reserved already was approved or needed no approval: it is not asked again.
    above = terms.approvals.spend_above
    request = ReleaseRequest(plan.method, plan.epsilon, plan.delta)
    judged = request.at_price_of(plan.privacy_event(), account.balance.cap.delta).epsilon
    if account.entry is None and above is not None and judged > above:
        steps.append(f"its cost is reserved (epsilon above {above:g})")
    if terms.approvals.publish:
        steps.append("it is published")
    return f"a person must approve, before {' and before '.join(steps)}" if steps else ""


def _until(cron: str | None, copies: int) -> str:
    """What a schedule makes of the releases that fit, a new one at each of its runs."""
    until = lasts_until([cron], copies, datetime.now(UTC)) if cron and copies else None
    return f": on the schedule {cron} until {until:%Y-%m-%d}" if until else ""


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
                _fits(planned, account),
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


def share_taken(account: Preview) -> str:
    """The part of an account's whole budget that a release takes, by the filter it weighs least in.

    Two releases may weigh least in different filters, so these parts do not add up.
    """
    if account.entry is not None:
        return "nothing more"
    # An event without a bound at the account's order has no share of it.
    if not math.isfinite(account.loss):
        return "a cost that the account cannot express"
    # Asked with no charges: not even an empty account could pay for it.
    if any(not one.limit.cap.fits((), one.request) for one in account.filters):
        return "more than the account's whole budget"
    return f"{percent(account.takes)} of the account's whole budget"


def _remaining(account: Preview) -> str:
    """What the account can still pay for; releases are counted up to MOST_COPIES."""
    count, largest = account.copies, f"one release of this method up to epsilon {account.room:.4g}"
    if not count:
        return f"{largest}, and none like this one" if account.room > 0 else "none"
    many = f"{count:,} or more" if count >= MOST_COPIES else f"{count:,}"
    return f"{largest}, or {many} like this one"


def _fits(plan: Plan, account: Preview) -> str:
    """Whether a release can be made, in words; one that exists says so."""
    if account.entry is None:
        if account.fits:
            return "yes"
        if account.earlier is not None:
            return f"no: {paid_before(plan.release_id or plan.method, account.earlier)}"
        full = [one for one in account.filters if not one.fits]
        names = " and ".join(f"{one.limit.setting}={one.limit.cap.epsilon:g}" for one in full)
        return f"no: {names} cannot pay for it" if full else "no"
    state, new = account.entry.state, f"privacy.draw={plan.draw + 1}"
    if state is State.COMMITTED:
        return f"exists already: free. A new one: {new}"
    if state is State.LOST:
        return f"LOST: its cost is spent, and it cannot be resumed. A new one: {new}"
    return f"{state.value} already: resuming it is free"
