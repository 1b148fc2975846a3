"""Sequences of phrases, drawn from noisy sums: post-processing, nothing private is read here.

Source: Nagesh et al. 2025, section 2, "iterative" and "independent" sampling. Tags [K7] ... :
guarantee.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.methods.keyphrase_seeding.dp_kde import Scorer, Structure, queried
from privsyn.methods.keyphrase_seeding.settings import KeyphraseSeedingSettings

_ROWS = 256
"""Sequences that are scored together."""


class LabelSequences:
    """Sequences of one label while they are drawn.

    Attributes:
        phrases: Numbers of the phrases so far, shape (sequences, length).
        uniform: Phrases of each sequence drawn uniformly, as no score was positive; (sequences,).
    """

    def __init__(self, count: int) -> None:
        self.phrases = np.empty((count, 0), np.int64)
        self.uniform = np.zeros(count, np.int64)


def draw_sequences(
    settings: KeyphraseSeedingSettings,
    shapes: Sequence[Structure],
    vectors: NDArray[np.float32],
    sums: Mapping[tuple[int, int], NDArray[np.int64]],
    labels: int,
    least: float,
) -> list[LabelSequences]:
    """Sequences of every label: steps 1 to 3 of the iterative scheme, or L independent draws."""
    rng = _public_rng(sums)
    drawn = [LabelSequences(settings.sequences_per_label) for _ in range(labels)]
    shape, angles = shapes[0], shapes[0].angles(vectors)
    shares = _label_shares(angles, [sums[number, shape.number] for number in range(labels)])
    # [K10] A label's likeliest phrase weighs 1, whatever the power.
    highest = shares.max(axis=1, keepdims=True)
    favour = (shares / np.where(highest > 0, highest, 1)) ** np.float32(settings.label_contrast)
    for step in range(1, settings.sequence_length + 1):
        structure = shapes[queried(settings.ensemble, step)]
        if structure is not shape:
            shape, angles = structure, structure.angles(vectors)
        alone = settings.ensemble == "independent"
        scorer = Scorer(angles, 0 if alone else step - 1)
        for number, sequence in enumerate(drawn):
            noisy, begun = sums[number, shape.number], sequence.phrases
            parts = []
            for start in range(0, len(begun), _ROWS):
                part = begun[start : start + _ROWS]
                weights = _weights(
                    settings, scorer.scores(noisy, part[:1, :0] if alone else part), least
                )
                weights = weights * favour[number]
                weights = np.broadcast_to(weights, (len(part), weights.shape[1]))  # (part, N)
                parts.append(_pick(weights, part, rng))
            picked, uniform = (np.concatenate(column) for column in zip(*parts, strict=True))
            sequence.phrases = np.column_stack([begun, picked])
            sequence.uniform += uniform
    return drawn


def _label_shares(
    angles: NDArray[np.uint16], sums: Sequence[NDArray[np.int64]]
) -> NDArray[np.float32]:
    """Each label's share of what a phrase by itself scores over all labels; shape (labels, N).

    1 where there is one label [K10].
    """
    scorer, nothing = Scorer(angles, 0), np.empty((1, 0), np.int64)
    scores = np.maximum(np.concatenate([scorer.scores(one, nothing) for one in sums]), 0)
    if len(scores) == 1:
        return np.ones_like(scores, np.float32)
    total = scores.sum(axis=0)  # (N,)
    shares: NDArray[np.float32] = (scores / np.where(total > 0, total, 1)).astype(np.float32)
    return shares


def _weights(
    settings: KeyphraseSeedingSettings, scores: NDArray[np.float32], least: float
) -> NDArray[np.float32]:
    """Weights that phrases are drawn by: a power of the scores, zero where they are low.

    Shape (sequences, N), as the scores.
    """
    highest = scores.max(axis=1, keepdims=True)  # (sequences, 1)
    highest[highest <= 0] = 1
    weights: NDArray[np.float32] = scores / highest
    np.maximum(weights, 0, out=weights)
    if least > 0:
        weights[scores < least] = 0
    if settings.score_power != 1:
        weights **= np.float32(settings.score_power)
    return weights


def _pick(
    weights: NDArray[np.float32], begun: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw a phrase for each row in proportion to the weights; uniformly where all are zero.

    A phrase that is in the sequence already is left out, while there are others [K8].

    Returns:
        The phrases, and whether each was drawn uniformly; both of shape (rows,).
    """
    excluded = begun if begun.shape[1] < weights.shape[1] else begun[:, :0]
    weights = weights.copy()
    np.put_along_axis(weights, excluded, 0, axis=1)
    uniform = np.asarray(~weights.any(axis=1))
    weights[uniform] = 1
    np.put_along_axis(weights, excluded, 0, axis=1)
    totals = weights.cumsum(axis=1, dtype=np.float64)  # (rows, N)
    at = rng.random(len(weights)) * totals[:, -1]
    return np.argmax(totals > at[:, None], axis=1), uniform


def _public_rng(sums: Mapping[tuple[int, int], NDArray[np.int64]]) -> np.random.Generator:
    """Public randomness fixed by what was released, so that a resumed run draws the same [K9]."""
    digest = hashlib.blake2b(digest_size=16)
    for key in sorted(sums):
        digest.update(sums[key].tobytes())
    return np.random.default_rng(int.from_bytes(digest.digest(), "big"))
