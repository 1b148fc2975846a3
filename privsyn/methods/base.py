"""The interfaces of methods: pricing facts, mechanisms, samples, models, progress."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar, cast, runtime_checkable

from privsyn.data.records import Cell, Row
from privsyn.dp.adjacency import Adjacency, PrivacyUnit
from privsyn.dp.events import Composed, Disjoint, Event, RandomAllocation
from privsyn.models.rows import ANYTHING, NO_ROWS, Subject, SyntheticRows
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from privsyn.section import Section
from privsyn.sentences import Rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from privsyn.data.journal import Draws
    from privsyn.data.records import Bucket
    from privsyn.dp.adjacency import Guarantee
    from privsyn.dp.noise import NoiseSource
    from privsyn.models.model_identity import ModelIdentity
    from privsyn.models.protocols import (
        Embedder,
        LogitModel,
        PromptTemplate,
        TextModel,
        TrainableModel,
        VariationAPI,
    )


ADVICE = Rows(Path(__file__).with_name("advice.yaml"))
"""What sizes say for themselves, a table a method."""


@dataclass(frozen=True)
class PricingFacts:
    """Public facts that price a release, besides its method's settings.

    Attributes:
        adjacency: The account's adjacency.
        unit: The protected unit and its bound on records.
        labels: The public labels.
        secret_places: Whether the cost counts on the bucket of each unit being secret, and drawn
            anew for this release [B19]. Never under replace_one, which [B19] does not cover.
        before: Events of the release before its generator, which may read what they yield.
        after: Events of the release after its generator.
    """

    adjacency: Adjacency
    unit: PrivacyUnit
    labels: tuple[str, ...] = ()
    secret_places: bool = False
    before: tuple[Event, ...] = ()
    after: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        if self.secret_places and self.adjacency is Adjacency.REPLACE_ONE:
            raise ValueError("secret places have no proof under replace_one")

    @property
    def changed_records(self) -> int:
        """Most records of a sum that change between neighbors."""
        return self.adjacency.moves * self.unit.max_records

    def whole(self, event: Event) -> Event:
        """The event of the whole release, in order, whose generator's is ``event``."""
        parts = (*self.before, event, *self.after)
        return Composed(parts) if len(parts) > 1 else event

    def in_buckets(self, event: Event, buckets: int) -> Event:
        """The event of ``event`` in each of ``buckets`` buckets of every label.

        The number of a unit's bucket is the same for all labels, so the buckets of one number are
        one place.
        """
        labels = max(1, len(self.labels))
        # With one bucket there is no secret: everybody knows where a unit is.
        if self.secret_places and buckets > 1:
            return RandomAllocation(Disjoint((event,), labels), buckets)
        return Disjoint((event,), labels * buckets)


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """The mechanism of a release: noise and cost come from this one object.

    A method makes it by ``calibrate`` for a target, or by ``rebuild`` from the numbers that
    ``calibrate`` solved for, which a plan stores as ``derived``.

    Attributes:
        facts: Facts that price it.
        warnings: Advice on the settings, one line each.
        rows: Fewest and most rows of the artifact. None: one row per cell.
        divisor: Public number by which a bucket's sum is divided, if each cell is one bucket.
        sized_for: Number of records that the settings suit, if it does not follow from buckets.
        refusal: Why no record may come of it, and what to set; such a release is not planned.
    """

    facts: PricingFacts
    warnings: tuple[str, ...] = ()
    rows: tuple[int, int] | None = None
    divisor: int | None = None
    sized_for: SizedFor | None = None
    refusal: str = field(default="", compare=False)  # advice: a rebuilt mechanism has none

    @property
    @abstractmethod
    def event(self) -> Event:
        """The privacy event of the generator; ``whole`` is that of its release."""

    @property
    def whole(self) -> Event:
        """The privacy event of the whole release."""
        return self.facts.whole(self.event)

    @property
    @abstractmethod
    def derived(self) -> Mapping[str, float]:
        """Numbers solved for the target, and their consequences; they are on the certificate."""


