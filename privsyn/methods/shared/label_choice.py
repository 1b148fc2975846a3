"""Of several texts for a label, the one that its own writer holds to be most of that label.

A model of few parameters often writes past the label in its prompt. It is a better judge: of the
same model's candidates, the one with the highest posterior of its label is kept. Texts and model
are public or released already, so the choice is post-processing and costs nothing; the public
model alone is given the same choice, or its baseline would be too low (shared/alone.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.errors import ConfigError
from privsyn.models.language.degenerate_text import Ending
from privsyn.models.language.text_variation import filled
from privsyn.models.protocols import PromptTemplate

Likelihoods = Callable[[Sequence[str], Sequence[str]], NDArray[np.float64]]
"""Labels and texts, one each, to the log-likelihood in nats of each text under its label."""

MOST_LABELS = 8
"""Labels that are compared at most: a text's own, and others evenly spaced behind it."""

_IMPOSSIBLE = -1e9
"""Nats of a text that a label rules out: -inf under all labels, or no number, is no posterior."""
_STRAYED = -1e12
"""Added to the posterior of a text that strayed: it is kept only among such."""


def best_of(
    count: int,
    labels: Sequence[str | None],
    every: Sequence[str],
    write: Callable[[Sequence[str | None]], list[str]],
    likelihoods: Likelihoods,
    template: PromptTemplate,
) -> list[str]:
    """One text per label: of ``count`` the one most of it; one where labels tell nothing apart.

    Args:
        count: Candidates for each.
        labels: Label of each text.
        every: All labels.
        write: Labels to as many texts.
        likelihoods: Of the model that writes.
        template: Its public prompt is what they go on from.
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
    """For each label one of its candidates: the one with the highest posterior, labels as likely.

    The first of equals. One that strayed (Ending.strayed: its prompt again, an assistant's answer,
    a circle) only among such, and an empty one only where there is no other. Short ones may be
    what records are, so they are as good as others.

    Args:
        labels: What to choose for, n of them.
        candidates: k for each label in order, shape (n * k,).
        every: All labels; with one there is nothing to tell apart, and the first is kept.
        likelihoods: Of the model that wrote them.
        template: Its public prompt is what they go on from.
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
    nats = np.maximum(np.nan_to_num(nats, nan=-np.inf), _IMPOSSIBLE)
    posterior = nats[:, 0] - np.logaddexp.reduce(nats, axis=1)  # (n * k,)
    prompts = {
        label: filled(template.public, {"label": dict(template.labels).get(label, label)})
        for label in rivals
    }
    ending = Ending()
    strayed = [ending.strayed(t, prompts[of]) for of, t in zip(row_labels, candidates, strict=True)]
    posterior[strayed] += _STRAYED
    posterior[[not text.strip() for text in candidates]] = -np.inf
    best = posterior.reshape(len(labels), count).argmax(axis=1)
    return [candidates[place * count + choice] for place, choice in enumerate(best.tolist())]


def _rivals(label: str, every: Sequence[str]) -> list[str]:
    """The label, then those it is told from: as many for every label."""
    at, number = every.index(label), min(len(every), MOST_LABELS)
    return [every[(at + step * len(every) // number) % len(every)] for step in range(number)]


def sizes(
    where: str,
    labels: Sequence[str | None],
    each: int,
    split: Mapping[str, int] | None,
    *,
    paid: bool,
) -> list[int]:
    """Records of every label: ``each``, or those of a public split.

    Args:
        where: Section of the config, for messages.
        labels: The dataset's labels; [None] where there are none.
        each: Records of a label where there is no split.
        split: Records by label.
        paid: Whether a noisy histogram will split their sum.

    Raises:
        ConfigError: ``split`` names other labels than the dataset's, or there are none.
    """
    if (split is not None or paid) and list(labels) == [None]:
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


def refuse_for_texts(where: str, split: Mapping[str, int] | None) -> None:
    """Refuse a wanted number of records beside a public split, which says how many there are.

    Raises:
        ConfigError: There is a split.
    """
    if split is not None:
        raise ConfigError(
            f"{where}.label_split says how many records each label has: {sum(split.values())} in "
            "all, which excludes another number of texts.",
            hint=f"Change label_split, or take it out: -S {where}.label_split=null.",
        )


def apportion(total: int, noisy: Sequence[int] | NDArray) -> list[int]:  # type: ignore[type-arg]
    """``total`` split in proportion to noisy counts, at least 1 each, by largest remainder."""
    counts = [max(int(count), 0) for count in noisy]
    if not any(counts):
        counts = [1] * len(counts)
    rest, whole = total - len(counts), sum(counts)
    shares = [1 + rest * count // whole for count in counts]
    by_remainder = sorted(range(len(counts)), key=lambda i: -(rest * counts[i] % whole))
    for i in by_remainder[: total - sum(shares)]:
        shares[i] += 1
    return shares
