"""evaluate: train on synthetic, test on held-out real records. Internal by nature."""

from __future__ import annotations

from pathlib import Path

from privsyn.data.artifacts import private_folder, write_json_atomic
from privsyn.evaluation.audit import Audit
from privsyn.evaluation.beside import verdict
from privsyn.methods.base import Backends
from privsyn.modalities.registry import modality_of
from privsyn.release import layout
from privsyn.release.plan import Plan
from privsyn.stages.audit import audit_release, refuse_withheld, withheld
from privsyn.stages.base import Context
from privsyn.stages.certify import find
from privsyn.stages.held import EVALUATION, held_out, sets_aside
from privsyn.stages.lineage import WARNING, traced, validated
from privsyn.stages.measure import MEASURES, Failures
from privsyn.stages.report import report
from privsyn.stages.trend import fallen
from privsyn.stages.validate import place

_AUDIT = "disclosure audit"


@traced("evaluate")
def evaluate(ctx: Context, plan: Plan, *, backends: Backends | None = None) -> Path | None:
    """Measure a release against held-out real records.

    The held-out records were never in the private training part: units held out by keyed hash, or
    a file of their own. What is computed from them is not differentially private: it is labelled
    ``internal``, stays in the state folder and in MLflow runs tagged so, and is never published.
    What cannot be measured is left out and named there: no held-out record stops a release.

    Args:
        ctx: Config and ledger.
        plan: The release.
        backends: The embedder already loaded; None loads what the config names.

    Returns:
        The folder with evaluation.json and the plots; None where evaluation is off or no records
        are set aside for it, by the settings alone. Whether there is such a record shows in the
        folder only.

    Raises:
        ValidationFailed: ``evaluate.audit`` is ``block``, and the disclosure audit found more than
            the release claims or had too little to look at: the release is in quarantine. Says
            nothing of what was found.
    """
    if not (ctx.config.evaluate.enabled and sets_aside(ctx.source(plan))):
        refuse_withheld(ctx, plan)
        return None
    real = held_out(ctx, plan)
    artifact = find(ctx, plan) / layout.ARTIFACT
    folder = ctx.workspace.internal(plan.id)
    private_folder(folder)
    measure = MEASURES[modality_of(plan.dataset).name].beside
    failures = Failures()
    metrics, plot_into = measure(ctx, plan, artifact, real, backends, failures)
    numbers = {metric.name: metric.value for metric in metrics}
    said, fell = verdict(numbers), fallen(ctx, plan, numbers)
    audited: Audit | None = None
    plots: list[Path] = []
    with failures.within(_AUDIT):
        audited = audit_release(ctx, plan, artifact.parent)
    if _AUDIT in failures.found:  # and is withheld where it blocks, as one that could not be made
        audited = Audit(f"it failed ({failures.found[_AUDIT]})")
    with failures.within("plots"):
        plots = plot_into(folder)
    metrics = [*metrics, *(audited.metrics() if audited else [])]
    write_json_atomic(
        folder / EVALUATION,
        {
            "release_id": plan.id,
            **({"verdict": said} if said else {}),
            **({"audit": audited.to_json()} if audited else {}),
            **({"warning": fell} if fell else {}),
            **({"failed": failures.found} if failures.found else {}),
            "metrics": [metric.to_json() for metric in metrics],
        },
        mode=0o600,
    )
    with ctx.lineage.stage_run(plan.id, "evaluate") as run:  # which ends, published or not
        ctx.lineage.log_metrics(run, numbers)
        if fell:
            ctx.lineage.set_tags(run, {WARNING: fell})
        for plot in plots:
            ctx.lineage.log_artifact(run, plot, "plots")
        for file in report(ctx, plan):
            ctx.lineage.log_artifact(run, file)
    if layout.passed(artifact.parent):
        lies = place(ctx, plan.id, artifact.parent, released=not withheld(ctx, plan))
        if ctx.config.evaluate.audit == "block":  # validate could not say it yet
            validated(ctx, plan, lies, passed=True)
        refuse_withheld(ctx, plan)
    return folder


def said(folder: Path | None) -> str:
    """One line for a log: the same whether or not there was a record to measure by."""
    if folder is None:
        return "not measured: evaluate.enabled is off, or dataset.holdout is 0 without a test_path"
    return f"internal numbers in {folder}"
