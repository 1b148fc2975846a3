"""Keyphrase seeding: private phrases from noisy density estimates, each list the seed of a text.

Source: Nagesh et al. 2025, "Private text generation by seeding large language model prompts",
section 2 and Appendix B. guarantee.md has the proof, and explains the tags [K1] ... .
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privsyn.data.records import Bucket, Cell
from privsyn.data.words import VOCABULARY
from privsyn.dp.adjacency import PrivacyUnit
from privsyn.errors import ConfigError
from privsyn.methods.base import Backends, Draw, Method, Role, Sample, Size, Steps
from privsyn.methods.keyphrase_seeding.dp_kde import Structure, exact_sums, windows
from privsyn.methods.keyphrase_seeding.mechanism import (
    KeyphraseSeedingMechanism,
    calibrate,
    rebuild,
    structures_of,
)
from privsyn.methods.keyphrase_seeding.settings import (
    SHIPPED,
    TEMPERATURE,
    KeyphraseSeedingConfig,
    KeyphraseSeedingSettings,
)
from privsyn.methods.keyphrase_seeding.vocabulary import Vocabulary, draw_sequences
from privsyn.models.language.degenerate_text import Ending
from privsyn.models.language.text_variation import (
    ATTEMPTS,
    LISTED,
    TOP_P,
    ExampleList,
    TextSettings,
    chat_random,
    fill_slots,
    label_text,
)
from privsyn.models.protocols import PromptTemplate
from privsyn.models.rows import ANYTHING, Subject
from privsyn.models.trial import SENTENCE, refuse_assistant, try_embedder, try_texts

if TYPE_CHECKING:
    from privsyn.data.journal import Draws
    from privsyn.dp.noise import NoiseSource
    from privsyn.models.model_identity import ModelIdentity


Seed = tuple[Sequence[str], str]
"""Phrases of a text, and the words of the row that it is written for."""


class SeedPrompts:
    """Prompts of public text, privatized phrases, and labels where they are public."""

    def __init__(
        self, settings: KeyphraseSeedingSettings, rng: np.random.Generator | None = None
    ) -> None:
        self._label_text = partial(
            label_text, words=settings.label_descriptions, named=settings.name_labels
        )
        prompt = settings.prompt or "{phrases}"
        # A line without its label goes; not one that holds the phrases.
        unlabeled = "".join(
            line.replace("{label}", "") if "{phrases}" in line else line
            for line in prompt.splitlines(keepends=True)
        )
        self.listed, self._unlabeled = (
            ExampleList(form, settings.examples, self._label_text) for form in (prompt, unlabeled)
        )
        self._draw = cache(partial(self.listed.draw, rng=rng or np.random.default_rng()))

    def fill(self, label: str | None, phrases: Sequence[str], row: str = "") -> tuple[str, str]:
        """A prompt, and its part after the examples; ``row`` has the words of a row's columns."""
        spoken = self._label_text(label)
        listed = self._unlabeled if phrases and not spoken else self.listed
        slots = {"label": spoken, "phrases": ", ".join(phrases), "columns": row}
        return listed.fill(slots, self._draw(label))


def default_prompt(
    cfg: KeyphraseSeedingConfig,
    template: PromptTemplate,
    document: str | None = None,
    listed: bool = False,
) -> str:
    """A list of examples, a chat model's request for the text, or another model's own prompt."""
    if listed:
        prompt = LISTED.replace("{document}", document or "a short text")
    elif template.chat:
        prompt = chat_random(document)
    else:
        prompt = template.private.replace("{reference}", "{phrases}")
    if cfg.name_labels:  # [K13]
        return prompt
    lines = prompt.splitlines(keepends=True)
    return "".join(line for line in lines if "{label}" not in line)


LEAST_TERMS = 50
"""Least number of terms where prompts show all phrases: a handful would make all texts alike."""

_PUBLIC_PHRASES = (("question", "answer"), ("letter", "date"))
"""Phrases of trial prompts. They are constants, so they say nothing about the records."""
_TOGETHER = 64
"""Prompts per entry of the journal: a resumed run repeats at most so many."""


