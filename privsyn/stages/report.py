"""report: the two documents of a release. The one that stays inside is written here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from privsyn import layout
from privsyn.data.artifacts import atomic_file, private_folder, write_json_atomic
from privsyn.errors import PrivsynError
from privsyn.evaluation.audit import section as disclosed
from privsyn.evaluation.judge import Scores
from privsyn.evaluation.metrics import numbers_of, read_evaluation
from privsyn.evaluation.report import (
    Availability,
    StudentMetrics,
    comparison,
    inside,
    sections,
    student_section,
)
from privsyn.methods.shared.distill import STUDENTS
from privsyn.modalities.table import Tables
from privsyn.modalities.text import Texts
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.report.document import ReportSection
from privsyn.report.outward import outward
from privsyn.stages.base import Context, OpenPlan, open_plan
from privsyn.stages.check import trained_on
from privsyn.stages.folder import find
from privsyn.stages.measure import why_no_encoder
from privsyn.stages.plan import longest


def report(
    ctx: Context, plan: Plan, sections: Sequence[ReportSection] | None = None
) -> tuple[Path, Path]:
    """Write the internal report of a release from its evaluation.json.

    No record is read. A release that was not measured has one too, which says why.

    Args:
        ctx: Config and workspace.
        plan: The release.
        sections: Its graded sections, where they are known already.

    Returns:
        The page and the JSON file.

    Raises:
        DataError: The release is not here.
    """
    folder = ctx.workspace.internal(plan.id)
    sections = internal_sections(ctx, plan) if sections is None else sections
    beside = comparison(Scores.read(numbers_of(read_evaluation(folder))))
    document = inside(outward(find(ctx, plan)), sections, beside)
    private_folder(folder)
    write_json_atomic(folder / layout.INSIDE_NUMBERS, document.to_json(), mode=0o600)
    with atomic_file(folder / layout.INSIDE_PAGE, mode=0o600) as stream:
        stream.write(document.to_html().encode())
    return folder / layout.INSIDE_PAGE, folder / layout.INSIDE_NUMBERS


def internal_sections(ctx: Context, plan: Plan) -> list[ReportSection]:
    """The internal sections of a report."""
    release = open_plan(ctx, plan)
    measured = read_evaluation(ctx.workspace.internal(plan.id))
    kind = release.modality.name
    texts = kind == Texts.name
    lies = ctx.workspace.locate(plan.id)  # else there are as many rows as it may hold at most
    about = Availability(
        texts=texts,
        table=kind == Tables.name,
        held_out=release.source.has_holdout,
        labeled=len(plan.dataset.labels) > 1,
        models=ctx.config.evaluate.models,
        enabled=ctx.config.evaluate.enabled,
        measured=bool(measured),
        rows=plan.rows if lies is None else ReleaseFacts.read(lies).rows,
        encoder=None if kind == Tables.name else why_no_encoder(ctx, plan),
        tuning_hint=_levers(release),
        failed=failures_text(measured),
        proportions=_proportions(f"methods.{plan.method}", release.settings),
        longest=longest(f"methods.{plan.method}", release.settings)[0],
        reader="language" in plan.models,
    )
    metrics = measured.get("metrics", ())
    parts, why = sections(metrics, about), about.why_never
    if texts:
        parts.append(student_section(students(ctx, plan), plan.id, why))
    return [*parts, disclosed(measured.get("audit"), plan.epsilon)]


def _levers(release: OpenPlan) -> str:
    """The settings that make more of the records; these themselves where they are too few."""
    plan, suited = release.plan, release.mechanism.sized_for
    where = f"methods.{plan.method}"
    there = trained_on(plan, release.ctx.workspace.internal(plan.id))
    if suited is not None and there is not None and suited.records > there.records:
        # privacy: no count of the records, which a public setting would then follow
        return (
            f"the number of records (fewer train than the {suited.records:.0f} that "
            f"{suited.settings} of {where} suit; set these by public numbers alone)"
        )
    return f"{release.method.tuning_hint} ({where})"


def _proportions(where: str, settings: Any) -> str:
    """What decides how many records a label has, by the settings a method has for it."""
    if getattr(settings, "label_split", None) is not None:
        return f"They are those of {where}.label_split."
    if not hasattr(settings, "label_split"):
        return "The method treats every label alike, on purpose."
    return f"Set {where}.label_split where they are public."


def students(ctx: Context, plan: Plan) -> list[StudentMetrics]:
    """The students of a release that lie here, and what was measured of them. Internal."""
    measured = []
    for name in ctx.workspace.here():
        folder = ctx.workspace.locate(name) if name.startswith(f"{plan.id}.") else None
        if folder is None:
            continue
        with suppress(PrivsynError, LookupError, TypeError, ValueError):
            made = ReleaseFacts.read(folder).derived[STUDENTS]["student"]
            values = numbers_of(read_evaluation(ctx.workspace.internal(name)))
            measured.append(StudentMetrics(name, int(made["parameters"]), values))
    return measured


def failures_text(measured: Mapping[str, Any]) -> str:
    """What of an evaluation could not be measured, in words; empty for nothing."""
    failures = measured.get("failed", {})
    return "; ".join(f"{name}: {error}" for name, error in failures.items())


def in_words(section: ReportSection) -> str:
    """A section of the internal report: its grade and advice, or why there is neither."""
    if section.grade is not None:
        return f"{section.grade.upper()}: {section.advice}"
    why = [item for block in section.blocks if block.kind == "missing" for item in block.items]
    measured = any(block.kind in ("numbers", "bars") for block in section.blocks)
    return section.advice if measured else " ".join((section.advice, *why))
