"""Public vocabularies, and which of their terms occur in a document.

A vocabulary file has one term per line, in UTF-8, plain or .gz. A term may have several words. The
order of lines decides ties. The reader skips blank lines, terms without a letter or digit, and
terms that equal an earlier one. Terms and texts are compared as sequences of words: runs of letters
and digits, after NFKC normalization and case folding.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from privsyn.data.public_files import words
from privsyn.errors import ConfigError

if TYPE_CHECKING:
    from ahocorasick_rs import AhoCorasick
import hashlib
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from privsyn.methods.keyphrase_seeding.dp_kde import Scorer, Structure, structure_of
from privsyn.methods.keyphrase_seeding.settings import KeyphraseSeedingSettings


class Vocabulary:
    """Numbered terms, with a search that takes time linear in the text (Aho and Corasick 1975).

    The terms found in a text depend on that text and the vocabulary alone.

    Args:
        terms: Terms in order. Terms without a word and later duplicates are skipped.

    >>> found = Vocabulary(["heart", "heart failure", "fail"])
    >>> [found.terms[i] for i in found.find("Heart failure, failing HEART.")]
    ['heart failure', 'heart']
    """

    def __init__(self, terms: Iterable[str]) -> None:
        patterns: dict[str, str] = {}
        for term in terms:
            if pattern := _pad_words(term):
                patterns.setdefault(pattern, " ".join(term.split()))
        self.terms: Sequence[str] = tuple(patterns.values())
        self._patterns = tuple(patterns)

    def __len__(self) -> int:
        """Number of terms."""
        return len(self.terms)

    @classmethod
    def parse(cls, data: bytes, name: str) -> Vocabulary:
        """The vocabulary of a file's bytes.

        Raises:
            ConfigError: The bytes are not UTF-8, or hold no term.
        """
        try:
            # By the file's first bytes, not by its name: a file may come without the suffix .gz.
            text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
        except (UnicodeDecodeError, OSError, EOFError, zlib.error):
            raise _refusal(name, "is not UTF-8 text, plain or .gz") from None
        vocabulary = cls(text.splitlines())
        if not vocabulary.terms:
            raise _refusal(name, "holds no term")
        return vocabulary

    def subset(self, numbers: Iterable[int]) -> Vocabulary:
        """A vocabulary of some of the terms, in the order given."""
        return Vocabulary(self.terms[number] for number in numbers)

    def find(self, text: str) -> list[int]:
        """Numbers of the terms in a text, in the text's order, repeats included.

        Only whole words match. Where terms overlap, the leftmost wins, and of those the longest.
        """
        matches = self._automaton.find_matches_as_indexes(_pad_words(text))
        return [number for number, _, _ in matches]

    def first(self, text: str, most: int) -> list[int]:
        """The first ``most`` distinct terms of a text, in the text's order."""
        return list(dict.fromkeys(self.find(text)))[:most]

    @cached_property
    def _automaton(self) -> AhoCorasick:
        from ahocorasick_rs import AhoCorasick, MatchKind

        return AhoCorasick(self._patterns, MatchKind.LeftmostLongest, store_patterns=False)


def _pad_words(text: str) -> str:
    """The text's words, each between two blanks, so that a match begins and ends with a word."""
    parts = words(text)
    return f" {'  '.join(parts)} " if parts else ""


def _refusal(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"methods.keyphrase_seeding.vocabulary={name} {why}.",
        hint="Name a file with one term a line, or builtin.",
    )


_ROWS = 256
"""Sequences that are scored together."""


class LabelSequences:
    """The sequences of one label while they grow.

    Attributes:
        phrases: Numbers of the phrases so far, shape (sequences, length).
        uniform: Same shape; True where no weight was positive and the draw was uniform.
    """

    def __init__(self, count: int) -> None:
        self.phrases = np.empty((count, 0), np.int64)
        self.uniform = np.empty((count, 0), np.bool_)


