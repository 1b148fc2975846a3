"""Texts and images to a method that needs a generator and an embedder, and does not care which."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from privsyn.errors import ModelError
from privsyn.models.protocols import Embedder, VariationAPI

T = TypeVar("T")
Pixels = NDArray[np.uint8]

SHEET_COLUMNS = 10


class Modality(Protocol[T]):
    """What differs between texts and images: the two models, and how a sample is written."""

    @property
    def api(self) -> VariationAPI[T]:
        """The generator."""

    @property
    def embedder(self) -> Embedder[T]:
        """The map to vectors."""

    def read(self, content: str) -> T | None:
        """A private record; None where it cannot be read."""

    def pack(self, samples: Sequence[T]) -> bytes:
        """Samples as a file."""

    def unpack(self, data: bytes) -> list[T]:
        """The samples of such a file."""

    def content(self, sample: T) -> str | bytes:
        """A sample as it is released."""

    def released(self, content: str | bytes) -> T:
        """A sample from what was released."""

    def sheet(self, population: Sequence[Sequence[T]]) -> bytes | None:
        """A picture of some samples of every label; None where there is nothing to see."""


@dataclass(frozen=True)
class Texts:
    """Samples that are strings."""

    api: VariationAPI[str]
    embedder: Embedder[str]

    def read(self, content: str) -> str:
        """The text."""
        return content

    def pack(self, samples: Sequence[str]) -> bytes:
        """A JSON list."""
        return json.dumps(list(samples)).encode("ascii")

    def unpack(self, data: bytes) -> list[str]:
        """The texts of a JSON list."""
        return [str(text) for text in json.loads(data)]

    def content(self, sample: str) -> str:
        """The text."""
        return sample

    def released(self, content: str | bytes) -> str:
        """The text."""
        return str(content)

    def sheet(self, population: Sequence[Sequence[str]]) -> None:
        """Nothing to see."""
        return


@dataclass(frozen=True)
class Images:
    """Samples that are uint8 arrays of one shape."""

    api: VariationAPI[Pixels]
    embedder: Embedder[Pixels]

    def read(self, content: str) -> Pixels | None:
        """The pixels of a PNG file in base64; None where it is damaged [E6]."""
        from privsyn.data.images import decode

        try:
            return decode(content)
        except ValueError:
            return None

    def pack(self, samples: Sequence[Pixels]) -> bytes:
        """An .npy file; ModelError where shapes differ."""
        if len({(sample.shape, sample.dtype.str) for sample in samples}) > 1:
            raise ModelError("models.image: the generator gave images of more than one shape.")
        return to_npy(np.stack(samples))

    def unpack(self, data: bytes) -> list[Pixels]:
        """The images of an .npy file."""
        return list(from_npy(data))

    def content(self, sample: Pixels) -> bytes:
        """A PNG file."""
        from privsyn.data.images import encode

        return encode(sample)

    def released(self, content: str | bytes) -> Pixels:
        """The pixels of a PNG file."""
        from privsyn.data.images import decode_png

        return decode_png(bytes(content) if isinstance(content, bytes) else content.encode())

    def sheet(self, population: Sequence[Sequence[Pixels]]) -> bytes:
        """One row of images per label; ten rows where there are no labels."""
        from privsyn.data.images import contact_sheet

        columns = min(SHEET_COLUMNS, *map(len, population))
        rows = 1 if len(population) > 1 else SHEET_COLUMNS
        shown = [image for group in population for image in group[: rows * columns]]
        return contact_sheet(shown, columns)


def to_npy(array: NDArray[Any]) -> bytes:
    """An array as an .npy file, without pickle."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def from_npy(data: bytes) -> NDArray[Any]:
    """The array of such a file."""
    array: NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
    return array