@dataclass(frozen=True)
class SizedFor:
    """The number of records that settings suit: public, never counted from the data.

    Attributes:
        records: Number of training records.
        settings: The settings that imply it.
        otherwise: The effect of far fewer records, and what to set.
        shares: Share of the records that each label needs, in the order of the labels; empty if
            labels have no needs of their own.
    """

    records: float
    settings: str
    otherwise: str
    shares: tuple[float, ...] = ()


@dataclass(frozen=True)
class Sample:
    """One synthetic record.

    Attributes:
        cell: The public cell in which it was drawn.
        content: A text, or an image as a PNG file.
        counts: Integers about its draws, which are part of the mechanism's output. Their sums over
            the release are on its certificate.
        row: The cells of its columns, for which it was written.
    """

    cell: Cell
    content: str | bytes
    counts: Mapping[str, int] = field(default_factory=dict)
    row: Row = ()


@dataclass(frozen=True)
class Exhibit:
    """A picture or table about how the release was made, stored beside its records.

    Like a sample it is post-processing of the mechanism's output, and public.

    Attributes:
        name: File name.
        content: The file.
    """

    name: str
    content: bytes


Role = Literal["language", "text", "embedder", "image", "image_embedder", "base", "answers"]
"""Role of a model: logits, completions, vectors of texts, images, vectors of images, a language
model to train, or answers about records, which no method asks for (``dataset.columns``)."""

READ_MODELS: frozenset[Role] = frozenset({"language", "base"})
"""Roles of language models whose logits or gradients a method reads: its values depend on their
size."""


class Backends:
    """The loaded models of a run, by role: those that the method's ``roles`` requested."""

    language: LogitModel
    text: TextModel
    embedder: Embedder[str]
    image: VariationAPI[NDArray[np.uint8]]
    """The generator of images: arrays of shape (height, width) or (height, width, 3)."""
    image_embedder: Embedder[NDArray[np.uint8]]
    base: TrainableModel

    def __init__(self, models: Mapping[Role, Any]) -> None:
        self.models = models
        vars(self).update({str(role): model for role, model in models.items()})


OnProgress = Callable[[int, int], None]
"""Called with the finished and the total amount of work."""


def silent(*_: object) -> None:
    """Progress that nobody is told."""


@dataclass(frozen=True)
class Draw:
    """Everything that draws a part of a release, besides its mechanism and its records.

    Attributes:
        models: The loaded models.
        noise: Source of private randomness.
        journal: Every private draw goes through it.
        performance: Settings of speed and memory.
        progress: Called before a draw with the finished and the most ``counts`` of the method.
            It raises if another process has taken over the release.
        expected_records: Expected records of a bucket, one per unit, by the account's public size;
            0 if the account has none.
        reading: Called while records are read, with finished parts, all parts, and what is read.
            privacy: the calls and their numbers do not depend on the records.
        on_public: Called with label and content of what the method had the public model write
            before any record had a say. It is a baseline of the evaluation.
        rows: The rows that texts are written for, and what prompts say of a row.
    """

    models: Backends
    noise: NoiseSource
    journal: Draws
    performance: PerformanceConfig
    progress: OnProgress = silent
    expected_records: float = 0.0
    reading: Callable[[int, int, str], None] = silent
    on_public: Callable[[Sequence[tuple[str | None, str | bytes]]], None] | None = None
    rows: SyntheticRows = NO_ROWS

    def part(self, before: int, total: int) -> Callable[[int], None]:
        """Progress of one part of the draw; its argument is added to ``before``."""
        return lambda done: self.progress(before + done, total)

    def reading_part(self, before: int, total: int, what: str) -> Callable[[int], None]:
        """As ``part``, for ``reading``."""
        return lambda done: self.reading(before + done, total, what)


@dataclass(frozen=True)
class Work:
    """What most of a release's time goes into.

    Attributes:
        things: What is counted.
        count: How many a release takes, by public settings.
        do: Does this many on public inputs, as a release does them.
        most: Most that are done together.
    """

    things: str
    count: float
    do: Callable[[int], object]
    most: int = 64


class Steps:
    """Progress of a run in parts, each with a public number of steps."""

    def __init__(self, progress: Callable[[int, int], None], total: int) -> None:
        self._progress, self._done, self._total = progress, 0, total

    def next(self, steps: int = 1) -> None:
        """Begin another part of this many steps."""
        self._progress(self._done, self._total)
        self._done += steps

    @contextmanager
    def together(self, steps: int) -> Iterator[None]:
        """A group of parts with this many steps in total; stored parts need not begin."""
        after = self._done + steps
        yield
        # Also if the parts were replayed from the journal and never began.
        self._done = after


