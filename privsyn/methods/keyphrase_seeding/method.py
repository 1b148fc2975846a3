"""Keyphrase prompt seeding: prompts of privatised phrases, so the model sees no private text.

Source: Nagesh et al. 2025, "Private text generation by seeding large language model prompts"
(DP-KPS), section 2 and Appendix B. Guarantee, assumptions and every deviation from the paper:
guarantee.md, whose tags [K1] ... stand at the lines they speak of.

Symbols as in the paper: terms per document S, vocabulary size N, phrases per document M, Fourier
features I, sequence length L. The estimates themselves: dp_kde.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privsyn.data.records import Bucket, Cell
from privsyn.dp.adjacency import PrivacyUnit
from privsyn.dp.mechanisms import Laplace
from privsyn.errors import ConfigError
from privsyn.methods.base import ANYTHING, Backends, Draw, Role, Sample, Steps, Subject
from privsyn.methods.keyphrase_seeding.dp_kde import Scorer, Structure, exact_sums, queried, windows
from privsyn.methods.keyphrase_seeding.mechanism import (
    KeyphraseSeedingMechanism,
    calibrate,
    rebuild,
    structures_of,
)
from privsyn.methods.keyphrase_seeding.prompts import default_prompt, fill, with_examples
from privsyn.methods.keyphrase_seeding.settings import (
    SECTION,
    SHIPPED,
    KeyphraseSeedingConfig,
    KeyphraseSeedingSettings,
)
from privsyn.methods.keyphrase_seeding.vocabulary import BUILTIN, Vocabulary
from privsyn.models.language.text_variation import TOP_P
from privsyn.models.protocols import PromptTemplate, TextModel
from privsyn.models.trial import SENTENCE, try_embedder

if TYPE_CHECKING:
    from privsyn.data.draws import Draws
    from privsyn.dp.noise import NoiseSource
    from privsyn.models.model_identity import ModelIdentity

_TOGETHER = 64
"""Prompts completed before their texts are journalled: a resumed run repeats at most so many."""

_ROWS = 256
"""Sequences that are scored together."""


class KeyphraseSeeding:
    """Sequences of phrases from private density estimates, each the seed of one text.

    Guarantee: the choice of terms is Laplace noise on a histogram of L1 sensitivity S m and is paid
    once; each label has its own estimates, and the labels are disjoint in units, so the release is
    the sequence of the choice and of one label's k estimates. An estimate is a vector of L1
    sensitivity M I m (Laplace) or L2 sensitivity M sqrt(I) m (Gaussian). All are doubled under
    replace_one. Sequences, prompts and texts are post-processing.
    """

    name: ClassVar[str] = "keyphrase_seeding"
    title: ClassVar[str] = "Keyphrase prompt seeding"
    paper: ClassVar[str] = "Nagesh et al. 2025, DP-KPS, section 2"
    Config: ClassVar[type[KeyphraseSeedingConfig]] = KeyphraseSeedingConfig
    Settings: ClassVar[type[KeyphraseSeedingSettings]] = KeyphraseSeedingSettings

    whole: ClassVar[bool] = True
    samples: ClassVar[bool] = False
    counts: ClassVar[str] = "steps"
    levers: ClassVar[str] = "vocabulary_size or sequence_length"
    tries: ClassVar[Mapping[str, Sequence[Any]]] = {
        "labels_public": (True, False),
        "vocabulary_size": (300, 1000),
        "sequence_length": (6, 10),
    }

    calibrate = staticmethod(calibrate)
    rebuild = staticmethod(rebuild)

    def roles(self, cfg: KeyphraseSeedingConfig) -> tuple[Role, ...]:
        """An embedder of phrases and, unless phrases are all that is wanted, a language model."""
        return ("embedder", "text") if cfg.use_llm else ("embedder",)

    def resolve(
        self,
        cfg: KeyphraseSeedingConfig,
        models: Mapping[Role, ModelIdentity],
        subject: Subject = ANYTHING,
    ) -> KeyphraseSeedingSettings:
        """Settings with digest and size of the vocabulary, kernel, and prompt filled in.

        Raises:
            ConfigError: The vocabulary or the examples cannot be read, or are not those pinned.
        """
        data = _vocabulary(cfg)
        digest = hashlib.sha256(data).hexdigest()
        values: dict[str, Any] = {
            # What the terms are, not where: the same ones elsewhere are the same release.
            "vocabulary": cfg.vocabulary if cfg.vocabulary == SHIPPED else f"sha256:{digest}",
            "vocabulary_digest": digest,
            "vocabulary_size": min(
                cfg.vocabulary_size, len(Vocabulary.parse(data, cfg.vocabulary))
            ),
            "examples": None,
            "examples_digest": None,
            "bandwidth": cfg.bandwidth or (0.5 if cfg.ensemble == "independent" else 1.0),
            "score_power": cfg.score_power or (1.0 if cfg.ensemble == "independent" else 40.0),
        }
        if cfg.use_llm:
            if cfg.document is not None and subject.document not in (None, cfg.document):
                raise ConfigError(
                    f"{SECTION}.document={cfg.document!r} is not dataset.document="
                    f"{subject.document!r}.",
                    hint=f"Leave {SECTION}.document out.",
                )
            subject = replace(subject, document=subject.document or cfg.document)
            prompt = cfg.prompt or default_prompt(cfg, models["text"].template_default)
            prompt = subject.fill(prompt)
            values["prompt"] = with_examples(cfg, prompt) + prompt
            values["top_p"] = TOP_P if cfg.top_p is None else cfg.top_p
            values["label_descriptions"] = cfg.label_descriptions or dict(subject.descriptions)
        return cfg.resolved(KeyphraseSeedingSettings, values)

    def cells(self, cfg: KeyphraseSeedingConfig, labels: Sequence[str]) -> list[Cell]:
        """One cell per label."""
        return Cell.grid(labels, 1)

    def prompt(self, cfg: KeyphraseSeedingConfig) -> tuple[PromptTemplate, int, int] | None:
        """None: no logits are read."""
        return None

    def longest_text(self, cfg: KeyphraseSeedingConfig) -> int:
        """Tokens of a text at most."""
        return cfg.max_tokens

    def preflight(
        self,
        settings: KeyphraseSeedingSettings,
        unit: PrivacyUnit,
        labels: Sequence[str],
        models: Backends,
    ) -> None:
        """The vector of a phrase, and a completion where texts are written."""
        try_embedder(models.embedder, SENTENCE)
        if settings.use_llm:
            models.text.check()
            models.text.complete([fill(settings, None, ())], max_tokens=1, temperature=0.0)

    def run(
        self,
        settings: KeyphraseSeedingSettings,
        mechanism: KeyphraseSeedingMechanism,
        buckets: Sequence[Bucket],
        draw: Draw,
    ) -> Iterator[Sample]:
        """The texts of every label, from all labels' documents."""
        models, journal = draw.models, draw.journal
        if settings.use_llm and not journal.drawn:  # a model that fails must fail before a draw
            models.text.complete([fill(settings, None, ())], max_tokens=1, temperature=0.0)
        shapes = structures_of(settings)
        pages = -(-settings.sequences_per_label // _TOGETHER) if settings.use_llm else 0
        steps = Steps(draw.progress, 1 + (len(shapes) + pages) * len(buckets))
        documents = [bucket.contents.reveal() for bucket in buckets]

        # Pre-processing: the private vocabulary (Appendix B.1), once for all labels [K1]
        data = journal.keep("public vocabulary", partial(_vocabulary, settings))
        public = Vocabulary.parse(data, settings.vocabulary)
        size = min(settings.vocabulary_size, len(public))
        steps.next()
        choose = partial(_chosen, settings, mechanism.choice, public, documents, size, draw.noise)
        vocabulary = public.subset(journal.draw_array("vocabulary", choose, size))
        vectors = _normalised(models.embedder.embed(vocabulary.terms))  # steps 1-2

        # Step 3: noisy sums of every structure, label by label
        most = max(settings.phrases_per_document, shapes[-1].blocks)
        phrases = [[vocabulary.first(text, most) for text in texts] for texts in documents]
        sums: dict[tuple[int, int], NDArray[np.int64]] = {}  # (label, structure): noisy, (I,)
        for shape in shapes:
            angles = shape.angles(vectors)
            for number, bucket in enumerate(buckets):
                steps.next()
                sums[number, shape.number] = journal.draw_array(
                    f"{bucket.cell.index}/{shape.number}",
                    partial(
                        _noisy, settings, shape, angles, phrases[number], mechanism, draw.noise
                    ),
                    settings.features,
                )

        # Step 4: sequences; from here on nothing private is read
        least = settings.score_threshold * mechanism.score_deviation
        for number, sequences in enumerate(
            _sequences(settings, shapes, vectors, sums, len(buckets), least)
        ):
            cell = buckets[number].cell
            lists = [[vocabulary.terms[i] for i in row] for row in sequences.phrases]
            if settings.use_llm:  # step 5
                texts = _texts(settings, cell, lists, models.text, journal, steps)
            else:
                texts = iter([", ".join(row) for row in lists])
            for text, uniform in zip(texts, sequences.uniform.tolist(), strict=True):
                yield Sample(
                    cell, text, {"phrases": settings.sequence_length, "uniform_phrases": uniform}
                )


class _LabelSequences:
    """Sequences of one label while they are drawn.

    Attributes:
        phrases: Numbers of the phrases so far, shape (sequences, length).
        uniform: Phrases of each sequence drawn uniformly, as no score was positive; (sequences,).
    """

    def __init__(self, count: int) -> None:
        self.phrases = np.empty((count, 0), np.int64)
        self.uniform = np.zeros(count, np.int64)


def _chosen(
    settings: KeyphraseSeedingSettings,
    choice: Laplace,
    public: Vocabulary,
    documents: Sequence[Sequence[str]],
    size: int,
    noise: NoiseSource,
) -> NDArray[np.int64]:
    """Numbers of the ``size`` terms of highest noisy count, ties by public order [K2]."""
    counts = np.zeros(len(public), np.int64)
    for texts in documents:
        for text in texts:
            # privacy: each of the first S distinct terms counts once, so L1 moves by at most S [K2]
            counts[public.first(text, settings.terms_per_document)] += 1
    noisy = choice.draw(counts, noise)  # on every public term, those never seen among them
    # ~x = -1 - x: the order of -x, also where noise saturated at the least int64.
    return np.argsort(~noisy, kind="stable")[:size].astype(np.int64)


def _noisy(
    settings: KeyphraseSeedingSettings,
    shape: Structure,
    angles: NDArray[np.uint16],
    phrases: Sequence[Sequence[int]],
    mechanism: KeyphraseSeedingMechanism,
    noise: NoiseSource,
) -> NDArray[np.int64]:
    """Noisy sums of one structure over one label's documents."""
    sequences = windows(phrases, shape.blocks, settings.phrases_per_document)
    noisy: NDArray[np.int64] = mechanism.estimate.draw(exact_sums(angles, sequences), noise)
    return noisy


def _sequences(
    settings: KeyphraseSeedingSettings,
    shapes: Sequence[Structure],
    vectors: NDArray[np.float32],
    sums: Mapping[tuple[int, int], NDArray[np.int64]],
    labels: int,
    least: float,
) -> list[_LabelSequences]:
    """Sequences of every label: steps 1 to 3 of the iterative scheme, or L independent draws."""
    rng = _public_rng(sums)
    drawn = [_LabelSequences(settings.sequences_per_label) for _ in range(labels)]
    shape, angles = None, np.empty((0, 0, 0), np.uint16)
    for step in range(1, settings.sequence_length + 1):
        structure = shapes[queried(settings.ensemble, step)]
        if structure is not shape:
            shape, angles = structure, structure.angles(vectors)
        alone = settings.ensemble == "independent"
        scorer = Scorer(angles, 0 if alone else step - 1)
        for number, sequence in enumerate(drawn):
            noisy, begun = sums[number, shape.number], sequence.phrases
            parts = []
            for start in range(0, len(begun), _ROWS):
                part = begun[start : start + _ROWS]
                weights = _weights(
                    settings, scorer.scores(noisy, part[:1, :0] if alone else part), least
                )
                weights = np.broadcast_to(weights, (len(part), weights.shape[1]))  # (part, N)
                parts.append(_pick(weights, None if alone else part, rng))
            picked, uniform = (np.concatenate(column) for column in zip(*parts, strict=True))
            sequence.phrases = np.column_stack([begun, picked])
            sequence.uniform += uniform
    return drawn


def _weights(
    settings: KeyphraseSeedingSettings, scores: NDArray[np.float32], least: float
) -> NDArray[np.float32]:
    """Weights that phrases are drawn by: a power of the scores, zero where they are low.

    Shape (sequences, N), as the scores.
    """
    highest = scores.max(axis=1, keepdims=True)  # (sequences, 1)
    highest[highest <= 0] = 1
    weights: NDArray[np.float32] = scores / highest
    np.maximum(weights, 0, out=weights)
    if least > 0:
        weights[scores < least] = 0
    if settings.score_power != 1:
        weights **= np.float32(settings.score_power)
    return weights


def _pick(
    weights: NDArray[np.float32], begun: NDArray[np.int64] | None, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw a phrase for each row in proportion to the weights; uniformly where all are zero.

    A phrase that is in the sequence already is left out, while there are others [K8].

    Returns:
        The phrases, and whether each was drawn uniformly; both of shape (rows,).
    """
    excluded = np.empty((len(weights), 0), np.int64)
    if begun is not None and begun.shape[1] < weights.shape[1]:
        excluded = begun
    weights = weights.copy()
    np.put_along_axis(weights, excluded, 0, axis=1)
    uniform = np.asarray(~weights.any(axis=1))
    weights[uniform] = 1
    np.put_along_axis(weights, excluded, 0, axis=1)
    totals = weights.cumsum(axis=1, dtype=np.float64)  # (rows, N)
    at = rng.random(len(weights)) * totals[:, -1]
    return np.argmax(totals > at[:, None], axis=1), uniform


def _public_rng(sums: Mapping[tuple[int, int], NDArray[np.int64]]) -> np.random.Generator:
    """Public randomness fixed by what was released, so that a resumed run draws the same [K9]."""
    digest = hashlib.blake2b(digest_size=16)
    for key in sorted(sums):
        digest.update(sums[key].tobytes())
    return np.random.default_rng(int.from_bytes(digest.digest(), "big"))


def _normalised(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Vectors of length 1; one that has none becomes the first unit vector."""
    clean = np.nan_to_num(vectors.astype(np.float64), posinf=0.0, neginf=0.0)
    lengths = np.linalg.norm(clean, axis=1, keepdims=True)
    first = np.eye(1, clean.shape[1])
    unit = np.where(lengths > 0, clean / np.where(lengths > 0, lengths, 1.0), first)
    return unit.astype(np.float32)


def _texts(
    settings: KeyphraseSeedingSettings,
    cell: Cell,
    lists: Sequence[Sequence[str]],
    model: TextModel,
    journal: Draws,
    steps: Steps,
) -> Iterator[str]:
    """One completion per sequence, journalled page by page."""
    for start in range(0, len(lists), _TOGETHER):
        prompts = [fill(settings, cell.label, row) for row in lists[start : start + _TOGETHER]]

        def complete(prompts: Sequence[str] = prompts) -> bytes:
            answers = model.complete(
                prompts,
                max_tokens=settings.max_tokens,
                temperature=settings.temperature,
                top_p=settings.top_p or 1.0,
            )
            return json.dumps([text.strip() for text in answers]).encode()

        steps.next()
        yield from json.loads(journal.keep(f"texts/{cell.index}/{start}", complete))


def _vocabulary(cfg: KeyphraseSeedingConfig) -> bytes:
    """The bytes of the vocabulary that the settings pin.

    Raises:
        ConfigError: The vocabulary that ships has another digest than the pinned one.
    """
    if SHIPPED not in (cfg.vocabulary, cfg.named("vocabulary")):
        return cfg.read("vocabulary")
    data = BUILTIN.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if cfg.vocabulary_digest not in (None, digest):
        raise ConfigError(
            f"{SECTION}.vocabulary=builtin has the digest {digest}, not {cfg.vocabulary_digest}.",
            hint="Name the file of that digest or leave vocabulary_digest out; to resume a "
            "release, name its vocabulary, or take the version that began it.",
        )
    return data