class KeyphraseSeeding(Method[KeyphraseSeedingSettings]):
    """Sequences of phrases from private density estimates, each the seed of one text.

    Guarantee: the choice of terms is noise on a histogram of L1 sensitivity S m (Laplace) or L2
    sensitivity sqrt(S) m (Gaussian) and is paid once; each label has its own estimates, and the
    labels are disjoint in units, so the release is the sequence of the choice and of one label's k
    estimates. An estimate is a vector of L1 sensitivity M I m (Laplace) or L2 sensitivity
    M sqrt(I) m (Gaussian). Under replace_one every sensitivity doubles, except that of the Gaussian
    counts, which grows by sqrt 2. Sequences, prompts and texts are post-processing.
    """

    name: ClassVar[str] = "keyphrase_seeding"
    title: ClassVar[str] = "Keyphrase prompt seeding"
    paper: ClassVar[str] = "Nagesh et al. 2025, DP-KPS, section 2"
    Config: ClassVar[type[KeyphraseSeedingConfig]] = KeyphraseSeedingConfig
    Settings: ClassVar[type[KeyphraseSeedingSettings]] = KeyphraseSeedingSettings

    counts: ClassVar[str] = "steps"
    tuning_hint: ClassVar[str] = "vocabulary_size or sequence_length"

    calibrate = staticmethod(calibrate)
    rebuild = staticmethod(rebuild)

    def roles(self, cfg: KeyphraseSeedingConfig) -> tuple[Role, ...]:
        """An embedder of phrases and, where the release is texts, a language model."""
        return ("embedder", "text") if cfg.use_llm else ("embedder",)

    def resolve(
        self,
        cfg: KeyphraseSeedingConfig,
        models: Mapping[Role, ModelIdentity],
        subject: Subject = ANYTHING,
    ) -> KeyphraseSeedingSettings:
        """Settings with the vocabulary's digest and size, and the prompt filled in.

        Raises:
            ConfigError: The vocabulary cannot be read.
        """
        data = _vocabulary(cfg)
        digest = hashlib.sha256(data).hexdigest()
        values: dict[str, Any] = {
            # The digest, not the path: the same terms in another place make the same release.
            "vocabulary": cfg.vocabulary if cfg.vocabulary == SHIPPED else f"sha256:{digest}",
            "vocabulary_digest": digest,
            "vocabulary_size": min(
                cfg.vocabulary_size, len(Vocabulary.parse(data, cfg.vocabulary))
            ),
        }
        if cfg.use_llm:
            examples = subject.examples
            prompt = cfg.prompt or default_prompt(
                cfg, models["text"].template_default, subject.document, bool(examples)
            )
            values["prompt"] = subject.fill(prompt)
            values["examples"] = examples if "{examples}" in prompt else ()
            values["label_descriptions"] = dict(subject.descriptions)
            values["roles"] = subject.roles
        return cfg.resolved(KeyphraseSeedingSettings, values)

    def additions(self, cfg: KeyphraseSeedingConfig, labels: Sequence[str]) -> dict[str, bool]:
        """What is in no line of Nagesh et al."""
        return {
            "Gaussian noise": cfg.noise == "gaussian",
            "as many terms as noise does not explain": cfg.evidence,
            "a draw that prefers phrases of one label": cfg.evidence and len(labels) > 1,
            "prompts without phrases that noise explains": cfg.label_evidence != 0,
            "a choice among completions by their phrases": cfg.candidates > 1 and cfg.use_llm,
        }

    def for_texts(self, cfg: KeyphraseSeedingConfig, size: Size) -> dict[str, Any]:
        """As many sequences per label as texts; more sequences cost no more epsilon."""
        return {"sequences_per_label": size.each} | size.lengths("max_tokens")

    def requests(self, settings: KeyphraseSeedingConfig, labels: Sequence[str | None]) -> int:
        """One a completion of a prompt."""
        return len(labels) * settings.sequences_per_label * settings.candidates

    def fresh(self, cfg: KeyphraseSeedingSettings) -> TextSettings | None:
        """The prompt without phrases, with the same sampling; None where phrases are released."""
        prompt = fill_slots(cfg.prompt or "", {"phrases": ""})
        if not (cfg.use_llm and prompt.strip()):
            return None
        return TextSettings(
            random_prompt=prompt,
            vary_prompt="{text}",  # nothing is varied
            examples=cfg.examples,
            labels=cfg.label_descriptions,
            rephrase=True,
            temperature=TEMPERATURE,
            top_p=TOP_P,
            max_tokens=cfg.max_tokens,
        )

    def preflight(
        self,
        settings: KeyphraseSeedingSettings,
        unit: PrivacyUnit,
        labels: Sequence[str],
        models: Backends,
    ) -> None:
        """Try one vector, and completions where a model writes texts."""
        try_embedder(models.embedder, SENTENCE)
        if settings.use_llm:
            models.text.check()
            label, prompts = labels[0] if labels else None, SeedPrompts(settings)
            try_texts(
                models.text,
                [prompts.fill(label, words)[0] for words in _PUBLIC_PHRASES],
                max_tokens=settings.max_tokens,
                temperature=TEMPERATURE,
                top_p=TOP_P,
                until=prompts.listed.until,
                clean=lambda answer: _text_of(settings, prompts, answer),
            )

    def run(
        self,
        settings: KeyphraseSeedingSettings,
        mechanism: KeyphraseSeedingMechanism,
        buckets: Sequence[Bucket],
        draw: Draw,
    ) -> Iterator[Sample]:
        """The texts of every label, drawn from the documents of all labels at once."""
        models, journal = draw.models, draw.journal
        if settings.use_llm and not journal.has_drawn:  # fails here, before a draw is paid
            prompt, _ = SeedPrompts(settings).fill(None, ())
            models.text.complete([prompt], max_tokens=1, temperature=0.0)
        shapes = structures_of(settings)
        # A draw is a step, and so is a text, which takes as long or longer.
        written = settings.sequences_per_label * settings.candidates if settings.use_llm else 0
        steps = Steps(draw.progress, 1 + (len(shapes) + written) * len(buckets))
        documents = [bucket.contents.reveal() for bucket in buckets]

        # Pre-processing: the private vocabulary (Appendix B.1), once for all labels [K1]
        data = journal.public_file("public vocabulary", partial(_planned_vocabulary, settings))
        public = Vocabulary.parse(data, settings.vocabulary)
        size = min(settings.vocabulary_size, len(public))
        steps.next()
        choose = partial(_chosen, settings, mechanism, public, documents, size, draw.noise)
        chosen = journal.draw_array("vocabulary", choose, size)
        vocabulary = public.subset(chosen[chosen >= 0])
        vectors = _normalize(models.embedder.embed(vocabulary.terms))  # steps 1-2

        # Step 3: noisy sums of every structure, label by label
        # A sequence may be longer than M phrases, so as many must be known. windows() keeps only M
        # starts.
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
        for number, sequences in enumerate(
            draw_sequences(settings, shapes, vectors, sums, len(buckets), mechanism.score_deviation)
        ):
            cell = buckets[number].cell
            # A phrase drawn uniformly had no evidence: it stays in the sequence and out of the
            # prompt.
            informative = settings.label_evidence == 0 or ~sequences.uniform  # [K12]
            shown = np.broadcast_to(informative, sequences.phrases.shape)
            lists = [
                [vocabulary.terms[i] for i in dict.fromkeys(row[visible].tolist())]
                for row, visible in zip(sequences.phrases, shown, strict=True)
            ]
            rows = [draw.rows.row(cell.label, place) for place in range(len(lists))]
            texts: Iterable[str] = map(", ".join, lists)
            if settings.use_llm:  # step 5
                seeds = list(zip(lists, map(draw.rows.words, rows), strict=True))
                texts = _Writer(settings, cell, models).texts(seeds, journal, steps)
            uniform = (sequences.uniform & shown).sum(axis=1).tolist()
            for text, row, seed, by_chance in zip(texts, rows, lists, uniform, strict=True):
                yield Sample(cell, text, {"phrases": len(seed), "uniform_phrases": by_chance}, row)