@dataclass(frozen=True)
class Size:
    """The size of a release, by what its owner states: public, never counted from the data.

    Attributes:
        texts: Records in all; they are spread over the labels.
        labels: The public labels.
        units: Estimate of how many units train. None: settings that depend on it stay.
        records: Likewise, of how many records train.
        words: About how many words a text has. None: lengths stay.
    """

    texts: int
    labels: Sequence[str] = ()
    units: float | None = None
    records: int | None = None
    words: int | None = None

    @property
    def each(self) -> int:
        """Records of a label."""
        return each(self.texts, len(self.labels))

    def lengths(self, *settings: str) -> dict[str, int]:
        """These settings, with tokens enough for most texts; empty where no length is stated."""
        # Four thirds of a token an English word, and room for a text longer than most.
        return {} if self.words is None else dict.fromkeys(settings, math.ceil(1.5 * self.words))


SettingsT = TypeVar("SettingsT", bound=Section)
"""Type of a method's resolved settings."""


class Method(Protocol[SettingsT]):
    """A generator: its cost is computed without data, and its draws never cost more.

    Every method is DrawsSamples or TrainsModel. ``SettingsT`` is the type of its resolved settings,
    which a plan stores; it has all fields of its ``Config``.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    Config: ClassVar[type[Section]]
    """Type of the settings in a config."""
    whole: ClassVar[bool] = True
    """Whether a run needs all cells at once, so the release is one shard."""
    counts: ClassVar[str]
    """Unit of its progress: tokens, steps, texts."""
    columns_alone: ClassVar[bool] = False
    """Whether it draws rows of declared columns, and no content beside them."""
    tuning_hint: ClassVar[str]
    """Settings to tune first, for advice."""

    @property
    def Settings(self) -> type[SettingsT]:
        """Type of resolved settings, with the defaults of models and dataset filled in."""

    def source(self, cfg: Any) -> str:
        """The paper that these settings follow."""
        return self.paper

    def additions(self, cfg: Any, labels: Sequence[str]) -> Mapping[str, bool]:
        """What settings may add to the paper's mechanism, in words, and whether these do."""
        return {}

    def cites(self, cfg: Any, labels: Sequence[str]) -> str:
        """The paper, and what these settings add to it; on certificates and the DAG's page.

        Args:
            cfg: Settings in the config, or resolved ones.
            labels: The public labels.
        """
        added = [words for words, is_there in self.additions(cfg, labels).items() if is_there]
        if not added:
            return self.source(cfg)
        are = "is" if len(added) == 1 else "are"
        return f"after {self.source(cfg)}; with {' and '.join(added)}, which {are} not in the paper"

    def roles(self, cfg: Any) -> tuple[Role, ...]:
        """Models that a run needs, from config settings or resolved settings."""

    def calibrate(self, settings: SettingsT, target: Guarantee, facts: PricingFacts) -> Mechanism:
        """The mechanism for a target guarantee. Opens no data.

        Args:
            settings: Resolved settings.
            target: Most that the whole release may cost: the mechanism and ``facts.whole``.
            facts: Facts that price it.

        Raises:
            ConfigError: The target cannot pay for these settings.
        """

    def rebuild(
        self,
        settings: SettingsT,
        target: Guarantee,
        facts: PricingFacts,
        derived: Mapping[str, float],
    ) -> Mechanism:
        """The mechanism of a plan, with only the solved numbers taken from ``derived``.

        privacy: its sensitivity always comes from the settings and the facts, so an edited plan
        cannot understate it.
        """

    def resolve(
        self, cfg: Any, models: Mapping[Role, ModelIdentity], subject: Subject = ANYTHING
    ) -> SettingsT:
        """The config's settings with the models' defaults filled in, by one identity per role."""

    def cells(self, cfg: Any, labels: Sequence[str]) -> list[Cell]:
        """The public cells of the partition, in output order: one per label."""
        return Cell.grid(labels, 1)

    def for_texts(self, cfg: Any, size: Size) -> Mapping[str, Any]:
        """Changes to ``cfg``, by dotted name, for a release of a wanted size.

        It has a few more records if the labels do not divide their number. For methods whose
        releases may be smaller than their settings, the number is the most.
        """

    def prompt(self, settings: SettingsT) -> tuple[PromptTemplate, int, int] | None:
        """Template, reference tokens and output tokens that must fit the language model's context.

        None for a method whose language model reads no record.
        """
        return None

    def preflight(
        self, settings: SettingsT, unit: PrivacyUnit, labels: Sequence[str], models: Backends
    ) -> None:
        """Try everything that a run needs of its models on public inputs, before anything is spent.

        Raises:
            ModelError: A model cannot do it, or returns values that are not finite.
        """


