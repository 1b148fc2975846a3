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
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privsyn.data.records import Bucket, Cell
from privsyn.dp.accountant import Guarantee, calibrate, guarantee
from privsyn.dp.adjacency import Adjacency, PrivacyUnit
from privsyn.dp.events import Disjoint, Event
from privsyn.dp.events import Sequence as InSequence
from privsyn.dp.mechanisms import Laplace
from privsyn.errors import ConfigError
from privsyn.files import parse_json
from privsyn.methods.base import (
    ANYTHING,
    Backends,
    MethodPlan,
    Role,
    Sample,
    Steps,
    Subject,
    unwatched,
)
from privsyn.methods.keyphrase_seeding.dp_kde import (
    Scorer,
    Structure,
    deviation,
    exact_sums,
    mechanism,
    queried,
    structures,
    windows,
)
from privsyn.methods.keyphrase_seeding.settings import SECTION, SHIPPED, KeyphraseSeedingConfig
from privsyn.methods.keyphrase_seeding.vocabulary import BUILTIN, Vocabulary
from privsyn.models.protocols import PromptTemplate, TextModel
from privsyn.models.settings import PerformanceConfig
from privsyn.models.trial import SENTENCE, try_embedder

if TYPE_CHECKING:
    from privsyn.data.journal import Journal
    from privsyn.dp.noise import NoiseSource
    from privsyn.models.model_identity import ModelIdentity

_TOGETHER = 64
"""Prompts that are completed and kept together: a resumed run pays for none of them twice."""

_ROWS = 256
"""Sequences that are scored together."""

