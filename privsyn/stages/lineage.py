"""What a release writes to MLflow: one run, a nested run per stage, and what to attach to which.

The release's run holds public facts: parameters, cost, certificate, validation. The nested runs are
internal: at least their durations depend on the data, and evaluate's numbers do altogether. Also
the warnings that a release is worth less than the one before it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsyn import layout
from privsyn.data.artifacts import private_folder, write_json_atomic
from privsyn.errors import PrivsynError, StorageError
from privsyn.files import read_json
from privsyn.ledger.entries import Entry, State
from privsyn.release import signature
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.release.workspace import Workspace
from privsyn.stages.approval import may_leave
from privsyn.stages.audit import withheld
from privsyn.stages.base import Context
from privsyn.tracking import CLASS_TAG, MODEL_FOLDER, RELEASE_TAG

if TYPE_CHECKING:
    from privsyn.publishing import DvcRevision

VALIDATION_TAG, SIGNED_TAG = "privsyn.validation", "privsyn.signed_by"
WARNING = "privsyn.warning"
"""Tag where a release is worth less than the last: of a release's run by what it paid for, of its
nested run by what is internal."""
NOTE, USER, SOURCE = "mlflow.note.content", "mlflow.user", "mlflow.source.name"
SOURCE_TYPE, COMMIT = "mlflow.source.type", "mlflow.source.git.commit"
"""Tags that MLflow's pages know."""


@contextmanager
def trace_stage(
    ctx: Context, release_id: str, stage: str, shard: int | None = None
) -> Iterator[None]:
    """The nested run of a stage. A store that is down never stops a stage.

    A stage that finds its work done, because the release exists, leaves the nested run of the one
    that did it as it is.

    Args:
        ctx: Ledger and tracker.
        release_id: The release.
        stage: Name of the stage, and of its run.
        shard: Parallel shards have runs of their own, with the number behind the name.
    """
    if _is_done(ctx, release_id, stage):
        yield
        return
    name, server = stage if shard is None else f"{stage}-{shard}", ctx.config.models.server
    with ctx.lineage.stage_run(release_id, name) as run:
        if server is None:
            yield
            return
        from privsyn.models.language.openai_http import usage  # late: loads the client

        before = usage(server)
        try:
            yield
        finally:  # a stage that fails has used tokens, too
            after = usage(server)
            spent = {
                f"server.{key}": value - getattr(before, key) for key, value in vars(after).items()
            }
            if any(spent.values()):
                ctx.lineage.log_metrics(run, spent)


DRAWING = ("partition", "train", "generate", "certify")
"""Stages with nothing left to do once a release is committed; the others once it is published."""


def _is_done(ctx: Context, release_id: str, stage: str) -> bool:
    if stage in DRAWING:
        return ctx.ledger.releases.get(release_id).state is State.COMMITTED
    return ctx.workspace.pointer(release_id).is_file()


def open_release(ctx: Context, plan: Plan, entry: Entry) -> None:
    """Describe a reserved release: what it is, what it costs, who runs it."""
    run = ctx.lineage.release_run(plan.id)
    ctx.lineage.log_params(run, _flat(plan))
    ctx.lineage.log_dataset(run, plan.dataset.name, plan.dataset.version)
    ctx.lineage.set_tags(
        run,
        {
            "privsyn.ledger_entry": entry.number,
            "privsyn.account": plan.account,
        },
    )
    if entry.state is not State.COMMITTED:  # else these say who made it, and certify set its class
        origin = {f"privsyn.{key}": value for key, value in ctx.origin.items() if value}
        ctx.lineage.set_tags(run, {CLASS_TAG: "reserved"} | origin | _page_tags(ctx, plan))
    ctx.lineage.log_metrics(run, {"epsilon": plan.epsilon, "delta": plan.delta})
    _note_run(ctx, plan.id, run)


RUN = "mlflow.json"
"""In a release's internal folder: where its run is in the UI."""


