"""What a person wants to know at the end of a run, and of the accounts."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console

from privsyn.dp.accountant import percent, shown
from privsyn.dp.events import load
from privsyn.dp.risk import risk
from privsyn.evaluation.beside import verdict
from privsyn.ledger.caps import MOST_COPIES
from privsyn.ledger.decisions import Decision
from privsyn.ledger.entries import State, said_who
from privsyn.ledger.statements import Preview, Statement
from privsyn.ledger.store import Ledger
from privsyn.ledger.terms import NONE, Asked, Terms
from privsyn.modalities.registry import modality_of
from privsyn.progress import duration
from privsyn.publishing.git import in_git
from privsyn.release import certificate, layout, signature
from privsyn.release.plan import Plan
from privsyn.report.certified import accuracy_said
from privsyn.stages.approval import validated
from privsyn.stages.base import Context
from privsyn.stages.check import kept
from privsyn.stages.held import EVALUATION, sets_aside
from privsyn.stages.pace import Pace
from privsyn.stages.partition import source_changed
from privsyn.stages.plan import lasts_until, room
from privsyn.stages.publish import published
from privsyn.tables import Verbatim, facts, note, show, table

UTILITY = {
    "downstream.accuracy": "accuracy {:.3f}",
    "downstream.majority": "{:.3f} by always saying the commonest label",
    "downstream.public": "public model alone {:.3f}",
    "downstream.real": "as many real records {:.3f}",
    "downstream.macro_f1": "macro F1 {:.3f}",
    "downstream.records": "on {:.0f} held-out real records, trained on the synthetic ones",
    "length_wasserstein": "lengths {:.1f} words apart",
    "fid": "FID {:.1f}",
    "precision": "precision {:.2f}",
    "recall": "recall {:.2f}",
}
"""Internal numbers worth a line, and how they read."""


def outcome(ctx: Context, plan: Plan) -> dict[str, str]:
    """The end of a run, line by line: what came out, what it cost, and how to look at it."""
    entry = ctx.ledger.entry(plan.id)
    folder = ctx.workspace.locate(plan.id)
    lines = {"release": Verbatim(plan.id), "state": entry.state.value}
    if folder is not None:
        _, sealed = certificate.read(folder)
        lines["synthetic data"] = Verbatim(short(folder / layout.ARTIFACT))
        lines[plan.things] = str(sealed["artifact"]["rows"])
        drawn = sealed.get("drawn", {})
        if "public_tokens" in drawn:
            share = drawn["public_tokens"] / max(1, drawn["tokens"])
            lines["public tokens"] = f"{share:.0%} of {drawn['tokens']:,}: they cost nothing"
        if sealed["class"] != "dp-release":
            lines["class"] = f"{sealed['class']}: made with a {sealed['noise']} noise source"
        if accuracy := accuracy_said(sealed):
            lines["accuracy"] = "; ".join(accuracy)
    if records := kept(ctx.workspace.internal(plan.id), plan):
        lines[_RECORDS] = records
    balance = ctx.ledger.balance(plan.account)
    lines |= {
        "guarantee": f"({shown(plan.epsilon)}, {plan.delta:g})-DP",
        "protects": f"{plan.unit}, at most {plan.max_records_per_unit} record(s) each, "
        f"adjacency {plan.adjacency}",
        "budget": f"account {plan.account}: {percent(balance.share)} of ({balance.cap.epsilon:g}, "
        f"{balance.cap.delta:g}) spent; room for one more release like it of epsilon "
        f"{room(ctx, plan):.4g}",
        "validation": _validation(folder),
        "signature": _signature(folder),
        _UTILITY: _utility(ctx, plan),
        "MLflow run": Verbatim(
            ctx.lineage.link(ctx.lineage.release_run(plan.id)) or "not reachable"
        ),
        "DVC revision": Verbatim(published(ctx, plan) or "not published"),
    }
    if source_changed(ctx, plan):
        lines[_NOTE] = (
            "the private file is not the one this release was made from; to use it, set another "
            "dataset.version, which is a new charge"
        )
    return lines


_RECORDS, _UTILITY, _NOTE = "records (internal)", "utility (internal)", "note (internal)"
_OF_RECORDS = (_RECORDS, _UTILITY, _NOTE)
"""Lines that say something of the private file: for a person's eyes."""


def _signature(folder: Path | None) -> str:
    name = None if folder is None else signature.signed_by(folder)
    return signature.UNSIGNED if name is None else f"by {name[:16]}..."


