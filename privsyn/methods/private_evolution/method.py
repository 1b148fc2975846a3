"""Private evolution: a public generator, guided by noisy votes of the private records.

Source: Lin et al. 2024, "Differentially private synthetic data via foundation model APIs 1:
Images", Algorithms 2 and 4 (1, for every label); for text, and if L > 1, Xie et al. 2024,
"Differentially private synthetic data via foundation model APIs 2: Text", Algorithm 1. Guarantee,
assumptions and every deviation from the papers: guarantee.md, whose tags [E1] ... mark the lines
they refer to.

Symbols as in the papers: rounds T, noise multiplier sigma, threshold H, lookahead degree k,
candidates per released record L, populations S_t, noisy histograms, parents S'_t.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from privsyn import layout
from privsyn.data.artifacts import from_npy, to_npy
from privsyn.data.records import Bucket
from privsyn.dp.adjacency import PrivacyUnit
from privsyn.dp.histograms import LATTICE, histogram
from privsyn.errors import ConfigError, ModelError
from privsyn.methods.base import (
    Backends,
    Draw,
    Exhibit,
    Finished,
    Method,
    Record,
    Role,
    Sample,
    Size,
    Steps,
)
from privsyn.methods.private_evolution.adaptation import Adaptation, TokenTable
from privsyn.methods.private_evolution.mechanism import (
    PrivateEvolutionMechanism,
    calibrate,
    rebuild,
    sizes_of,
    voted_sizes,
)
from privsyn.methods.private_evolution.settings import (
    PrivateEvolutionConfig,
    PrivateEvolutionSettings,
)
from privsyn.methods.private_evolution.votes import Grid, Voters, exact_sums
from privsyn.methods.shared import label_choice
from privsyn.modalities.base import Samples
from privsyn.modalities.registry import MODALITIES
from privsyn.models.language.text_variation import TextSettings, TextVariation
from privsyn.models.protocols import ManyShapes
from privsyn.models.rows import ANYTHING, Subject
from privsyn.models.trial import try_embedder

if TYPE_CHECKING:
    from privsyn.data.journal import Draws
    from privsyn.dp.mechanisms import DiscreteGaussian
    from privsyn.dp.noise import NoiseSource
    from privsyn.models.model_identity import ModelIdentity

T = TypeVar("T")


CALL = 64
"""Samples per request to the generator, so that progress shows. Each sample is a step."""
SHEETS = 24
"""Most contact sheets of a release."""
ADAPTATION = "adaptation.json"
"""Exhibit by which further texts are written: noisy, so it is published."""
PARTS = 4
"""Parts in which the records of a label are embedded. privacy: a fixed number, so progress does not
show how many records there are. They do not count as steps: one text may take as long as a thousand
vectors."""


_TEXTS = "Lin et al. 2024 and Xie et al. 2024, Augmented private evolution, Algorithm 1"


class PrivateEvolution(Method[PrivateEvolutionSettings]):
    """Populations of public samples; each is the offspring of the samples with the most votes.

    Guarantee: a release is T histograms, each with discrete Gaussian noise of sigma times its L2
    sensitivity, sqrt(m) votes (sqrt(2m) under replace_one). Together they are one Gaussian
    mechanism with noise multiplier sigma / sqrt T (Lin et al. 2024, section 4.3), composed with one
    more where word_share pays for a table of tokens [E11], and one more where mean_share pays for
    mean vectors [E14].
    """

    name: ClassVar[str] = "private_evolution"
    title: ClassVar[str] = "Private evolution"
    paper: ClassVar[str] = "Lin et al. 2024, Private evolution, Algorithm 1"
    Config: ClassVar[type[PrivateEvolutionConfig]] = PrivateEvolutionConfig
    Settings: ClassVar[type[PrivateEvolutionSettings]] = PrivateEvolutionSettings

    counts: ClassVar[str] = "candidates and votes"
    tuning_hint: ClassVar[str] = "expansion or population"

    calibrate = staticmethod(calibrate)
    rebuild = staticmethod(rebuild)

    def roles(self, cfg: PrivateEvolutionConfig) -> tuple[Role, ...]:
        """The embedder and the generator of the modality."""
        return MODALITIES[cfg.modality].sampled_by

    def fresh(self, cfg: PrivateEvolutionSettings) -> TextSettings | None:
        """The first population, before any vote; None for images."""
        return cfg.text if cfg.modality == "text" else None

    def resolve(
        self,
        cfg: PrivateEvolutionConfig,
        models: Mapping[Role, ModelIdentity],
        subject: Subject = ANYTHING,
    ) -> PrivateEvolutionSettings:
        """Settings with the text model's own prompts if the config sets none."""
        if cfg.modality == "image":
            if cfg.image_steps is not None and models["image"].steps is None:
                raise ConfigError(
                    f"methods.private_evolution.image_steps={list(cfg.image_steps)}: models.image="
                    f"{models['image'].source} takes no denoising steps.",
                    hint="Set it to null, or name a diffusion model.",
                )
            return PrivateEvolutionSettings(**cfg.model_dump(exclude={"text"}))
        text = cfg.text.resolved(models["text"].template_default, subject)  # [E13]
        values = cfg.model_dump() | {"text": text}
        if subject.columns:
            _refuse_without_rows(cfg)
            values["mean_share"] = 0.0  # it would move a text away from its row [E17]
        if not models["text"].adapts:  # it takes no log ratios
            values["word_share"] = 0.0
        return PrivateEvolutionSettings(**values)

    def source(self, cfg: PrivateEvolutionConfig) -> str:
        """The paper about texts goes along where texts are drawn."""
        return self.paper if cfg.modality == "image" else _TEXTS

    def additions(self, cfg: PrivateEvolutionConfig, labels: Sequence[str]) -> dict[str, bool]:
        """What is drawn from the records besides votes, in no line of either paper."""
        return {
            "a noisy table of tokens": cfg.table_share > 0,  # [E11]
            "noisy mean vectors": cfg.mean_share > 0 and len(labels) > 1,  # [E14]
        }

    def for_texts(self, cfg: PrivateEvolutionConfig, size: Size) -> dict[str, Any]:
        """Equally many per label, if possible without more candidates than records."""
        values: dict[str, Any] = {"population": size.each}
        if cfg.modality == "text":
            values |= size.lengths("text.max_tokens")
        if cfg.label_split is not None:
            values |= {"label_split": label_choice.split_by(cfg.label_split, size.texts)}
        most = None if size.records is None else size.records // max(1, len(size.labels))
        if cfg.table_share:  # votes choose half, where a label has records for so many candidates
            half = -(-size.each // 2)
            values["voted"] = half if most is None else max(1, min(half, most // cfg.expansion))
        elif most is not None and cfg.expansion > 1:
            values["expansion"] = min(cfg.expansion, max(2, most // size.each))
        return values

    def requests(self, settings: PrivateEvolutionConfig, labels: Sequence[str | None]) -> int:
        """One a sample, looked-ahead ones included."""
        return _samples(settings, labels)

    def preflight(
        self,
        cfg: PrivateEvolutionSettings,
        unit: PrivacyUnit,
        labels: Sequence[str],
        models: Backends,
    ) -> None:
        """Make new samples, variations of them, and their vectors."""
        kind = modality(cfg, models)
        label = labels[0] if labels else None
        if cfg.modality == "text":
            models.text.check()
            for text in TextVariation(cfg.text, models.text).check(labels, cfg.degree(1)):
                try_embedder(kind.embedder, text)
            return
        kind = kind.with_steps(cfg.steps(1))
        fresh = _fresh_samples(kind, 1, label)
        for sample in [*fresh, *_variations(kind, fresh, label, cfg.degree(1))]:
            if sample.pixels.min() == sample.pixels.max():
                raise ModelError(
                    "models.image draws a blank image: its weights are damaged.",
                    hint="Copy or download it again.",
                )
            try_embedder(kind.embedder, sample)

    def run(
        self,
        settings: PrivateEvolutionSettings,
        mechanism: PrivateEvolutionMechanism,
        buckets: Sequence[Bucket],
        draw: Draw,
    ) -> Iterator[Sample | Exhibit]:
        """Pictures and figures of the rounds, then the last population."""
        kind = modality(settings, draw.models)
        rng = np.random.default_rng()
        yield from _Evolution(settings, mechanism, kind, buckets, draw, rng).run()

    def more(self, cfg: Any, models: Backends, release: Finished, count: int) -> Iterator[Record]:
        """``count`` further records of a finished release; each label keeps its share.

        Texts are written by the release's noisy table of tokens [E16]. Without one they are
        variations of the release's records, with the last round's degree (Lin et al. 2024,
        section 4.2). Either is post-processing at no cost.
        """
        kind, done = modality(cfg, models).with_steps(cfg.steps(cfg.rounds)), 0
        seen = Counter[str | None]()
        file, adaptation = release.folder / layout.EXHIBITS / ADAPTATION, None
        if file.is_file():
            adaptation = Adaptation.of_json(file.read_bytes())
            kind = kind.with_log_ratios(adaptation.by_label)
        samples = [(label, kind.from_released(content)) for label, content in release.records]
        most = len(samples) if adaptation is None else CALL * len(adaptation.labels)
        while done < count:
            places = np.linspace(0, len(samples), min(count - done, most), endpoint=False)
            part = [samples[place] for place in places.astype(int)]
            release.progress(done, count)
            counts = Counter(label for label, _ in part)
            words = {of: release.rows.words_from(of, seen[of], many) for of, many in counts.items()}
            seen += counts
            made = (
                _vary(kind, cfg, part, words)
                if adaptation is None
                else _write(kind, adaptation, words, counts)
            )
            for label, sample in made:
                yield label, kind.content(sample)
            done += len(part)


def _fresh_samples(kind: Samples[T], count: int, label: str | None) -> list[T]:
    """Exactly ``count`` new samples of the generator."""
    return _check_count(kind.api.random(count, label), count)


Writer = Callable[[Samples[Any], int, str | None], list[Any]]
"""Makes so many samples of a label."""


class _Evolution(Generic[T]):
    """Algorithm 4: all labels in parallel, so that a round is one histogram [E1].

    ``run`` has the lines of the papers. What is in neither is a step of its own before the first
    vote: ``_adapt`` [E11] and ``_by_means`` [E14].
    """

    def __init__(
        self,
        settings: PrivateEvolutionSettings,
        mechanism: PrivateEvolutionMechanism,
        kind: Samples[T],
        buckets: Sequence[Bucket],
        draw: Draw,
        rng: np.random.Generator,
    ) -> None:
        self._settings, self._mechanism, self._kind = settings, mechanism, kind
        self._buckets, self._draw, self._rng = buckets, draw, rng
        self._labels = [bucket.cell.label for bucket in buckets]
        self._sizes = voted_sizes(settings, self._labels)
        self._adaptation = Adaptation.nothing(self._labels)
        self._steps = Steps(draw.progress, _steps(settings, self._labels))
        self._private = _Private(kind, buckets, mechanism.facts.unit.max_records)

    def run(self) -> Iterator[Sample | Exhibit]:
        """Pictures and figures of the rounds, then the last population."""
        settings, total, wide = self._settings, self._settings.rounds, self._settings.expansion
        if not self._draw.journal.has(f"votes/{total}"):
            self._private.embed(self._draw)  # first: a failure before the first draw is resumed
        population = self._first()  # line 2
        if sheet := self._kind.sheet(population):
            yield Exhibit("population-0000.png", sheet)
        rounds: list[Mapping[str, Any]] = []
        fallen = np.zeros(len(self._labels), np.int64)
        for t in range(1, total + 1):  # line 4
            self._kind = self._kind.with_steps(settings.steps(t))
            vectors = self._vectors(t, population)
            if t == 1:
                population, vectors = self._by_means(population, vectors)
            weights = self._weights(t, population, vectors)  # lines 5-7
            # From here on the round is post-processing.
            indices = self._parents(t, weights)  # lines 8-9
            parents = [
                [group[i] for i in picks] for group, picks in zip(population, indices, strict=True)
            ]
            offspring = self._offspring(t, parents)  # line 10
            fallen += [not bins.any() for bins in weights]
            rounds.append(_figures(t, settings.degree(t), weights, indices, parents, offspring))
            population = [
                (old if wide > 1 else []) + new for old, new in zip(parents, offspring, strict=True)
            ]
            if t % -(-total // SHEETS) == 0 or t == total:
                if sheet := self._kind.sheet(population):
                    yield Exhibit(f"population-{t:04d}.png", sheet)
        yield Exhibit("rounds.json", (json.dumps(rounds, indent=1) + "\n").encode())
        if self._mechanism.words is not None:
            yield Exhibit(ADAPTATION, self._adaptation.to_json())
        yield from self._samples(population, self._further(), fallen.tolist())

    def _samples(
        self, voted: list[list[T]], further: list[list[T]], fallen: Sequence[int]
    ) -> Iterator[Sample]:
        """The records, those that votes chose first (lines 12-13)."""
        for bucket, group, rest, uniform in zip(self._buckets, voted, further, fallen, strict=True):
            # Counted once per label, with its first record: counts are summed over the release.
            counts = {"uniform_rounds": uniform} if uniform else {}
            if any(further):
                counts |= {"voted": len(group)}
            for number, sample in enumerate(group + rest):
                row = self._draw.rows.row(bucket.cell.label, number)
                content = self._kind.content(sample)
                yield Sample(bucket.cell, content, {} if number else counts, row)

    def _further(self) -> list[list[T]]:
        """Texts beyond those that votes choose, by the table of tokens [E16]."""
        every = sizes_of(self._settings, self._labels)
        counts = [size - voted for size, voted in zip(every, self._sizes, strict=True)]
        if not any(counts):
            return [[] for _ in counts]
        firsts = [size * self._settings.expansion for size in self._sizes]
        texts = self._fresh("population/further", counts, firsts, _likelier_samples)
        return _at_nearest_means(self._kind, self._adaptation, texts)

    def _first(self) -> list[list[T]]:
        """The first population: by the public model alone, or half of it [E11]."""
        counts = [size * self._settings.expansion for size in self._sizes]
        if self._mechanism.words is None:
            public = counts
        else:
            # A table of tokens compares the records with the first half, and adapts the second.
            public = [-(-count // 2) for count in counts]
        population = self._fresh("population/1", public, [0] * len(public))
        if self._draw.on_public is not None and self._settings.modality == "text":
            groups = zip(self._labels, population, strict=True)
            content = self._kind.content
            self._draw.on_public([(of, content(one)) for of, group in groups for one in group])
        if self._mechanism.words is None:
            return population
        rest = [count - half for count, half in zip(counts, public, strict=True)]
        return self._adapt(population, self._mechanism.words, rest)

    def _words(self, place: int, first: int, count: int) -> list[str]:
        """What prompts say of the rows of a label's candidates, from the first on; none without.

        There are L candidates a row: candidate n is for row n modulo their number [E17]. Texts
        beyond the votes follow, one a row.
        """
        size, rows = self._sizes[place], self._draw.rows
        if not rows.columns:
            return []
        wide = size * (self._settings.expansion - 1)
        numbers = (n % size if n < wide + size else n - wide for n in range(first, first + count))
        return [rows.words(rows.row(self._labels[place], number)) for number in numbers]

    def _fresh(
        self,
        part: str,
        counts: Sequence[int],
        firsts: Sequence[int],
        write: Writer = _fresh_samples,
    ) -> list[list[T]]:
        """So many new candidates of each label, numbered from ``firsts`` on."""
        makes = [
            partial(self._candidates, place, first, count, write)
            for place, (first, count) in enumerate(zip(firsts, counts, strict=True))
        ]
        # A resumed run must vote on the same population: it is stored before any record votes.
        with self._steps.together(sum(counts)):
            return self._population(part, makes)

    def _population(self, key: str, makes: Sequence[Callable[[], list[T]]]) -> list[list[T]]:
        """A population from the journal, made if it is not there; one file per label."""
        kind, journal = self._kind, self._draw.journal

        def store(place: int, make: Callable[[], list[T]]) -> list[T]:
            return kind.unpack(journal.public_file(f"{key}/{place}", lambda: kind.pack(make())))

        return [store(place, make) for place, make in enumerate(makes)]

    def _candidates(self, place: int, first: int, count: int, write: Writer) -> list[T]:
        """So many new candidates of a label, numbered from ``first`` on."""
        label, words = self._labels[place], self._words(place, first, count)
        samples: list[T] = []
        # Public: the candidates come from the generator alone, before any record is read.
        while len(samples) < count:
            batch = min(CALL, count - len(samples))
            self._steps.next(batch)
            done = len(samples)
            samples += write(_with_rows(self._kind, words[done : done + batch]), batch, label)
        return samples

    def _variations_of(self, place: int, samples: Sequence[T], degree: float) -> list[T]:
        """One variation of every sample of a label, with progress."""
        label, words = self._labels[place], self._words(place, 0, len(samples))
        new: list[T] = []
        for start in range(0, len(samples), CALL):
            part = slice(start, start + CALL)
            self._steps.next(len(samples[part]))
            new += _variations(_with_rows(self._kind, words[part]), samples[part], label, degree)
        return new

    def _adapt(
        self, population: list[list[T]], words: DiscreteGaussian, counts: Sequence[int]
    ) -> list[list[T]]:
        """The population and further candidates, by a noisy table of the records' tokens [E11]."""
        self._steps.next()
        journal, noise = self._draw.journal, self._draw.noise
        self._adaptation = self._private.adaptation(journal, words, noise, population)
        self._kind = self._kind.with_log_ratios(self._adaptation.by_label)
        adapted = self._fresh("population/adapted", counts, [*map(len, population)])
        return [old + new for old, new in zip(population, adapted, strict=True)]

    def _vectors(self, t: int, population: list[list[T]]) -> list[NDArray[np.float32]]:
        """What stands for each candidate in the vote, (candidates, width) for each label."""
        settings, journal = self._settings, self._draw.journal
        candidates = sum(self._sizes) * settings.expansion
        with self._steps.together(len(self._labels) + settings.lookahead * candidates):
            return [
                _kept_array(
                    journal, f"vectors/{t}/{place}", partial(self._represent, place, group, t)
                )
                for place, group in enumerate(population)
            ]

    def _represent(self, place: int, group: Sequence[T], t: int) -> NDArray[np.float32]:
        """Vector of each candidate: the mean over k of its variations, or its own if k = 0 [E5].

        Shape (candidates, width).
        """
        self._steps.next()
        k, degree = self._settings.lookahead, self._settings.degree(t)
        looks = (self._variations_of(place, group, degree) for _ in range(k))
        vectors = [self._kind.embedder.embed(look) for look in (looks if k else [group])]
        # float64: the mean must be the same in every process that computes it.
        return np.asarray(np.mean(vectors, axis=0, dtype=np.float64), np.float32)

    def _by_means(
        self, population: list[list[T]], vectors: list[NDArray[np.float32]]
    ) -> tuple[list[list[T]], list[NDArray[np.float32]]]:
        """Candidates and vectors, each at the label whose noisy mean is nearest [E14]."""
        if self._mechanism.means is None:
            return population, vectors
        self._steps.next()
        every, samples = np.concatenate(vectors), [one for group in population for one in group]
        grid, journal = Grid.around(every), self._draw.journal
        noisy = self._private.sums(journal, self._mechanism.means, self._draw.noise, grid)
        self._adaptation = replace(self._adaptation, grid=grid, means=noisy)
        places = self._adaptation.places(vectors, self._sizes)
        return [[samples[i] for i in group] for group in places], [every[group] for group in places]

    def _weights(
        self, t: int, population: list[list[T]], vectors: list[NDArray[np.float32]]
    ) -> list[NDArray[np.int64]]:
        """Noisy votes above the threshold, (candidates,) for each label [E4]."""
        self._steps.next()

        def draw() -> NDArray[np.int64]:  # the exact histogram is never stored
            return self._mechanism.histogram.draw(self._private.votes(vectors), self._draw.noise)

        noisy = self._draw.journal.draw_array(f"votes/{t}", draw, sum(map(len, population)))
        ends = np.cumsum([len(group) for group in population])[:-1]
        threshold = round(self._mechanism.threshold * LATTICE)
        return np.split(np.maximum(noisy - threshold, 0), ends)

    def _parents(self, t: int, weights: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        """Places of the parents of each label.

        Lin et al. draw them by votes; Xie et al. keep the best of L candidates per record [E9].
        With columns it is the best of each row, in their order [E17].
        """
        choose = _parents if self._settings.expansion == 1 else _best
        if self._draw.rows.columns:
            choose = _best_of_each_row
        return [
            _kept_array(
                self._draw.journal, f"parents/{t}/{place}", partial(choose, bins, size, self._rng)
            )
            for place, (bins, size) in enumerate(zip(weights, self._sizes, strict=True))
        ]

    def _offspring(self, t: int, parents: list[list[T]]) -> list[list[T]]:
        """Variations of the parents: one each, or L - 1 but after the last round [E9]."""
        settings, wide = self._settings, self._settings.expansion
        times = 1 if wide == 1 else (wide - 1) * (t < settings.rounds)
        if not times:
            return [[] for _ in parents]
        makes = [
            partial(self._variations_of, place, group * times, settings.degree(t))
            for place, group in enumerate(parents)
        ]
        with self._steps.together(times * sum(self._sizes)):
            return self._population(f"population/{t + 1}", makes)


def _figures(
    t: int,
    degree: float,
    weights: Sequence[NDArray[np.int64]],
    indices: Sequence[NDArray[np.int64]],
    parents: Sequence[Sequence[T]],
    offspring: Sequence[Sequence[T]],
) -> Mapping[str, Any]:
    """Public figures of a round: functions of its noisy histogram and public samples."""
    return {
        "round": t,
        "degree": round(degree, 6),
        "bins": sum(len(bins) for bins in weights),
        "bins_above_threshold": sum(int(np.count_nonzero(bins)) for bins in weights),
        "votes_above_threshold": round(sum(float(bins.sum()) for bins in weights) / LATTICE, 3),
        "labels_drawn_uniformly": sum(not bins.any() for bins in weights),
        "distinct_parents": sum(len(np.unique(picks)) for picks in indices),
        "unchanged_variations": sum(
            old[place % len(old)] == one
            for old, new in zip(parents, offspring, strict=True)
            for place, one in enumerate(new)
        ),
    }


def _refuse_without_rows(cfg: PrivateEvolutionConfig) -> None:
    """Refuse settings by which votes cannot choose among the texts of a row [E17]."""
    where = "methods.private_evolution"
    if cfg.expansion == 1:
        raise ConfigError(
            f"{where}.expansion=1 writes one candidate a row, so votes choose nothing beside "
            "dataset.columns.",
            hint=f"Set {where}.expansion=4.",
        )
    if not cfg.text.name_labels:
        raise ConfigError(
            f"{where}.text.name_labels=false leaves labels to mean_share, which dataset.columns "
            "rule out: it moves a text to another label, and away from its row.",
            hint="Name the labels, or draw by keyphrase_seeding.",
        )


def modality(cfg: PrivateEvolutionSettings, models: Backends) -> Samples[Any]:
    """The generator and the embedder of a release."""
    return MODALITIES[cfg.modality].samples(cfg.text, models)


class _Private(Generic[T]):
    """The private records of all labels; their vectors are computed once and stay in memory."""

    def __init__(self, kind: Samples[T], buckets: Sequence[Bucket], most: int) -> None:
        self._kind, self._buckets = kind, buckets
        self._most = most  # records of a unit: public
        self._voters: list[Voters] = []
        self._units: list[str] = []  # the unit of each row of all voters

    def embed(self, draw: Draw) -> None:
        """Compute the vectors of all records, shape (records, width) for each label."""
        if isinstance(self._kind.embedder, ManyShapes):
            # privacy: every shape is tried, so that the records' shapes do not decide whether a run
            # fails.
            self._kind.embedder.probe()
        parts = Steps(
            lambda done, total: draw.reading(done, total, "the records"),
            PARTS * len(self._buckets),
        )
        for bucket in self._buckets:
            decoded = [self._kind.read(content) for content in bucket.contents.reveal()]
            owned = zip(decoded, bucket.units.reveal(), strict=True)
            samples = [(sample, unit) for sample, unit in owned if sample is not None]  # [E6]
            vectors = [np.empty((0, self._kind.embedder.width), np.float32)]
            for part in range(PARTS):
                parts.next()
                if some := samples[part::PARTS]:
                    batch = self._kind.embedder.embed([sample for sample, _ in some])
                    vectors.append(np.asarray(batch, np.float32))
                    self._units += [unit for _, unit in some]
            self._voters.append(Voters(np.concatenate(vectors)))

    def adaptation(
        self,
        journal: Draws,
        sums: DiscreteGaussian,
        noise: NoiseSource,
        population: Sequence[Sequence[T]],
    ) -> Adaptation:
        """What the noisy table says of the records' tokens, beside those of public samples [E11].

        Args:
            journal: Of the release.
            sums: Adds noise to the table.
            noise: Where noise comes from.
            population: Public samples of each label. A resumed run has the same.
        """
        tokens = self._kind.tokens
        table = TokenTable.of([[tokens(sample) for sample in group] for group in population])

        def draw() -> NDArray[np.int64]:
            texts = [
                [() if text is None else tokens(text) for text in map(self._kind.read, contents)]
                for contents in (bucket.contents.reveal() for bucket in self._buckets)
            ]
            units = [bucket.units.reveal() for bucket in self._buckets]
            return sums.draw(table.exact_sums(texts, units, self._most, LATTICE), noise)

        noisy = journal.draw_array("words", draw, len(population) * len(table.tokens))
        rows = table.log_ratios(noisy, sums.sigma, LATTICE)  # (labels, tokens)
        labels = tuple(bucket.cell.label for bucket in self._buckets)
        return Adaptation(labels, table.tokens, np.round(rows, 4))

    def sums(
        self, journal: Draws, sums: DiscreteGaussian, noise: NoiseSource, grid: Grid
    ) -> NDArray[np.int64]:
        """Noisy sum of the directions of each label's records, (labels * width,) [E14]."""

        def draw() -> NDArray[np.int64]:
            rows = [voters.vectors for voters in self._voters]
            return sums.draw(exact_sums(rows, self._units, grid, self._most, LATTICE), noise)

        return journal.draw_array("means", draw, len(self._buckets) * len(grid.center))

    def votes(self, vectors: Sequence[NDArray[np.float32]]) -> NDArray[np.int64]:
        """Lines 1-4 of Algorithm 2: each record votes for one of its label's candidates [E3].

        In lattice steps, clipped by unit [E15], shape (candidates of all labels,). Not yet private.
        """
        firsts = np.cumsum([0, *map(len, vectors)])
        bins = [
            first + voters.nearest(candidates)
            for first, voters, candidates in zip(firsts[:-1], self._voters, vectors, strict=True)
        ]
        # privacy: over all labels, since a unit may have records of several
        return histogram(np.concatenate(bins), self._units, firsts[-1], self._most, LATTICE)


def _steps(settings: PrivateEvolutionConfig, labels: Sequence[str | None]) -> int:
    """Steps of a run: requested samples, and parts that take about as long as one sample.

    privacy: from settings alone, independent of repeated requests.
    """
    made = _samples(settings, labels)
    means = settings.mean_share > 0 and len(labels) > 1
    tables = (settings.table_share > 0) + means
    return tables + made + settings.rounds * (len(labels) + 1)


def _samples(settings: PrivateEvolutionConfig, labels: Sequence[str | None]) -> int:
    """Samples that the generator is asked for: first ones, offspring, and those looked ahead."""
    wide, total, voted = settings.expansion, settings.rounds, sum(voted_sizes(settings, labels))
    born = total if wide == 1 else (wide - 1) * (total - 1)  # offspring of a released sample
    further = sum(sizes_of(settings, labels)) - voted
    return voted * (wide + born + total * settings.lookahead * wide) + further


def _at_nearest_means(
    kind: Samples[T], adaptation: Adaptation, texts: Sequence[Sequence[T]]
) -> list[list[T]]:
    """Texts that were written for each label, each at that of its nearest noisy mean [E14].

    As many stand at a label as were written for it.
    """
    nothing = np.empty((0, kind.embedder.width), np.float32)
    vectors = [kind.embedder.embed(group) if group else nothing for group in texts]
    every = [one for group in texts for one in group]
    places = adaptation.places(vectors, [len(group) for group in texts])
    return [[every[i] for i in group] for group in places]


Words = Mapping[str | None, Sequence[str]]
"""Label -> the words of the rows that its texts are written for; none without columns."""


def _write(
    kind: Samples[T], adaptation: Adaptation, words: Words, counts: Mapping[str | None, int]
) -> list[tuple[str | None, T]]:
    """New texts, as many of each label as ``counts`` says."""
    texts = [
        _likelier_samples(_with_rows(kind, words.get(label, ())), counts[label], label)
        for label in adaptation.labels
    ]
    groups = zip(adaptation.labels, _at_nearest_means(kind, adaptation, texts), strict=True)
    return [(label, text) for label, group in groups for text in group]


def _vary(
    kind: Samples[T],
    cfg: PrivateEvolutionSettings,
    like: Sequence[tuple[str | None, T]],
    words: Words,
) -> Iterator[tuple[str | None, T]]:
    """One variation of each sample, by label."""
    for label in dict.fromkeys(label for label, _ in like):
        group = [sample for sample_label, sample in like if sample_label == label]
        made = _variations(_with_rows(kind, words[label]), group, label, cfg.degree(cfg.rounds))
        yield from ((label, sample) for sample in made)


def _parents(weights: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw ``count`` parents with replacement, in proportion to their weights; shape (count,).

    If all weights are 0, they are drawn uniformly [E7].
    """
    votes = np.maximum(weights, 0).astype(np.float64)
    shares = votes / votes.sum() if votes.any() else None
    return rng.choice(len(votes), count, p=shares).astype(np.int64)


def _best(weights: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The ``count`` distinct parents with the most weight, ties at random [E7], [E9]; (count,)."""
    order = rng.permutation(len(weights))
    return order[np.argsort(-weights[order], kind="stable")][:count].astype(np.int64)


def _best_of_each_row(
    weights: NDArray[np.int64], count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The candidate with the most weight of each of ``count`` rows, ties at random; (count,)."""
    best = _best(weights, len(weights), rng)
    return best[np.unique(best % count, return_index=True)[1]]


def _with_rows(kind: Samples[T], words: Sequence[str]) -> Samples[T]:
    """The same, whose generator writes its n-th sample for the row of the n-th words."""
    return kind.with_rows(words) if words else kind


def _likelier_samples(kind: Samples[T], count: int, label: str | None) -> list[T]:
    """As ``_fresh_samples``; of two each, the one that the public model finds likelier [E18]."""
    if kind.readings([], label) is None:
        return _fresh_samples(kind, count, label)
    drafts = _fresh_samples(kind, 2 * count, label)  # in one call: a batch of twice as many rows
    readings = np.asarray(kind.readings(drafts, label)).reshape(2, count)
    return [drafts[place + count * draft] for place, draft in enumerate(readings.argmax(0))]


def _variations(
    kind: Samples[T], samples: Sequence[T], label: str | None, degree: float
) -> list[T]:
    """One variation of each sample, in order."""
    return _check_count(kind.api.vary(samples, label, degree), len(samples))


def _check_count(samples: list[T], count: int) -> list[T]:
    # Votes are counted by position, so a missing sample would shift them.
    if len(samples) != count:
        raise ModelError(f"the generator gave {len(samples)} samples where {count} were asked for.")
    return samples


def _kept_array(journal: Draws, key: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """An array from the journal, made if it is not there."""
    return from_npy(journal.public_file(key, lambda: to_npy(make())))
