"""A noisy table of words by label, which the prompts of texts name [E11].

Votes choose among candidates; they cannot choose what nobody wrote. The table tells the generator
which words the records of a label use, so that candidates with these words exist.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.data.public_files import words as words_of
from privsyn.methods.keyphrase_seeding.settings import SHIPPED
from privsyn.methods.keyphrase_seeding.vocabulary import BUILTIN, Vocabulary
from privsyn.models.language.text_variation import TextSettings, WordShares

MOST_WORDS = 25_000
"""Most words of the table. Each costs a draw of noise a label, and a chance to be noise alone."""
MOST_ENTRIES = 125_000
"""Most entries of the table: with many labels it has fewer words, and at least ``LEAST_WORDS``."""
LEAST_WORDS = 1_000
FALSE_DISCOVERIES = 0.2
"""Share of a label's words that may be noise alone. Prompts name two words at a time and votes
follow, so a wrong one costs a candidate."""
_HALF_RANK = 500
"""Frequent words get more of the false discoveries: the word of rank r in proportion to
1 / (r + 500)."""


def public_words(text: TextSettings, labels: Sequence[str | None]) -> bytes:
    """The words of the table as JSON, likeliest first: of labels and examples, then frequent ones.

    All are public: none comes from a record.
    """
    spoken = [text.labels.get(label, label) for label in labels if label and text.name_labels]
    given = [*spoken, *(example.text for example in text.examples), *text.words]
    frequent = Vocabulary.parse(BUILTIN.read_bytes(), SHIPPED).terms
    listed = [*(word for entry in given for word in words_of(entry)), *frequent]
    size = max(LEAST_WORDS, min(MOST_WORDS, MOST_ENTRIES // max(1, len(labels))))
    # A text cannot build on one letter, or on a number.
    single = (word for word in listed if len(word) > 1 and word.isalpha() and words_of(word))
    return json.dumps(list(dict.fromkeys(map(str.casefold, single)))[:size]).encode()


def exact_sums(
    texts: Sequence[Sequence[str]],
    units: Sequence[Sequence[str]],
    words: Sequence[str],
    most: int,
    one: int,
) -> NDArray[np.int64]:
    """Sum of the rows of all records, shape (labels * words,), by label. Not yet private.

    A record's row has ``one / sqrt(n)`` in the place of each of its n distinct words, rounded down:
    an L2 norm of at most ``one``, whatever the record holds, and no negative number. The sum of a
    unit's rows is clipped to ``one`` times the root of ``most`` [E15].

    Args:
        texts: The texts of each label.
        units: The unit of each text.
        words: The words of the table.
        most: Most records of a unit.
        one: Lattice steps of the unit norm.
    """
    places = {word: place for place, word in enumerate(words)}
    rows: dict[str, Counter[int]] = {}
    for label, (records, owners) in enumerate(zip(texts, units, strict=True)):
        for record, owner in zip(records, owners, strict=True):
            present = {places[word] for word in words_of(record) if word in places}
            if present:
                # privacy: n (floor(one / sqrt n))^2 <= one^2; isqrt is exact, unlike a float's root
                each = math.isqrt(one * one // len(present))
                row = rows.setdefault(owner, Counter())
                row.update({label * len(words) + place: each for place in present})
    sums = np.zeros(len(texts) * len(words), np.int64)
    for row in rows.values():
        squared, bound = sum(value * value for value in row.values()), most * one * one
        for place, value in row.items():
            # privacy: rounded down number by number, so the norm is within the bound [E15]
            fits = squared <= bound
            sums[place] += value if fits else math.isqrt(value * value * bound // squared)
    return sums


def shares_of(
    noisy: NDArray[np.int64],
    words: Sequence[str],
    labels: Sequence[str | None],
    deviation: float,
) -> Mapping[str | None, WordShares]:
    """Words of each label with their shares. Post-processing of the noisy table.

    A word belongs to a label if its sum lies above the mean of the other labels' sums by more than
    noise explains (Benjamini and Hochberg, with weights by frequency); its share is in proportion
    to the distance. A label without such words is left out: its prompts name none.

    Args:
        noisy: The noisy sums, shape (labels * words,).
        words: The words of the table.
        labels: The labels, in the table's order.
        deviation: Standard deviation of the noise, in lattice steps.

    Source: Genovese, Roeder, Wasserman 2006, "False discovery control with p-value weighting".
    """
    from scipy.special import ndtr

    table = noisy.reshape(len(labels), len(words)).astype(np.float64)  # (labels, words)
    prior = 1.0 / (np.arange(len(words)) + _HALF_RANK)
    prior *= len(words) / prior.sum()
    ranks = np.arange(1, len(words) + 1)
    excess_of = table
    if len(labels) > 1:  # over the mean of the other labels, whose noise adds to its own
        excess_of = table - (table.sum(axis=0) - table) / (len(labels) - 1)
        deviation *= math.sqrt(1 + 1 / (len(labels) - 1))
    by_label: dict[str | None, WordShares] = {}
    for label, sums in zip(labels, excess_of, strict=True):
        values = ndtr(-sums / deviation) / prior  # weighted p-values, (words,)
        order = np.argsort(values, kind="stable")
        passed = np.flatnonzero(values[order] <= FALSE_DISCOVERIES * ranks / len(words))
        chosen = order[: passed[-1] + 1] if len(passed) else order[:0]
        chosen = chosen[sums[chosen] > 0]
        if len(chosen):
            excess = sums[chosen]
            by_label[label] = ([words[place] for place in chosen], excess / excess.sum())
    return by_label
