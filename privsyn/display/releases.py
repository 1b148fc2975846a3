"""The end of a run. Cost is public; the utility reads held-out real records and is internal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from privsyn import layout
from privsyn.display.tables import Verbatim, facts, show
from privsyn.dp.accountant import format_epsilon, percent
from privsyn.evaluation.metrics import numbers_of, read_evaluation
from privsyn.evaluation.report import verdict
from privsyn.modalities.registry import modality_of
from privsyn.publishing import in_git
from privsyn.release import signature
from privsyn.release.advice import of_each
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.stages.approval import suite_text
from privsyn.stages.base import Context
from privsyn.stages.check import counts_line
from privsyn.stages.partition import source_changed
from privsyn.stages.plan import preview
from privsyn.stages.publish import published_revision
from privsyn.stages.report import failures_text


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
        if "public_tokens" in facts.draw_counts:
            tokens = facts.draw_counts["tokens"]
            share = facts.draw_counts["public_tokens"] / max(1, tokens)
            lines["public tokens"] = f"{share:.0%} of {tokens:,}: they cost nothing"
        if not facts.is_private:
            lines["class"] = f"{facts.kind}: made with a {facts.noise} noise source"
        if accuracy := facts.accuracy_sentences:
            lines["accuracy"] = "; ".join(accuracy)
    if records := counts_line(ctx.workspace.internal(plan.id), plan):
        lines[_RECORDS] = records
    if ctx.config.models.server is not None:
        from privsyn.models.language.openai_http import usage  # late: loads the client

        lines["model server"] = f"{usage(ctx.config.models.server)}, by this process"
    balance = ctx.ledger.accounts.balance(plan.account)
    used = of_each(plan.dataset, plan.max_records_per_unit)
    lines |= {
        "guarantee": f"({format_epsilon(plan.epsilon)}, {plan.delta:g})-DP",
        "protects": f"{plan.unit}, {used}, adjacency {plan.adjacency}",
        "budget": f"account {plan.account}: {percent(balance.share)} of ({balance.cap.epsilon:g}, "
        f"{balance.cap.delta:g}) spent; room for another release of this kind up to epsilon "
        f"{preview(ctx, plan).room:.4g}",
        "validation": _validation(folder),
        "signature": _signature(folder),
        _UTILITY: _utility(ctx, plan),
        "MLflow run": Verbatim(
            ctx.tracker.link(ctx.tracker.release_run(plan.id)) or "not reachable"
        ),
        "DVC revision": Verbatim(published_revision(ctx, plan) or "not published"),
    }
    if source_changed(ctx, plan):
        lines[_NOTE] = (
            "the private file has changed since this release; to use it, set another "
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
    if ctx.config.services.mlflow is None:  # the project's own database has no server
        commands["lineage"] = f"mlflow server --backend-store-uri {ctx.workspace.mlflow_uri}"
    if ctx.workspace.pointer(plan.id).is_file():
        if in_git(ctx.workspace.root):
            # A parent's .gitignore may cover the pointer; without -f git would refuse it.
            commands["commit"] = f"git add -f {pointer}"
        commands["restore"] = f"dvc pull {pointer}"
    return commands


def _validation(folder: Path | None) -> str:
    result = "not run" if folder is None else suite_text(folder)
    if not result.startswith("FAILED"):
        return result
    return f"{result}; in quarantine. Change validation.* and run it again: that costs nothing"


def _utility(ctx: Context, plan: Plan) -> str:
    dataset, folder = ctx.config.dataset, ctx.workspace.internal(plan.id)
    if not ctx.config.evaluate.enabled:
        return "disabled (evaluate.by)"
    if not dataset.has_holdout:
        return "no hold-out (dataset.holdout, dataset.test_path)"
    if not (measured := read_evaluation(folder)):
        return "not measured"
    file = short(folder / layout.EVALUATION)
    if missed := failures_text(measured):
        return f"measuring failed ({missed}); partial results are in {file}"
    return verdict(numbers_of(measured)) or f"in {file}"


def short(path: Path) -> Path:
    """Relative to the working folder where that is shorter."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