def _chosen(
    settings: KeyphraseSeedingSettings,
    mechanism: KeyphraseSeedingMechanism,
    public: Vocabulary,
    documents: Sequence[Sequence[str]],
    size: int,
    noise: NoiseSource,
) -> NDArray[np.int64]:
    """Numbers of the terms with the highest noisy counts; the public order decides ties [K2].

    The false discovery rate limits how many, up to ``size``; -1 fills the other places.
    """
    counts = np.zeros(len(public), np.int64)
    for texts in documents:
        for text in texts:
            # privacy: each of the first S distinct terms counts once, so a record moves the
            # histogram by at most S in L1 and sqrt S in L2 [K2]
            counts[public.first(text, settings.phrases_per_document)] += 1
    counts *= mechanism.steps
    # privacy: noise on every public term, also on terms that no record holds
    noisy = mechanism.choice.draw(counts, noise)
    # ~x = -1 - x has the order of -x and cannot overflow, even at the least int64.
    chosen = np.argsort(~noisy, kind="stable")[:size].astype(np.int64)
    if settings.false_discovery_rate < 1:
        chosen[_reliable_count(noisy[chosen], mechanism, len(public), settings) :] = -1
    return chosen


def _reliable_count(
    highest: NDArray[np.int64],
    mechanism: KeyphraseSeedingMechanism,
    terms: int,
    settings: KeyphraseSeedingSettings,
) -> int:
    """How many of the highest noisy counts to keep: post-processing of noisy counts.

    It is the largest number of which noise alone, on ``terms`` counts of zero, explains no more
    than the false discovery rate (Benjamini and Hochberg 1995).
    """
    expected = terms * mechanism.reached_by_noise(highest)
    rank = np.arange(1, len(highest) + 1)
    fine = np.flatnonzero(expected <= settings.false_discovery_rate * rank)
    least = 1 if settings.label_evidence else LEAST_TERMS
    return max(least, int(fine[-1]) + 1 if len(fine) else 0)


