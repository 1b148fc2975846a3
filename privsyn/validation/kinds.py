"""How a synthetic file is checked, by the kind of its records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from privsyn.data.settings import ImageConfig
from privsyn.validation.image_profile import (
    ImageProfile,
    ImageRow,
    profile_images,
    read_image_rows,
)
from privsyn.validation.profile import Profile, Row, profile, read_rows
from privsyn.validation.settings import ValidationConfig

TEXT_COLUMNS = {
    "id": "id",
    "text": "text",
    "label": "label",
    "row_well_formed": "well_formed",
    "text_is_json": "text_is_json",
}
"""Columns a suite of texts may name, and the field of a row they show."""
IMAGE_COLUMNS = {
    "row_well_formed": "well_formed",
    **{
        name: name
        for name in (
            "id",
            "label",
            "file",
            "readable",
            "width",
            "height",
            "mode",
            "mean",
            "spread",
            "pixels_sha256",
            "label_rows",
        )
    },
}
"""The same of images."""


class Kind(Protocol):
    """What checking a file needs to know of the kind of its records."""

    suite: ClassVar[str]
    """The shipped suite."""
    columns: ClassVar[Mapping[str, str]]
    """Columns a suite may name, and the field of a row they show."""

    def values(self, cfg: ValidationConfig) -> Mapping[str, Any]:
        """Placeholders of its suites beside those of all."""

    def rows(self, artifact: Path) -> Sequence[Any]:
        """Every line of the file; DataError where it is missing or cannot be read."""

    def profile(self, rows: Sequence[Any], labels: Sequence[str]) -> Profile | ImageProfile:
        """A summary for the page."""


class TextFile:
    """A file of texts."""

    suite: ClassVar[str] = "text"
    columns: ClassVar[Mapping[str, str]] = TEXT_COLUMNS

    def values(self, cfg: ValidationConfig) -> Mapping[str, Any]:
        """None of its own."""
        return {}

    def rows(self, artifact: Path) -> Sequence[Row]:
        """Lines, with what can be known of each."""
        return read_rows(artifact)

    def profile(self, rows: Sequence[Row], labels: Sequence[str]) -> Profile:
        """Lengths, label counts and samples."""
        return profile(rows, labels)


@dataclass(frozen=True)
class ImageFile:
    """A file that names images, which lie beside it.

    Attributes:
        form: Size and mode they must have.
    """

    form: ImageConfig

    suite: ClassVar[str] = "images"
    columns: ClassVar[Mapping[str, str]] = IMAGE_COLUMNS

    def values(self, cfg: ValidationConfig) -> Mapping[str, Any]:
        """Form, contrast and rows per label."""
        return {
            "size": self.form.size,
            "modes": [self.form.mode],
            "min_spread": cfg.min_spread,
            "min_rows_per_label": cfg.min_rows_per_label,
        }

    def rows(self, artifact: Path) -> Sequence[ImageRow]:
        """Lines and the images they name."""
        return read_image_rows(artifact)

    def profile(self, rows: Sequence[ImageRow], labels: Sequence[str]) -> ImageProfile:
        """Brightness, sizes, label counts and samples."""
        return profile_images(rows, labels)


KINDS: Mapping[str, Callable[[Any], Kind]] = {"text": lambda _: TextFile(), "image": ImageFile}
"""By the modality's name; each is given the form of its records."""

SUITES = (TextFile.suite, ImageFile.suite)
"""The shipped suites, one a kind."""

TEXT = TextFile()


def kind_of(modality: str, form: Any) -> Kind:
    """How records of a modality are checked.

    Args:
        modality: Its name.
        form: The form its records must have.
    """
    return KINDS[modality](form)
