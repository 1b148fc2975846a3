"""What a method is, and how one is found by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypeVar,
    cast,
    runtime_checkable,
)

from privsyn.dp.adjacency import Adjacency, PrivacyUnit
from privsyn.dp.events import Disjoint, Event, RandomAllocation
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from privsyn.section import Section

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from privsyn.data.draws import Draws
    from privsyn.data.records import Bucket, Cell
    from privsyn.dp.accountant import Guarantee
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


@dataclass(frozen=True)
class Subject:
    """What default prompts may say about the records: public.

    Attributes:
        document: What a record is, with its article; None where the config does not say.
        descriptions: What is said for a label, where not the label itself: pairs.
    """

    document: str | None = None
    descriptions: tuple[tuple[str, str], ...] = ()

    def fill(self, prompt: str) -> str:
        """A prompt with its ``{document}``."""
        return prompt.replace("{document}", self.document or "a text")


ANYTHING = Subject()
"""Records of which the config says nothing."""


@dataclass(frozen=True)
class PricingFacts:
    """What a release is priced by besides its method's settings: public.

    Attributes:
        adjacency: Of the account.
        unit: Who is protected, and by how many records.
        labels: The public labels.
        secret_places: Whether the cost counts on the bucket of each unit being secret, and drawn
            anew for this release [B19]. Never under replace_one, which [B19] does not cover.
    """

    adjacency: Adjacency
    unit: PrivacyUnit
    labels: tuple[str, ...] = ()
    secret_places: bool = False

    def __post_init__(self) -> None:
        if self.secret_places and self.adjacency is Adjacency.REPLACE_ONE:
            raise ValueError("secret places have no proof under replace_one")

    @property
    def moved(self) -> int:
        """How many records of a sum may change between neighbours, at most."""
        return self.adjacency.moves * self.unit.max_records

    def in_buckets(self, event: Event, buckets: int) -> Event:
        """The event of a release that runs ``event`` in each of ``buckets`` buckets of every label.

        The number of a unit's bucket is the same for all labels, so the buckets of one number are
        one place.
        """
        labels = max(1, len(self.labels))
        if self.secret_places and buckets > 1:
            return RandomAllocation(Disjoint((event,), labels), buckets)
        return Disjoint((event,), labels * buckets)


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """What a release draws with: its noise and its cost come from this one object.

    A method makes it by ``calibrate`` for a target, or by ``rebuild`` from the number that was
    solved for; a plan carries its ``derived`` numbers.

    Attributes:
        facts: What it is priced by.
        warnings: Advice on the settings, one line each.
        rows: Fewest and most rows the artifact may hold. None: one row per cell.
        divisor: Records a bucket is divided by, where each cell is a bucket of its own.
        sized_for: What the settings take the data to hold, where that is not by buckets.
    """

    facts: PricingFacts
    warnings: tuple[str, ...] = ()
    rows: tuple[int, int] | None = None
    divisor: int | None = None
    sized_for: SizedFor | None = None

    @property
    @abstractmethod
    def event(self) -> Event:
        """The privacy event of the whole release."""

    @property
    @abstractmethod
    def derived(self) -> Mapping[str, float]:
        """Numbers solved from the target, and what follows from them: on the certificate."""


@dataclass(frozen=True)
class SizedFor:
    """How many records settings suit: public, and never counted.

    Attributes:
        records: Of the part that is trained on.
        settings: Those that say so.
        otherwise: What happens with far fewer, and what to set.
        shares: Of the records that each label needs, in the order of the labels; empty where the
            labels need nothing each.
    """

    records: float
    settings: str
    otherwise: str
    shares: tuple[float, ...] = ()


@dataclass(frozen=True)
class Sample:
    """One synthetic record.

    Attributes:
        cell: The public cell it was drawn in.
        content: A text, or an image as a PNG file.
        counts: Whole numbers about how it was drawn, themselves part of what the mechanism gave
            out: summed over the release they are on its certificate.
    """

    cell: Cell
    content: str | bytes
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Exhibit:
    """A picture or table of how the release came about, put beside its records.

    Like a sample it is post-processing of what the mechanism gave out, and public.

    Attributes:
        name: File name.
        content: The file.
    """

    name: str
    content: bytes


Role = Literal["language", "text", "embedder", "image", "image_embedder", "base"]
"""What a model is there for: logits, completions, vectors of texts, images, vectors of images, a
language model to be trained."""


@dataclass(frozen=True)
class Backends:
    """The loaded models of a run, by role. A method finds those it asked for by ``roles``."""

    models: Mapping[Role, Any]

    @property
    def language(self) -> LogitModel:
        """The language model whose logits are read."""
        model: LogitModel = self.models["language"]
        return model

    @property
    def text(self) -> TextModel:
        """The language model that completes prompts."""
        model: TextModel = self.models["text"]
        return model

    @property
    def embedder(self) -> Embedder[str]:
        """The map from texts to vectors."""
        model: Embedder[str] = self.models["embedder"]
        return model

    @property
    def image(self) -> VariationAPI[NDArray[np.uint8]]:
        """The generator of images: arrays of shape (height, width) or (height, width, 3)."""
        model: VariationAPI[NDArray[np.uint8]] = self.models["image"]
        return model

    @property
    def image_embedder(self) -> Embedder[NDArray[np.uint8]]:
        """The map from images to vectors."""
        model: Embedder[NDArray[np.uint8]] = self.models["image_embedder"]
        return model

    @property
    def base(self) -> TrainableModel:
        """The language model that is trained."""
        model: TrainableModel = self.models["base"]
        return model


OnProgress = Callable[[int, int], None] | None
"""Hears how much is done, and of how much; None: nobody does."""


@dataclass(frozen=True)
class Draw:
    """What a part of a release is drawn with, besides its mechanism and its records.

    Attributes:
        models: The loaded models.
        noise: Where private randomness comes from.
        journal: Every private draw goes through it.
        performance: Settings of speed and memory.
        on_progress: Called before a draw with how many of the method's ``counts`` are done and will
            be at most; it raises where another process has taken the release over.
        expected_records: Of a bucket, one a unit, by the account's public size; 0 without one.
        on_reading: Called where records take long to be read, with how many parts are done, of how
            many, and what is read. As often, and with the same numbers, whatever the records.
    """

    models: Backends
    noise: NoiseSource
    journal: Draws
    performance: PerformanceConfig
    on_progress: OnProgress = None
    expected_records: float = 0.0
    on_reading: Callable[[int, int, str], None] | None = None

    def progress(self, done: int, total: int) -> None:
        """Tell how much of the draw is done. Raises as ``on_progress`` does."""
        if self.on_progress is not None:
            self.on_progress(done, total)

    def reading(self, done: int, total: int, what: str) -> None:
        """Tell how much of the records is read."""
        if self.on_reading is not None:
            self.on_reading(done, total, what)

    def part(self, before: int, total: int) -> Callable[[int], None]:
        """Progress of a part of the draw: hears how much of the part is done, beyond ``before``."""
        return lambda done: self.progress(before + done, total)

    def reading_part(self, before: int, total: int, what: str) -> Callable[[int], None]:
        """The same of ``reading``."""
        return lambda done: self.reading(before + done, total, what)


class Steps:
    """Counts the parts of a run for its progress, each by a public number of what takes time."""

    def __init__(self, progress: Callable[[int, int], None], total: int) -> None:
        self._progress, self._done, self._total = progress, 0, total

    def next(self, steps: int = 1) -> None:
        """Another part begins, of so many steps."""
        self._progress(self._done, self._total)
        self._done += steps

    @contextmanager
    def together(self, steps: int) -> Iterator[None]:
        """Parts of so many steps in all, of which some may be on file and need not begin."""
        after = self._done + steps
        yield
        self._done = after


SettingsT = TypeVar("SettingsT", bound=Section)
"""Type of a method's resolved settings."""


