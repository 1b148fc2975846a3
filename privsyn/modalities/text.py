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
from privsyn.data.profile import read_rows
from privsyn.modalities.base import Embedder, Generator

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from privsyn.evaluation.metrics import Metric
    from privsyn.methods.base import Backends, Role
    from privsyn.models.language.text_variation import TextSettings, TextVariation
    from privsyn.models.protocols import Embedder as EmbedderOf
    from privsyn.models.protocols import Token
    from privsyn.validation.settings import ValidationConfig

# All but tab and line breaks; a model draws one now and then, and the suite refuses them.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Texts:
    """Texts.

    Its source files are read by data/readers, the content of a row by data/contents.py. What needs
    the models of a deployment to measure is in ``stages/measure.py``.
    """

    name: ClassVar[str] = "text"
    """What settings and tables call it."""
    things: ClassVar[str] = "texts"
    """What people call its records."""
    chosen: ClassVar[str] = "dataset.images is not set"
    """By which setting a dataset is of it, for messages."""
    generator: ClassVar[Generator | None] = None
    """Role of the model that draws it and nothing else; None where no role tells."""
    embedder: ClassVar[Embedder | None] = "embedder"
    """Role of the model that maps it to vectors; None: it is no vector."""
    field: ClassVar[str] = "text"
    """Where a drawn row holds its content."""
    worded: ClassVar[bool] = True
    """Whether its records are words, which have a length and a language."""
    by_file: ClassVar[bool] = False
    """Whether each file may be a unit, where no column names one."""
    form: ClassVar[Any] = None
    """Settings of the one form its records are brought to."""
    suite: ClassVar[str] = "text"
    """The shipped suite that checks its files."""
    suite_columns: ClassVar[Mapping[str, str]] = {
        name: name.removeprefix("row_") for name in ("id", "text", "label", "row_well_formed")
    } | {"text_is_json": "text_is_json"}
    """Columns that a suite may use -> field of a row."""
    sampled_by: ClassVar[tuple[Role, ...]] = ("embedder", "text")
    """Roles of the models that make and compare its samples."""

    def entry(self, content: str | bytes) -> dict[str, str]:
        """A JSON row's text, without control characters: a public rule on what was drawn, so free.

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
        """A command that shows some of a release, by what it is for."""
        return {"read some": f"head -3 {folder / layout.ARTIFACT}"}

    def placeholders(self, cfg: ValidationConfig) -> Mapping[str, Any]:
        """Placeholders of its suites besides those of every suite: none."""
        return {}

    def rows(self, artifact: Path) -> Sequence[Any]:
        """All lines of a released file; DataError if it is missing or cannot be read."""
        return read_rows(artifact)

    def quality(self, artifact: Path) -> list[Metric]:
        """Numbers about a released file alone: diversity."""
        from privsyn.evaluation.embeddings import fidelity

        # A row without a text counts as an empty one: it is the suite that refuses it.
        return fidelity([row.text or "" for row in read_rows(artifact)])

    def classifier(self, artifact: Path) -> Callable[[str], str]:
        """The label of a text, by a classifier of words trained on a released file."""
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

    def tokens(self, sample: str) -> Sequence[Token]:
        """The distinct tokens of a text."""
        return self.api.tokens(sample)

    def with_log_ratios(
        self, log_ratios: Mapping[str | None, Mapping[Token, float]]
    ) -> TextSamples:
        """The same, whose generator adds these to the logits of tokens, by label."""
        return replace(self, api=self.api.with_log_ratios(log_ratios))

    def with_rows(self, words: Sequence[str]) -> TextSamples:
        """The same, whose generator writes its n-th text for the row of the n-th words."""
        return replace(self, api=self.api.with_rows(words))

    def readings(self, samples: Sequence[str], label: str | None) -> NDArray[np.float64] | None:
        """As ``TextVariation.readings``."""
        return self.api.readings(samples, label)

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
