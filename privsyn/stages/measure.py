"""What is measured of a release, by the modality of its records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from privsyn.data.artifacts import private_folder, write_json_atomic
from privsyn.data.columns import Column
from privsyn.data.images import decode
from privsyn.data.profile import Row, load_images, read_image_rows, read_rows
from privsyn.data.records import Record
from privsyn.data.settings import examples
from privsyn.errors import MissingExtra, ModelError, is_installed, kind_and_place
from privsyn.evaluation.classifiers import (
    FEWEST,
    FEWEST_A_SIDE,
    downstream,
    labeled_texts,
    split_holdout,
)
from privsyn.evaluation.columns import CellRecords, compare_columns
from privsyn.evaluation.embeddings import EmbeddedOnce, compare_embeddings, compare_lengths
from privsyn.evaluation.images import compare_images, downstream_beside
from privsyn.evaluation.judge import (
    ENCODER,
    NEARNESS,
    VOTER,
    Case,
    Scores,
    judge,
    likeness,
    likeness_metrics,
)
from privsyn.evaluation.language_model import perplexity_gap
from privsyn.evaluation.metrics import Metric, compare_labels, evenly_spaced
from privsyn.methods.base import OnProgress, Role, silent
from privsyn.methods.shared.baseline import WritesFresh, write_fresh
from privsyn.modalities.images import Images
from privsyn.modalities.registry import modality_of
from privsyn.modalities.table import Tables
from privsyn.modalities.text import Texts
from privsyn.models.images.image_folders import check_encoder
from privsyn.models.language import embed_e5
from privsyn.models.language.likelihood import Readable, log_likelihoods
from privsyn.models.language.text_variation import TextConfig, TextSettings
from privsyn.models.loading import (
    describe_role,
    load_embedder,
    load_image_encoder,
    load_measuring_encoder,
    load_role,
)
from privsyn.models.model_identity import fingerprint, locate
from privsyn.models.references import IMAGE_ENCODER, ModelReference
from privsyn.progress import ASKING, under_way
from privsyn.release.plan import Plan
from privsyn.stages.base import Context, open_plan
from privsyn.stages.draw import load_answerer, public_file


def with_answers(ctx: Context, plan: Plan, records: Sequence[Record]) -> Sequence[Record]:
    """Held-out records, with what a model answers where no file has a column."""
    # privacy: loaded whether there is a record or not
    answerer = load_answerer(open_plan(ctx, plan))
    if answerer is None:
        return records
    ask = answerer.ask(plan.dataset.columns)
    with under_way(ctx.on_progress, ASKING):
        return [replace(one, row=ask(one.content, one.row)) for one in records]


def why_no_encoder(ctx: Context, plan: Plan) -> str | None:
    """Why no encoder can measure a release, in words; None where one can.

    Images that an encoder chose lie where it looks for them: its own distances flatter. So an
    encoder that cast votes, or weighed phrases, is refused by the digest of its files, under
    whatever name. Where none took part, the sentence embedder measures texts without the package.

    Reads no record: what it says depends on settings and on the models of this machine.
    """
    voter = plan.models.get(_voter(plan))
    try:
        revision = _revision(ctx, plan)
    except (MissingExtra, ModelError) as error:
        if isinstance(error, MissingExtra) and voter is None:
            return None
        return f"{error.message} {error.hint or ''}".strip()
    if voter is not None and voter.revision == revision:
        return f"{measuring_encoder(ctx, plan)} took part in this release. Name another."
    return None


def measuring_encoder(ctx: Context, plan: Plan) -> ModelReference:
    """The encoder that the settings name, which may be none."""
    name = ctx.config.evaluate.encoder
    if _kind(plan) == Texts.name:
        return ModelReference("evaluate.encoder", str(name))
    return ModelReference("evaluate.encoder", name or IMAGE_ENCODER, of_images=True)


def _revision(ctx: Context, plan: Plan) -> str:
    """Digest of the encoder's files.

    Raises:
        ModelError: It is not here.
        MissingExtra: None is named, and the package that brings one is not installed.
    """
    if _kind(plan) != Texts.name:
        place = locate(measuring_encoder(ctx, plan), check_encoder)
    elif ctx.config.evaluate.encoder is None:
        return embed_e5.revision()
    else:
        place = locate(measuring_encoder(ctx, plan))
    return fingerprint(place, ctx.workspace.cache)


def _voter(plan: Plan) -> Role:
    """The role whose model casts votes over records, or weighs phrases."""
    return "embedder" if _kind(plan) == Texts.name else "image_embedder"


_MOST_TOKENS = 64

_MOST_DRAWS, _ALONE = 2, 200
"""Draws of the public model alone that a release is set beside, and most texts that are written for
them."""
_READ = 300
"""Most candidates of the public model that rulers read of a small release."""
_TESTED = 600
"""Most held-out records that rulers are tested on: they decide how wide an interval is."""


def public_alone(
    ctx: Context,
    plan: Plan,
    labels: Sequence[str | None],
    on_progress: OnProgress = silent,
) -> list[str] | None:
    """One text per label that the public model writes, without records.

    Reads no record and costs nothing. Kept in the cache by model, settings and labels.

    Args:
        ctx: Config.
        plan: The release.
        labels: Label of each text.
        on_progress: Called with texts written and texts to write, where they are not kept already.

    Returns:
        The texts; None where no language model here can write them (a server, a grammar).
    """
    models = ctx.config.models
    role: Role = "text"
    if models.server is not None:
        return None
    settings = _prompts(ctx, plan)
    if settings is None:
        return None
    identity = describe_role(models, role, ctx.workspace.cache)
    inputs = {
        "model": identity.revision,
        "recipe": settings.model_dump(mode="json"),
        "labels": list(labels),
    }
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
    file = ctx.workspace.cache / "alone" / f"{digest[:32]}.json"
    if (cached := _stored_texts(file, len(labels))) is not None:
        return cached
    model = load_role(models, role, ctx.config.performance)
    rng = np.random.default_rng(int(digest[:16], 16))  # public randomness
    try:
        texts = write_fresh(settings, model, labels, rng, on_progress)
    except ModelError:  # it wrote no text
        return None
    private_folder(file.parent)
    write_json_atomic(file, texts, mode=0o600)
    return texts


def _prompts(ctx: Context, plan: Plan) -> TextSettings | None:
    """How the public texts of a release are written; None for records of a JSON schema.

    A method whose texts come from logits or gradients has the prompts of private evolution: they
    are what a user would have without any records.
    """
    release, subject = open_plan(ctx, plan), plan.dataset.subject
    method, settings = release.method, release.settings
    fresh = method.fresh(settings) if isinstance(method, WritesFresh) else None
    if fresh is not None or getattr(settings, "json_schema", None) is not None:
        return fresh
    identity = describe_role(ctx.config.models, "text", ctx.workspace.cache)
    config = TextConfig(max_tokens=getattr(settings, "max_tokens", _MOST_TOKENS))
    return config.resolved(identity.template_default, replace(subject, columns=(), roles=()))


def _stored_texts(file: Path, count: int) -> list[str] | None:
    try:
        texts = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return [str(text) for text in texts] if len(texts) == count else None


_AT_ONCE = 512
"""Tokens that the language model reads at once."""
_MOST = 2000
"""Most texts or images a side that an encoder reads. FID of so many is higher than that of the
50,000 images that papers take."""
_ALONE_NAME = "public model alone"
Labeled = tuple[Sequence[str], Sequence[str | None]]
"""Texts, and the label of each."""


class Failures:
    """What could not be measured, by name. Internal.

    privacy: what a held-out record makes fail must not decide whether its release is published, nor
    be seen in a log: the other measurements go on, and the name of the error stays in the state
    folder.
    """

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        """Keep the class and the place of an exception, not what it says, and go on behind it."""
        try:
            yield
        except Exception as error:
            self.errors[name] = kind_and_place(error)


def _encoders(ctx: Context, plan: Plan) -> tuple[EmbeddedOnce, EmbeddedOnce | None, str]:
    """The encoders of a release, loaded whether there is a record to measure or not.

    Returns:
        The sentence embedder, which compares texts of the public model with label words; the judge,
        which took no part in the release, or None where there is none; what the judge is called.
    """
    config, cache = ctx.config, ctx.workspace.cache
    voter = EmbeddedOnce(partial(load_embedder, config.models, config.performance, cache))
    voter.load()
    name, called = config.evaluate.encoder, f"models.embedder={config.models.embedder}"
    if why_no_encoder(ctx, plan) is not None:
        return voter, None, ""
    if name is None and not is_installed(embed_e5.PACKAGE):
        return voter, voter, called
    judge = EmbeddedOnce(partial(load_measuring_encoder, name, config.performance, cache))
    judge.load()
    return voter, judge, name or embed_e5.NAME


@dataclass(frozen=True)
class _Measurement:
    """A release, and the held-out real records that it is measured beside.

    Attributes:
        ctx: Config.
        plan: The release.
        artifact: Its file of records.
        real: The held-out records.
        failures: What could not be measured.
    """

    ctx: Context
    plan: Plan
    artifact: Path
    real: Sequence[Record]
    failures: Failures

    @property
    def labeled(self) -> bool:
        """Whether there are labels to tell apart."""
        return len(self.plan.dataset.labels) > 1

    def texts(self) -> list[Metric]:
        """Metrics of texts."""
        ctx, plan, rows = self.ctx, self.plan, read_rows(self.artifact)
        ours = [row.text or "" for row in rows], [row.label for row in rows]
        theirs = [one.content for one in self.real], [one.label for one in self.real]
        parts: dict[str, Callable[[], list[Metric]]] = {
            "words, lengths, labels": lambda: [
                *(downstream(*ours, *theirs) if self.labeled else []),
                *compare_lengths(ours[0], theirs[0]),
                *compare_labels(ours[1], theirs[1]),
            ]
        }
        if plan.dataset.columns:
            parts["columns"] = lambda: self.columns(rows)
        total, done = len(parts), 0
        if ctx.config.evaluate.models:
            total, done = total + 3, 1
            # privacy: models are loaded, and what they say is logged, whether there is a record or
            # not
            self._begin(_ALONE_NAME, 0, total)
            public = _public(ctx, plan, ours)
            model = _reader(ctx, plan)
            encoders = _encoders(ctx, plan)
            read = None if model is None else partial(log_likelihoods, model, most=_AT_ONCE)
            parts |= {
                "perplexity": lambda: perplexity_gap(ours[0], theirs[0], read) if read else [],
                "beside what is free": lambda: self.rivals(ours, theirs, public, *encoders),
            }
        metrics: list[Metric] = []
        for name, part in parts.items():
            self._begin(name, done, total)
            with self.failures.within(name):
                metrics += part() if self.real else []
            done += 1
        return metrics

    def _begin(self, name: str, done: int, total: int) -> None:
        """Name the measurement that runs: they take unlike times, so none tells what is left."""
        self.ctx.progress(f"evaluate: {name}", done, total, "measurements")

    def columns(self, rows: Sequence[Row]) -> list[Metric]:
        """Metrics of the declared columns."""
        declared, real = self.plan.dataset.columns, self.real
        labels = self.plan.dataset.labels if self.labeled else ()
        sizes = {name: len(one.cells) for name, one in declared.items()}
        sizes |= {"label": len(labels)} if labels else {}
        ours = CellRecords.of(
            [[one.cell(row.values.get(name)) for name, one in declared.items()] for row in rows],
            [row.text or "" for row in rows],
            [row.label for row in rows],
            labels,
        )
        theirs = CellRecords.of(
            [list(map(Column.released_cell, declared.values(), record.row)) for record in real],
            [record.content for record in real],
            [record.label for record in real],
            labels,
        )
        return compare_columns(sizes, ours, theirs)

    def rivals(
        self,
        synthetic: Labeled,
        real: Labeled,
        public: _Public,
        voter: EmbeddedOnce,
        judged: EmbeddedOnce | None,
        called: str,
    ) -> list[Metric]:
        """The texts beside their rivals, and MAUVE. See evaluation.judge.

        Every ruler reads the same texts, so each is embedded once.
        """
        plan, labeled = self.plan, self.labeled
        # Without labels to tell apart all have the same one, for what compares texts alone.
        ours, theirs = (
            labeled_texts(texts, labels if labeled else [""] * len(texts), _MOST)
            for texts, labels in (synthetic, real)
        )
        # Rivals are trained on as many as the release, or a third; all others test. Nearness has no
        # use for more than the release has.
        known, tested = split_holdout(theirs, max(len(ours), len(theirs) // 3 if labeled else 0))
        case = Case(
            ours,
            tested[:_TESTED],
            known,
            [(text, (label or "") if labeled else "") for text, label in public],
            _invented(self.ctx, plan, labeled=labeled),
            dict(plan.dataset.subject.descriptions),
            plan.dataset.document,
        )
        # What rulers measure with, by their names: a new one that needs a model has a line here.
        tools: dict[str, object] = {}
        if judged is not None:
            tools |= {ENCODER: judged.embed, NEARNESS: judged.embed}
        elif _voter(plan) in plan.models:
            # It flatters, so it reads all these texts only where no other encoder does.
            tools[VOTER] = voter.embed
        side = min(len(ours), len(theirs)) if labeled else min(len(ours), len(theirs) // 2)
        scores = Scores({})
        if side >= (FEWEST if labeled else FEWEST_A_SIDE):
            scores = judge(case, tools, chooser=voter.embed)
        vectors = f"vectors of {called}"
        words = {ENCODER: f"logistic regression over {vectors}", NEARNESS: vectors}
        metrics = [*scores.metrics(words), *likeness_metrics(likeness(case))]
        side = min(len(ours), len(case.tested))
        if judged is None or side < FEWEST:
            return metrics
        first, second = (
            judged.embed([text for text, _ in evenly_spaced(part, side)])
            for part in (ours, case.tested)
        )
        return [*metrics, *compare_embeddings(first, second, called)]

    def images(self) -> list[Metric]:
        """Metrics of images."""
        config, encoder = self.ctx.config, measuring_encoder(self.ctx, self.plan)
        embedder = None
        if config.evaluate.models and why_no_encoder(self.ctx, self.plan) is None:
            # privacy: loaded whether there is a record or not
            cache = self.ctx.workspace.cache
            embedder = load_image_encoder(encoder, config.performance, cache)
        if not self.real:
            return []
        pairs = list(load_images(self.artifact.parent, read_image_rows(self.artifact)))
        synthetic, labels = [pixels for pixels, _ in pairs], [label for _, label in pairs]
        metrics: list[Metric] = []
        with self.failures.within("pixels"):
            images = [decode(record.content) for record in self.real]
            if self.labeled:
                theirs = [record.label for record in self.real]
                metrics += downstream_beside(synthetic, labels, images, theirs)
            if embedder is not None:
                metrics += compare_images(synthetic, images, embedder, _MOST, str(encoder))
        return metrics

    def rows(self) -> list[Metric]:
        """Metrics of rows without a text."""
        rows = modality_of(self.plan.dataset).rows(self.artifact)
        with self.failures.within("columns"):
            if self.real:
                theirs = [record.label for record in self.real]
                labels = compare_labels([row.label for row in rows], theirs)
                return [*labels, *self.columns(rows)]
        return []


def _invented(ctx: Context, plan: Plan, *, labeled: bool) -> list[tuple[str, str]]:
    """The user's examples, with the label that classifiers learn: public, and free."""
    invented = examples((plan.dataset, open_plan(ctx, plan).settings))
    pairs = [(one.text, (one.label or "") if labeled else "") for one in invented]
    return [pair for pair in dict.fromkeys(pairs) if pair[1] or not labeled]