class Method(Protocol[SettingsT]):
    """A generator: a cost computed without data, and a draw that never costs more.

    Every method is DrawsSamples or TrainsModel. ``SettingsT`` are its resolved settings, which a
    plan holds; they have all that its ``Config`` has.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    Config: ClassVar[type[Section]]
    """Settings as a config gives them."""
    whole: ClassVar[bool]
    """Whether a run needs all cells at once, so that the release is drawn in one shard."""
    samples: ClassVar[bool]
    """Whether it reads Poisson samples of the units, drawn anew at every step."""
    counts: ClassVar[str]
    """What its progress counts: tokens, steps, texts."""
    tuning_hint: ClassVar[str]
    """The settings that first raise what its data is worth, for advice."""

    @property
    def Settings(self) -> type[SettingsT]:
        """Settings resolved: what the models and the data set leave open is filled in."""

    def roles(self, cfg: Any) -> tuple[Role, ...]:
        """The models a run needs, by settings as a config gives them or resolved."""

    def calibrate(self, settings: SettingsT, target: Guarantee, facts: PricingFacts) -> Mechanism:
        """The mechanism for a target guarantee. Opens no data.

        Args:
            settings: Resolved settings.
            target: What the release may cost.
            facts: What it is priced by.

        Raises:
            ConfigError: These settings cannot be had for the target.
        """

    def rebuild(
        self,
        settings: SettingsT,
        target: Guarantee,
        facts: PricingFacts,
        derived: Mapping[str, float],
    ) -> Mechanism:
        """The mechanism of a plan: what was solved for is taken from ``derived``, nothing else.

        Its sensitivity, above all, comes from the settings and the facts.
        """

    def resolve(
        self, cfg: Any, models: Mapping[Role, ModelIdentity], subject: Subject = ANYTHING
    ) -> SettingsT:
        """The config's settings with the models' own defaults in, one identity per role."""

    def cells(self, settings: SettingsT, labels: Sequence[str]) -> list[Cell]:
        """The public cells of the partition, in output order."""

    def prompt(self, settings: SettingsT) -> tuple[PromptTemplate, int, int] | None:
        """Template, reference tokens and output tokens the language model must have room for.

        None for a method without a language model.
        """

    def preflight(
        self, settings: SettingsT, unit: PrivacyUnit, labels: Sequence[str], models: Backends
    ) -> None:
        """Try everything a run asks of its models on public inputs, before anything is spent.

        Raises:
            ModelError: One cannot do it, or gives what is no number.
        """


@runtime_checkable
class DrawsSamples(Protocol):
    """A method that draws its release from the records, sample by sample."""

    def run(
        self, settings: Any, mechanism: Any, buckets: Sequence[Bucket], draw: Draw
    ) -> Iterator[Sample | Exhibit]:
        """Draw the samples of some cells."""


@runtime_checkable
class SizedByTexts(Protocol):
    """A method that says by which of its settings a release holds a wanted number of records."""

    def for_texts(
        self, cfg: Any, texts: int, labels: Sequence[str], records: int | None
    ) -> Mapping[str, Any]:
        """Settings on top of ``cfg`` with which a release holds so many, the same of each label.

        It holds a few more where the labels do not divide the number; where a release may hold
        fewer than its settings say, so many are the most.

        Args:
            cfg: Settings of the method as the config gives them.
            texts: How many records a release is to hold.
            labels: The public labels.
            records: How many records train, by a public estimate: sizes that depend on it follow
                it. None: they stay.

        Raises:
            ConfigError: Another setting says how many there are.
        """


def each(texts: int, parts: int) -> int:
    """What each of some parts holds so that all hold at least so many."""
    return -(-texts // max(1, parts))


@runtime_checkable
class TriedOnPublic(Protocol):
    """A method that says which of its settings ``privsyn tune`` tries on public records.

    The values of a setting are tried in turn, with the best of the settings before it.
    """

    tries: ClassVar[Mapping[str, Sequence[Any]]]


@runtime_checkable
class MakesMore(Protocol):
    """A method whose releases yield more records at no cost: post-processing of what is public.

    ``trained`` is the folder of the release's own model, None where it holds none.
    """

    def more(
        self,
        cfg: Any,
        models: Backends,
        records: Sequence[tuple[str | None, str | bytes]],
        count: int,
        trained: Path | None = None,
        on_progress: OnProgress = None,
    ) -> Iterator[tuple[str | None, str | bytes]]:
        """``count`` new records, label and content, from a finished release's."""


