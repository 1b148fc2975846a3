"""Choose among several texts for a label, by the posterior of the label under their own model.

A small model often ignores the label in its prompt, but is a better judge: the candidate with the
highest posterior of its label is kept. Texts and model are public or already released, so the
choice is post-processing and costs nothing. The baseline "public model alone" makes the same
choice, or it would be too low (shared/baseline.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.errors import ConfigError
from privsyn.models.language.degenerate_text import Ending
from privsyn.models.language.text_variation import fill_slots
from privsyn.models.protocols import PromptTemplate
from privsyn.models.rows import split_row, with_row

Likelihoods = Callable[[Sequence[str], Sequence[str]], NDArray[np.float64]]
"""Maps labels and texts, one each, to the log-likelihood in nats of each text; shape (texts,)."""

MOST_LABELS = 8
"""Most labels that are compared: a text's own, and others evenly spaced after it."""

_IMPOSSIBLE = -1e9
"""Nats in place of -inf and NaN: with -inf under all labels there would be no posterior."""
_STRAYED = -1e12
"""Added to the posterior of a text that strayed: it is kept only if all candidates strayed."""


def best_of(
    count: int,
    labels: Sequence[str | None],
    every: Sequence[str],
    write: Callable[[Sequence[str | None]], list[str]],
    likelihoods: Likelihoods,
    template: PromptTemplate,
) -> list[str]:
    """One text per label: the best of ``count`` candidates; without several labels only one.

    Args:
        count: Candidates per text.
        labels: Label of each text.
        every: All labels.
        write: Writes one text per given label.
        likelihoods: Log-likelihoods under the model that writes.
        template: Its public prompt precedes the texts.
    """
    named = [label for label in labels if label is not None]
    if count == 1 or len(every) < 2 or len(named) < len(labels):
        return write(labels)
    candidates = write([label for label in named for _ in range(count)])
    return of_their_labels(named, candidates, every, likelihoods, template)


def of_their_labels(
    labels: Sequence[str],
    candidates: Sequence[str],
    every: Sequence[str],
    likelihoods: Likelihoods,
    template: PromptTemplate,
) -> list[str]:
    """For each label the candidate with the highest posterior, with equally likely labels.

    Ties go to the first. A candidate that strayed (Ending.strays: it repeats its prompt, answers
    as an assistant, or loops) is chosen only if all did, and an empty one only if all are empty.
    Short candidates are not penalized: records may be short.

    Args:
        labels: n labels.
        candidates: k per label in order, shape (n * k,).
        every: All labels. If there is only one, the first candidate is kept.
        likelihoods: Log-likelihoods under the model that wrote them.
        template: Its public prompt precedes the texts.
    """
    if len(candidates) == len(labels):
        return list(candidates)
    count = len(candidates) // len(labels)
    row_labels = np.repeat(np.array(labels, dtype=object), count)  # (n * k,)
    rivals = {label: _rivals(label, every) for label in set(labels)}
    queries = [
        (rival, text)
        for label, text in zip(row_labels, candidates, strict=True)
        for rival in rivals[label]
    ]
    nats = likelihoods(*zip(*queries, strict=True)).reshape(len(candidates), -1)  # own label first
    # Shape (n * k, compared labels).
    nats = np.maximum(np.nan_to_num(nats, nan=-np.inf), _IMPOSSIBLE)
    posterior = nats[:, 0] - np.logaddexp.reduce(nats, axis=1)  # (n * k,)
    spoken = dict(template.labels)
    prompts = {}
    for key in rivals:
        label, row = split_row(key)
        slots = {"label": spoken.get(str(label), str(label)), "columns": row}
        prompts[key] = fill_slots(template.public, slots)
    ending = Ending()
    strayed = [ending.strays(t, prompts[of]) for of, t in zip(row_labels, candidates, strict=True)]
    posterior[strayed] += _STRAYED
    # Below any strayed one.
    posterior[[not text.strip() for text in candidates]] = -np.inf
    # (labels, candidates): the candidates of one text stand in a row.
    best = posterior.reshape(len(labels), count).argmax(axis=1)
    return [candidates[place * count + choice] for place, choice in enumerate(best.tolist())]


def _rivals(key: str, every: Sequence[str]) -> list[str]:
    """The label, then those it is compared with, all with its row; equally many for every label."""
    # Spread over all labels: neighbors in the list are often the most similar ones.
    label, row = split_row(key)
    at, number = every.index(str(label)), min(len(every), MOST_LABELS)
    places = [(at + step * len(every) // number) % len(every) for step in range(number)]
    return [str(with_row(every[place], row)) for place in places]


def sizes(
    where: str, labels: Sequence[str | None], each: int, split: Mapping[str, int] | None
) -> list[int]:
    """Records per label: ``each``, or by a public split.

    Args:
        where: Section of the config, for messages.
        labels: The dataset's labels; [None] without labels.
        each: Records per label without a split.
        split: Label -> records.

    Raises:
        ConfigError: ``split`` has other labels than the dataset, or the dataset has none.
    """
    if split is not None and list(labels) == [None]:
        raise ConfigError(
            f"{where}: the dataset has no labels to split the release by.",
            hint="Leave the split by labels out, or set dataset.labels.",
        )
    if split is None:
        return [each] * len(labels)
    if odd := sorted(set(split) ^ {label for label in labels if label is not None}):
        raise ConfigError(
            f"{where}.label_split does not agree with dataset.labels: {', '.join(odd)}.",
            hint="Give every label of the dataset its number, and no other.",
        )
    return [split[str(label)] for label in labels]


def split_by(shares: Mapping[str, float], texts: int) -> dict[str, int]:
    """About ``texts`` records in public shares of the labels, at least 1 of each."""
    whole = sum(shares.values())
    return {label: max(1, round(texts * share / whole)) for label, share in shares.items()}