def summary(console: Console, ctx: Context, plan: Plan, *, internal: bool) -> None:
    """Print the end of a run, with the commands that open each part.

    Args:
        console: Where.
        ctx: Config, ledger and workspace.
        plan: The release.
        internal: Whether a person looks on. What is printed elsewhere ends up in somebody's log,
            where exact counts and numbers of real records must not be.
    """
    lines = outcome(ctx, plan)
    if not internal:
        lines = {name: said for name, said in lines.items() if name not in _OF_RECORDS}
        lines["internal numbers"] = Verbatim(f"privsyn report {plan.id}")
    facts(console, lines, title="Release")
    folder = ctx.workspace.locate(plan.id)
    if folder is None:
        return
    show(console, "")
    commands = {name: Verbatim(command) for name, command in _next(ctx, plan, folder).items()}
    facts(console, commands, title="What next", style="")


def _next(ctx: Context, plan: Plan, folder: Path) -> dict[str, str]:
    """Commands that can be given now, by what they are for."""
    place, pointer = short(folder), short(ctx.workspace.pointer(plan.id))
    commands = modality_of(plan.dataset).look(place) | {
        "certificate": f"privsyn verify {place}",
        "report": f"xdg-open {short(layout.page_of(folder))}",
    }
    report = ctx.workspace.internal(plan.id) / layout.INSIDE_PAGE
    if report.is_file():
        commands["report (internal)"] = f"xdg-open {short(report)}"
    commands["accounts"] = "privsyn ledger show"
    if ctx.config.services.mlflow is None and not _answers(ctx.config.services.mlflow_ui):
        port = urlsplit(ctx.config.services.mlflow_ui).port
        listen = f" --port {port}" if port else ""
        commands["lineage"] = (
            f"mlflow server --backend-store-uri {ctx.workspace.mlflow_uri}{listen}"
        )
    if (overview := ctx.lineage.overview()) is not None:
        commands["all releases"] = overview
    if (ctx.workspace.root / "Makefile").is_file():
        commands["schedule it"] = "make up"
    if ctx.workspace.pointer(plan.id).is_file():
        if in_git(ctx.workspace.root):
            commands["keep in git"] = f"git add {pointer}"
        commands["bring back"] = f"dvc pull {pointer}"
    return commands


def _answers(address: str) -> bool:
    """Whether a server listens at an address of this machine; of others it is taken for granted."""
    parts = urlsplit(address)
    if parts.hostname not in ("127.0.0.1", "localhost"):
        return True
    try:
        socket.create_connection((parts.hostname, parts.port or 80), timeout=1).close()
    except OSError:
        return False
    return True


def cost_of_release(
    console: Console,
    plan: Plan,
    account: Preview,
    earlier: Pace | None,
    cron: str | None = None,
    terms: Terms = NONE,
) -> None:
    """Print what a release would cost, and whether the account pays for it: see ``cost_rows``."""
    rows = cost_rows(plan, account, earlier, cron, terms)
    facts(console, rows, title=f"{plan.method}: what it would cost")
    for warning in plan.warnings:
        note(console, warning)


def guaranteed(plan: Plan) -> str:
    """What a release promises, on a line."""
    return (
        f"epsilon {shown(plan.epsilon)}, delta {plan.delta:g}, per {plan.unit} "
        f"(at most {plan.max_records_per_unit} record(s)), {plan.adjacency}"
    )


def cost_rows(
    plan: Plan,
    account: Preview,
    earlier: Pace | None,
    cron: str | None = None,
    terms: Terms = NONE,
) -> dict[str, str]:
    """What a release would cost, and whether the account pays for it, line by line.

    Args:
        plan: The release.
        account: What its reservation would meet.
        earlier: The last release like it here.
        cron: Schedule of its DAG.
        terms: What the account is held to.
    """
    balance = account.balance
    name = Verbatim(plan.release_id) if plan.release_id else "named when the account is opened"
    rows = {
        "release": name,
        "guarantee": guaranteed(plan),
        **_accuracy_bought(plan),
        "in words": "; ".join(risk(load(plan.event)).words(plan.unit, plan.adjacency)),
        "rho (zCDP)": f"{plan.rho:.6g}" if plan.rho is not None else "-",
        **{key: f"{value:.6g}" for key, value in plan.derived.items()},
        f"synthetic {plan.things}": plan.rows_said,
        "account": f"{plan.account}: cap epsilon {balance.cap.epsilon:g}, {percent(balance.share)} "
        f"spent",
        "takes": share_taken(account),
        "fits": _fits(plan, account),
        "room": f"for a release of this method up to epsilon {account.room:.4g}; "
        f"{_copies(account.copies)} like this one fit, one after the other"
        + _until(cron, account.copies),
    }
    if approvals := _approvals(plan, account, terms):
        rows["approval"] = f"by a person, before {' and before '.join(approvals)}"
    if earlier is not None:
        rows["time (internal)"] = (
            f"{earlier.release_id}, by the same method and models, was drawn here in "
            f"{duration(earlier.seconds)} for {earlier.rows:,} {plan.things}"
        )
    return rows


