"""validate: the Great Expectations suite of the synthetic file, and its readable page."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsyn import certificate
from privsyn.data.artifacts import atomic_file, storage_error, write_json_atomic
from privsyn.errors import ValidationFailed
from privsyn.release import Plan
from privsyn.stages.base import Context
from privsyn.stages.certify import find
from privsyn.stages.lineage import traced

if TYPE_CHECKING:
    from privsyn.evaluation.metrics import Metric
    from privsyn.validation.gx import ValidationResult
    from privsyn.validation.page import Picture

VALIDATION, PAGE, QUALITY = "validation.json", "validation.html", "quality.json"
MOST_PICTURES = 9
"""Exhibits the page shows at most."""


@traced
def validate(ctx: Context, plan: Plan) -> Path:
    """Validate a committed release; keep it in quarantine if it fails.

    Reads the synthetic file alone, so its results may be published. A release that failed before
    and passes now (the suite was changed) comes out of quarantine.

    Returns:
        The release folder, with validation.json, validation.html and quality.json in it.

    Raises:
        ValidationFailed: Names the failed expectations. The cost stays charged.
    """
    folder = find(ctx, plan)
    result, quality = examine(ctx, plan, folder, plan.row_bounds)
    target = (ctx.workspace.release if result.success else ctx.workspace.quarantine)(plan.id)
    folder = move(folder, target)
    if ctx.as_filed:
        copy_reports(ctx, plan.method, folder)
    run = ctx.lineage.release_run(plan.id)
    ctx.lineage.set_tags(run, {"privsyn.validation": "passed" if result.success else "failed"})
    ctx.lineage.log_metrics(run, {metric.name: metric.value for metric in quality})
    for name in (VALIDATION, PAGE):
        ctx.lineage.log_artifact(run, folder / name)
    if not result.success:
        failed = ", ".join(sorted({item.name for item in result.failed}))
        raise ValidationFailed(
            f"release {plan.id} fails its suite: {failed}.",
            hint=f"It stays in {folder}; see {folder / PAGE}. Its cost stays charged.",
        )
    return folder


def examine(
    ctx: Context, plan: Plan, folder: Path, bounds: tuple[int, int]
) -> tuple[ValidationResult, list[Metric]]:
    """Run the suite on a folder and write its reports there.

    Args:
        ctx: Config.
        plan: The release the records come from.
        folder: The records, certified.
        bounds: Fewest and most rows there may be.
    """
    from privsyn.validation.gx import validate_file
    from privsyn.validation.image_profile import ImageProfile, sample_sheet
    from privsyn.validation.page import render_page

    result = validate_file(
        folder / certificate.ARTIFACT,
        ctx.config.validation,
        plan.dataset.labels,
        bounds,
        root=ctx.workspace.root,
        images=plan.dataset.images,
    )
    _, sealed = certificate.read(folder)
    shown = facts(sealed)
    write_json_atomic(folder / VALIDATION, {"release_id": shown["release_id"]} | result.to_json())
    quality = _quality(ctx, plan, folder / certificate.ARTIFACT)
    write_json_atomic(folder / QUALITY, {metric.name: metric.value for metric in quality})
    profile = result.profile
    sheet = sample_sheet(folder, profile) if isinstance(profile, ImageProfile) else None
    page = render_page(result, shown, sheet, _pictures(folder))
    with atomic_file(folder / PAGE, mode=0o644) as stream:
        stream.write(page.encode())
    return result, quality


def _quality(ctx: Context, plan: Plan, artifact: Path) -> list[Metric]:
    """Numbers about the synthetic file alone."""
    if plan.dataset.images is not None:
        from privsyn.evaluation.images import image_fidelity
        from privsyn.validation.image_profile import read_image_rows

        return image_fidelity(read_image_rows(artifact))
    from privsyn.evaluation.fidelity import fidelity
    from privsyn.evaluation.structured import structure
    from privsyn.validation.profile import read_rows
    from privsyn.validation.suite import read_schema

    texts = [row.text or "" for row in read_rows(artifact)]
    quality = fidelity(texts)
    if ctx.config.validation.json_schema is not None:
        quality += structure(
            texts, read_schema(ctx.workspace.root / ctx.config.validation.json_schema)
        )
    return quality


def _pictures(folder: Path) -> list[Picture]:
    """The pictures among the exhibits; of many the first, the last and some between."""
    from privsyn.validation.page import Picture

    files = sorted((folder / certificate.EXHIBITS).glob("*.png"))
    if len(files) > MOST_PICTURES:
        steps = MOST_PICTURES - 1
        files = [files[i * (len(files) - 1) // steps] for i in range(MOST_PICTURES)]
    return [Picture(file.stem, file.read_bytes()) for file in files]


def facts(sealed: dict[str, Any]) -> dict[str, Any]:
    """What a reader of the page wants to know of the release: all from its certificate."""
    paid = certificate.origin(sealed)
    plan = paid["plan"]
    return {
        "release_id": sealed.get("name", plan["release_id"]),
        "class": sealed["class"],
        "method": paid["method"]["title"],
        "epsilon": plan["epsilon"],
        "delta": plan["delta"],
        "adjacency": plan["adjacency"],
        "unit": plan["unit"],
        "max_records_per_unit": plan["max_records_per_unit"],
        "dataset": plan["dataset"]["name"],
        "version": plan["dataset"]["version"],
        "rows": sealed["artifact"]["rows"],
        "created": paid["reserved_at"],
        "certificate_sha256": certificate.digest(sealed),
        "account": paid["account"]["name"],
        "account_left": paid["account"]["left_epsilon"],
    }


def move(folder: Path, target: Path) -> Path:
    """Put a release's folder into its place or into quarantine; returns where it is now.

    Raises:
        StorageError: Disk full or no permission.
    """
    if folder != target:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(target, ignore_errors=True)
            folder.replace(target)
        except OSError as error:
            raise storage_error("move", folder, error) from error
    return target


def copy_reports(ctx: Context, method: str, folder: Path) -> None:
    """Copy the validation to reports/<method>/, which dvc.yaml tracks."""
    reports = ctx.workspace.reports(method)
    try:
        reports.mkdir(parents=True, exist_ok=True)
        for name in (VALIDATION, PAGE, QUALITY):
            shutil.copyfile(folder / name, reports / name)
    except OSError as error:
        raise storage_error("write", reports, error) from error