def _noisy(
    settings: KeyphraseSeedingSettings,
    shape: Structure,
    angles: NDArray[np.uint16],
    phrases: Sequence[Sequence[int]],
    mechanism: KeyphraseSeedingMechanism,
    noise: NoiseSource,
) -> NDArray[np.int64]:
    """The noisy sums of one structure over one label's documents."""
    sequences = windows(phrases, shape.blocks, settings.phrases_per_document)
    noisy: NDArray[np.int64] = mechanism.estimate.draw(exact_sums(angles, sequences), noise)
    return noisy


def _normalize(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vectors at length 1; a zero vector becomes the first unit vector."""
    # A server may answer with NaN or infinity, which would spread to every sum.
    clean = np.nan_to_num(vectors.astype(np.float64), posinf=0.0, neginf=0.0)
    lengths = np.linalg.norm(clean, axis=1, keepdims=True)
    first = np.eye(1, clean.shape[1])
    unit = np.where(lengths > 0, clean / np.where(lengths > 0, lengths, 1.0), first)
    return unit.astype(np.float32)


@dataclass(frozen=True)
class _Writer:
    """Writes the texts of a label's sequences. Nothing private is read."""

    settings: KeyphraseSeedingSettings
    cell: Cell
    models: Backends

    def texts(self, seeds: Sequence[Seed], journal: Draws, steps: Steps) -> Iterator[str]:
        """One text per sequence, kept in the journal page by page."""
        candidates = self.settings.candidates
        size = max(1, _TOGETHER // candidates)
        for start in range(0, len(seeds), size):
            page = seeds[start : start + size]
            steps.next(len(page) * candidates)
            write = partial(self._write, page)
            yield from json.loads(journal.public_file(f"texts/{self.cell.index}/{start}", write))

    def _write(self, seeds: Sequence[Seed]) -> bytes:
        """One text per sequence, as JSON; asks again where all completions of one failed [K11]."""
        texts, left = [""] * len(seeds), list(range(len(seeds)))
        for _ in range(ATTEMPTS):
            again = self._nearest([seeds[number] for number in left])
            for number, (text, failed) in zip(list(left), again, strict=True):
                texts[number] = text or texts[number]
                if not failed:
                    left.remove(number)
            if not left:
                break
        some = Ending.of(self.settings.max_tokens, roles=self.settings.roles).texts(texts)
        if not some:
            refuse_assistant(len(seeds))
        # A release never holds an assistant's answer or a thought: another sequence's text takes
        # its place. All texts are public by then, so the choice costs nothing.
        chosen = set(some)
        texts = [text if text in chosen else some[n % len(some)] for n, text in enumerate(texts)]
        return json.dumps(texts).encode()

    def _nearest(self, seeds: Sequence[Seed]) -> list[tuple[str, bool]]:
        """Each sequence's completion nearest to its phrases, and whether all of its failed.

        A failed completion wins only where all failed. Phrases and completions are public [K11].
        """
        settings, models = self.settings, self.models
        ending = Ending.of(settings.max_tokens, roles=settings.roles)
        prompts = SeedPrompts(settings)
        requests = [
            prompts.fill(self.cell.label, *seed)
            for seed in seeds
            for _ in range(settings.candidates)
        ]
        answers = models.text.complete(
            [prompt for prompt, _ in requests],
            max_tokens=settings.max_tokens,
            temperature=TEMPERATURE,
            top_p=TOP_P,
            until=prompts.listed.until,
        )
        texts = [_text_of(settings, prompts, answer) for answer in answers]
        shape = (len(seeds), settings.candidates)
        failed = np.reshape(
            [
                ending.is_unusable(text, request) or prompts.listed.copies(text)
                for text, (_, request) in zip(texts, requests, strict=True)
            ],
            shape,
        )
        nearness = np.zeros(shape)
        if settings.candidates > 1:
            near = _normalize(models.embedder.embed(texts)).reshape(*shape, -1)
            phrases = _normalize(models.embedder.embed([", ".join(seed) for seed, _ in seeds]))
            nearness = np.einsum("scw,sw->sc", near, phrases)  # (sequences, candidates)
            nearness[[not seed for seed, _ in seeds]] = 0  # without phrases all are equally near
        row = np.arange(len(seeds))
        # A cosine lies in [-1, 1], so 2 puts every failed completion behind every good one.
        nearest = np.argmax(nearness - 2 * failed, axis=1)
        taken = np.reshape(texts, shape)[row, nearest]
        return list(zip(taken.tolist(), failed[row, nearest].tolist(), strict=True))


def _text_of(settings: KeyphraseSeedingSettings, prompts: SeedPrompts, answer: str) -> str:
    """The text in an answer; empty where it holds several."""
    examples = (example.text for example in settings.examples)
    ending = Ending.of(settings.max_tokens, examples)
    return ending.cut(prompts.listed.before_next(answer))


def _vocabulary(cfg: KeyphraseSeedingConfig) -> bytes:
    """The bytes of the vocabulary that the config names."""
    if cfg.given_name("vocabulary") == SHIPPED:
        return VOCABULARY.read_bytes()
    return cfg.read("vocabulary")


def _planned_vocabulary(settings: KeyphraseSeedingSettings) -> bytes:
    """The bytes of the vocabulary that was planned.

    Raises:
        ConfigError: The vocabulary of the config is another one.
    """
    data = _vocabulary(settings)
    digest = hashlib.sha256(data).hexdigest()
    if digest != settings.vocabulary_digest:
        raise ConfigError(
            f"methods.keyphrase_seeding.vocabulary={settings.given_name('vocabulary')} has the "
            f"digest {digest}, not {settings.vocabulary_digest} as planned.",
            hint="Put the planned file back; the shipped one came with the version of privsyn "
            "that started the release.",
        )
    return data
