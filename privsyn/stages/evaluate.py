"""evaluate: train on synthetic, test on held-out real records. Internal by nature.

A release that is valid and paid for is published whether or not it could be measured. Only the
audit that blocks (``evaluate.audit: block``) holds one back, and it fails closed.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from privsyn import __version__, layout
from privsyn.data.artifacts import private_folder, write_json_atomic
from privsyn.errors import PolicyBroken, PrivsynError, ValidationFailed, kind_and_place
from privsyn.evaluation.audit import AuditResult
from privsyn.evaluation.metrics import read_evaluation
from privsyn.evaluation.report import verdict
from privsyn.release.plan import Plan
from privsyn.stages.audit import audit_release, held_out, refuse_withheld, withheld
from privsyn.stages.base import Context, open_plan, trace_stage
from privsyn.stages.folder import find
from privsyn.stages.lineage import log_measures, log_validation
from privsyn.stages.measure import Failures, beside, why_no_encoder, with_answers
from privsyn.stages.report import report
from privsyn.stages.validate import place

_AUDIT = "disclosure audit"
_ALL = "the whole evaluation"
"""Name of what failed where nothing could be measured."""
_SETTINGS = "settings"
"""In evaluation.json: digest of what a complete evaluation was asked for."""


def evaluate(
    ctx: Context, plan: Plan, *, again: bool = False, retried: bool = False
) -> Path | None:
    """Measure a release against held-out real records, once per release and settings.

    The held-out records were never in the private training part: units held out by keyed hash, or
    a file of their own. What is computed from them is not differentially private: it is labeled
    ``internal``, stays in the state folder and in MLflow runs tagged so, and is never published.
    What cannot be measured is left out and named there: neither a held-out record nor a model that
    does not load stops a release.

    Args:
        ctx: Config and ledger.
        plan: The release.
        again: Measure it even if it was measured with these settings.
        retried: The caller tries again what a later try may mend, so such an error is raised.

    Returns:
        The folder with evaluation.json; None where evaluation is off or no records
        are set aside for it, by the settings alone. Whether there is such a record shows in the
        folder only.

    Raises:
        ValidationFailed: ``evaluate.audit`` is ``block``, and the disclosure audit found more than
            the release claims, had too little to look at or could not be made: the release is in
            quarantine. Says nothing of what was found.
        PolicyBroken: The account is held to a policy that allows no internal metrics.
        PrivsynError: One that is retryable, where ``retried`` is set.
    """
    with trace_stage(ctx, plan.id, "evaluate"):
        folder = measures(ctx, plan)
        if folder is None:
            refuse_withheld(ctx, plan.id)
            return None
        try:
            artifact = find(ctx, plan) / layout.ARTIFACT
            # A gate is passed anew each time.
            once = ctx.config.evaluate.audit != "block"
            digest = _digest(ctx, plan, artifact) if once else None
            measured = read_evaluation(folder).get(_SETTINGS)
            whole = (folder / layout.INSIDE_PAGE).is_file()
            if again or digest is None or measured != digest or not whole:
                _measure(ctx, plan, artifact, folder, digest)
            if layout.suite_passed(artifact.parent):
                lies = place(ctx, plan.id, artifact.parent, released=not withheld(ctx, plan))
                if ctx.config.evaluate.audit == "block":  # validate could not say it yet
                    log_validation(ctx, plan, lies, passed=True)
                refuse_withheld(ctx, plan.id)
            return folder
        except (PolicyBroken, ValidationFailed):
            raise
        except Exception as error:
            if retried and isinstance(error, PrivsynError) and error.retryable:
                raise
            failure = error
        # Outside the except block: what a gate says next must not print the failure as its context.
        _note_failure(ctx, plan, folder, failure)
        refuse_withheld(ctx, plan.id)
        return folder


def measures(ctx: Context, plan: Plan) -> Path | None:
    """Where the numbers of a release lie; None where the settings ask for none."""
    if not (ctx.config.evaluate.enabled and open_plan(ctx, plan).source.has_holdout):
        return None
    return ctx.workspace.internal(plan.id)


def _measure(ctx: Context, plan: Plan, artifact: Path, folder: Path, digest: str | None) -> None:
    """Write evaluation.json and the internal report."""
    # privacy: all numbers below depend on these records without noise; they stay in internal/.
    real = with_answers(ctx, plan, held_out(ctx, plan))
    private_folder(folder)
    failures = Failures()
    metrics = beside(ctx, plan, artifact, real, failures)
    numbers = {metric.name: metric.value for metric in metrics}
    words = verdict(numbers)
    audited: AuditResult | None = None
    with failures.within(_AUDIT):
        audited = audit_release(ctx, plan, artifact.parent)
    if _AUDIT in failures.errors:  # and is withheld where it blocks, as one that could not be made
        audited = AuditResult(f"it failed ({failures.errors[_AUDIT]})")
    write_json_atomic(
        folder / layout.EVALUATION,
        {
            "release_id": plan.id,
            **({"verdict": words} if words else {}),
            **({"audit": audited.to_json()} if audited else {}),
            **({"failed": failures.errors} if failures.errors else {}),
            **({_SETTINGS: digest} if digest else {}),
            "metrics": [metric.to_json() for metric in metrics],
        },
        mode=0o600,
    )
    report(ctx, plan)
    log_measures(ctx, plan)


def _digest(ctx: Context, plan: Plan, artifact: Path) -> str:
    """What the numbers of an evaluation follow from, but for the private file.

    privacy: that file is left out, since a log shows whether a release is measured anew.
    """
    config, dataset = ctx.config, open_plan(ctx, plan).source
    inputs = {
        "privsyn": __version__,
        "artifact": hashlib.sha256(artifact.read_bytes()).hexdigest(),
        "evaluate": config.evaluate.model_dump(mode="json"),
        "models": config.models.model_dump(mode="json"),
        "encoder": why_no_encoder(ctx, plan),
        "holdout": dataset.holdout,
        "test_path": str(dataset.test_path),
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()


def _note_failure(ctx: Context, plan: Plan, folder: Path, error: Exception) -> None:
    """Write why a release was not measured. Earlier numbers of it, and their audit, stay.

    privacy: class and place of an exception alone; what it says may hold record text.
    """
    with suppress(Exception):  # such as a full disk, which is what failed
        private_folder(folder)
        measured = {"release_id": plan.id, "metrics": []} | read_evaluation(folder)
        measured.pop(_SETTINGS, None)
        measured["failed"] = measured.get("failed", {}) | {_ALL: kind_and_place(error)}
        write_json_atomic(folder / layout.EVALUATION, measured, mode=0o600)
        report(ctx, plan)


def failure_reason(folder: Path | None) -> str | None:
    """Why nothing of a release could be measured: class and place of the error; None where it was.

    Args:
        folder: What ``evaluate`` returned.
    """
    if folder is None:
        return None
    if not (measured := read_evaluation(folder)):
        return "evaluation.json cannot be read"
    reason = measured.get("failed", {}).get(_ALL)
    return None if reason is None else str(reason)


def log_line(folder: Path | None) -> str:
    """One line for a log: the same whether or not there was a record to measure by."""
    if folder is None:
        return "not measured: evaluate.by is nothing, or dataset.holdout is 0 without a test_path"
    if reason := failure_reason(folder):
        return f"not measured: {reason}. Measure it later: privsyn report --measure {folder.name}"
    return f"internal numbers in {folder}"
