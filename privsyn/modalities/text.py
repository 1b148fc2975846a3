"""Records that are texts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from privsyn import layout
from privsyn.data.artifacts import ArtifactRef, write_jsonl_atomic
from privsyn.data.profile import Profile, Row, profile, read_rows
from privsyn.modalities.base import Embedder, Generator

if TYPE_CHECKING:
    from privsyn.evaluation.metrics import Metric
    from privsyn.methods.base import Backends, Role
    from privsyn.models.language.text_variation import TextSettings, TextVariation
    from privsyn.models.protocols import Embedder as EmbedderOf
    from privsyn.validation.settings import ValidationConfig

# All but tab and line breaks; a model draws one now and then, and the suite refuses them.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Texts:
    """Texts."""

    name: ClassVar[str] = "text"
    things: ClassVar[str] = "texts"
    chosen: ClassVar[str] = "dataset.images is not set"
    generator: ClassVar[Generator | None] = None
    embedder: ClassVar[Embedder] = "embedder"
    field: ClassVar[str] = "text"
    worded: ClassVar[bool] = True
    by_file: ClassVar[bool] = False
    suite: ClassVar[str] = "text"
    suite_columns: ClassVar[Mapping[str, str]] = {
        name: name.removeprefix("row_") for name in ("id", "text", "label", "row_well_formed")
    } | {"text_is_json": "text_is_json"}
    sampled_by: ClassVar[tuple[Role, ...]] = ("embedder", "text")

    @property
    def form(self) -> None:
        """A text is as long as it is."""
        return

    def entry(self, content: str | bytes) -> dict[str, str]:
        """The text, without control characters: a public rule on what was drawn, so free.

        Raises:
            TypeError: It is none.
        """
        if not isinstance(content, str):
            raise TypeError("a method drew bytes where the dataset holds texts")
        # Control characters would break terminals, CSV files and pages that show the text.
        return {self.field: _CONTROL.sub("", content)}

    def write(self, folder: Path, rows: Sequence[Mapping[str, Any]]) -> ArtifactRef:
        """One JSON Lines file."""
        return write_jsonl_atomic(folder / layout.ARTIFACT, rows)

    def read_released(self, folder: Path, row: Mapping[str, Any]) -> str:
        """The text of a row."""
        return str(row["text"])

    def look(self, folder: Path) -> dict[str, str]:
        """The first lines."""
        return {"read some": f"head -3 {folder / layout.ARTIFACT}"}

    def placeholders(self, cfg: ValidationConfig) -> Mapping[str, Any]:
        """None of its own."""
        return {}

    def rows(self, artifact: Path) -> Sequence[Row]:
        """All lines of the file."""
        return read_rows(artifact)

    def profile(self, rows: Sequence[Row], labels: Sequence[str]) -> Profile:
        """Lengths, label counts and samples."""
        return profile(rows, labels)

    def quality(self, artifact: Path, schema: Any = None) -> list[Metric]:
        """Diversity of the texts, and of what their fields hold."""
        from privsyn.evaluation.embeddings import fidelity
        from privsyn.evaluation.structured import structure

        # A row without a text counts as an empty one: it is the suite that refuses it.
        texts = [row.text or "" for row in read_rows(artifact)]
        return fidelity(texts) + ([] if schema is None else structure(texts, schema))

    def classifier(self, artifact: Path) -> Callable[[str], str]:
        """By words."""
        from privsyn.evaluation.classifiers import text_classifier

        rows = read_rows(artifact)
        return text_classifier(
            [(row.text or "", row.label) for row in rows if row.label is not None]
        )

    @staticmethod
    def samples(text: TextSettings, models: Backends) -> TextSamples:
        """Written and rephrased by a language model."""
        from privsyn.models.language.text_variation import TextVariation

        return TextSamples(TextVariation(text, models.text), models.embedder)


TEXTS = Texts()


@dataclass(frozen=True)
class TextSamples:
    """Samples that are strings."""

    api: TextVariation
    embedder: EmbedderOf[str]

    def with_steps(self, steps: int | None) -> TextSamples:
        """The same: a text has no steps."""
        return self

    def tokens(self, sample: str) -> Sequence[int]:
        """The distinct tokens of a text."""
        return self.api.tokens(sample)

    def with_log_ratios(self, log_ratios: Mapping[str | None, Mapping[int, float]]) -> TextSamples:
        """The same, whose generator adds these to the logits of tokens, by label."""
        return replace(self, api=self.api.with_log_ratios(log_ratios))

    def read(self, content: str) -> str:
        """The text."""
        return content

    def pack(self, samples: Sequence[str]) -> bytes:
        """A JSON list."""
        # ASCII with escapes: a lone surrogate, which a model may write, has no bytes in UTF-8.
        return json.dumps(list(samples)).encode("ascii")

    def unpack(self, data: bytes) -> list[str]:
        """The texts of a JSON list."""
        return [str(text) for text in json.loads(data)]

    def content(self, sample: str) -> str:
        """The text."""
        return sample

    def from_released(self, content: str | bytes) -> str:
        """The text."""
        return str(content)

    def sheet(self, population: Sequence[Sequence[str]]) -> None:
        """Nothing to see."""
        return
