"""What private evolution needs of a kind of record, and roles of its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

if TYPE_CHECKING:  # who only reads records needs no model library
    import numpy as np
    from numpy.typing import NDArray

    from privsyn.models.protocols import Embedder as EmbedderOf
    from privsyn.models.protocols import Token, VariationAPI

T = TypeVar("T")

Generator = Literal["image"]
"""Roles of models that draw one kind of record alone."""
Embedder = Literal["embedder", "image_embedder"]
"""Roles of models that map records to vectors."""


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

    def tokens(self, sample: T) -> Sequence[Token]:
        """The distinct tokens of a sample, which may be private. Texts alone have tokens."""

    def with_log_ratios(self, log_ratios: Mapping[str | None, Mapping[Token, float]]) -> Samples[T]:
        """The same, whose generator adds these to the logits of tokens, by label."""

    def with_rows(self, words: Sequence[str]) -> Samples[T]:
        """The same, whose generator writes its n-th sample for the row of the n-th words."""

    def readings(self, samples: Sequence[T], label: str | None) -> NDArray[np.float64] | None:
        """How likely the generator finds each sample without its table; None if it does not tell.

        Shape (samples,), nats a token.
        """

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
