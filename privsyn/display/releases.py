"""Finished releases: the end of a run, and a comparison of several.

Cost is public. The utility reads held-out real records and is internal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from privsyn import layout
from privsyn.display.plans import used_of_each
from privsyn.display.tables import Displayable, Table, Verbatim, facts, show
from privsyn.dp.accountant import format_epsilon, percent
from privsyn.errors import ConfigError, DataError
from privsyn.evaluation.judge import RELEASE, Scores
from privsyn.evaluation.metrics import numbers_of, read_evaluation
from privsyn.evaluation.report import verdict
from privsyn.modalities.registry import modality_of
from privsyn.publishing import in_git
from privsyn.release import signature
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.stages.approval import suite_text
from privsyn.stages.base import Context
from privsyn.stages.check import counts_line
from privsyn.stages.partition import source_changed
from privsyn.stages.plan import preview
from privsyn.stages.publish import published_revision
from privsyn.stages.report import failures_text
from privsyn.stages.validate import refuse_unreleased
from privsyn.students.parent import open_parent


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
    lines |= {
        "guarantee": f"({format_epsilon(plan.epsilon)}, {plan.delta:g})-DP",
        "protects": f"{plan.unit}, {used_of_each(plan)}, adjacency {plan.adjacency}",
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
        return "disabled (evaluate.enabled)"
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


NOTE = (
    "Utility is internal: it reads held-out real records, and no account is charged for it. "
    "Choosing a method or an epsilon by it is a query on the data. Choose on public or invented "
    "data, or by the plan; or compare once and keep the numbers and the other releases inside."
)
HIDDEN = (
    "What was measured on held-out real records is internal and not shown: "
    "compare(..., internal=True) shows it. Choosing by it is a query on the data."
)


@dataclass(frozen=True, repr=False)
class Comparison(Displayable):
    """Releases of one dataset side by side.

    Cost is public; the utility is internal, and is there where it was asked for.

    Attributes:
        dataset: Its name.
        releases: By method and epsilon: what each cost, and what was measured of it.
        internal: Whether utilities are in it.
    """

    dataset: str
    releases: tuple[Mapping[str, Any], ...]
    internal: bool = False

    def as_json(self) -> dict[str, Any]:
        """It as one JSON-able answer."""
        kind = "internal" if self.internal else "public"
        return {"class": kind, "dataset": self.dataset, "releases": list(self.releases)}

    def _tables(self) -> tuple[Table, ...]:
        """Cost and, where it was asked for, utility: two tables, each of 80 columns at most."""
        costs = tuple(
            (
                one["release"],
                format_epsilon(one["epsilon"]),
                f"{one['delta']:g}",
                percent(one["share"]),
                f"{one['rows']:,}",
                one["version"],
            )
            for one in self.releases
        )
        columns = ("release", "epsilon", "delta", "account", "rows", "version")
        if not self.internal:
            return (Table("", columns, costs, (HIDDEN,)),)
        worth = tuple(
            (one["release"], *_utility_cells(one["utility"] or {})) for one in self.releases
        )
        notes = [
            f"{one['release']}: by {one['utility']['by']}. {one['utility']['verdict']}"
            for one in self.releases
            if one["utility"]
        ]
        return (
            Table("", columns, costs),
            Table("", ("release", "utility (internal)", "free"), worth, (NOTE, *notes)),
        )


def _utility_cells(utility: Mapping[str, Any]) -> tuple[str, str]:
    """What a release is worth with its interval, and the best of what costs nothing."""
    if not utility:
        return "not measured", "-"
    value, low, high = (utility[key] for key in ("value", "low", "high"))
    interval = "" if low == value == high else f" [{low:.3f}, {high:.3f}]"
    free = utility["free"]
    return f"{value:.3f}{interval}", "-" if free is None else f"{free:.3f}"


def compare(ctx: Context, names: Sequence[str] = (), *, internal: bool = False) -> Comparison:
    """Put releases of one dataset side by side. Reads no record: what evaluate measured is on file.

    Args:
        ctx: Config, workspace and ledger.
        names: Ids of finished releases; none: all that were paid for and passed their suite.
        internal: Whether the utility is wanted, too.

    Raises:
        DataError: One is not here, or there is none.
        VerificationError: One is not what was certified.
        ValidationFailed: One has not passed its suite, or waits for its disclosure audit.
        ConfigError: They are not of one dataset, or one is itself made from a release.
    """
    parents = [open_parent(ctx, name) for name in dict.fromkeys(names or _paid(ctx))]
    if not parents:
        raise DataError("there is no release to compare.", hint="Make some: privsyn run")
    for parent in parents:
        refuse_unreleased(parent.folder, ctx)
    datasets = sorted({parent.plan.dataset.name for parent in parents})
    if len(datasets) > 1:
        raise ConfigError(
            f"the releases are of {len(datasets)} datasets: {', '.join(datasets)}.",
            hint="Compare releases of one dataset.",
        )
    rows = []
    for parent in sorted(parents, key=lambda one: (one.plan.method, one.plan.epsilon)):
        plan = parent.plan
        row = {
            "release": plan.id,
            "method": plan.method,
            "version": plan.dataset.version,
            "epsilon": plan.epsilon,
            "delta": plan.delta,
            "share": ctx.ledger.accounts.preview(ctx.account, plan.privacy_event()).takes,
            "rows": parent.facts.rows,
        }
        rows.append(row | ({"utility": _measured_utility(ctx, plan)} if internal else {}))
    return Comparison(datasets[0], tuple(rows), internal)


def _paid(ctx: Context) -> list[str]:
    """Releases that are here or stored and passed their suite, none that were made from others."""
    folders = [ctx.workspace.locate(name) for name in ctx.workspace.reachable()]
    return [
        folder.name
        for folder in folders
        if folder is not None
        # One in quarantine lies elsewhere.
        and folder == ctx.workspace.release(folder.name)
        and layout.suite_passed(folder)
        and not ReleaseFacts.read(folder).is_derived
    ]


def _measured_utility(ctx: Context, plan: Plan) -> dict[str, Any] | None:
    """What evaluate measured by its first ruler: value, interval, the best of what is free."""
    values = numbers_of(read_evaluation(ctx.workspace.internal(plan.id)))
    scores = Scores.read(values)
    if not scores.rulers:
        return None
    ruler = scores.rulers[0]
    score = scores[ruler.name, RELEASE]
    free = scores.rivals(ruler.name, free=True)
    return {
        "by": f"{ruler.number} by {ruler.words}",
        "value": score.value,
        "low": score.low,
        "high": score.high,
        "free": scores.value(ruler.name, scores.best_free(ruler.name).name) if free else None,
        "verdict": verdict(values) or "",
    }