_ROOM = 1 + 1e-12
"""Scales are this much larger than a target asks, so that roundings stay within it."""


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

    whole: ClassVar[bool] = True
    samples: ClassVar[bool] = False
    counts: ClassVar[str] = "steps"

    def roles(self, cfg: KeyphraseSeedingConfig) -> tuple[Role, ...]:
        """An embedder of phrases and, unless phrases are all that is wanted, a language model."""
        return ("embedder", "text") if cfg.use_llm else ("embedder",)

    def resolve(
        self,
        cfg: KeyphraseSeedingConfig,
        models: Mapping[Role, ModelIdentity],
        subject: Subject = ANYTHING,
    ) -> KeyphraseSeedingConfig:
        """Settings with digest and size of the vocabulary, kernel, and prompt filled in.

        Raises:
            ConfigError: The vocabulary or the examples cannot be read, or are not those pinned.
        """
        data = _vocabulary(cfg)
        digest = hashlib.sha256(data).hexdigest()
        filled: dict[str, Any] = {
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
            prompt = cfg.prompt or _default_prompt(cfg, models["text"].template_default)
            prompt = subject.fill(prompt)
            filled["prompt"] = _examples(cfg, prompt) + prompt
            filled["label_descriptions"] = cfg.label_descriptions or dict(subject.descriptions)
        return cfg.resolved(filled)

    def plan(
        self,
        cfg: KeyphraseSeedingConfig,
        target: Guarantee,
        adjacency: Adjacency,
        unit: PrivacyUnit,
        labels: Sequence[str],
        solved: Mapping[str, float] | None = None,
    ) -> MethodPlan:
        """Event of the choice of terms and of the estimates.

        What the choice costs is a setting. The noise of the estimates, all alike, is solved for:
        the least whose event, *with* the choice, stays within the target; or, with ``epsilon_kde``,
        the least whose event alone is within (epsilon_kde, 0) under Laplace and within
        (epsilon_kde, delta) under Gaussian noise.

        Raises:
            ConfigError: The choice of terms leaves nothing for the estimates.
        """
        moved = adjacency.moves * unit.max_records
        cells, k = len(self.cells(cfg, labels)), len(_structures(cfg))
        share = cfg.epsilon_vocabulary or cfg.vocabulary_share * target.epsilon
        choice = _choice(cfg, moved, share)

        def estimates(multiplier: float) -> Event:
            one = mechanism(
                cfg.noise, cfg.features, moved * cfg.phrases_per_document, multiplier
            ).event
            return Disjoint((InSequence((one,) * k),), cells)  # [K3]

        def whole(multiplier: float) -> Event:
            return InSequence((choice.event, estimates(multiplier)))

        if solved:
            multiplier = solved["noise_multiplier"]
        elif cfg.epsilon_kde is None:
            multiplier = _least_noise(whole, target, choice, target)
        else:
            delta = 0.0 if cfg.noise == "laplace" else target.delta
            goal = Guarantee(cfg.epsilon_kde, delta)
            multiplier = _least_noise(estimates, goal, choice, target)
        each = estimates(multiplier)
        rows = cells * cfg.sequences_per_label
        return MethodPlan(
            event=whole(multiplier),
            derived={
                "epsilon_vocabulary": choice.event.epsilon,
                "vocabulary_scale": choice.scale,
                "epsilon_kde": guarantee(each, target.delta).epsilon,
                "structures": k,
                "noise_multiplier": multiplier,
                "score_deviation": deviation(
                    cfg.noise, cfg.features, moved * cfg.phrases_per_document, multiplier
                ),
            },
            warnings=_advice(cfg, k),
            rows=(rows, rows),
        )

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
        cfg: KeyphraseSeedingConfig,
        unit: PrivacyUnit,
        labels: Sequence[str],
        models: Backends,
    ) -> None:
        """The vector of a phrase, and a completion where texts are written."""
        try_embedder(models.embedder, SENTENCE)
        if cfg.use_llm:
            models.text.check()
            models.text.complete([_fill(cfg, None, ())], max_tokens=1, temperature=0.0)

    def run(
        self,
        cfg: KeyphraseSeedingConfig,
        plan: MethodPlan,
        adjacency: Adjacency,
        unit: PrivacyUnit,
        buckets: Sequence[Bucket],
        models: Backends,
        noise: NoiseSource,
        journal: Journal,
        performance: PerformanceConfig,
        progress: Callable[[int, int], None] = unwatched,
    ) -> Iterator[Sample]:
        """The texts of every label, from all labels' documents."""
        if cfg.use_llm and not journal.drawn:  # a model that cannot answer is found out before
            models.text.complete([_fill(cfg, None, ())], max_tokens=1, temperature=0.0)
        moved = adjacency.moves * unit.max_records
        shapes = _structures(cfg)
        pages = len(buckets) * -(-cfg.sequences_per_label // _TOGETHER) if cfg.use_llm else 0
        steps = Steps(progress, 1 + len(shapes) * len(buckets) + pages)
        documents = [bucket.texts.reveal() for bucket in buckets]

        # Pre-processing: the private vocabulary (Appendix B.1), once for all labels [K1]
        data = journal.keep("public vocabulary", partial(_vocabulary, cfg))
        public = Vocabulary.parse(data, cfg.vocabulary)
        choice = Laplace(cfg.terms_per_document * moved, plan.derived["vocabulary_scale"])
        size = min(cfg.vocabulary_size, len(public))
        steps.next()
        chosen = journal.draw_array(
            "vocabulary", partial(_chosen, cfg, choice, public, documents, size, noise), size
        )
        known = public.subset(chosen)
        vectors = _normalised(models.embedder.embed(known.terms))  # steps 1-2

        # Step 3: noisy sums of every structure, label by label
        most = max(cfg.phrases_per_document, shapes[-1].blocks)
        phrases = [[known.first(text, most) for text in texts] for texts in documents]
        multiplier = plan.derived["noise_multiplier"]
        released = mechanism(cfg.noise, cfg.features, moved * cfg.phrases_per_document, multiplier)
        sums: dict[tuple[int, int], NDArray[np.int64]] = {}
        for shape in shapes:
            angles = shape.angles(vectors)
            for number, bucket in enumerate(buckets):
                steps.next()
                sums[number, shape.number] = journal.draw_array(
                    f"{bucket.cell.index}/{shape.number}",
                    partial(_noisy, cfg, shape, angles, phrases[number], released, noise),
                    cfg.features,
                )

        # Step 4: sequences; from here on nothing private is read
        least = cfg.score_threshold * plan.derived["score_deviation"]
        for number, found in enumerate(_sequences(cfg, shapes, vectors, sums, len(buckets), least)):
            cell = buckets[number].cell
            lists = [[known.terms[i] for i in row] for row in found.phrases]
            if cfg.use_llm:  # step 5
                texts = _texts(cfg, cell, lists, models.text, journal, steps)
            else:
                texts = iter([", ".join(row) for row in lists])
            for text, uniform in zip(texts, found.uniform.tolist(), strict=True):
                yield Sample(
                    cell, text, {"phrases": cfg.sequence_length, "uniform_phrases": uniform}
                )


class _Drawn:
    """Sequences of one label while they are drawn.

    Attributes:
        phrases: Numbers of the phrases so far, shape (sequences, length).
        uniform: How many of each sequence had no positive score to be drawn by.
    """

    def __init__(self, count: int) -> None:
        self.phrases = np.empty((count, 0), np.int64)
        self.uniform = np.zeros(count, np.int64)


def _structures(cfg: KeyphraseSeedingConfig) -> list[Structure]:
    return structures(cfg.ensemble, cfg.sequence_length, cfg.features, cfg.bandwidth or 1.0)


def _least_noise(
    made: Callable[[float], Event], goal: Guarantee, choice: Laplace, target: Guarantee
) -> float:
    """The least noise multiplier whose event is within the goal."""
    try:
        return _ROOM * calibrate(made, goal, 1e-4, 1e9, increasing=False)
    except ValueError:
        raise ConfigError(
            f"{SECTION}: the choice of terms costs epsilon={choice.event.epsilon:.4g}, which "
            f"leaves nothing of privacy.epsilon={target.epsilon:g} for the estimates.",
            hint="Lower epsilon_vocabulary or vocabulary_share, or raise privacy.epsilon.",
        ) from None


def _choice(cfg: KeyphraseSeedingConfig, moved: int, epsilon: float) -> Laplace:
    """Noise on the histogram of terms: a document counts once for each of at most S terms."""
    sensitivity = cfg.terms_per_document * moved
    return Laplace(sensitivity, sensitivity / epsilon * _ROOM)


def _chosen(
    cfg: KeyphraseSeedingConfig,
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
            counts[public.first(text, cfg.terms_per_document)] += 1
    noisy = choice.draw(counts, noise)  # on every public term, those never seen among them
    # ~x = -1 - x: the order of -x, also where noise saturated at the least int64.
    return np.argsort(~noisy, kind="stable")[:size].astype(np.int64)


def _noisy(
    cfg: KeyphraseSeedingConfig,
    shape: Structure,
    angles: NDArray[np.uint16],
    phrases: Sequence[Sequence[int]],
    released: Any,
    noise: NoiseSource,
) -> NDArray[np.int64]:
    """Noisy sums of one structure over one label's documents."""
    sequences = windows(phrases, shape.blocks, cfg.phrases_per_document)
    noisy: NDArray[np.int64] = released.draw(exact_sums(angles, sequences), noise)
    return noisy


def _sequences(
    cfg: KeyphraseSeedingConfig,
    shapes: Sequence[Structure],
    vectors: NDArray[np.float32],
    sums: Mapping[tuple[int, int], NDArray[np.int64]],
    labels: int,
    least: float,
) -> list[_Drawn]:
    """Sequences of every label: steps 1 to 3 of the iterative scheme, or L draws alone."""
    rng = _public_rng(sums)
    drawn = [_Drawn(cfg.sequences_per_label) for _ in range(labels)]
    shape, angles = None, np.empty((0, 0, 0), np.uint16)
    for step in range(1, cfg.sequence_length + 1):
        wanted = shapes[queried(cfg.ensemble, step)]
        if wanted is not shape:
            shape, angles = wanted, wanted.angles(vectors)
        alone = cfg.ensemble == "independent"
        scorer = Scorer(angles, 0 if alone else step - 1)
        for number, sequence in enumerate(drawn):
            noisy, begun = sums[number, shape.number], sequence.phrases
            parts = []
            for start in range(0, len(begun), _ROWS):
                part = begun[start : start + _ROWS]
                weights = _weights(
                    cfg, scorer.scores(noisy, part[:1, :0] if alone else part), least
                )
                weights = np.broadcast_to(weights, (len(part), weights.shape[1]))
                parts.append(_pick(weights, None if alone else part, rng))
            picked, uniform = (np.concatenate(column) for column in zip(*parts, strict=True))
            sequence.phrases = np.column_stack([begun, picked])
            sequence.uniform += uniform
    return drawn


def _weights(
    cfg: KeyphraseSeedingConfig, scores: NDArray[np.float32], least: float
) -> NDArray[np.float32]:
    """What phrases are drawn by: a power of their scores, zero where those are low or negative."""
    highest = scores.max(axis=1, keepdims=True)
    highest[highest <= 0] = 1
    weights: NDArray[np.float32] = scores / highest
    np.maximum(weights, 0, out=weights)
    if least > 0:
        weights[scores < least] = 0
    if cfg.score_power not in (None, 1):
        weights **= np.float32(cfg.score_power)
    return weights


def _pick(
    weights: NDArray[np.float32], begun: NDArray[np.int64] | None, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """One phrase a row, in proportion to its weight; whether all weights of the row were zero.

    A phrase that is in the sequence already is left out, while there are others [K8].
    """
    taken = np.empty((len(weights), 0), np.int64)
    if begun is not None and begun.shape[1] < weights.shape[1]:
        taken = begun
    weights = weights.copy()
    np.put_along_axis(weights, taken, 0, axis=1)
    uniform = np.asarray(~weights.any(axis=1))
    weights[uniform] = 1
    np.put_along_axis(weights, taken, 0, axis=1)
    totals = weights.cumsum(axis=1, dtype=np.float64)
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
    cfg: KeyphraseSeedingConfig,
    cell: Cell,
    lists: Sequence[Sequence[str]],
    model: TextModel,
    journal: Journal,
    steps: Steps,
) -> Iterator[str]:
    """One completion a sequence, kept as they come."""
    for start in range(0, len(lists), _TOGETHER):
        prompts = [_fill(cfg, cell.label, row) for row in lists[start : start + _TOGETHER]]

        def complete(prompts: Sequence[str] = prompts) -> bytes:
            found = model.complete(prompts, max_tokens=cfg.max_tokens, temperature=cfg.temperature)
            return json.dumps([text.strip() for text in found]).encode()

        steps.next()
        yield from json.loads(journal.keep(f"texts/{cell.index}/{start}", complete))


def _fill(cfg: KeyphraseSeedingConfig, label: str | None, phrases: Sequence[str]) -> str:
    """A prompt: public text, privatised phrases, and the label only where labels are public."""
    prompt = cfg.prompt or "{phrases}"
    if cfg.labels_public:
        said = cfg.label_descriptions.get(label, label) if label else ""
        prompt = prompt.replace("{label}", said)
    return prompt.replace("{phrases}", ", ".join(phrases))


def _default_prompt(cfg: KeyphraseSeedingConfig, own: PromptTemplate) -> str:
    """The paper's prompt; a model that only continues text keeps its own, phrases as reference."""
    if own.chat:
        of_class = " of the class {label}" if cfg.labels_public else ""
        return (
            f"Write a {{document}}{of_class} that contains the following terms: {{phrases}}.\n"
            "Answer with the {document} alone."
        )
    lines = own.private.splitlines(keepends=True)
    if not cfg.labels_public:
        lines = [line for line in lines if "{label}" not in line]
    return "".join(lines).replace("{reference}", "{phrases}")


def _examples(cfg: KeyphraseSeedingConfig, prompt: str) -> str:
    """Public examples before the prompt: each the prompt of its phrases, then its text."""
    if cfg.examples is None:
        return ""
    shown = []
    try:
        for line in cfg.read("examples").decode("utf-8").splitlines():
            if line.strip():
                example = parse_json(line)
                phrases = ", ".join(map(str, example["phrases"]))
                asked = prompt.replace("{phrases}", phrases)
                if cfg.labels_public:
                    asked = asked.replace("{label}", str(example["label"]))
                shown.append(f"{asked}\n{example['text']}\n\n")
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{SECTION}.examples={cfg.examples} cannot be read ({type(error).__name__}).",
            hint='Every line must be like {"phrases": ["..."], "text": "..."}, with a label where '
            "labels_public=true.",
        ) from None
    return "".join(shown).replace("{phrases}", "").replace("{label}", "")


def _vocabulary(cfg: KeyphraseSeedingConfig) -> bytes:
    """The bytes of the vocabulary, those that the settings pin."""
    if SHIPPED not in (cfg.vocabulary, cfg.named("vocabulary")):
        return cfg.read("vocabulary")
    data = BUILTIN.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if cfg.vocabulary_digest not in (None, found):
        raise ConfigError(
            f"{SECTION}.vocabulary=builtin has the digest {found}, not {cfg.vocabulary_digest}.",
            hint="Name the file of that digest or leave vocabulary_digest out; to resume a "
            "release, name its vocabulary, or take the version that began it.",
        )
    return data


def _advice(cfg: KeyphraseSeedingConfig, k: int) -> tuple[str, ...]:
    told: list[str] = []
    if cfg.document is not None:
        told.append(
            f"{SECTION}.document is now dataset.document, which feeds the prompts of all methods: "
            "move it there."
        )
    if cfg.ensemble == "linear" and k > 4:
        fewer = max(1, math.ceil(math.log2(cfg.sequence_length)))
        told.append(
            f"{SECTION}.ensemble=linear shares the budget among {k} estimates; logarithmic needs "
            f"{fewer}."
        )
    return tuple(told)
