"""The modalities there are, and the one place that says of which a dataset is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from privsyn.data.columns import Column
from privsyn.data.settings import ImageConfig
from privsyn.modalities.images import Images
from privsyn.modalities.table import Tables
from privsyn.modalities.text import TEXTS, Texts

Modality = Texts | Images
"""What a kind of record is: from a drawn record to what is measured of a release."""
Kind = type[Texts] | type[Images]
MODALITIES: Mapping[str, Kind] = {kind.name: kind for kind in (Texts, Images, Tables)}
"""By name."""


class Described(Protocol):
    """What says how the records of a dataset look: its settings, or its identity in a plan."""

    @property
    def images(self) -> ImageConfig | None:
        """Form of the images, where the records are images."""

    @property
    def text(self) -> str | None:
        """Column of the text; None where the records are images, or rows alone."""

    @property
    def columns(self) -> Mapping[str, Column]:
        """The declared columns."""


def modality_of(dataset: Described) -> Modality:
    """What the records of a dataset are."""
    if dataset.images is not None:
        return Images(dataset.images)
    return TEXTS if dataset.text is not None else Tables(dataset.columns)


def drawn_with(roles: Collection[str], *, columns_alone: bool = False) -> Kind:
    """What a method draws that needs models of these roles; see ``Method.columns_alone``."""
    if columns_alone:
        return Tables
    drawn = (kind for kind in MODALITIES.values() if kind.generator in roles)
    # Methods of texts need a role that other methods use, too, so no role tells them.
    return next(drawn, Texts)
