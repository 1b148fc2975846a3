"""The modalities there are, and the one place that says of which a dataset is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from privsyn.data.settings import ImageConfig
from privsyn.modalities.images import Images
from privsyn.modalities.text import TEXTS, Texts

Modality = Texts | Images
"""What a kind of record is: from a drawn record to what is measured of a release."""
MODALITIES: Mapping[str, type[Texts] | type[Images]] = {kind.name: kind for kind in (Texts, Images)}
"""By name."""


class Described(Protocol):
    """What says how the records of a dataset look: its settings, or its identity in a plan."""

    @property
    def images(self) -> ImageConfig | None:
        """Form of the images, where the records are images."""


def modality_of(dataset: Described) -> Modality:
    """What the records of a dataset are."""
    return TEXTS if dataset.images is None else Images(dataset.images)


def drawn_with(roles: Collection[str]) -> type[Texts] | type[Images]:
    """What a method draws that needs models of these roles."""
    drawn = (kind for kind in MODALITIES.values() if kind.generator in roles)
    # Methods of texts need a role that other methods use, too, so no role tells them.
    return next(drawn, Texts)
