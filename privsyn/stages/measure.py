"""What is measured of a release, by the modality of its records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from privsyn.data.images import decode
from privsyn.data.records import Record
from privsyn.evaluation.beside import headline, labelled, spaced
from privsyn.evaluation.classify import downstream
from privsyn.evaluation.corpora import compare_labels, compare_words
from privsyn.evaluation.embeddings import EmbeddedOnce, compare_embeddings, embed_both
from privsyn.evaluation.fidelity import compare_lengths, fidelity
from privsyn.evaluation.images import compare_images, downstream_beside, image_fidelity
from privsyn.evaluation.likelihood import in_context, perplexity_gap
from privsyn.evaluation.metrics import Metric
from privsyn.evaluation.nearness import near
from privsyn.evaluation.plots import draw_image_plots, draw_plots
from privsyn.evaluation.structured import compare_fields, structure
from privsyn.methods.base import Backends, Steps
from privsyn.models.images.loading import load_encoder
from privsyn.models.language.likelihood import Readable, log_likelihoods
from privsyn.models.language.loading import load_embedder
from privsyn.models.roles import load_role
from privsyn.release.plan import Plan
from privsyn.stages.alone import public_alone
from privsyn.stages.base import Context
from privsyn.stages.encoder import measuring_encoder, why_no_encoder
from privsyn.validation.image_profile import load_images, profile_images, read_image_rows
from privsyn.validation.image_profile import sample_sheet as sheet_of
from privsyn.validation.profile import read_rows
from privsyn.validation.suite import read_schema

MOST_READ = 512
"""Tokens that the language model reads at once."""

_MOST_DRAWS, _ALONE = 2, 200
"""Draws of the public model alone that a release is set beside, and texts of all of them; of a
larger release one draw."""

Plotter = Callable[[Path], list[Path]]
"""Draws the plots into a folder; returns the files."""


def _text_quality(ctx: Context, artifact: Path) -> list[Metric]:
    texts = [row.text or "" for row in read_rows(artifact)]
    quality = fidelity(texts)
    if ctx.config.validation.json_schema is not None:
        quality += structure(texts, read_schema(ctx.config.validation, ctx.files))
    return quality


def _image_quality(ctx: Context, artifact: Path) -> list[Metric]:
    return image_fidelity(read_image_rows(artifact))


def _texts(
    ctx: Context, plan: Plan, artifact: Path, real: Sequence[Record], backends: Backends | None
) -> tuple[list[Metric], Plotter]:
    rows = read_rows(artifact)
    synthetic, labels = [row.text or "" for row in rows], [row.label for row in rows]
    texts = [record.content for record in real]
    steps = Steps(lambda done, total: ctx.progress("evaluate", done, total, "measurements"), 4)
    steps.next()
    metrics = [
        *downstream(synthetic, labels, texts, [record.label for record in real]),
        *compare_lengths(synthetic, texts),
        *compare_words(synthetic, texts),
        *compare_labels(labels, [record.label for record in real]),
    ]
    steps.next()
    metrics += _by_reading(ctx, plan, (synthetic, labels), real, backends)
    if ctx.config.validation.json_schema is not None:
        schema = read_schema(ctx.config.validation, ctx.files)
        metrics += compare_fields(synthetic, texts, schema)
    if ctx.config.evaluate.embeddings:
        config, theirs = ctx.config, [record.label for record in real]
        load = partial(load_embedder, config.models, config.performance, ctx.workspace.cache)
        once = EmbeddedOnce(load if backends is None else lambda: backends.embedder)
        steps.next()
        metrics += _by_vectors(ctx, synthetic, texts, once)
        steps.next()
        if any(labels) and any(theirs):
            metrics += _headline(ctx, plan, (synthetic, labels), (texts, theirs), backends, once)
        elif not plan.dataset.labels:
            metrics += _nearness(ctx, plan, synthetic, texts, backends, once)
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
    settings = ctx.config.evaluate
    ours, theirs = (labelled(*side, settings.embedded_texts) for side in (synthetic, real))
    names = [label for _, label in ours]
    public = [list(zip(own, names, strict=True)) for own in _public(ctx, plan, names, backends)]
    return headline(ours, theirs, public, once.embed, _called(ctx))


def _nearness(
    ctx: Context,
    plan: Plan,
    synthetic: Sequence[str],
    real: Sequence[str],
    backends: Backends | None,
    once: EmbeddedOnce,
) -> list[Metric]:
    """A release without labels beside its baselines. See evaluation.nearness."""
    most = ctx.config.evaluate.embedded_texts
    ours, theirs = (spaced(side, most) for side in (synthetic, real))
    public = _public(ctx, plan, [None] * len(ours), backends)
    return near(ours, theirs, public, once.embed, _called(ctx))


def _public(
    ctx: Context, plan: Plan, names: Sequence[str | None], backends: Backends | None
) -> Sequence[Sequence[str]]:
    """What the public model writes alone of the same labels, as many texts a draw; kept.

    One draw of a hundred texts may be .1 better than the next: of a small release there are more.
    """
    if not names or not ctx.config.evaluate.public_alone:
        return []
    draws = max(1, min(_MOST_DRAWS, _ALONE // len(names)))
    written = public_alone(ctx, plan, [*names] * draws, backends) or []
    return [written[start : start + len(names)] for start in range(0, len(written), len(names))]


def _by_reading(
    ctx: Context,
    plan: Plan,
    synthetic: tuple[Sequence[str], Sequence[str | None]],
    real: Sequence[Record],
    backends: Backends | None,
) -> list[Metric]:
    """Metrics of the public language model as a reader. See evaluation.likelihood."""
    settings = ctx.config.evaluate
    if not (settings.perplexity_texts or settings.in_context_records):
        return []
    model = _reader(ctx, backends)
    if model is None:
        return []
    read = partial(log_likelihoods, model, most=MOST_READ)
    theirs = [(record.content, record.label) for record in real]
    metrics = perplexity_gap(
        synthetic[0], [text for text, _ in theirs], read, settings.perplexity_texts
    )
    if settings.in_context_records:
        half = len(theirs) // 2
        ours = labelled(*synthetic, settings.embedded_texts)
        known, tested = (
            [(t, of) for t, of in part if of] for part in (theirs[:half], theirs[half:])
        )
        sets = {"synthetic": ours, "real": known[: len(ours)]}
        names = [label for _, label in ours]
        if public := _public(ctx, plan, names, backends):
            sets["public"] = list(zip(public[0], names, strict=True))
        metrics += in_context(sets, tested, read, settings.in_context_records) if ours else []
    return metrics


def _reader(ctx: Context, backends: Backends | None) -> Readable | None:
    """The public language model, where one is on this machine."""
    models = ctx.config.models
    if models.server is not None or (backends and "language" not in backends.models):
        return None
    model = backends.language if backends else load_role(models, "language", ctx.config.performance)
    return model if isinstance(model, Readable) else None


def _by_vectors(
    ctx: Context, synthetic: Sequence[str], texts: Sequence[str], once: EmbeddedOnce
) -> list[Metric]:
    """Metrics in the space of the sentence embedder."""
    both = embed_both(synthetic, texts, lambda: once, ctx.config.evaluate.embedded_texts)
    return [] if both is None else compare_embeddings(*both, _called(ctx))


def _called(ctx: Context) -> str:
    return f"models.embedder={ctx.config.models.embedder}"


def _images(
    ctx: Context, plan: Plan, artifact: Path, real: Sequence[Record], backends: Backends | None
) -> tuple[list[Metric], Plotter]:
    rows = read_image_rows(artifact)
    pairs = list(load_images(artifact.parent, rows))
    synthetic, labels = [pixels for pixels, _ in pairs], [label for _, label in pairs]
    images = [decode(record.content) for record in real]
    metrics = downstream_beside(synthetic, labels, images, [record.label for record in real])
    config = ctx.config
    can = backends is not None or why_no_encoder(ctx, plan) is None
    if config.evaluate.embeddings and can:
        wanted = measuring_encoder(ctx)
        load = partial(load_encoder, wanted, config.performance, ctx.workspace.cache)
        metrics += compare_images(
            synthetic,
            images,
            load if backends is None else lambda: backends.image_embedder,
            config.evaluate.encoded_images,
            str(wanted),
        )
    sheet = sheet_of(artifact.parent, profile_images(rows, plan.dataset.labels))
    return metrics, partial(draw_image_plots, sheet=sheet, labels=labels, metrics=metrics)


@dataclass(frozen=True)
class Measures:
    """What is measured of one kind of records.

    Attributes:
        alone: Numbers about the synthetic file alone.
        beside: Numbers about it beside held-out real records, internal, and what draws the plots.
    """

    alone: Callable[[Context, Path], list[Metric]]
    beside: Callable[
        [Context, Plan, Path, Sequence[Record], Backends | None], tuple[list[Metric], Plotter]
    ]


MEASURES: Mapping[str, Measures] = {
    "text": Measures(_text_quality, _texts),
    "image": Measures(_image_quality, _images),
}
"""By the modality's name."""
