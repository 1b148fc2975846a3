"""Records that are images: PNG files of one form."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privsyn import layout
from privsyn.data.artifacts import ArtifactRef, atomic_file, from_npy, to_npy, write_jsonl_atomic
from privsyn.data.images import Pixels, annotate, contact_sheet, decode, decode_png, encode, note_of
from privsyn.data.profile import load_images, read_image_rows
from privsyn.data.settings import ImageConfig
from privsyn.errors import ModelError
from privsyn.modalities.base import Embedder, Generator
from privsyn.models.protocols import ManyShapes, OwnClasses, TakesSteps

if TYPE_CHECKING:
    from privsyn.evaluation.metrics import Metric
    from privsyn.methods.base import Backends, Role
    from privsyn.models.language.text_variation import TextSettings
    from privsyn.models.protocols import Embedder as EmbedderOf
    from privsyn.models.protocols import Token, VariationAPI
    from privsyn.validation.settings import ValidationConfig

SHEET_COLUMNS = 10
SYNTHETIC = "Synthetic image: drawn by a model, no picture of a person or thing."
"""What the files of a release say of themselves."""
CLASS = "Class"
"""Keyword of the class that the generator drew an image of, in its file."""


@dataclass(frozen=True)
class Images:
    """Images; a record's content is its PNG file in base64.

    Attributes:
        form: Size and mode all of them are brought to, and their column.
    """

    form: ImageConfig

    name: ClassVar[str] = "image"
    things: ClassVar[str] = "images"
    chosen: ClassVar[str] = "dataset.images is set"
    generator: ClassVar[Generator | None] = "image"
    embedder: ClassVar[Embedder | None] = "image_embedder"
    field: ClassVar[str] = "image"
    worded: ClassVar[bool] = False
    by_file: ClassVar[bool] = True
    suite: ClassVar[str] = "images"
    suite_columns: ClassVar[Mapping[str, str]] = {
        name: name.removeprefix("row_")
        for name in (
            "row_well_formed", "id", "label", "file", "readable", "width", "height", "mode",
            "mean", "spread", "pixels_sha256",
        )
    }  # fmt: skip
    sampled_by: ClassVar[tuple[Role, ...]] = ("image_embedder", "image")

    def entry(self, content: str | bytes) -> dict[str, str]:
        """A PNG file in base64.

        Raises:
            TypeError: It is none.
        """
        if not isinstance(content, bytes):
            raise TypeError("a method drew a text where the dataset holds images")
        return {self.field: base64.b64encode(content).decode("ascii")}

    def write(self, folder: Path, rows: Sequence[Mapping[str, Any]]) -> ArtifactRef:
        """The images as files, and a JSON Lines file whose rows name them and their digests.

        Every file says in text chunks that it is synthetic, and of which release.
        """
        named = []
        for row in rows:
            release, _, number = row["id"].rpartition("-")
            # A picture that leaves its folder still says that it is synthetic, and of which
            # release.
            metadata = {"Description": f"{SYNTHETIC} Release {release}.", "Software": "privsyn"}
            content = annotate(base64.b64decode(row[self.field]), metadata)
            file = f"{layout.IMAGES}/{number}.png"
            with atomic_file(folder / file, mode=0o644) as stream:
                stream.write(content)
            place = {"file": file, "sha256": hashlib.sha256(content).hexdigest()}
            named.append({key: row[key] for key in ("id", "label") if key in row} | place)
        artifact = write_jsonl_atomic(folder / layout.ARTIFACT, named)
        # The same suffix as of texts: the media type tells a reader that rows name files.
        return replace(artifact, media_type=layout.IMAGE_ROWS)

    def read_released(self, folder: Path, row: Mapping[str, Any]) -> bytes:
        """The PNG file that a row names."""
        return (folder / str(row["file"])).read_bytes()

    def look(self, folder: Path) -> dict[str, str]:
        """The folder of the images."""
        return {"see some": f"xdg-open {folder / layout.IMAGES}"}

    def placeholders(self, cfg: ValidationConfig) -> Mapping[str, Any]:
        """Form of an image."""
        return {
            "size": self.form.size,
            "modes": [self.form.mode],
        }

    def rows(self, artifact: Path) -> Sequence[Any]:
        """Lines and the images they name."""
        return read_image_rows(artifact)

    def quality(self, artifact: Path) -> list[Metric]:
        """Diversity of the pixels."""
        from privsyn.evaluation.images import image_fidelity

        return image_fidelity(read_image_rows(artifact))

    def classifier(self, artifact: Path) -> Callable[[str], str]:
        """By pixels."""
        from privsyn.evaluation.images import image_classifier

        # A generator: one image of the release is in memory at a time.
        pairs = load_images(artifact.parent, read_image_rows(artifact))
        classify = image_classifier([(pixels, of) for pixels, of in pairs if of is not None])
        return lambda content: classify(decode(content))

    @staticmethod
    def samples(text: TextSettings, models: Backends) -> ImageSamples:
        """Drawn by a generator of images."""
        return ImageSamples(models.image, models.image_embedder)


@dataclass(frozen=True, eq=False)
class ClassedImage:
    """A sample: an image, and the class of the generator that it was drawn of.

    Attributes:
        pixels: The image.
        of: The class or the prompt, which variations keep. Public: the generator drew it at random,
            and noisy votes chose the image [E10]. None where the label says it, or nothing does.
    """

    pixels: Pixels
    of: str | None = None

    def __eq__(self, other: object) -> bool:
        """Whether another has the same class and the same pixels."""
        return (
            isinstance(other, ClassedImage)
            and self.of == other.of
            and np.array_equal(self.pixels, other.pixels)
        )


@dataclass(frozen=True)
class ClassedGenerator:
    """A generator of images as one of samples, each of which keeps its class [E10]."""

    generator: VariationAPI[Pixels]

    @property
    def revision(self) -> str:
        """Of the generator."""
        return self.generator.revision

    def random(self, count: int, label: str | None) -> list[ClassedImage]:
        """New images of a label, each of a random class where the label does not say it."""
        api = self.generator
        classes = api.classes(count, label) if isinstance(api, OwnClasses) else None
        if classes is None or not isinstance(api, OwnClasses):
            return [ClassedImage(pixels) for pixels in api.random(count, label)]
        made = api.random_of(classes, label)
        return [ClassedImage(*pair) for pair in zip(made, classes, strict=True)]

    def vary(
        self, samples: Sequence[ClassedImage], label: str | None, degree: float
    ) -> list[ClassedImage]:
        """One variation of each image, of the image's class."""
        api, pixels = self.generator, [sample.pixels for sample in samples]
        classes = [sample.of for sample in samples if sample.of is not None]
        if len(classes) < len(samples) or not isinstance(api, OwnClasses):
            return [ClassedImage(varied) for varied in api.vary(pixels, label, degree)]
        made = api.vary_of(pixels, classes, label, degree)
        return [ClassedImage(*pair) for pair in zip(made, classes, strict=True)]


