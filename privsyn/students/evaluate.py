"""Evaluate a student by next-token accuracy on held-out real texts. Internal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from privsyn import layout
from privsyn.data.artifacts import private_folder, write_json_atomic
from privsyn.errors import ConfigError, DataError, ModelError, PrivsynError, VerificationError
from privsyn.evaluation.language_model import next_token_accuracy
from privsyn.evaluation.metrics import Metric
from privsyn.methods.base import Steps
from privsyn.methods.shared.distill import STUDENTS
from privsyn.models.rows import SyntheticRows, with_row
from privsyn.release.facts import ReleaseFacts
from privsyn.report import verification
from privsyn.stages.audit import held_out
from privsyn.stages.base import Context, open_plan
from privsyn.stages.measure import with_answers
from privsyn.stages.report import report
from privsyn.students.release import StudentPlan, plan_student, read_first

if TYPE_CHECKING:
    pass


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
    """Measure a student, and the public model that it began with, on held-out texts.

    Values computed from real texts are not differentially private: they are labeled ``internal``,
    stay in the state folder and in internal runs, and are never published. The internal report of
    the parent release is rewritten with them.

    Args:
        ctx: Config and ledger.
        name: Name of the student.

    Returns:
        The folder with evaluation.json; None if the settings turn evaluation off or hold no records
        out.

    Raises:
        DataError: The student is not here.
        VerificationError: It differs from its certificate.
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
    columns = SyntheticRows(planned.parent.dataset.columns)
    real = with_answers(ctx, planned.parent, held_out(ctx, planned.parent))
    texts = [(with_row(one.label, columns.words(one.row)), one.content) for one in real]
    with ctx.tracker.stage_run(name, "evaluate") as run:
        # privacy: the number of progress steps is fixed, whatever the records are
        steps = Steps(lambda done, total: ctx.progress("evaluate", done, total, "measurements"), 2)
        measure = partial(
            next_token_accuracy,
            texts=texts,
            max_tokens=int(planned.settings["max_tokens"]),
        )
        steps.next()
        metrics = measure(folder / layout.MODEL)
        steps.next()
        metrics += _public(ctx, planned, folder / layout.MODEL, measure)
        internal = ctx.workspace.internal(name)
        private_folder(internal)
        write_json_atomic(
            internal / layout.EVALUATION,
            {"release_id": name, "metrics": [metric.to_json() for metric in metrics]},
            mode=0o600,
        )
        ctx.tracker.log_metrics(run, {metric.name: metric.value for metric in metrics})
        if ctx.workspace.locate(planned.parent.id) is not None:
            for file in report(ctx, planned.parent):
                ctx.tracker.log_artifact(run, file)
    return internal


def _public(
    ctx: Context, planned: StudentPlan, model: Path, measure: Callable[..., list[Metric]]
) -> list[Metric]:
    """The accuracy of the public model with the student's tokens, after the same prompt.

    Empty if the config names another model than that of the student, or the model is not here: a
    student may be measured on another machine.
    """
    from privsyn.models.training.causal_lm import prompt_of

    try:
        if plan_student(ctx, planned.parent).models != planned.models:
            return []
        return measure(read_first(ctx), called="public", template=prompt_of(model))
    except (ConfigError, ModelError):
        return []
