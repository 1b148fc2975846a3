"""evaluate: train on synthetic, test on held-out real records. Internal by nature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from privsyn.data.artifacts import private_folder, write_json_atomic
from privsyn.data.partition import read_holdout
from privsyn.data.records import Record
from privsyn.data.settings import DatasetConfig
from privsyn.evaluation.beside import verdict
from privsyn.methods.base import Backends
from privsyn.release import layout
from privsyn.release.plan import Plan
from privsyn.stages.base import Context
from privsyn.stages.certify import find
from privsyn.stages.lineage import traced
from privsyn.validation.profile import read_rows

if TYPE_CHECKING:
    from privsyn.evaluation.embeddings import EmbeddedOnce
    from privsyn.evaluation.metrics import Metric

EVALUATION = "evaluation.json"


@traced("evaluate")
def evaluate(ctx: Context, plan: Plan, *, backends: Backends | None = None) -> Path | None:
    """Measure a release against held-out real records.

    The held-out records were never in the private training part: units held out by keyed hash, or
    a file of their own. What is computed from them is not differentially private: it is labelled
    ``internal``, stays in the state folder and in MLflow runs tagged so, and is never published.

    Args:
        ctx: Config and ledger.
        plan: The release.
        backends: The embedder already loaded; None loads what the config names.

    Returns:
        The folder with evaluation.json and the plots; None where evaluation is off or no records
        are set aside for it, by the settings alone. Whether there is such a record shows in the
        folder only.
    """
    if not (ctx.config.evaluate.enabled and sets_aside(ctx.source(plan))):
        return None
    real = held_out(ctx, plan)
    artifact = find(ctx, plan) / layout.ARTIFACT
    folder = ctx.workspace.internal(plan.id)
    private_folder(folder)
    of_kind = _texts if plan.dataset.images is None else _images
    metrics, draw = of_kind(ctx, plan, artifact, real, backends) if real else ([], lambda _: [])
    said = verdict({metric.name: metric.value for metric in metrics})
    write_json_atomic(
        folder / EVALUATION,
        {
            "release_id": plan.id,
            **({"verdict": said} if said else {}),
            "metrics": [metric.to_json() for metric in metrics],
        },
        mode=0o600,
    )
    run = ctx.lineage.start_stage(plan.id, "evaluate")
    ctx.lineage.log_metrics(run, {metric.name: metric.value for metric in metrics})
    for plot in draw(folder):
        ctx.lineage.log_artifact(run, plot, "plots")
    return folder


Draw = Callable[[Path], list[Path]]
"""Draws the plots into a folder; returns the files."""


def _texts(
    ctx: Context, plan: Plan, artifact: Path, real: Sequence[Record], backends: Backends | None
) -> tuple[list[Metric], Draw]:
    from privsyn.evaluation.classify import downstream
    from privsyn.evaluation.fidelity import compare_lengths
    from privsyn.evaluation.plots import draw_plots

    rows = read_rows(artifact)
    synthetic, labels = [row.text or "" for row in rows], [row.label for row in rows]
    texts = [record.text for record in real]
    metrics = [
        *downstream(synthetic, labels, texts, [record.label for record in real]),
        *compare_lengths(synthetic, texts),
    ]
    if ctx.config.evaluate.embeddings:
        from privsyn.evaluation.embeddings import EmbeddedOnce
        from privsyn.models.language.loading import load_embedder

        config, theirs = ctx.config, [record.label for record in real]
        load = partial(load_embedder, config.models, config.performance, ctx.workspace.cache)
        once = EmbeddedOnce(load if backends is None else lambda: backends.embedder)
        metrics += _by_vectors(ctx, synthetic, labels, texts, theirs, once)
        if any(labels) and any(theirs):
            metrics += _headline(ctx, plan, (synthetic, labels), (texts, theirs), backends, once)
    return metrics, partial(draw_plots, texts=synthetic, labels=labels, metrics=metrics)


def _headline(
    ctx: Context,
    plan: Plan,
    synthetic: tuple[Sequence[str], Sequence[str | None]],
    real: tuple[Sequence[str], Sequence[str | None]],
    backends: Backends | None,
    once: EmbeddedOnce,
) -> list[Metric]:
    """The release beside its baselines. See evaluation.beside."""
    from privsyn.evaluation.beside import headline, labelled
    from privsyn.stages.alone import public_alone

    settings = ctx.config.evaluate
    ours, theirs = (labelled(*side, settings.embedded_texts) for side in (synthetic, real))
    public = None
    if settings.public_alone:
        names = [label for _, label in ours]
        written = public_alone(ctx, plan, names, backends)
        public = None if written is None else list(zip(written, names, strict=True))
    return headline(ours, theirs, public, once.embed, _called(ctx))


def _by_vectors(
    ctx: Context,
    synthetic: Sequence[str],
    synthetic_labels: Sequence[str | None],
    texts: Sequence[str],
    labels: Sequence[str | None],
    once: EmbeddedOnce,
) -> list[Metric]:
    """Metrics in the space of the sentence embedder."""
    from privsyn.evaluation.embeddings import compare_embeddings, embed_both
    from privsyn.evaluation.mlp import downstream_mlp

    settings, called = ctx.config.evaluate, _called(ctx)
    classifier = settings.classifier and any(synthetic_labels) and any(labels)
    both = embed_both(synthetic, texts, lambda: once, settings.embedded_texts, alike=not classifier)
    if both is None:
        return []
    ours, theirs = both
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


def _called(ctx: Context) -> str:
    return f"models.embedder={ctx.config.models.embedder}"


def _images(
    ctx: Context, plan: Plan, artifact: Path, real: Sequence[Record], backends: Backends | None
) -> tuple[list[Metric], Draw]:
    from privsyn.data.images import decode
    from privsyn.evaluation.images import compare_images, downstream_images
    from privsyn.evaluation.plots import draw_image_plots
    from privsyn.validation.image_profile import load_images, profile_images, read_image_rows
    from privsyn.validation.image_profile import sample_sheet as sheet_of

    rows = read_image_rows(artifact)
    pairs = list(load_images(artifact.parent, rows))
    synthetic, labels = [pixels for pixels, _ in pairs], [label for _, label in pairs]
    images = [decode(record.text) for record in real]
    metrics = downstream_images(synthetic, labels, images, [record.label for record in real])
    config = ctx.config
    if config.evaluate.embeddings:
        from privsyn.models.roles import load_role

        load = partial(load_role, config.models, "image_embedder", config.performance)
        metrics += compare_images(
            synthetic,
            images,
            load if backends is None else lambda: backends.image_embedder,
            config.evaluate.embedded_texts,
            f"models.image_embedder={config.models.image_embedder}",
        )
    sheet = sheet_of(artifact.parent, profile_images(rows, plan.dataset.labels))
    return metrics, partial(draw_image_plots, sheet=sheet, labels=labels, metrics=metrics)


def sets_aside(dataset: DatasetConfig) -> bool:
    """Whether the settings hold units out, or name a file of its own."""
    return bool(dataset.holdout) or dataset.test_path is not None


def said(folder: Path | None) -> str:
    """One line for a log: the same whether or not there was a record to measure by."""
    if folder is None:
        return "not measured: evaluate.enabled is off, or dataset.holdout is 0 without a test_path"
    return f"internal numbers in {folder}"


def held_out(ctx: Context, plan: Plan) -> list[Record]:
    """The real records no release was made from."""
    dataset = ctx.source(plan)
    if not sets_aside(dataset):
        return []
    key = ctx.open_account().partition_key.reveal()
    return [private.reveal() for private in read_holdout(dataset, key)]