def _accuracy_bought(plan: Plan) -> dict[str, str]:
    """What of a release's cost pays for an accuracy that is published with it."""
    mechanism = plan.accuracy
    if mechanism is None:
        return {}
    scale, unit = mechanism.scale, plan.unit
    return {
        "accuracy": f"epsilon {shown(mechanism.event.epsilon)} of that buys the accuracy on "
        f"held-out {unit}s, with noise of scale {scale:.4g} {unit}s on how many are answered right "
        f"and wrong; the generator is made for epsilon {shown(plan.target.epsilon)}",
    }


def _approvals(plan: Plan, account: Preview, terms: Terms) -> list[str]:
    """What a person has to approve of a release."""
    found = []
    above = terms.spend_above
    if account.entry is None and above is not None and _judged(plan, account) > above:
        found.append(f"its cost is reserved (epsilon above {above:g})")
    if terms.publish:
        found.append("it is published")
    return found


def _judged(plan: Plan, account: Preview) -> float:
    """Epsilon by which a release is judged: see Asked.judged."""
    asked = Asked(plan.method, plan.epsilon, plan.delta, plan.adjacency, plan.unit)
    return asked.judged(plan.privacy_event(), account.balance.cap.delta).epsilon


def _until(cron: str | None, copies: int) -> str:
    """What a schedule makes of the releases that fit, a new one at each of its runs."""
    until = lasts_until([cron], copies, datetime.now(UTC)) if cron and copies else None
    return f": on the schedule {cron} until {until:%Y-%m-%d}" if until else ""


def cost_of_all(
    console: Console, plans: Sequence[Plan], previews: Sequence[Preview], together: Preview
) -> None:
    """Print what the releases of a pipeline cost, one by one and together."""
    rows = [
        (
            plan.method,
            f"({shown(plan.epsilon)}, {plan.delta:g})",
            share_taken(one),
            _fits(plan, one),
        )
        for plan, one in zip(plans, previews, strict=True)
    ]
    balance, name = together.balance, plans[0].account
    table(console, ("method", "guarantee", "takes", "fits"), rows)
    fits = (
        "yes" if together.fits else "no: name fewer methods in pipeline, or lower privacy.epsilon"
    )
    totals = {
        "together": share_taken(together),
        "account": f"{name}: cap ({balance.cap.epsilon:g}, {balance.cap.delta:g}), "
        f"{percent(balance.share)} spent",
        "fits": fits,
    }
    facts(console, totals)


def share_taken(account: Preview) -> str:
    """The part of an account's whole budget that a release takes. These parts add up."""
    if account.entry is not None:
        return "nothing more"
    if not math.isfinite(account.asked):
        return "what the account cannot account for"
    if account.takes > 1:
        return "more than the account's whole budget"
    return f"{percent(account.takes)} of the account's whole budget"


def _copies(count: int) -> str:
    """A number of releases; it is not counted further than MOST_COPIES."""
    return f"{count:,} and more" if count >= MOST_COPIES else f"{count}"


def _fits(plan: Plan, account: Preview) -> str:
    """Whether a release can be made, in words; one that exists says so."""
    if account.entry is None:
        if account.fits:
            return "yes"
        full = [one for one in account.filters if not one.cap.fits(one.held, one.asked)]
        names = " and ".join(f"{one.setting}={one.cap.epsilon:g}" for one in full)
        return f"no: {names} cannot pay for it" if full else "no"
    state = account.entry.state
    if state is State.COMMITTED:
        return f"exists already: free. A fresh one: privacy.draw={plan.draw + 1}"
    if state is State.LOST:
        return f"LOST: spent, and cannot be made. A fresh one: privacy.draw={plan.draw + 1}"
    return f"{state.value} already: going on with it is free"


