"""Evaluate a student by next-token accuracy on held-out real texts. Internal."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from privsyn import layout
from privsyn.data.artifacts import private_folder, write_json_atomic
from privsyn.data.partition import read_training
from privsyn.data.records import Record
from privsyn.errors import ConfigError, DataError, ModelError, PrivsynError, VerificationError
from privsyn.evaluation.language_model import next_token_accuracy
from privsyn.evaluation.metrics import Metric
from privsyn.methods.base import Steps
from privsyn.methods.shared.distill import STUDENTS, DistillConfig
from privsyn.release import verification
from privsyn.release.facts import ReleaseFacts
from privsyn.stages.audit import held_out
from privsyn.stages.base import Context, open_plan
from privsyn.stages.plan import plan as make_plan
from privsyn.stages.report import report
from privsyn.students.release import (
    NON_PRIVATE,
    PRIVATE,
    PUBLIC,
    StudentPlan,
    base_folder,
    lock_student,
    plan_student,
    private_baseline,
    train_as_planned,
)
from privsyn.students.train import start_folder

if TYPE_CHECKING:
    from privsyn.models.protocols import PromptTemplate


def measure_published(ctx: Context, name: str, note: Callable[[str], None]) -> Path | None:
    """``evaluate_student`` for a published student: a failure is passed to ``note``, not raised.

    Raises:
        VerificationError: The student differs from its certificate.
    """
    try:
        return evaluate_student(ctx, name)
    except VerificationError:
        raise
    except PrivsynError as error:
        again = f"privsyn distill {name.partition('.student-')[0]}"
        note(f"The student exists, but was not measured: {error.message} To try again: {again}")
        return None


def evaluate_student(ctx: Context, name: str) -> Path | None:
    """Measure a student, and the baselines of ``methods.distill.baselines``, on held-out texts.

    Values computed from real texts are not differentially private: they are labeled ``internal``,
    stay in the state folder and in internal runs, and are never published. The internal report of
    the parent release is rewritten with them.

    Args:
        ctx: Config and ledger; to train a baseline, its ``methods.distill`` must still describe the
            student.
        name: Name of the student.

    Returns:
        The folder with evaluation.json; None if the settings turn evaluation off or hold no records
        out.

    Raises:
        DataError: The student is not here.
        VerificationError: It differs from its certificate.
        ModelError: A baseline cannot be trained with the student's settings.
    """
    if not ctx.config.evaluate.enabled:
        return None
    folder = ctx.workspace.locate(name)
    if folder is None:
        raise DataError(
            f"student {name} is not here.", hint=f"Restore it with: privsyn restore {name}"
        )
    verification.raise_on_failure(folder, verification.verify(folder, ctx.ledger))
    facts = ReleaseFacts.read(folder)
    if STUDENTS not in facts.derived:
        raise DataError(f"{name} is not a student.", hint="Make one with: privsyn distill RELEASE")
    planned = StudentPlan.from_facts(facts)
    if not open_plan(ctx, planned.parent).source.has_holdout:
        return None
    texts = _texts(held_out(ctx, planned.parent))
    with ctx.lineage.stage_run(name, "evaluate") as run:
        metrics = _all(ctx, planned, folder / layout.MODEL, texts)
        internal = ctx.workspace.internal(name)
        private_folder(internal)
        write_json_atomic(
            internal / layout.EVALUATION,
            {"release_id": name, "metrics": [metric.to_json() for metric in metrics]},
            mode=0o600,
        )
        ctx.lineage.log_metrics(run, {metric.name: metric.value for metric in metrics})
        if ctx.workspace.locate(planned.parent.id) is not None:
            for file in report(ctx, planned.parent):
                ctx.lineage.log_artifact(run, file)
    return internal


def _all(
    ctx: Context, planned: StudentPlan, model: Path, holdout: list[tuple[str | None, str]]
) -> list[Metric]:
    """The student's numbers, and those of the baselines that the settings name."""
    config: DistillConfig = ctx.config.method(STUDENTS)
    baselines: dict[str, Callable[[], list[Metric]]] = {
        PUBLIC: lambda: _public(ctx, planned, model, holdout),
        NON_PRIVATE: lambda: _non_private(ctx, planned, holdout),
        PRIVATE: lambda: _private(ctx, planned, holdout),
    }
    baseline_measures = [measure for name, measure in baselines.items() if name in config.baselines]
    # privacy: the settings decide the number of progress steps, not the records
    steps = Steps(
        lambda done, total: ctx.progress("evaluate", done, total, "measurements"),
        1 + len(baseline_measures),
    )
    steps.next()
    metrics = _measure(ctx, planned, model, holdout, "student")
    for measure in baseline_measures:
        steps.next()
        metrics += measure()
    return metrics