def draw_sequences(
    settings: KeyphraseSeedingSettings,
    shapes: Sequence[Structure],
    vectors: NDArray[np.float32],
    sums: Mapping[tuple[int, int], NDArray[np.int64]],
    labels: int,
    deviation: float,
) -> list[LabelSequences]:
    """The sequences of every label: steps 1 to 3 of the iterative scheme, or L independent draws.

    Args:
        settings: The rules of the draw.
        shapes: The structures that score.
        vectors: Vectors of the terms, shape (N, width).
        sums: Noisy sums, shape (I,), by (label, structure).
        labels: Number of labels.
        deviation: Standard deviation of the noise on a score.
    """
    rng = _public_rng(sums)
    drawn = [LabelSequences(settings.sequences_per_label) for _ in range(labels)]
    shape, angles = shapes[0], shapes[0].angles(vectors)
    scorer, nothing = Scorer(angles, 0), np.empty((1, 0), np.int64)
    by_label = np.concatenate(
        [scorer.scores(sums[number, shape.number], nothing) for number in range(labels)]
    )  # (labels, N): of each phrase by itself
    shares = _label_shares(by_label)
    # [K10] A label's likeliest phrase weighs 1, whatever the power.
    highest = shares.max(axis=1, keepdims=True)
    contrast = (shares / np.where(highest > 0, highest, 1)) ** np.float32(settings.label_contrast)
    # Phrases whose label has more of them than the noise explains; the others keep weight 0.
    informative = _told_apart(by_label, settings.label_evidence, deviation, shape)
    contrast[~informative] = 0  # [K12]
    for step in range(1, settings.sequence_length + 1):
        structure = shapes[structure_of(settings.ensemble, step)]
        if structure is not shape:
            shape, angles = structure, structure.angles(vectors)
        alone = settings.ensemble == "independent"
        scorer = Scorer(angles, 0 if alone else step - 1)
        for number, sequence in enumerate(drawn):
            noisy, prefixes = sums[number, shape.number], sequence.phrases
            parts = []
            for start in range(0, len(prefixes), _ROWS):
                part = prefixes[start : start + _ROWS]
                weights = _weights(settings, scorer.scores(noisy, part[:1, :0] if alone else part))
                weights = weights * contrast[number]
                weights = np.broadcast_to(weights, (len(part), weights.shape[1]))  # (part, N)
                parts.append(_pick(weights, part, rng))
            picked, uniform = (np.concatenate(column) for column in zip(*parts, strict=True))
            sequence.phrases = np.column_stack([prefixes, picked])
            sequence.uniform = np.column_stack([sequence.uniform, uniform])
    return drawn


def _label_shares(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each label's share of a single phrase's score over all labels, shape (labels, N).

    With one label every share is 1 [K10].
    """
    if len(scores) == 1:
        return np.ones_like(scores)
    scores = np.maximum(scores, 0)
    total = scores.sum(axis=0)  # (N,)
    shares: NDArray[np.float32] = (scores / np.where(total > 0, total, 1)).astype(np.float32)
    return shares


def _told_apart(
    scores: NDArray[np.float32], evidence: float, deviation: float, shape: Structure
) -> NDArray[np.bool_]:
    """Whether a label's score of a phrase is above the other labels' by more than errors explain.

    There are two errors: the noise, and the error of random features. A kernel of I features is off
    by 1 / sqrt I, so a score is off by that share of the label's whole mass. The mass is about the
    highest score of a single phrase without padding [K7]. With one label, or without evidence, the
    answer is yes for every phrase [K12].

    Args:
        scores: Scores of single phrases, shape (labels, N).
        evidence: Standard deviations of these errors that a difference must exceed.
        deviation: Standard deviation of the noise on a score.
        shape: The structure that scores.

    Returns:
        Shape (labels, N).
    """
    others = len(scores) - 1
    if not others or not evidence:
        return np.ones_like(scores, np.bool_)
    mass = scores.max(axis=1, keepdims=True) * math.exp(shape.block_norm * (shape.blocks - 1))
    variance = deviation**2 + mass**2 / shape.features  # (labels, 1)
    # Variance of (score - mean of the others), where the labels' errors are independent.
    of_difference = variance + (variance.sum() - variance) / others**2
    mean = (scores.sum(axis=0) - scores) / others
    return np.asarray(scores - mean > evidence * np.sqrt(of_difference))


def _weights(
    settings: KeyphraseSeedingSettings, scores: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The weights of the draw: a power of the scores, zero where they are negative.

    The shape is that of the scores, (sequences, N).
    """
    highest = scores.max(axis=1, keepdims=True)  # (sequences, 1)
    highest[highest <= 0] = 1
    # Divided first: a high power of a large or small score leaves the range of float32.
    weights: NDArray[np.float32] = scores / highest
    np.maximum(weights, 0, out=weights)
    if settings.score_power != 1:
        weights **= np.float32(settings.score_power)
    return weights


def _pick(
    weights: NDArray[np.float32], prefixes: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw a phrase per row in proportion to the weights, or uniformly where all are zero.

    A phrase that the sequence already has is not drawn while there are others [K8].

    Returns:
        The phrases, and whether each was drawn uniformly; both of shape (rows,).
    """
    excluded = prefixes if prefixes.shape[1] < weights.shape[1] else prefixes[:, :0]
    weights = weights.copy()
    np.put_along_axis(weights, excluded, 0, axis=1)
    # After the exclusion: a row may have lost its only positive weight.
    uniform = np.asarray(~weights.any(axis=1))
    weights[uniform] = 1
    np.put_along_axis(weights, excluded, 0, axis=1)
    # One draw per row by the inverse of its distribution function.
    totals = weights.cumsum(axis=1, dtype=np.float64)  # (rows, N)
    at = rng.random(len(weights)) * totals[:, -1]
    return np.argmax(totals > at[:, None], axis=1), uniform


def _public_rng(sums: Mapping[tuple[int, int], NDArray[np.int64]]) -> np.random.Generator:
    """Public randomness, seeded by the noisy sums, so that a resumed run draws the same [K9]."""
    digest = hashlib.blake2b(digest_size=16)
    for key in sorted(sums):
        digest.update(sums[key].tobytes())
    return np.random.default_rng(int.from_bytes(digest.digest(), "big"))
