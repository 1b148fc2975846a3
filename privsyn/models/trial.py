"""Models tried on public inputs, before anything is spent on what they cannot do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.errors import ModelError
from privsyn.models.protocols import Embedder, LogitModel, PromptTemplate

SENTENCE = "The quick brown fox jumps over the lazy dog."


def try_logits(
    model: LogitModel, prompt: tuple[PromptTemplate, int, int], labels: Sequence[str]
) -> None:
    """Try one public row and one row around a public reference, for two tokens each.

    Args:
        model: The model.
        prompt: Template, reference tokens and output tokens, as a method reads it.
        labels: All labels; the first one is tried.

    Raises:
        ModelError: The prompt does not fit, or the logits are no numbers.
    """
    template, reference_tokens, max_tokens = prompt
    label = labels[0] if labels else None
    for rows in (
        model.public_rows(template, [label], max_tokens),
        model.private_rows(
            template, [label], [SENTENCE], reference_tokens, max_tokens, declared=labels or [None]
        ),
    ):
        token = _likeliest(rows.logits())
        if max_tokens > 1:
            rows.append([token])
            if token not in model.ends:
                _likeliest(rows.logits())


def _likeliest(logits: NDArray[np.float32]) -> int:
    """The likeliest token; some logits may be minus infinity, as a mask writes it."""
    refuse_no_numbers(logits)
    return int(np.argmax(logits[0]))


def refuse_no_numbers(logits: Any) -> None:
    """Refuse logits, shape (rows, vocabulary), from which no token can be drawn.

    Raises:
        ModelError: One is NaN or infinite, or all of a row are minus infinity.
    """
    array = np.asarray(logits, np.float64)
    usable = np.isfinite(array)
    if not (usable | np.isneginf(array)).all() or not usable.any(axis=-1).all():
        raise ModelError(
            "the language model's logits are no numbers (NaN or infinite): its weights are "
            "damaged, or too large for models.dtype.",
            hint="Copy or download it again, or set models.dtype=float32.",
        )


def try_embedder(embedder: Embedder[Any], sample: Any) -> None:
    """Try the embedder on one public sample.

    Raises:
        ModelError: Its result is not one vector of finite numbers, or is all zeros.
    """
    vectors = np.asarray(embedder.embed([sample]))
    if vectors.shape != (1, embedder.width) or not np.isfinite(vectors).all() or not vectors.any():
        raise ModelError(
            "the embedder's vectors are no numbers: its weights are damaged.",
            hint="Copy or download it again.",
        )
