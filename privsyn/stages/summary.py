"""What a person wants to know at the end of a run, and of the accounts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from privsyn import certificate
from privsyn.dp.accountant import shown
from privsyn.ledger import Ledger, Statement
from privsyn.release import Plan
from privsyn.stages.base import Context
from privsyn.stages.evaluate import EVALUATION
from privsyn.stages.partition import source_changed
from privsyn.stages.publish import published
from privsyn.stages.validate import PAGE, VALIDATION

UTILITY = {
    "downstream.accuracy": "accuracy {:.3f}",
    "downstream.macro_f1": "macro F1 {:.3f}",
    "downstream.records": "on {:.0f} held-out real records, trained on the synthetic ones",
    "length_wasserstein": "lengths {:.1f} words apart",
    "fid": "FID {:.1f}",
    "precision": "precision {:.2f}",
    "recall": "recall {:.2f}",
}
"""Internal numbers worth a line, and how they read."""


def facts(ctx: Context, plan: Plan) -> dict[str, str]:
    """The end of a run, line by line: what came out, what it cost, and how to look at it."""
    entry = ctx.ledger.entry(plan.id)
    folder = ctx.workspace.locate(plan.id)
    lines = {"release": f"{plan.id} ({entry.state.value})"}
    if folder is not None:
        _, sealed = certificate.read(folder)
        lines["synthetic data"] = str(_short(folder / certificate.ARTIFACT))
        things = "rows" if plan.dataset.images is None else "images"
        lines[things] = str(sealed["artifact"]["rows"])
        drawn = sealed.get("drawn", {})
        if "public_tokens" in drawn:
            share = drawn["public_tokens"] / max(1, drawn["tokens"])
            lines["public tokens"] = f"{share:.0%} of {drawn['tokens']:,}: they cost nothing"
        if sealed["class"] != "dp-release":
            lines["class"] = f"{sealed['class']}: made with a {sealed['noise']} noise source"
    balance = ctx.ledger.balance(plan.account)
    lines |= {
        "guarantee": f"({shown(plan.epsilon)}, {plan.delta:g})-DP",
        "protects": f"{plan.unit}, at most {plan.max_records_per_unit} record(s) each, "
        f"adjacency {plan.adjacency}",
        "budget": f"account {plan.account}: {balance.share:.0%} of ({balance.cap.epsilon:g}, "
        f"{balance.cap.delta:g}) spent; room for one more release of epsilon "
        f"{balance.left_epsilon:.4g}",
        "validation": _validation(folder),
        "utility (internal)": _utility(ctx.workspace.internal(plan.id) / EVALUATION),
        "MLflow run": ctx.lineage.link(ctx.lineage.release_run(plan.id)) or "not reachable",
        "DVC revision": published(ctx, plan) or "not published",
    }
    if source_changed(ctx, plan):
        lines["note"] = (
            "the private file is not the one this release was made from; to use it, set another "
            "dataset.version, which is a new charge"
        )
    return lines


def summary(ctx: Context, plan: Plan) -> RenderableType:
    """The end of a run as a table, with the commands that open each part."""
    table = Table(show_header=False, title="Release", title_justify="left", min_width=72)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts(ctx, plan).items():
        table.add_row(name, value)
    folder = ctx.workspace.locate(plan.id)
    if folder is None:
        return table
    shown = _short(folder)
    look = {"read some": f"head -3 {shown / certificate.ARTIFACT}"}
    if plan.dataset.images is not None:
        look = {"see some": f"xdg-open {shown / certificate.IMAGES}"}
    commands = look | {
        "certificate": f"privsyn verify {shown}",
        "validation": f"xdg-open {shown / PAGE}",
        "accounts": "privsyn ledger show",
        "schedule it": "make up",
        "keep in git": f"git add releases/{plan.id}.dvc",
        "bring back": f"dvc pull releases/{plan.id}.dvc",
    }
    guide = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    guide.add_column(no_wrap=True)
    guide.add_column(style="cyan", no_wrap=True)
    for purpose, command in commands.items():
        guide.add_row(purpose, command)
    return Group(table, Text("\nWhat next", style="bold"), guide)


def accounts(statements: list[Statement]) -> RenderableType:
    """Accounts and their releases as tables."""
    if not statements:
        return Text("The ledger holds no account yet.")
    parts: list[RenderableType] = []
    for statement in statements:
        spec, balance = statement.spec, statement.balance
        table = Table(
            title=f"{spec.name}: cap ({spec.epsilon:g}, {spec.delta:g}) per {spec.unit}, "
            f"{spec.adjacency}; {balance.share:.1%} spent, room for one more release of epsilon "
            f"{balance.left_epsilon:.4g}",
            title_justify="left",
            box=None,
            padding=(0, 2, 0, 0),
        )
        reasons = any(entry.reason for entry in statement.releases)
        for column in ("#", "release", "state", "guarantee", "reserved (UTC)"):
            table.add_column(column, no_wrap=True)
        if reasons:
            table.add_column("why", overflow="fold")
        for entry in statement.releases:
            table.add_row(
                str(entry.number),
                entry.release_id,
                entry.state.value,
                f"({shown(entry.epsilon)}, {entry.delta:g})",
                f"{entry.reserved_at:%y-%m-%d %H:%M}",
                *([entry.reason or ""] if reasons else []),
            )
        parts.append(table)
    return Group(*parts)


def account_rows(ledger: Ledger) -> list[dict[str, Any]]:
    """Accounts and their releases for JSON."""
    return [statement.as_dict() for statement in ledger.statements()]


def _validation(folder: Path | None) -> str:
    if folder is None or not (folder / VALIDATION).is_file():
        return "not run"
    result = json.loads((folder / VALIDATION).read_text(encoding="utf-8"))
    checks = result["expectations"]
    passed = sum(bool(check["success"]) for check in checks)
    verdict = "passed" if result["success"] else "FAILED, in quarantine"
    return f"{verdict}, {passed} of {len(checks)} checks"


def _utility(file: Path) -> str:
    if not file.is_file():
        return "nothing held out"
    metrics = {
        metric["name"]: metric["value"]
        for metric in json.loads(file.read_text(encoding="utf-8"))["metrics"]
    }
    return ", ".join(
        shown.format(metrics[name]) for name, shown in UTILITY.items() if name in metrics
    )


def _short(path: Path) -> Path:
    """Relative to the working folder where that is shorter."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