@runtime_checkable
class TrainsModel(Protocol):
    """A method that trains a model on the records, and writes its release from that model alone.

    Its releases are trained once and written in as many shards as wanted.
    """

    makes_students: ClassVar[bool]
    """Whether a release of it brings the language model that wrote it, so that students can follow
    its logits: the method is a Teacher then."""

    def check_models(self, cfg: Any, models: ModelsConfig) -> None:
        """Refuse models that cannot be trained as the settings ask, from their configs alone.

        Asked before the cost is reserved; weights are tried later, in preflight.

        Raises:
            ModelError: One cannot be.
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
        on_progress: OnProgress = None,
    ) -> Iterator[Sample]:
        """The samples of one shard (number, of how many) from these files, by public randomness."""


class Teacher(TrainsModel, Protocol):
    """A method that trains a language model, of the role ``base``, and releases it."""

    def writes_behind(self, cfg: Any, labels: Sequence[str]) -> PromptTemplate:
        """The prompt that its texts stand behind."""

    def teacher(self, cfg: Any, base: Path, trained: Path, dtype: str, device: Any) -> Any:
        """The model that wrote a release, ready to be asked for logits.

        Args:
            cfg: The release's settings.
            base: Folder of the language model it was trained from.
            trained: The release's own model.
            dtype: Name of the type of the weights.
            device: Where they go.

        Raises:
            ModelError: It cannot be loaded.
        """

    def as_student(self, size: str) -> Mapping[str, Any]:
        """Settings on top with which it trains a student of a size itself, on the records."""


def as_teacher(method: object) -> Teacher | None:
    """A method whose releases bring the model that wrote them; None for any other one."""
    makes_students = isinstance(method, TrainsModel) and method.makes_students
    return cast(Teacher, method) if makes_students else None
