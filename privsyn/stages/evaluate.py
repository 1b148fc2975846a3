"""evaluate: train on synthetic, test on held-out real records. Internal by nature."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from privsyn import certificate
from privsyn.data.artifacts import private_folder, write_json_atomic
from privsyn.data.partition import read_holdout
from privsyn.release import Plan
from privsyn.stages.base import Context
from privsyn.stages.certify import find
from privsyn.stages.lineage import traced
from privsyn.validation.profile import read_rows

if TYPE_CHECKING:
    from privsyn.evaluation.metrics import Metric

EVALUATION = "evaluation.json"


@traced
def evaluate(ctx: Context, plan: Plan) -> Path | None:
    """Measure a release against held-out real records.

    The held-out records were never in the private training part: units held out by keyed hash, or
    a file of their own. What is computed from them is not differentially private: it is labelled
    ``internal``, stays in the state folder and in MLflow runs tagged so, and is never published.

    Returns:
        The folder with evaluation.json and the plots; None where evaluation is off or nothing is
        held out.
    """
    if not ctx.config.evaluate.enabled:
        return None
    from privsyn.evaluation.classify import downstream
    from privsyn.evaluation.fidelity import compare_lengths
    from privsyn.evaluation.plots import draw_plots

    texts, labels = _held_out(ctx, plan)
    if not texts:
        return None
    rows = read_rows(find(ctx, plan) / certificate.ARTIFACT)
    synthetic, synthetic_labels = [row.text or "" for row in rows], [row.label for row in rows]
    metrics = [
        *downstream(synthetic, synthetic_labels, texts, labels),
        *compare_lengths(synthetic, texts),
    ]
    if ctx.config.evaluate.embeddings:
        metrics += _by_vectors(ctx, synthetic, synthetic_labels, texts, labels)
    folder = ctx.workspace.internal(plan.id)
    private_folder(folder)
    write_json_atomic(
        folder / EVALUATION,
        {"release_id": plan.id, "metrics": [metric.to_json() for metric in metrics]},
        mode=0o600,
    )
    run = ctx.lineage.start_stage(plan.id, "evaluate")
    ctx.lineage.log_metrics(run, {metric.name: metric.value for metric in metrics})
    for plot in draw_plots(folder, synthetic, synthetic_labels, metrics):
        ctx.lineage.log_artifact(run, plot, "plots")
    return folder


def _by_vectors(
    ctx: Context,
    synthetic: Sequence[str],
    synthetic_labels: Sequence[str | None],
    texts: Sequence[str],
    labels: Sequence[str | None],
) -> list[Metric]:
    """Metrics in the space of the sentence embedder; every text is embedded once."""
    from privsyn.backends.load import load_embedder
    from privsyn.evaluation.embeddings import compare_embeddings, embed_both
    from privsyn.evaluation.mlp import downstream_mlp

    models, settings = ctx.config.models, ctx.config.evaluate
    classifier = settings.classifier and any(synthetic_labels) and any(labels)
    load = partial(load_embedder, models, ctx.config.performance, ctx.workspace.cache)
    both = embed_both(synthetic, texts, load, settings.embedded_texts, alike=not classifier)
    if both is None:
        return []
    (ours, theirs), called = both, f"models.embedder={models.embedder}"
    metrics = compare_embeddings(ours, theirs, called)
    if classifier:
        metrics += downstream_mlp(
            ours.vectors,
            [synthetic_labels[i] for i in ours.rows],
            theirs.vectors,
            [labels[i] for i in theirs.rows],
            called,
        )
    return metrics


def _held_out(ctx: Context, plan: Plan) -> tuple[list[str], list[str | None]]:
    """Texts and labels of the real records no release was made from."""
    dataset = ctx.source(plan)
    if not dataset.holdout and dataset.test_path is None:
        return [], []
    key = ctx.open_account().partition_key.reveal()
    records = [private.reveal() for private in read_holdout(dataset, key)]
    return [record.text for record in records], [record.label for record in records]
