"""validate: the Great Expectations suite, and the report that may leave the room."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privsyn import layout
from privsyn.data.artifacts import atomic_file, private_folder, storage_errors, write_json_atomic
from privsyn.dp.events import load
from privsyn.dp.risk import risk
from privsyn.errors import ValidationFailed
from privsyn.evaluation.metrics import Metric
from privsyn.ledger.settings import PrivacyConfig
from privsyn.modalities.registry import modality_of
from privsyn.release import certificate
from privsyn.release.advice import BY_AUDIT, of_account, of_release
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.release.release_store import set_modes, set_times
from privsyn.report import verification
from privsyn.report.outward import outward
from privsyn.stages.audit import held_back, refuse_to_hand_out, withheld
from privsyn.stages.base import Context, trace_stage
from privsyn.stages.folder import find, key_id, sign, store, unsign
from privsyn.stages.lineage import log_validation
from privsyn.validation.suite import ValidationResult, validate_file


def validate(ctx: Context, plan: Plan) -> Path:
    """Validate a committed release; keep it in quarantine if it fails.

    Reads the synthetic file alone, so its results may be published; those of a release that failed
    stay in quarantine with it, for its owner alone. A release that failed before and passes now
    (the suite was changed) comes out of quarantine, unless its disclosure audit holds it there. One
    that passes while ``evaluate.audit`` is ``block`` waits there until evaluate lets it out.

    Returns:
        The release folder, with the report, validation.json and quality.json in it.

    Raises:
        ValidationFailed: Names the failed expectations. The cost stays charged.
    """
    with trace_stage(ctx, plan.id, "validate"):
        folder = find(ctx, plan)
        result = examine(ctx, plan, folder, plan.row_bounds)
        released = result.success and not withheld(ctx, plan)
        folder = place(ctx, plan.id, folder, released=released)
        # dvc.yaml wants the reports of this stage before evaluate can have spoken.
        if ctx.as_filed and result.success and not held_back(ctx, plan):
            copy_reports(ctx, plan.method, folder)
        log_validation(ctx, plan, folder, passed=result.success)
        if not result.success:
            share = ctx.config.validation.min_share
            raise ValidationFailed(
                f"release {plan.id} fails its suite: {failed_checks(result)}.",
                hint=f"It stays in {folder}; see {layout.page_of(folder)}. Its cost stays charged; "
                f"other bounds on it (validation.*, such as min_share={share:g} of the rows) cost "
                "nothing: run it again with them.",
            )
        return folder


def failed_checks(result: ValidationResult) -> str:
    """The checks that failed, in the words of the report and as the suite names them."""
    failed = {check.name: check.title for check in result.failures}
    return "; ".join(f"{title.rstrip('.')} ({name})" for name, title in sorted(failed.items()))


def examine(ctx: Context, plan: Plan, folder: Path, bounds: tuple[int, int]) -> ValidationResult:
    """Run the suite on a folder and write its reports there; the ledger notes their digests.

    Args:
        ctx: Config.
        plan: The release the records come from.
        folder: The records, certified.
        bounds: Fewest and most rows there may be.
    """
    modality = modality_of(plan.dataset)
    result = validate_file(
        folder / layout.ARTIFACT,
        ctx.config.validation,
        plan.dataset.labels,
        bounds,
        files=ctx.files,
        modality=modality,
        columns=plan.dataset.columns,
        schema=plan.settings.get("json_schema"),
    )
    quality = modality.quality(folder / layout.ARTIFACT)
    note_checks(ctx, folder, result.to_json() | {"cautions": cautions(ctx, plan)}, quality)
    return result


def note_checks(
    ctx: Context, folder: Path, result: Mapping[str, Any], numbers: Sequence[Metric]
) -> None:
    """Write what the checks of a folder said, and its report; the ledger notes their digests.

    Args:
        ctx: Ledger, and what a report says beside its release: the owner's words, and the key that
            will sign it.
        folder: The records or the model, certified.
        result: What the checks said, as plain JSON values.
        numbers: About the folder alone.
    """
    for half in folder.glob(".*.tmp"):
        half.unlink(missing_ok=True)  # what a killed validation left
    write_json_atomic(folder / layout.QUALITY, {one.name: one.value for one in numbers})
    stated = {"deployment": ctx.config.deployment, "signer": key_id(ctx)}
    plain = {
        "release_id": ReleaseFacts.read(folder).name,
        "numbers": [one.to_json() for one in numbers],
    }
    write_json_atomic(folder / layout.VALIDATION, {**result, **plain, **stated})
    write_report(folder)
    verification.note_reports(folder, ctx.ledger)


def write_report(folder: Path) -> None:
    """Write the report that may leave the room into a folder whose checks are there.

    What the checks said is sealed with the digests of the report, so that the folder alone shows
    a change of either: see ``verification.verify``.

    Raises:
        StorageError: Disk full or no permission.
    """
    document = outward(folder)
    write_json_atomic(folder / layout.REPORT_JSON, document.to_json())
    with atomic_file(folder / layout.REPORT_PAGE, mode=0o644) as stream:
        stream.write(document.to_html().encode())
    certificate.seal_reports(folder)


def cautions(ctx: Context, plan: Plan) -> tuple[str, ...]:
    """What a reader of the report should know of the guarantee, by the account as it is now."""
    paid = PrivacyConfig(epsilon=plan.target_epsilon, delta=plan.target_delta, draw=plan.draw)
    right = risk(load(plan.event)).right
    account = ctx.config.account
    warnings = of_release(paid, account, plan.epsilon, right) + of_account(account)
    return (*warnings, BY_AUDIT) if ctx.config.evaluate.audit == "block" else warnings


def place(ctx: Context, name: str, folder: Path, *, released: bool) -> Path:
    """Sign a validated release's folder and put it into its place; or put it into quarantine.

    There its owner alone may look, and it has no signature.

    Returns:
        Where it is now.

    Raises:
        ConfigError: It is to be signed, and the key cannot be used. The folder stays where it is.
        StorageError: Disk full or no permission.
    """
    target = (ctx.workspace.release if released else ctx.workspace.quarantine)(name)
    if released:
        sign(ctx, folder)
    else:
        unsign(folder)
    with storage_errors("move", folder):
        if not released:
            set_modes(folder, private=True)  # before it moves: at no moment is it open there
            private_folder(target.parent)
        if folder != target:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(target, ignore_errors=True)
            folder.replace(target)
            if released:
                set_modes(target, private=False)
        set_times(target)
    store(ctx, target)
    return target


def refuse_unreleased(folder: Path, ctx: Context | None = None) -> None:
    """Refuse the records of a release that is not to be handed out, or not yet.

    Args:
        folder: The release, or what was made from one.
        ctx: The project it lies in, whose ``evaluate.audit`` may block; None where it lies in none.

    Raises:
        ValidationFailed: It failed its suite, was not validated, lies in quarantine, or the project
            has it audited first.
    """
    if why := layout.held_back(folder):
        raise ValidationFailed(
            f"the records of {folder.name} are not handed out: {why}.",
            hint=f"See {layout.page_of(folder)}, or run validate or evaluate first.",
        )
    here = None if ctx is None else ctx.workspace.locate(folder.name)
    if ctx is not None and here is not None and here.resolve() == folder.resolve():
        refuse_to_hand_out(ctx, ReleaseFacts.read(folder).release_id)


def copy_reports(ctx: Context, method: str, folder: Path) -> None:
    """Copy the validation to reports/<method>/, which dvc.yaml tracks."""
    reports = ctx.workspace.reports(method)
    with storage_errors("write", reports):
        reports.mkdir(parents=True, exist_ok=True)
        for name in layout.REPORTS:
            shutil.copy2(folder / name, reports / name)
        set_times(reports, folder)
