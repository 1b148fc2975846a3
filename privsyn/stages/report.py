"""report: what a release is worth, graded, from what evaluate measured. Internal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from privsyn.data.artifacts import atomic_file, write_json_atomic
from privsyn.errors import DataError
from privsyn.evaluation import audit
from privsyn.evaluation.report import Circumstances, Section, render_report, sections, to_json
from privsyn.modalities.registry import modality_of
from privsyn.modalities.text import Texts
from privsyn.release import certificate, layout
from privsyn.release.plan import Plan
from privsyn.stages.base import Context
from privsyn.stages.certify import find
from privsyn.stages.held import EVALUATION, sets_aside
from privsyn.stages.validate import facts


def report(ctx: Context, plan: Plan, found: Sequence[Section] | None = None) -> tuple[Path, Path]:
    """Write the report of a release from its evaluation.json and plots. No record is read.

    Args:
        ctx: Config and workspace.
        plan: The release.
        found: Its sections, where they are known already.

    Returns:
        The page and the JSON file.

    Raises:
        DataError: The release is not here, or was not measured.
    """
    _, sealed = certificate.read(find(ctx, plan))
    release, found = facts(sealed), graded(ctx, plan) if found is None else found
    folder = ctx.workspace.internal(plan.id)
    page = render_report(release, found, sorted(folder.glob("*.png")))
    write_json_atomic(folder / layout.INSIDE_NUMBERS, to_json(release, found), mode=0o600)
    with atomic_file(folder / layout.INSIDE_PAGE, mode=0o600) as stream:
        stream.write(page.encode())
    return folder / layout.INSIDE_PAGE, folder / layout.INSIDE_NUMBERS


def graded(ctx: Context, plan: Plan) -> list[Section]:
    """The sections of a report.

    Raises:
        DataError: The release was not measured.
    """
    method, _ = ctx.planned(plan)
    try:
        measured = json.loads((ctx.workspace.internal(plan.id) / EVALUATION).read_bytes())
    except FileNotFoundError:
        raise DataError(
            f"release {plan.id} was not measured, or that was cut off.",
            hint="Set dataset.holdout or dataset.test_path and evaluate.enabled, and run the same "
            "command again: it costs nothing.",
        ) from None
    about = Circumstances(
        texts=modality_of(plan.dataset).name == Texts.name,
        held_out=sets_aside(ctx.source(plan)),
        labelled=bool(plan.dataset.labels),
        embedded=ctx.config.evaluate.embeddings,
        rows=plan.rows,
        levers=f"{method.levers} (methods.{plan.method})",
    )
    disclosed = audit.section(measured.get("audit"), plan.epsilon)
    return [*sections(measured["metrics"], about), disclosed]
