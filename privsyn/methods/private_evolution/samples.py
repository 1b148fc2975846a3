"""Samples as private evolution has them: a modality's form, with a generator and an embedder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from privsyn.data.images import Pixels
from privsyn.methods.base import Backends, Role
from privsyn.methods.private_evolution.settings import PrivateEvolutionConfig
from privsyn.modalities.base import SampleForm
from privsyn.modalities.images import ImageForm
from privsyn.modalities.text import TextForm
from privsyn.models.language.text_variation import TextVariation
from privsyn.models.protocols import Embedder, VariationAPI

T = TypeVar("T")


class Samples(SampleForm[T], Protocol[T]):
    """A form of samples and the two models that make and compare them."""

    @property
    def api(self) -> VariationAPI[T]:
        """The generator."""

    @property
    def embedder(self) -> Embedder[T]:
        """The map to vectors."""


@dataclass(frozen=True)
class TextSamples(TextForm):
    """Samples that are strings."""

    api: VariationAPI[str]
    embedder: Embedder[str]


@dataclass(frozen=True)
class ImageSamples(ImageForm):
    """Samples that are uint8 arrays of one shape. A record that is damaged has no vote [E6]."""

    api: VariationAPI[Pixels]
    embedder: Embedder[Pixels]


@dataclass(frozen=True)
class SampleKind:
    """A modality to private evolution.

    Attributes:
        roles: The models it needs.
        samples: Form and models of a release.
    """

    roles: tuple[Role, ...]
    samples: Callable[[PrivateEvolutionConfig, Backends], Samples[Any]]


KINDS: Mapping[str, SampleKind] = {
    "text": SampleKind(
        ("embedder", "text"),
        lambda cfg, models: TextSamples(TextVariation(cfg.text, models.text), models.embedder),
    ),
    "image": SampleKind(
        ("image_embedder", "image"),
        lambda cfg, models: ImageSamples(models.image, models.image_embedder),
    ),
}
"""By the modality's name."""