def _measure(
    ctx: Context,
    planned: StudentPlan,
    model: Path,
    holdout: list[tuple[str | None, str]],
    called: str,
    template: PromptTemplate | None = None,
) -> list[Metric]:
    return next_token_accuracy(
        model,
        holdout,
        max_tokens=int(planned.settings["max_tokens"]),
        called=called,
        template=template,
        performance=ctx.config.performance,
    )


def _public(
    ctx: Context, planned: StudentPlan, model: Path, holdout: list[tuple[str | None, str]]
) -> list[Metric]:
    """The accuracy of the public model with the student's tokens, after the same prompt.

    Empty if the config names another model than that of the student, or the model is not here: this
    baseline is on by default, and a student may be measured on another machine.
    """
    from privsyn.models.training.causal_lm import prompt_of

    try:
        if plan_student(ctx, planned.parent).models != planned.models:
            return []
        start = start_folder(ctx.settings(STUDENTS)) if "base" not in planned.models else None
        return _measure(ctx, planned, start or base_folder(ctx), holdout, PUBLIC, prompt_of(model))
    except (ConfigError, ModelError):
        return []


def _private(
    ctx: Context, planned: StudentPlan, holdout: list[tuple[str | None, str]]
) -> list[Metric]:
    """The accuracy of the same student trained on the records by DP-SGD, which is another release.

    "Real Data" in Yu et al. 2023, Table 1.

    Raises:
        DataError: That release is not here.
    """
    name, changes = private_baseline(ctx.config, planned.parent, planned.settings["student"])
    section = ctx.config.methods.get(name) or {}
    methods = {**ctx.config.methods, name: {**section, **changes}}
    there = replace(ctx, config=ctx.config.model_copy(update={"methods": methods}))
    release_id = make_plan(there, name, open_account=True).id
    folder = ctx.workspace.locate(release_id)
    if folder is None:
        raise DataError(
            f"methods.distill.baselines has {PRIVATE}, but its release {release_id} is not here.",
            hint=f"Draw it, at its own charge: privsyn run --method {name} "
            + " ".join(f"-S methods.{name}.{key}={value}" for key, value in changes.items()),
        )
    verification.raise_on_failure(folder, verification.verify(folder, ctx.ledger))
    return _measure(ctx, planned, folder / layout.MODEL, holdout, PRIVATE)


def _non_private(
    ctx: Context, planned: StudentPlan, holdout: list[tuple[str | None, str]]
) -> list[Metric]:
    """The accuracy of the same student trained on the private texts. The model is deleted.

    "Real Data (N.P.)" in Yu et al. 2023, Table 1.
    """
    dataset = open_plan(ctx, planned.parent).source
    key = ctx.charged_account().partition_key.reveal()
    training = _texts([private.reveal() for private in read_training(dataset, key)])
    place = ctx.workspace.scratch(f"{planned.id}.{NON_PRIVATE}")
    with lock_student(ctx, place.name):  # sweep, which wipes after a kill, takes the same lock
        shutil.rmtree(place, ignore_errors=True)
        private_folder(place)
        try:
            train_as_planned(ctx, planned, training, place / "model")
            return _measure(ctx, planned, place / "model", holdout, NON_PRIVATE)
        finally:
            shutil.rmtree(place, ignore_errors=True)


def _texts(records: list[Record]) -> list[tuple[str | None, str]]:
    return [(record.label, record.content) for record in records]