def accounts(console: Console, statements: list[Statement]) -> None:
    """Print accounts and their releases."""
    if not statements:
        show(console, "The ledger holds no account yet.")
    for statement in statements:
        spec, balance = statement.spec, statement.balance
        rows = [
            (
                str(entry.number),
                entry.release_id,
                entry.state.value,
                f"({shown(entry.epsilon)}, {entry.delta:g})",
                f"{entry.reserved_at:%Y-%m-%d %H:%M}",
                said_who(entry.reserved_by),
                entry.reason or "",
            )
            for entry in statement.releases
        ]
        why = "why" if any(entry.reason for entry in statement.releases) else ""
        who = "by" if any(entry.reserved_by for entry in statement.releases) else ""
        table(
            console,
            ("#", "release", "state", "guarantee", "reserved (UTC)", who, why),
            rows,
            title=f"{spec.name}: cap ({spec.epsilon:g}, {spec.delta:g}) per {spec.unit}, "
            f"{spec.adjacency}; {percent(balance.share)} spent, room for one more release of "
            f"epsilon {balance.left_epsilon:.4g} (Gaussian noise; of another method: privsyn plan)",
        )
        if spec.terms != NONE:
            facts(console, _terms(spec.terms), title=f"{spec.name}: held to", style="")
        if statement.decisions:
            table(
                console,
                ("decided (UTC)", "what", "approver", "comment", "row"),
                [
                    (
                        f"{decision.at:%Y-%m-%d %H:%M}",
                        f"{'approved' if decision.approved else 'REJECTED'} to {decision.what} "
                        f"{decision.name} ({decision.digest[:12]})",
                        decision.approver + _written(decision),
                        decision.comment,
                        str(decision.seq),
                    )
                    for decision in statement.decisions
                ],
                title=f"{spec.name}: decisions",
            )
        refused = statement.refusals[-REFUSALS_SHOWN:]
        if refused:
            table(
                console,
                ("refused (UTC)", "release", "by", "why"),
                [
                    (
                        f"{refusal.at:%Y-%m-%d %H:%M}",
                        refusal.release_id or "-",
                        said_who(refusal.refused_by),
                        f"{refusal.error}: {refusal.message}",
                    )
                    for refusal in refused
                ],
                title=f"{spec.name}: {len(statement.refusals)} refused, at no cost"
                + (f"; the last {len(refused)}" if len(refused) < len(statement.refusals) else ""),
            )


def _terms(terms: Terms) -> dict[str, str]:
    """The rules of an account, by name."""
    said = {key: value for key, value in terms.dump().items() if key != "file"}
    return {
        key: ", ".join(map(str, value)) if isinstance(value, list) else f"{value}"
        for key, value in said.items()
    }


def _written(decision: Decision) -> str:
    """Who wrote a decision down, where that is another name."""
    user = decision.by.get("user")
    return "" if user in (None, decision.approver) else f" (written by {user})"


REFUSALS_SHOWN = 10
"""The newest that ``ledger show`` prints; ``--json`` has all."""


def account_rows(ledger: Ledger) -> list[dict[str, Any]]:
    """Accounts and their releases for JSON."""
    return [statement.as_dict() for statement in ledger.statements()]


def _validation(folder: Path | None) -> str:
    said = "not run" if folder is None else validated(folder)
    if not said.startswith("FAILED"):
        return said
    return f"{said}; in quarantine. Other bounds (validation.*) cost nothing: run it again"


def _utility(ctx: Context, plan: Plan) -> str:
    dataset, file = ctx.config.dataset, ctx.workspace.internal(plan.id) / EVALUATION
    if not ctx.config.evaluate.enabled:
        return "not asked for (evaluate.enabled)"
    if not sets_aside(dataset):
        return "nothing is held out (dataset.holdout, dataset.test_path)"
    if not file.is_file():
        return "not measured"
    metrics = {
        metric["name"]: metric["value"]
        for metric in json.loads(file.read_text(encoding="utf-8"))["metrics"]
    }
    told = [text.format(metrics[name]) for name, text in UTILITY.items() if name in metrics]
    words = verdict(metrics)
    if words is None:
        return ", ".join(told) or f"in {short(file)}"
    if "downstream.accuracy" not in metrics:
        return ". ".join((words, ", ".join(told)))
    return f"{words}. By TF-IDF: {', '.join(told)}"


def short(path: Path) -> Path:
    """Relative to the working folder where that is shorter."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
