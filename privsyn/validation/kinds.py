"""Checks of a synthetic file by the kind of its records: texts or images."""

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
"""Columns that a suite of texts may use -> field of a row."""
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
"""Columns that a suite of images may use -> field of a row."""


class Kind(Protocol):
    """Checks for one kind of records."""

    suite: ClassVar[str]
    """The shipped suite."""
    columns: ClassVar[Mapping[str, str]]
    """Columns that a suite may use -> field of a row."""

    def values(self, cfg: ValidationConfig) -> Mapping[str, Any]:
        """Additional placeholders of its suites."""

    def rows(self, artifact: Path) -> Sequence[Any]:
        """All lines of the file; DataError if it is missing or cannot be read."""

    def profile(self, rows: Sequence[Any], labels: Sequence[str]) -> Profile | ImageProfile:
        """A summary for the page."""


class TextFile:
    """A file of texts."""

    suite: ClassVar[str] = "text"
    columns: ClassVar[Mapping[str, str]] = TEXT_COLUMNS

    def values(self, cfg: ValidationConfig) -> Mapping[str, Any]:
        """No additional placeholders."""
        return {}

    def rows(self, artifact: Path) -> Sequence[Row]:
        """All lines of the file."""
        return read_rows(artifact)

    def profile(self, rows: Sequence[Row], labels: Sequence[str]) -> Profile:
        """Lengths, label counts and samples."""
        return profile(rows, labels)


@dataclass(frozen=True)
class ImageFile:
    """A file that lists images, which are beside it.

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
"""Name of a modality -> its checks, made from the form of its records."""

SUITES = (TextFile.suite, ImageFile.suite)
"""The shipped suites, one per kind."""

TEXT = TextFile()


def kind_of(modality: str, form: Any) -> Kind:
    """The checks of a modality's records.

    Args:
        modality: Its name.
        form: The form its records must have.
    """
    return KINDS[modality](form)
