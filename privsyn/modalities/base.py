"""What a kind of record is: from a row of the private file to what is measured of a release.

What needs the models of a deployment to measure is in ``stages/measure.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

from privsyn.data.artifacts import ArtifactRef

if TYPE_CHECKING:
    from privsyn.data.profile import ImageProfile, Profile
    from privsyn.evaluation.metrics import Metric
    from privsyn.methods.base import Backends, Role
    from privsyn.models.language.text_variation import TextSettings
    from privsyn.models.protocols import Embedder as EmbedderOf
    from privsyn.models.protocols import VariationAPI
    from privsyn.validation.settings import ValidationConfig

# The imports above serve annotations alone: who only reads records needs no model library.
T = TypeVar("T")

Generator = Literal["image"]
"""Roles of models that draw one kind of record alone."""
Embedder = Literal["embedder", "image_embedder"]
"""Roles of models that map records to vectors."""


class Modality(Protocol):
    """A kind of record, with the public settings that say what form its records have.

    Its source files are read by data/readers, the content of a row by data/contents.py.
    """

    name: ClassVar[str]
    """What settings and tables call it: text."""
    things: ClassVar[str]
    """What people call its records: texts."""
    chosen: ClassVar[str]
    """By which setting a dataset is of it, for messages."""
    generator: ClassVar[Generator | None]
    """Role of the model that draws it and nothing else; None where no role tells."""
    embedder: ClassVar[Embedder]
    """Role of the model that maps it to vectors."""
    field: ClassVar[str]
    """Where a drawn row holds its content."""
    worded: ClassVar[bool]
    """Whether its records are words, which have a length and a language."""
    by_file: ClassVar[bool]
    """Whether each file may be a unit, where no column names one."""
    suite: ClassVar[str]
    """The shipped suite that checks its files."""
    suite_columns: ClassVar[Mapping[str, str]]
    """Columns that a suite may use -> field of a row."""
    sampled_by: ClassVar[tuple[Role, ...]]
    """Roles of the models that make and compare its samples."""

    @property
    def form(self) -> Any:
        """Settings of the one form its records are brought to; None where there is none."""

    def entry(self, content: str | bytes) -> dict[str, str]:
        """A drawn record's content as a JSON row holds it."""

    def write(self, folder: Path, rows: Sequence[Mapping[str, Any]]) -> ArtifactRef:
        """Write the artifact of a release from rows with an ``entry``."""

    def read_released(self, folder: Path, row: Mapping[str, Any]) -> str | bytes:
        """Content of a row of a finished release."""

    def look(self, folder: Path) -> dict[str, str]:
        """A command that shows some of a release, by what it is for."""

    def placeholders(self, cfg: ValidationConfig) -> Mapping[str, Any]:
        """Placeholders of its suites besides those of every suite."""

    def rows(self, artifact: Path) -> Sequence[Any]:
        """All lines of a released file; DataError if it is missing or cannot be read."""

    def profile(self, rows: Sequence[Any], labels: Sequence[str]) -> Profile | ImageProfile:
        """A summary of such lines."""

    def quality(self, artifact: Path, schema: Any = None) -> list[Metric]:
        """Numbers about a released file alone; ``schema``: of structured records."""

    def classifier(self, artifact: Path) -> Callable[[str], str]:
        """The label of a record's content, by a classifier trained on a released file."""

    @staticmethod
    def samples(text: TextSettings, models: Backends) -> Samples[Any]:
        """How private evolution holds its records; ``text``: its settings for texts."""


class Samples(Protocol[T]):
    """How models hold a sample of a modality, how that is read and written, and the models."""

    @property
    def api(self) -> VariationAPI[T]:
        """The generator."""

    @property
    def embedder(self) -> EmbedderOf[T]:
        """The map to vectors."""

    def with_steps(self, steps: int | None) -> Samples[T]:
        """The same, whose variations take a share of so many denoising steps; None: its own.

        Raises:
            ModelError: The generator takes no such number.
        """

    def tokens(self, sample: T) -> Sequence[int]:
        """The distinct tokens of a sample, which may be private. Texts alone have tokens."""

    def with_log_ratios(self, log_ratios: Mapping[str | None, Mapping[int, float]]) -> Samples[T]:
        """The same, whose generator adds these to the logits of tokens, by label."""

    def read(self, content: str) -> T | None:
        """A private record; None where it cannot be read."""

    def pack(self, samples: Sequence[T]) -> bytes:
        """Samples as a file."""

    def unpack(self, data: bytes) -> list[T]:
        """The samples of such a file."""

    def content(self, sample: T) -> str | bytes:
        """A sample as it is released."""

    def from_released(self, content: str | bytes) -> T:
        """A sample from what was released."""

    def sheet(self, population: Sequence[Sequence[T]]) -> bytes | None:
        """A picture of some samples of every label; None where there is nothing to see."""