@dataclass(frozen=True)
class ClassedEncoder:
    """An encoder of images as one of samples; it does not see their classes."""

    encoder: EmbedderOf[Pixels]

    @property
    def revision(self) -> str:
        """Of the encoder."""
        return self.encoder.revision

    @property
    def width(self) -> int:
        """Of the encoder."""
        return self.encoder.width

    def probe(self) -> None:
        """Of the encoder, if it has several shapes (``ManyShapes``)."""
        if isinstance(self.encoder, ManyShapes):
            self.encoder.probe()

    def embed(self, samples: Sequence[ClassedImage], /) -> NDArray[np.float32]:
        """Vectors of the images, in order, shape (samples, width)."""
        return self.encoder.embed([sample.pixels for sample in samples])


@dataclass(frozen=True)
class ImageSamples:
    """Samples that are uint8 arrays of one shape. A record that is damaged has no vote [E6]."""

    generator: VariationAPI[Pixels]
    encoder: EmbedderOf[Pixels]

    @property
    def api(self) -> ClassedGenerator:
        """The generator."""
        return ClassedGenerator(self.generator)

    @property
    def embedder(self) -> ClassedEncoder:
        """The encoder."""
        return ClassedEncoder(self.encoder)

    def with_steps(self, steps: int | None) -> ImageSamples:
        """The same, whose variations take a share of so many steps; None: of the model's."""
        if steps is None:
            return self
        if not isinstance(self.generator, TakesSteps):
            raise ModelError(
                "methods.private_evolution.image_steps is set, and models.image has no steps.",
                hint="Set it to null.",
            )
        return replace(self, generator=self.generator.with_steps(steps))

    def tokens(self, sample: ClassedImage) -> Sequence[Token]:
        """None: an image has no tokens."""
        return ()

    def with_log_ratios(
        self, log_ratios: Mapping[str | None, Mapping[Token, float]]
    ) -> ImageSamples:
        """The same: an image has no tokens."""
        return self

    def with_rows(self, words: Sequence[str]) -> ImageSamples:
        """The same: no columns stand beside an image."""
        return self

    def readings(self, samples: Sequence[ClassedImage], label: str | None) -> None:
        """None: a generator of images tells no likelihoods."""
        return

    def read(self, content: str) -> ClassedImage | None:
        """The pixels of a PNG file in base64; None where it is damaged."""
        try:
            return ClassedImage(decode(content))
        except ValueError:
            # privacy: a damaged record must not stop a draw, or whether it stops would tell of one
            # record.
            return None

    def pack(self, samples: Sequence[ClassedImage]) -> bytes:
        """An .npy file of pixels and classes; ModelError where shapes differ."""
        pixels, classes = [sample.pixels for sample in samples], [sample.of for sample in samples]
        # Samples are stacked into one array, which needs one shape.
        if len({(one.shape, one.dtype.str) for one in pixels}) > 1:
            raise ModelError("models.image: the generator gave images of more than one shape.")
        names = np.array([name or "" for name in classes])
        kind = [("pixels", np.uint8, pixels[0].shape), ("of", names.dtype)]
        packed = np.empty(len(samples), kind)
        packed["pixels"], packed["of"] = np.stack(pixels), names
        return to_npy(packed)

    def unpack(self, data: bytes) -> list[ClassedImage]:
        """The samples of such a file."""
        packed = from_npy(data)
        pairs = zip(packed["pixels"], packed["of"].tolist(), strict=True)
        return [ClassedImage(pixels, name or None) for pixels, name in pairs]

    def content(self, sample: ClassedImage) -> bytes:
        """A PNG file, with the class in a text chunk."""
        return annotate(encode(sample.pixels), {} if sample.of is None else {CLASS: sample.of})

    def from_released(self, content: str | bytes) -> ClassedImage:
        """The pixels and the class of a PNG file."""
        png = bytes(content) if isinstance(content, bytes) else content.encode()
        return ClassedImage(decode_png(png), note_of(png, CLASS))

    def sheet(self, population: Sequence[Sequence[ClassedImage]]) -> bytes:
        """One row of images per label; ten rows where there are no labels."""
        # A contact sheet has whole rows, so the label with the fewest images sets their length.
        columns = min(SHEET_COLUMNS, *map(len, population))
        rows = 1 if len(population) > 1 else SHEET_COLUMNS
        shown = [image.pixels for group in population for image in group[: rows * columns]]
        return contact_sheet(shown, columns)
