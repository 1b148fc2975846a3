"""What a person wants to know at the end of a run."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from privsyn.display.plans import used_of_each
from privsyn.display.tables import Verbatim, facts, show
from privsyn.dp.accountant import percent, shown
from privsyn.evaluation.classifiers import verdict
from privsyn.modalities.registry import modality_of
from privsyn.publishing.git import ignored, in_git
from privsyn.release import layout, signature
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.stages.approval import validated
from privsyn.stages.base import Context
from privsyn.stages.check import kept
from privsyn.stages.partition import source_changed
from privsyn.stages.plan import room
from privsyn.stages.publish import published
from privsyn.stages.report import failed

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
    entry = ctx.ledger.releases.get(plan.id)
    folder = ctx.workspace.locate(plan.id)
    lines = {"release": Verbatim(plan.id), "state": entry.state.value}
    if folder is not None:
        facts = ReleaseFacts.read(folder)
        lines["synthetic data"] = Verbatim(short(folder / layout.ARTIFACT))
        lines[plan.things] = str(facts.rows)
        # The sparse vector technique charges for the private tokens that it lets through alone.
        if "public_tokens" in facts.drawn:
            tokens = facts.drawn["tokens"]
            share = facts.drawn["public_tokens"] / max(1, tokens)
            lines["public tokens"] = f"{share:.0%} of {tokens:,}: they cost nothing"
        if not facts.is_private:
            lines["class"] = f"{facts.kind}: made with a {facts.noise} noise source"
        if accuracy := facts.accuracy_sentences:
            lines["accuracy"] = "; ".join(accuracy)
    if records := kept(ctx.workspace.internal(plan.id), plan):
        lines[_RECORDS] = records
    balance = ctx.ledger.accounts.balance(plan.account)
    lines |= {
        "guarantee": f"({shown(plan.epsilon)}, {plan.delta:g})-DP",
        "protects": f"{plan.unit}, {used_of_each(plan)}, adjacency {plan.adjacency}",
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
        # privacy: output that is no terminal is kept in a log or a CI job, which others may read.
        lines = {name: text for name, text in lines.items() if name not in _OF_RECORDS}
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
    # Offer to start a server only for the project's own database and only if none runs.
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
            commands["keep in git"] = (
                # A parent's .gitignore may cover the pointer; without -f git would refuse it.
                f"git add {'-f ' if ignored(ctx.workspace.pointer(plan.id)) else ''}{pointer}"
            )
        commands["bring back"] = f"dvc pull {pointer}"
    return commands


def _answers(address: str) -> bool:
    """Whether a server listens at an address of this machine; of others it is taken for granted."""
    parts = urlsplit(address)
    if parts.hostname not in ("127.0.0.1", "localhost"):
        return True
    try:
        # One second: a summary must not hang on a port that a firewall drops.
        socket.create_connection((parts.hostname, parts.port or 80), timeout=1).close()
    except OSError:
        # Refused or timed out: either way nobody can open the link.
        return False
    return True


def _validation(folder: Path | None) -> str:
    result = "not run" if folder is None else validated(folder)
    if not result.startswith("FAILED"):
        return result
    return f"{result}; in quarantine. Other bounds (validation.*) cost nothing: run it again"


def _utility(ctx: Context, plan: Plan) -> str:
    dataset, file = ctx.config.dataset, ctx.workspace.internal(plan.id) / layout.EVALUATION
    if not ctx.config.evaluate.enabled:
        return "not asked for (evaluate.enabled)"
    if not dataset.has_holdout:
        return "nothing is held out (dataset.holdout, dataset.test_path)"
    if not file.is_file():
        return "not measured"
    measured = json.loads(file.read_text(encoding="utf-8"))
    metrics = {metric["name"]: metric["value"] for metric in measured["metrics"]}
    if missed := failed(measured):
        return f"measuring failed ({missed}); what is left lies in {short(file)}"
    sentences = [text.format(metrics[name]) for name, text in UTILITY.items() if name in metrics]
    words = verdict(metrics)
    if words is None:
        return ", ".join(sentences) or f"in {short(file)}"
    # Without labels there is no classifier, so nothing was measured by TF-IDF.
    if "downstream.accuracy" not in metrics:
        return ". ".join((words, ", ".join(sentences)))
    return f"{words}. By TF-IDF: {', '.join(sentences)}"


def short(path: Path) -> Path:
    """Relative to the working folder where that is shorter."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