@runtime_checkable
class DrawsSamples(Protocol):
    """A method that draws its release from the records, sample by sample."""

    def run(
        self, settings: Any, mechanism: Any, buckets: Sequence[Bucket], draw: Draw
    ) -> Iterator[Sample | Exhibit]:
        """Draw the samples of some cells."""


@runtime_checkable
class PromptsModel(Protocol):
    """A method that sends prompts to a text model, which may be behind a server."""

    def requests(self, settings: Any, labels: Sequence[str | None]) -> int:
        """Prompts of a release, from public settings alone; without those that are repeated."""


def each(texts: int, parts: int) -> int:
    """Size of each of some equal parts that together have at least ``texts``."""
    return -(-texts // max(1, parts))


Record = tuple[str | None, str | bytes]
"""Label and content of a synthetic record."""


@dataclass(frozen=True)
class Finished:
    """A finished release of which more is made: public data.

    Attributes:
        records: Its records.
        folder: Its folder, with its exhibits and its own model.
        progress: Is told how many of the new records are made, of how many.
        rows: Rows of columns for the new records.
    """

    records: Sequence[Record]
    folder: Path
    progress: OnProgress = silent
    rows: SyntheticRows = NO_ROWS


@runtime_checkable
class MakesMore(Protocol):
    """A method whose releases yield more records at no cost, by post-processing of public data."""

    def more(self, cfg: Any, models: Backends, release: Finished, count: int) -> Iterator[Record]:
        """``count`` new records from those of a finished release.

        The n-th new text of a label is written for its n-th row.
        """


@runtime_checkable
class TrainsModel(Protocol):
    """A method that trains a model on the records, and writes its release from that model alone.

    A release is trained once and written in any number of shards.
    """

    makes_students: ClassVar[bool]
    """Whether its releases contain the language model that wrote them, so that students can follow
    its logits. Such a method is a Teacher."""

    def check_models(self, cfg: Any, models: ModelsConfig) -> None:
        """Refuse models that cannot be trained with these settings, from their configs alone.

        Called before the cost is reserved. Preflight tries the weights later.

        Raises:
            ModelError: A model cannot be trained.
        """

    def train(
        self, settings: Any, mechanism: Any, buckets: Sequence[Bucket], draw: Draw
    ) -> Mapping[str, bytes]:
        """Files of the trained model, public."""

    def write(
        self,
        cfg: Any,
        unit: PrivacyUnit,
        labels: Sequence[str],
        models: Backends,
        trained: Path,
        shard: tuple[int, int],
        on_progress: OnProgress = silent,
        rows: SyntheticRows = NO_ROWS,
    ) -> Iterator[Sample]:
        """Samples of one shard (number, number of shards), by public randomness.

        The n-th text of a label is written for its n-th row.
        """


@runtime_checkable
class TriesWork(Protocol):
    """A method that says itself what takes the time of a release."""

    def trial(self, settings: Any, labels: Sequence[str], models: Backends) -> Iterator[Work]:
        """The work of a release; each is tried before the next one is asked for."""


class Teacher(TrainsModel, Protocol):
    """A method that trains a language model of the role ``base`` and releases it."""

    def writes_behind(self, cfg: Any, labels: Sequence[str]) -> PromptTemplate:
        """The prompt that precedes its texts."""


def as_teacher(method: object) -> Teacher | None:
    """The method as a Teacher if its releases contain the model that wrote them, else None."""
    makes_students = isinstance(method, TrainsModel) and method.makes_students
    return cast(Teacher, method) if makes_students else None
