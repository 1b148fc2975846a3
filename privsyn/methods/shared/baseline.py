"""Texts of the public model alone: the baseline of every release, without private data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from privsyn.methods.base import OnProgress, silent
from privsyn.models.language.text_variation import TextSettings, TextVariation
from privsyn.models.protocols import TextModel


@runtime_checkable
class WritesFresh(Protocol):
    """A method whose texts come from a text model."""

    def fresh(self, cfg: Any) -> TextSettings | None:
        """How texts are written without any influence of records; None if it writes none."""


def write_fresh(
    settings: TextSettings,
    model: TextModel,
    labels: Sequence[str | None],
    rng: np.random.Generator,
    on_progress: OnProgress = silent,
) -> list[str]:
    """One text per label from a text model, without any influence of records.

    Args:
        settings: Prompt and sampling, ``resolved``.
        model: The text model.
        labels: Label of each text.
        rng: Public randomness of the prompts.
        on_progress: Called before each label with texts written and texts to write.

    Raises:
        ModelError: The model wrote no text.
    """
    variation = TextVariation(settings, model, rng)
    texts: dict[str | None, Iterator[str]] = {}
    written = 0
    for label in dict.fromkeys(labels):
        on_progress(written, len(labels))
        count = labels.count(label)
        # One request per label: the generator can then replace failed texts by others of the label.
        texts[label] = iter(variation.random(count, label))
        written += count
    return [next(texts[of]) for of in labels]