def _note_run(ctx: Context, release_id: str, run: str) -> None:
    """Keep where a run is shown, for pages that must not wait for the store."""
    address, ui = ctx.lineage.link(run), ctx.config.services.mlflow_ui.rstrip("/")
    if not address or not address.startswith(ui):
        return
    folder = ctx.workspace.internal(release_id)
    with suppress(StorageError):  # a link is not worth a release
        private_folder(folder)
        write_json_atomic(folder / RUN, {"run": address.removeprefix(ui)}, mode=0o600)


def noted_run(workspace: Workspace, release_id: str) -> str | None:
    """Where a release's run is, below the address of the UI; None where it is not known."""
    try:
        noted = read_json(workspace.internal(release_id) / RUN)["run"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return noted if isinstance(noted, str) and noted.startswith("/#/") else None


def _page_tags(ctx: Context, plan: Plan) -> dict[str, object]:
    """What MLflow's own pages show of a run: who, from where, and in a sentence."""
    origin = ctx.origin
    driver, url = origin.get("driver", "privsyn"), origin.get("url")
    by = f"[the run of {origin['dag_id']}]({url})" if url else driver
    text = (
        f"{plan.rows_said} synthetic records of `{plan.dataset.name}` "
        f"({plan.dataset.version}) by {plan.method}: epsilon {plan.epsilon:.4g}, delta "
        f"{plan.delta:g} per {plan.unit}, {plan.adjacency.value}, charged to the account "
        f"`{plan.account}`. Made by {by}. Nested runs are internal."
    )
    tags: dict[str, object] = {NOTE: text, SOURCE: url or driver, SOURCE_TYPE: "JOB"}
    return tags | ({USER: origin["user"]} if origin.get("user") else {})


def log_certificate(ctx: Context, plan: Plan, folder: Path) -> None:
    """Write what a certified release is: digests, counts of the draw, certificate."""
    facts = ReleaseFacts.read(folder)
    run = ctx.lineage.release_run(plan.id)
    commit = facts.software.get("git")
    ctx.lineage.set_tags(run, digests(facts) | ({COMMIT: commit} if commit else {}))
    log_synthetic(ctx, facts)
    ctx.lineage.log_metrics(run, {f"drawn.{k}": v for k, v in facts.draw_counts.items()})
    ctx.lineage.log_metrics(run, _accuracy(facts))
    if warning := paid_drop(ctx, plan):
        ctx.lineage.set_tags(run, {WARNING: warning})
    ctx.lineage.log_artifact(run, folder / layout.CERTIFICATE)


def _accuracy(facts: ReleaseFacts) -> dict[str, float]:
    """The accuracy a release pays for, and the ends of its intervals: outputs of a mechanism."""
    names = ("value", "low", "high", "noise_low", "noise_high", "epsilon")
    values = {f"paid_accuracy.{name}": facts.accuracy.get(name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def log_synthetic(ctx: Context, facts: ReleaseFacts) -> None:
    """Record what a release wrote as a dataset of its run, by name and digest."""
    digest = facts.sha256[:36]  # as much as MLflow keeps
    ctx.lineage.log_dataset(ctx.lineage.release_run(facts.name), facts.name, digest, "synthetic")


def log_validation(ctx: Context, plan: Plan, folder: Path, *, passed: bool) -> None:
    """Write how a release did in its suite.

    Of one that failed the verdict alone: its report, exhibits and numbers stay in quarantine, and
    its model is not announced. The same of one that an audit that blocks has not let through, or
    not yet. A model that people are to approve is announced by ``announce``, once they have.
    """
    run = ctx.lineage.release_run(plan.id)
    ctx.lineage.set_tags(run, {VALIDATION_TAG: "passed" if passed else "failed"})
    facts = ReleaseFacts.read(folder)
    if not passed or withheld(ctx, plan):
        if facts.has_model:
            ctx.lineage.withdraw_model(_model(plan, plan.method), plan.id)
        return
    if (name := signature.signed_by(folder)) is not None:
        ctx.lineage.set_tags(run, {SIGNED_TAG: name})
        ctx.lineage.log_artifact(run, folder / layout.SIGNATURE)
    ctx.lineage.log_metrics(run, json.loads((folder / layout.QUALITY).read_bytes()))
    for name in (layout.VALIDATION, layout.page_of(folder).name, layout.REPORT_JSON):
        if (folder / name).is_file():
            ctx.lineage.log_artifact(run, folder / name)
    for name in facts.exhibits:
        ctx.lineage.log_artifact(run, folder / layout.EXHIBITS / name, "exhibits")
    announce(ctx, plan, folder)


def log_measures(ctx: Context, plan: Plan) -> None:
    """Write what a release was measured to be, from its internal folder, if it was.

    Into the nested run of ``evaluate``, which ends anew. The audit's numbers stay in the folder.
    """
    folder = ctx.workspace.internal(plan.id)
    try:
        content = read_json(folder / layout.EVALUATION)
        values = {one["name"]: one["value"] for one in content["metrics"]}
    except (OSError, ValueError, LookupError, TypeError):
        return
    with ctx.lineage.stage_run(plan.id, "evaluate") as run:
        numbers = {name: value for name, value in values.items() if not name.startswith("audit.")}
        ctx.lineage.log_metrics(run, numbers)
        if warning := content.get("warning"):
            ctx.lineage.set_tags(run, {WARNING: warning})
        for name in (layout.INSIDE_PAGE, layout.INSIDE_NUMBERS):
            if (folder / name).is_file():
                ctx.lineage.log_artifact(run, folder / name)


def announce(ctx: Context, plan: Plan, folder: Path) -> None:
    """Register the model of a valid release, if it has one and it may be published."""
    if ReleaseFacts.read(folder).has_model:
        register(ctx, folder, plan.method)


def log_revision(ctx: Context, name: str, revision: DvcRevision) -> None:
    """Write where a release or a student is to be had."""
    ctx.lineage.set_tags(
        ctx.lineage.release_run(name),
        {"privsyn.dvc_revision": revision.md5, "privsyn.dvc_pointer": revision.pointer},
    )


def end_run(ctx: Context, name: str) -> None:
    """End the run of a release, by where the release lies."""
    released = ctx.workspace.release(name).is_dir()
    ctx.lineage.finish(ctx.lineage.release_run(name), "FINISHED" if released else "FAILED")


def register(
    ctx: Context, folder: Path, method: str, tags: Mapping[str, object] | None = None
) -> None:
    """Make the model of a valid release, or of a student of it, a version of a registered model.

    Whoever asks the registry gets its files, so one that nobody has approved is withdrawn where
    people are to approve what is published.
    """
    facts = ReleaseFacts.read(folder)
    plan, name = facts.plan, facts.name
    if not may_leave(ctx, folder):
        ctx.lineage.withdraw_model(_model(plan, method), name)
        return
    ctx.lineage.log_artifact(
        ctx.lineage.release_run(name), folder / layout.CERTIFICATE, MODEL_FOLDER
    )
    cost = {
        RELEASE_TAG: name,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "adjacency": plan.adjacency.value,
        "unit": plan.unit,
    }
    ctx.lineage.register_model(
        ctx.lineage.release_run(name),
        _model(plan, method),
        folder / layout.MODEL,
        digests(facts) | cost | dict(tags or {}),
    )


def _model(plan: Plan, method: str) -> str:
    """Name of the registered model of a method on a dataset."""
    return f"{plan.dataset.name}-{method}"


def digests(facts: ReleaseFacts) -> dict[str, object]:
    """Class of a release and digests of its certificate and its artifact."""
    return {
        CLASS_TAG: facts.kind,
        "privsyn.certificate_sha256": facts.certificate_sha256,
        "privsyn.artifact_sha256": facts.sha256,
    }


def _flat(plan: Plan) -> dict[str, Any]:
    """Public facts of a plan as parameters."""
    return {
        "method": plan.method,
        **{key: value for key, value in plan.settings.items() if not isinstance(value, dict)},
        **plan.derived,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "rho": plan.rho,
        "adjacency": plan.adjacency.value,
        "unit": plan.unit,
        "max_records_per_unit": plan.max_records_per_unit,
        "dataset": plan.dataset.name,
        "dataset_version": plan.dataset.version,
        "draw": plan.draw,
        "rows": plan.rows_said,
        **({} if plan.paid_epsilon is None else {"paid_epsilon": plan.paid_epsilon}),
        **{f"model.{role}": use.source for role, use in plan.models.items()},
        **{f"model.{role}.revision": use.revision for role, use in plan.models.items()},
    }


ACCURACY = "vectors.accuracy"
LOW, HIGH = f"{ACCURACY}_low", f"{ACCURACY}_high"
PAID = "accuracy, paid for"


@dataclass(frozen=True)
class Point:
    """A number of a release, with the ends of its 95% interval where it has one."""

    release_id: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def text(self) -> str:
        """The number, and its interval in brackets."""
        interval = "" if self.low is None else f" [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.value:.3f}{interval}" if interval else f"{self.value:.4g}"


def paid_drop(ctx: Context, plan: Plan) -> str | None:
    """A warning where the accuracy that a release paid for fell since the release before.

    Public: both numbers are in certificates. Before it is the newest earlier release by the same
    method on the same account that paid for one.
    """
    now = _paid(ctx, plan.id)
    if now is None:
        return None
    for earlier in _earlier(ctx, plan):
        before = _paid(ctx, earlier.release_id)
        if before is not None:
            return _drop(now, before, PAID)
    return None


def accuracy_drop(
    ctx: Context, plan: Plan, numbers: Mapping[str, float], ruler: str = ""
) -> str | None:
    """A warning where accuracy fell by more than the intervals since the release before. Internal.

    Before it is the newest earlier release by the same method on the same account that was measured
    here by the same ruler. Intervals that overlap are no fall.

    Args:
        ctx: Ledger and workspace.
        plan: The release.
        numbers: What was measured of it, by name.
        ruler: What the accuracy was measured by: the note of its metric.
    """
    if not {ACCURACY, LOW, HIGH} <= numbers.keys():
        return None
    for earlier in _earlier(ctx, plan):
        with suppress(OSError, ValueError, LookupError, TypeError):
            metrics = read_json(ctx.workspace.internal(earlier.release_id) / layout.EVALUATION)[
                "metrics"
            ]
            before = {metric["name"]: float(metric["value"]) for metric in metrics}
            rulers = {metric.get("note", ruler) for metric in metrics if metric["name"] == ACCURACY}
            if rulers != {ruler}:
                continue
            return _drop(
                Point(plan.id, numbers[ACCURACY], numbers[LOW], numbers[HIGH]),
                Point(earlier.release_id, before[ACCURACY], before[LOW], before[HIGH]),
                "accuracy",
            )
    return None


def _earlier(ctx: Context, plan: Plan) -> list[Entry]:
    """Finished releases before one by its method on its account, newest first."""
    number = ctx.ledger.releases.get(plan.id).number
    return [
        entry
        for entry in reversed(ctx.ledger.releases.all(plan.account))
        if entry.number < number and entry.method == plan.method and entry.state is State.COMMITTED
    ]


def _drop(now: Point, before: Point, name: str) -> str | None:
    if now.high is None or before.low is None or now.high >= before.low:
        return None
    return (
        f"{name}: {now.text} is below {before.text} of {before.release_id}, the release before, by "
        "more than the intervals"
    )


def _paid(ctx: Context, release_id: str) -> Point | None:
    try:
        paid = ReleaseFacts.read(ctx.workspace.release(release_id)).accuracy
        point = Point(release_id, float(paid["value"]), float(paid["low"]), float(paid["high"]))
    except (PrivsynError, OSError, ValueError, LookupError, TypeError):
        return None
    return point if math.isfinite(point.value) else None
