"""validate: the Great Expectations suite of the synthetic file, and its readable page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from privsyn.data.artifacts import atomic_file, private_folder, storage_error, write_json_atomic
from privsyn.dp.risk import Risk
from privsyn.errors import ValidationFailed
from privsyn.evaluation.metrics import Metric
from privsyn.ledger.settings import PrivacyConfig
from privsyn.modalities.registry import modality_of
from privsyn.release import certificate, layout
from privsyn.release.cautions import of_account, of_release
from privsyn.release.plan import Plan
from privsyn.stages.base import Context
from privsyn.stages.certify import find
from privsyn.stages.lineage import PAGE, QUALITY, VALIDATION, traced, validated
from privsyn.stages.measure import MEASURES
from privsyn.validation.gx import ValidationResult, validate_file
from privsyn.validation.kinds import kind_of
from privsyn.validation.page import Picture, render_page

MOST_PICTURES = 9
"""Exhibits the page shows at most."""


@traced("validate")
def validate(ctx: Context, plan: Plan) -> Path:
    """Validate a committed release; keep it in quarantine if it fails.

    Reads the synthetic file alone, so its results may be published; those of a release that failed
    stay in quarantine with it, for its owner alone. A release that failed before and passes now
    (the suite was changed) comes out of quarantine.

    Returns:
        The release folder, with validation.json, validation.html and quality.json in it.

    Raises:
        ValidationFailed: Names the failed expectations. The cost stays charged.
    """
    folder = find(ctx, plan)
    result, _ = examine(ctx, plan, folder, plan.row_bounds)
    folder = place(ctx, plan.id, folder, released=result.success)
    if ctx.as_filed and result.success:
        copy_reports(ctx, plan.method, folder)
    validated(ctx, plan, folder, passed=result.success)
    if not result.success:
        raise ValidationFailed(
            f"release {plan.id} fails its suite: {said(result)}.",
            hint=f"It stays in {folder}; see {folder / PAGE}. Its cost stays charged; other bounds "
            "(validation.*) on it cost nothing: run it again with them.",
        )
    return folder


def said(result: ValidationResult) -> str:
    """The checks that failed, in the words of the page and as the suite names them."""
    failed = {check.name: check.title for check in result.failed}
    return "; ".join(f"{title.rstrip('.')} ({name})" for name, title in sorted(failed.items()))


def examine(
    ctx: Context, plan: Plan, folder: Path, bounds: tuple[int, int]
) -> tuple[ValidationResult, list[Metric]]:
    """Run the suite on a folder and write its reports there; the ledger notes their digests.

    Args:
        ctx: Config.
        plan: The release the records come from.
        folder: The records, certified.
        bounds: Fewest and most rows there may be.
    """
    modality = modality_of(plan.dataset)
    kind = kind_of(modality.name, modality.form)

    result = validate_file(
        folder / layout.ARTIFACT,
        ctx.config.validation,
        plan.dataset.labels,
        bounds,
        files=ctx.files,
        kind=kind,
    )
    _, sealed = certificate.read(folder)
    shown = facts(sealed) | {"cautions": cautions(ctx, plan)}
    for half in folder.glob(".*.tmp"):  # what a killed validation was writing
        half.unlink(missing_ok=True)
    write_json_atomic(folder / VALIDATION, {"release_id": shown["release_id"]} | result.to_json())
    quality = MEASURES[modality.name].alone(ctx, folder / layout.ARTIFACT)
    write_json_atomic(folder / QUALITY, {metric.name: metric.value for metric in quality})
    sheet = kind.sheet(folder, result.profile)
    page = render_page(result, shown, sheet, _pictures(folder))
    with atomic_file(folder / PAGE, mode=0o644) as stream:
        stream.write(page.encode())
    certificate.note_reports(folder, ctx.ledger)
    return result, quality


def _pictures(folder: Path) -> list[Picture]:
    """The pictures among the exhibits; of many the first, the last and some between."""
    files = sorted((folder / layout.EXHIBITS).glob("*.png"))
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
        "risk": Risk(**paid["risk"]).words(plan["unit"], plan["adjacency"])
        if "risk" in paid
        else (),
        "delta": plan["delta"],
        "adjacency": plan["adjacency"],
        "unit": plan["unit"],
        "max_records_per_unit": plan["max_records_per_unit"],
        "dataset": plan["dataset"]["name"],
        "version": plan["dataset"]["version"],
        "rows": sealed["artifact"]["rows"],
        "reserved": paid["reserved_at"],
        "certificate_sha256": certificate.digest(sealed),
        "account": paid["account"]["name"],
        "account_left": paid["account"]["left_epsilon"],
    }


def cautions(ctx: Context, plan: Plan) -> tuple[str, ...]:
    """What a reader of the page should know of the guarantee, by the account as it is now."""
    paid = PrivacyConfig(epsilon=plan.target_epsilon, delta=plan.target_delta, draw=plan.draw)
    return of_release(paid, ctx.config.account) + of_account(ctx.config.account)


def place(ctx: Context, name: str, folder: Path, *, released: bool) -> Path:
    """Put a release's folder into its place, or into quarantine, where its owner alone may look.

    Returns:
        Where it is now.

    Raises:
        StorageError: Disk full or no permission.
    """
    target = (ctx.workspace.release if released else ctx.workspace.quarantine)(name)
    try:
        if not released:
            _set_modes(folder, 0o700, 0o600)  # before it moves: at no moment is it open there
            private_folder(target.parent)
        if folder != target:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(target, ignore_errors=True)
            folder.replace(target)
            if released:
                _set_modes(target, 0o755, 0o644)
    except OSError as error:
        raise storage_error("move", folder, error) from error
    return target


def _set_modes(folder: Path, folders: int, files: int) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(folders if path.is_dir() else files)


def passed(folder: Path) -> bool | None:
    """What the checks of a release or student said; None where there is no report to read."""
    try:
        success = json.loads((folder / VALIDATION).read_text(encoding="utf-8"))["success"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return success is True


def refuse_failed(folder: Path) -> None:
    """Refuse the records of a release that has not passed its suite.

    Raises:
        ValidationFailed: It failed, or was not validated.
    """
    if not passed(folder):
        raise ValidationFailed(
            f"{folder.name} has not passed its suite: its records are not handed out.",
            hint=f"See {folder / PAGE}, or run validate first.",
        )


def copy_reports(ctx: Context, method: str, folder: Path) -> None:
    """Copy the validation to reports/<method>/, which dvc.yaml tracks."""
    reports = ctx.workspace.reports(method)
    try:
        reports.mkdir(parents=True, exist_ok=True)
        for name in (VALIDATION, PAGE, QUALITY):
            shutil.copyfile(folder / name, reports / name)
    except OSError as error:
        raise storage_error("write", reports, error) from error