_Public = Sequence[tuple[str, str | None]]
"""Text and label of what the public model writes alone."""


def _public(ctx: Context, plan: Plan, synthetic: Labeled) -> _Public:
    """What the public model writes alone: candidates of the release, or texts written for this.

    One draw of a hundred texts may be .1 better than the next: of a small release there are more.
    """
    names: list[str | None] = [label for _, label in labeled_texts(*synthetic, _MOST)]
    if not plan.dataset.labels:
        names = [None] * len(evenly_spaced(synthetic[0], _MOST))
    if not names:
        return []
    if written := _candidates(public_file(ctx, plan)):
        return evenly_spaced(written, max(_READ, len(names)))
    names = evenly_spaced(names, _ALONE)
    draws = max(1, min(_MOST_DRAWS, _ALONE // len(names)))

    def progress(done: int, total: int) -> None:
        ctx.progress(f"evaluate: {_ALONE_NAME}, writing", done, total, "texts")

    labels = [*names] * draws
    texts = public_alone(ctx, plan, labels, progress)
    return [] if texts is None else list(zip(texts, labels, strict=True))


def _candidates(file: Path) -> _Public:
    """Texts that a method had the public model write, in an order that no vote decided."""
    try:
        return [(str(text), label) for label, text in json.loads(file.read_bytes())]
    except (OSError, ValueError, TypeError):
        return []


def _reader(ctx: Context, plan: Plan) -> Readable | None:
    """The public language model whose logits the release was drawn from, where it was from any."""
    if "language" not in plan.models:
        return None
    model = load_role(ctx.config.models, "language", ctx.config.performance)
    return model if isinstance(model, Readable) else None


def _kind(plan: Plan) -> str:
    return modality_of(plan.dataset).name


def beside(
    ctx: Context, plan: Plan, artifact: Path, real: Sequence[Record], failures: Failures
) -> list[Metric]:
    """Numbers about a release beside held-out real records, internal.

    privacy: none without records, and what is shown and logged meanwhile is the same.
    """
    measurement = _Measurement(ctx, plan, artifact, real, failures)
    of_kind = {
        Texts.name: measurement.texts,
        Images.name: measurement.images,
        Tables.name: measurement.rows,
    }
    return of_kind[_kind(plan)]()


def check_models(ctx: Context, plan: Plan) -> None:
    """Refuse models that the settings name for measuring texts, and that are not here.

    Raises:
        ModelError: One is not.
    """
    settings = ctx.config.evaluate
    if settings.models and _kind(plan) == Texts.name and settings.encoder is not None:
        _revision(ctx, plan)
