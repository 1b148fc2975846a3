"""Texts of the public model alone: the baseline of every release, without private data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from privsyn.methods.base import OnProgress
from privsyn.methods.shared.label_choice import best_of
from privsyn.methods.shared.prompts import Prompt, cut_at_next_record, released_text
from privsyn.models.language.text_variation import TextSettings, TextVariation
from privsyn.models.protocols import LogitModel, TextModel
from privsyn.section import Section


class Recipe(Section):
    """How the public prompt is sampled: settings, all public.

    Attributes:
        prompt: Prompts, of which only the public one is used.
        max_tokens: Most tokens of a text.
        min_tokens: Fewest tokens of a text.
        temperature: Temperature of sampling.
        top_k: Sample among this many likeliest tokens. None: among all.
        top_p: Sample among the likeliest tokens that hold this much probability.
        candidates: Texts written per kept text, by the choice of label_choice.py.
        whole_sentences: Cut a text that ran out of tokens after its last whole sentence.
    """

    prompt: Prompt
    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int | None = 100
    top_p: float = 1.0
    candidates: int = 1
    whole_sentences: bool = True

    @classmethod
    def of(cls, settings: Any, temperature: float, top_k: int | None) -> Recipe:
        """The public prompt of a method's settings, with their lengths."""
        shared = ("prompt", "max_tokens", "min_tokens", "whole_sentences")
        values = {name: getattr(settings, name) for name in shared}
        return cls(**values, temperature=temperature, top_k=top_k)


@runtime_checkable
class Alone(Protocol):
    """A method with its own public prompt."""

    def alone(self, cfg: object, labels: Sequence[str]) -> Recipe | None:
        """How its public prompt is sampled; None if settings alone cannot say."""


@runtime_checkable
class WritesFresh(Protocol):
    """A method whose texts come from a text model."""

    def fresh(self, cfg: Any) -> TextSettings | None:
        """How texts are written without any influence of records; None if it writes none."""


def write_alone(
    recipe: Recipe,
    model: LogitModel,
    labels: Sequence[str | None],
    rng: np.random.Generator,
    every: Sequence[str] = (),
    together: int = 64,
    on_progress: OnProgress = None,
) -> list[str]:
    """One text per label, from the public prompt alone. No record is read and nothing is spent.

    Args:
        recipe: Prompt and sampling.
        model: The language model.
        labels: Label of each text.
        rng: Public randomness.
        every: All labels of the dataset, to compare candidates.
        together: Texts decoded together.
        on_progress: Called with texts written and texts to write, including candidates.
    """
    template, most = recipe.prompt.template, recipe.max_tokens
    return best_of(
        recipe.candidates,
        labels,
        every or sorted({label for label in labels if label is not None}),
        lambda names: _write(recipe, model, names, rng, together, on_progress),
        lambda names, texts: model.likelihoods(template, names, texts, most),
        template,
    )


def write_fresh(
    settings: TextSettings,
    model: TextModel,
    labels: Sequence[str | None],
    rng: np.random.Generator,
    on_progress: OnProgress = None,
) -> list[str]:
    """One text per label from the method's own text model, without any influence of records.

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
        if on_progress is not None:
            on_progress(written, len(labels))
        count = labels.count(label)
        # One request per label: the generator can then replace failed texts by others of the label.
        texts[label] = iter(variation.random(count, label))
        written += count
    return [next(texts[of]) for of in labels]


def _write(
    recipe: Recipe,
    model: LogitModel,
    labels: Sequence[str | None],
    rng: np.random.Generator,
    together: int,
    on_progress: OnProgress,
) -> list[str]:
    texts: list[str] = []
    for start in range(0, len(labels), together):
        if on_progress is not None:
            on_progress(start, len(labels))
        part = labels[start : start + together]
        # (texts of the part, tokens): public rows only, so they may share a prefix.
        session = model.public_rows(recipe.prompt.template, part, recipe.max_tokens)
        tokens: list[list[int]] = [[] for _ in part]
        over = np.zeros(len(part), np.bool_)
        for t in range(recipe.max_tokens):
            # (rows, vocabulary). NaN would win every comparison in a sort.
            logits = np.nan_to_num(session.logits().astype(np.float64), nan=-np.inf, neginf=-np.inf)
            if t < recipe.min_tokens:
                # The text is still too short to end.
                logits[:, model.breaks] = -np.inf
            # All rows advance together: a finished one goes on with end tokens, which are dropped.
            drawn = np.where(over, model.eos, _sample(logits, recipe, rng))
            for i, token in enumerate(drawn.tolist()):
                if not over[i]:
                    tokens[i].append(token)
                    cut = cut_at_next_record(model.decode(tokens[i]), recipe.prompt)[1]
                    over[i] = token in model.ends or cut
            if over.all() or t == recipe.max_tokens - 1:
                break
            session.append(drawn.tolist())
        texts += [released_text(text, model, recipe) for text in tokens]
    return texts


def _sample(
    logits: NDArray[np.float64], recipe: Recipe, rng: np.random.Generator
) -> NDArray[np.int64]:
    """One token per row among the likeliest that hold ``top_p``, shape (rows,).

    By rejection, without sorting: a token is drawn from all, and again if likelier tokens hold
    ``top_p`` without it. Tokens of equal probability are all accepted or all rejected.
    """
    scores = logits / recipe.temperature
    best, values = _highest(scores, min(recipe.top_k or scores.shape[1], scores.shape[1]))
    values[np.isneginf(values.max(axis=1))] = 0  # a row without finite logits: any token will do
    # The largest exponent is 0, so nothing overflows.
    shares = np.exp(values - values.max(axis=1, keepdims=True))  # (rows, tokens)
    sums = shares.cumsum(axis=1)
    drawn = np.zeros(len(shares), np.int64)
    rows = list(range(len(shares)))
    while rows:
        at = rng.random(len(rows)) * sums[rows, -1]
        for row, below in zip(rows, at, strict=True):
            # Rounding may put the draw at the very end of the sums: take the last token then.
            drawn[row] = min(np.searchsorted(sums[row], below, side="right"), sums.shape[1] - 1)
        rows = [row for row in rows if not _within(shares[row], drawn[row], recipe.top_p)]
    return np.asarray(np.take_along_axis(best, drawn[:, None], axis=1)[:, 0], np.int64)


def _within(shares: NDArray[np.float64], drawn: int, top_p: float) -> bool:
    """Whether the tokens that are likelier than the drawn one hold less than ``top_p``."""
    return top_p == 1 or bool(shares[shares > shares[drawn]].sum() < top_p * shares.sum())


def _highest(
    scores: NDArray[np.float64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Positions and values of each row's ``count`` highest scores, unsorted; (rows, count)."""
    if count == scores.shape[1]:
        return np.broadcast_to(np.arange(count), scores.shape), scores.copy()
    # A partition, not a sort: linear in a vocabulary of 50,000 tokens and more.
    places = np.argpartition(-scores, count - 1, axis=1)[:, :count].astype(np.int64)
    return places, np.take_along_axis(scores, places, axis=1)
