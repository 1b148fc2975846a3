"""Finished releases: the end of a run, and a comparison of several.

Cost and samples are public. The utility reads held-out real records and is internal, and so is the
page of a comparison, which shows both.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from markupsafe import Markup
from rich.console import Console

from privsyn import layout
from privsyn.data.artifacts import atomic_file, private_folder
from privsyn.display.plans import used_of_each
from privsyn.display.tables import Displayable, Table, Verbatim, facts, show
from privsyn.dp.accountant import format_epsilon, percent
from privsyn.errors import ConfigError, DataError
from privsyn.evaluation.judge import RELEASE, RIVALS, WORDS, Scores
from privsyn.evaluation.plots import draw_choice
from privsyn.evaluation.report import verdict
from privsyn.modalities.registry import modality_of
from privsyn.publishing import in_git, is_ignored
from privsyn.release import signature
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.report.document import render
from privsyn.stages.approval import suite_text
from privsyn.stages.base import Context
from privsyn.stages.check import counts_line
from privsyn.stages.partition import source_changed
from privsyn.stages.plan import preview
from privsyn.stages.publish import published_revision
from privsyn.stages.report import failures_text
from privsyn.stages.validate import refuse_unreleased
from privsyn.students.parent import Parent, open_parent, read_rows

UTILITY = {
    "downstream.macro_f1": "Macro F1 {:.3f}",
    "length_wasserstein": "lengths differ by {:.1f} words",
    "fid": "FID {:.1f}",
    "precision": "precision {:.2f}",
    "recall": "recall {:.2f}",
}
"""Internal numbers in the summary beside the accuracies, and their words."""


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
            ctx.lineage.link(ctx.lineage.release_run(plan.id)) or "not reachable"
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
    # Offer to start a server only for the project's own database and only if none runs.
    if ctx.config.services.mlflow is None and not _answers(ctx.config.services.mlflow_ui):
        port = urlsplit(ctx.config.services.mlflow_ui).port
        listen = f" --port {port}" if port else ""
        commands["lineage"] = (
            f"mlflow server --backend-store-uri {ctx.workspace.mlflow_uri}{listen}"
        )
    if overview := ctx.lineage.overview():
        commands["all releases"] = overview
    if (ctx.workspace.root / "Makefile").is_file():
        commands["schedule"] = "make up"
    if ctx.workspace.pointer(plan.id).is_file():
        if in_git(ctx.workspace.root):
            commands["commit"] = (
                # A parent's .gitignore may cover the pointer; without -f git would refuse it.
                f"git add {'-f ' if is_ignored(ctx.workspace.pointer(plan.id)) else ''}{pointer}"
            )
        commands["restore"] = f"dvc pull {pointer}"
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
    result = "not run" if folder is None else suite_text(folder)
    if not result.startswith("FAILED"):
        return result
    return f"{result}; in quarantine. Change validation.* and run it again: that costs nothing"


def _utility(ctx: Context, plan: Plan) -> str:
    dataset, file = ctx.config.dataset, ctx.workspace.internal(plan.id) / layout.EVALUATION
    if not ctx.config.evaluate.enabled:
        return "disabled (evaluate.enabled)"
    if not dataset.has_holdout:
        return "no hold-out (dataset.holdout, dataset.test_path)"
    if not file.is_file():
        return "not measured"
    measured = json.loads(file.read_text(encoding="utf-8"))
    metrics = {metric["name"]: metric["value"] for metric in measured["metrics"]}
    if missed := failures_text(measured):
        return f"measuring failed ({missed}); partial results are in {short(file)}"
    rest = ", ".join(
        text.format(metrics[name]) for name, text in UTILITY.items() if name in metrics
    )
    return " ".join(filter(None, (verdict(metrics), rest))) or f"in {short(file)}"


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
SAMPLES, LONGEST = 3, 240


@dataclass(frozen=True)
class Utility:
    """What was measured of a release, to read against what stands in its place. Internal.

    Attributes:
        value: The headline: accuracy on held-out real records of a classifier that learned from
            the release, or, without labels, their nearness.
        low: Lower end of its 95% interval; None without an interval.
        high: Upper end.
        by: How it was measured.
        rivals: The same of each rival, by the names of evaluation/judge.py.
        words: Accuracy by words; None where that was not measured beside another ruler.
        free: The best of what is free; None where nothing of it was measured.
        verdict: How useful it is and what the records added, in sentences.
    """

    value: float
    low: float | None
    high: float | None
    by: str
    rivals: Mapping[str, float] = field(default_factory=dict)
    words: float | None = None
    free: float | None = None
    verdict: str = ""

    @classmethod
    def read(cls, values: Mapping[str, float]) -> Utility | None:
        """From metrics by name; None where nothing was measured."""
        scores = Scores.read(values)
        if not scores.rulers:
            return None
        ruler = scores.rulers[0]
        release, rivals = scores[ruler.name, RELEASE], scores.rivals(ruler.name)
        no_interval = release.low == release.value == release.high
        free = scores.rivals(ruler.name, free=True)
        return cls(
            release.value,
            None if no_interval else release.low,
            None if no_interval else release.high,
            f"{ruler.number} by {ruler.words}",
            {one.name: scores.value(ruler.name, one.name) for one in rivals},
            scores.value(WORDS, RELEASE) if (WORDS, RELEASE) in scores else None,
            scores.value(ruler.name, scores.best_free(ruler.name).name) if free else None,
            verdict(values) or "",
        )

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.value:.3f}{interval}"


@dataclass(frozen=True)
class Compared:
    """One release among others.

    Attributes:
        name: Its id.
        method: What drew it.
        version: Of the dataset.
        epsilon: Its cost.
        delta: Its cost.
        takes: The part of the account's whole budget it took; None where no ledger says so.
        rows: Records it holds.
        utility: Internal; None where it was not measured.
        samples: Label and text of a few of its records; of images none.
    """

    name: str
    method: str
    version: str
    epsilon: float
    delta: float
    takes: float | None
    rows: int
    utility: Utility | None
    samples: tuple[tuple[str, str], ...]


@dataclass(frozen=True, repr=False)
class Comparison(Displayable):
    """Releases of one dataset side by side.

    Cost and samples are public; the utility is internal, and is shown where it was asked for.
    ``page``, ``plot`` and ``as_dict`` hold it always.

    Attributes:
        dataset: Its name.
        releases: By method and epsilon.
        internal: Whether it shows the utility.
    """

    dataset: str
    releases: tuple[Compared, ...]
    internal: bool = False

    @property
    def _with_utility(self) -> list[tuple[Compared, Utility]]:
        return [(one, one.utility) for one in self.releases if one.utility is not None]

    def _tables(self) -> tuple[Table, ...]:
        """Cost and, where it was asked for, utility: two tables, each of 80 columns at most."""
        costs = tuple(
            (
                one.name,
                format_epsilon(one.epsilon),
                f"{one.delta:g}",
                "-" if one.takes is None else percent(one.takes),
                f"{one.rows:,}",
            )
            for one in self.releases
        )
        cost = Table("", ("release", "epsilon", "delta", "account", "rows"), costs)
        if not self.internal:
            return (replace(cost, notes=self._notes()),)
        worth, rivals = [], []
        for one in self.releases:
            utility = one.utility
            numbers = (utility.free, utility.words) if utility else (None, None)
            worth.append((one.name, str(utility or "not measured"), *map(_cell, numbers)))
            beside = utility.rivals if utility else {}
            rivals.append((one.name, *(_cell(beside.get(name)) for name in _COLUMNS)))
        return (
            cost,
            Table("", ("release", "utility (internal)", "free", "words"), tuple(worth)),
            Table("", ("release", *_COLUMNS), tuple(rivals), self._notes()),
        )

    def _notes(self) -> tuple[str, ...]:
        measures = sorted({utility.by for _, utility in self._with_utility})
        # The advice to compare on public data stands on every page that shows an internal number.
        notes = [NOTE] if self.internal else [HIDDEN] if measures else []
        if self.internal and measures:
            columns = "; ".join(
                f"{one.name}: {one.words}" for one in RIVALS if one.name in _COLUMNS
            )
            columns = columns.replace("{real_records} ", "")
            notes.append(
                f"Utility is {' or '.join(measures)}; free: the best of what costs nothing; words: "
                f"accuracy by words. By the same ruler, {columns}."
            )
            notes += [f"{one.name}: {u.verdict}" for one, u in self._with_utility if u.verdict]
        versions = sorted({release.version for release in self.releases})
        if len(versions) > 1:
            notes.append(
                f"The releases are of versions {', '.join(versions)}, each made from other records."
            )
        return tuple(notes)

    def plot(self) -> bytes | None:
        """Epsilon against accuracy as a PNG file; None where nothing was measured. Internal."""
        if not self._with_utility:
            return None
        points = [
            (one.method, one.epsilon, utility.value, utility.low, utility.high)
            for one, utility in self._with_utility
        ]
        # The lines are those of one release: all are of one dataset, so the real records and the
        # public model's texts are much the same for all of them.
        _, first = self._with_utility[0]
        lines = {
            "best of what is free": first.free,
            "public model alone": first.rivals.get("public"),
            "as many real records": first.rivals.get("real"),
            "commonest label": first.rivals.get("chance"),
        }
        of = "accuracy" if first.by.startswith("accuracy") else "nearness"
        return draw_choice(points, {name: y for name, y in lines.items() if y is not None}, of)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        releases = [asdict(one) for one in self.releases]
        for release in releases:
            # For programs: texts would drown the numbers, and each release's file has them all.
            del release["samples"]
        # The result holds the utility whatever was shown, so it carries the note on it, too.
        notes = list(replace(self, internal=True)._notes())
        return {
            "class": "internal", "dataset": self.dataset, "releases": releases, "notes": notes
        }  # fmt: skip

    def page(self) -> str:
        """The comparison as one page: no script, nothing fetched. Internal."""
        body = replace(self, internal=True)._html()
        return str(
            render("compare.html", page_is="Comparison", release_id=self.dataset, comparison=body)
        )

    def _repr_html_(self) -> str:
        return str(self._html())

    def _html(self) -> Markup:
        """The tables and samples, and where it was asked for the plot."""
        tables = Markup(super()._repr_html_())  # noqa: S704  each cell is escaped
        plot = self.plot() if self.internal else None
        return render("comparison.html", tables=tables, releases=self.releases, plot=plot)


def compare(ctx: Context, names: Sequence[str], *, internal: bool = False) -> Comparison:
    """Put releases of one dataset side by side. Reads no record: what evaluate measured is on file.

    Args:
        ctx: Config, workspace and ledger.
        names: Ids of finished releases.
        internal: Whether what it returns shows the utility, too.

    Raises:
        DataError: One is not here, or none is named.
        VerificationError: One is not what was certified.
        ValidationFailed: One has not passed its suite, or waits for its disclosure audit.
        ConfigError: They are not of one dataset, or one is itself made from a release.
    """
    if not names:
        raise DataError("there is no release to compare.", hint="Make some: privsyn run")
    parents = [open_parent(ctx, name) for name in dict.fromkeys(names)]
    for parent in parents:
        # privacy: samples are shown, so a release that failed its suite or waits for its audit is
        # out.
        refuse_unreleased(parent.folder, ctx)
    datasets = sorted({parent.plan.dataset.name for parent in parents})
    if len(datasets) > 1:
        raise ConfigError(
            f"the releases are of {len(datasets)} datasets: {', '.join(datasets)}.",
            hint="Compare releases of one dataset.",
        )
    rows = sorted(
        (_comparison(ctx, parent) for parent in parents), key=lambda one: (one.method, one.epsilon)
    )
    return Comparison(datasets[0], tuple(rows), internal)


def paid(ctx: Context) -> list[str]:
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


def write(ctx: Context, comparison: Comparison) -> Path:
    """Write the page of a comparison into the state folder, mode 0600: it is internal."""
    # The same releases get the same page: comparing twice leaves one internal file, not two.
    listed = "\n".join(release.name for release in comparison.releases)
    folder = ctx.workspace.internal(f"compare-{hashlib.sha256(listed.encode()).hexdigest()[:12]}")
    private_folder(folder)
    with atomic_file(folder / "compare.html", mode=0o600) as stream:
        stream.write(comparison.page().encode())
    return folder / "compare.html"


def _comparison(ctx: Context, parent: Parent) -> Compared:
    plan = parent.plan
    return Compared(
        name=plan.id,
        method=plan.method,
        version=plan.dataset.version,
        epsilon=plan.epsilon,
        delta=plan.delta,
        takes=ctx.ledger.accounts.preview(ctx.account, plan.privacy_event()).takes,
        rows=parent.facts.rows,
        utility=_measured_utility(ctx.workspace.internal(plan.id) / layout.EVALUATION),
        samples=_samples(parent),
    )


def _samples(parent: Parent) -> tuple[tuple[str, str], ...]:
    """A few records, evenly spaced; of images there is nothing to say in words."""
    records = read_rows(parent)
    # Evenly spaced, not picked: the choice depends on the number of rows alone.
    step = max(1, len(records) // SAMPLES)
    return tuple(
        (label or "", content if len(content) <= LONGEST else f"{content[:LONGEST]} ...")
        for label, content in records[::step][:SAMPLES]
        if isinstance(content, str)
    )


def _measured_utility(file: Path) -> Utility | None:
    """What evaluate measured."""
    try:
        measured = json.loads(file.read_bytes())["metrics"]
        return Utility.read({str(metric["name"]): float(metric["value"]) for metric in measured})
    # Not measured here, or not readable: a comparison goes on without the number.
    except (OSError, ValueError, LookupError, TypeError):
        return None


_COLUMNS = ("public", "chosen", "zero_shot", "examples", "real")
"""Rivals in the table of a comparison: as many as 80 columns hold beside an id."""


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
