"""What the public model writes alone: the baseline of every release, free of private data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from privsyn.methods.base import OnProgress
from privsyn.methods.shared.label_choice import best_of
from privsyn.methods.shared.prompts import PromptConfig, as_released, ended
from privsyn.models.language.text_variation import TextSettings, TextVariation
from privsyn.models.protocols import LogitModel, TextModel
from privsyn.section import Section


class Recipe(Section):
    """How the public prompt is sampled: settings, all public.

    Attributes:
        prompt: Its public side is read.
        max_tokens: Tokens of a text at most.
        min_tokens: And at least.
        temperature: Of sampling.
        top_k: Likeliest tokens that are drawn from; None: all.
        top_p: Probability that they hold at least.
        candidates: Texts written for each that is kept: the one most of its label.
        whole_sentences: A text that ran out of tokens ends with its last whole sentence.
    """

    prompt: PromptConfig
    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int | None = 100
    top_p: float = 1.0
    candidates: int = 1
    whole_sentences: bool = True


@runtime_checkable
class Alone(Protocol):
    """A method with a public prompt of its own."""

    def alone(self, cfg: object, labels: Sequence[str]) -> Recipe | None:
        """How its public prompt is sampled; None where that cannot be told from settings."""


@runtime_checkable
class WritesFresh(Protocol):
    """A method whose texts a text model completes."""

    def fresh(self, cfg: Any) -> TextSettings | None:
        """How fresh texts are written where no record has a say; None where it writes none."""


@dataclass(frozen=True)
class _Rows:
    """Texts that are written together, one row each."""

    tokens: list[list[int]]
    over: NDArray[np.bool_]


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
        every: All labels of the data set, which candidates are told apart by.
        together: Texts decoded at a time.
        on_progress: Called before them with texts written and texts to write, candidates included.
    """
    template, most = recipe.prompt.template, recipe.max_tokens
    return best_of(
        recipe.candidates,
        labels,
        every or sorted({label for label in labels if label is not None}),
        lambda asked: _written(recipe, model, asked, rng, together, on_progress),
        lambda of, texts: model.likelihoods(template, of, texts, most),
        template,
    )


def write_fresh(
    settings: TextSettings,
    model: TextModel,
    labels: Sequence[str | None],
    rng: np.random.Generator,
    on_progress: OnProgress = None,
) -> list[str]:
    """One text per label, as the method's own text model writes where no record has a say.

    Args:
        settings: Prompt and sampling, ``resolved``.
        model: The text model.
        labels: Label of each text.
        rng: Public randomness of the prompts.
        on_progress: Called before the texts of each label with texts written and texts to write.

    Raises:
        ModelError: See TextVariation.random.
    """
    variation = TextVariation(settings, model, rng)
    texts: dict[str | None, Iterator[str]] = {}
    written = 0
    for label in dict.fromkeys(labels):
        if on_progress is not None:
            on_progress(written, len(labels))
        count = labels.count(label)
        texts[label] = iter(variation.random(count, label))
        written += count
    return [next(texts[of]) for of in labels]


def _written(
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
        session = model.public_rows(recipe.prompt.template, part, recipe.max_tokens)
        rows = _Rows([[] for _ in part], np.zeros(len(part), np.bool_))
        for t in range(recipe.max_tokens):
            logits = np.nan_to_num(session.logits().astype(np.float64), nan=-np.inf, neginf=-np.inf)
            if t < recipe.min_tokens:
                logits[:, model.breaks] = -np.inf
            drawn = np.where(rows.over, model.eos, _sampled(logits, recipe, rng))
            for i, token in enumerate(drawn.tolist()):
                if not rows.over[i]:
                    text = rows.tokens[i]
                    text.append(token)
                    cut = ended(model.decode(text), recipe.prompt)[1]
                    rows.over[i] = token in model.ends or cut
            if rows.over.all() or t == recipe.max_tokens - 1:
                break
            session.append(drawn.tolist())
        texts += [as_released(tokens, model, recipe) for tokens in rows.tokens]
    return texts


def _sampled(
    logits: NDArray[np.float64], recipe: Recipe, rng: np.random.Generator
) -> NDArray[np.int64]:
    """A token per row, of the likeliest that hold ``top_p``.

    By rejection, so nothing is sorted: a token is drawn from all, and again where likelier ones
    hold ``top_p`` without it. Of tokens as likely as each other all may be drawn.
    """
    scores = logits / recipe.temperature
    best, values = _highest(scores, min(recipe.top_k or scores.shape[1], scores.shape[1]))
    values[np.isneginf(values.max(axis=1))] = 0  # of a row without numbers any token will do
    shares = np.exp(values - values.max(axis=1, keepdims=True))  # (rows, tokens)
    sums = shares.cumsum(axis=1)
    drawn = np.zeros(len(shares), np.int64)
    rows = list(range(len(shares)))
    while rows:
        at = rng.random(len(rows)) * sums[rows, -1]
        for row, below in zip(rows, at, strict=True):
            drawn[row] = min(np.searchsorted(sums[row], below, side="right"), sums.shape[1] - 1)
        rows = [row for row in rows if not _within(shares[row], drawn[row], recipe.top_p)]
    return np.asarray(np.take_along_axis(best, drawn[:, None], axis=1)[:, 0], np.int64)


def _within(shares: NDArray[np.float64], drawn: int, top_p: float) -> bool:
    """Whether likelier tokens than the one drawn hold less than ``top_p``."""
    return top_p == 1 or bool(shares[shares > shares[drawn]].sum() < top_p * shares.sum())


def _highest(
    scores: NDArray[np.float64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Places of the ``count`` highest scores of each row, in no order, and the scores."""
    if count == scores.shape[1]:
        return np.broadcast_to(np.arange(count), scores.shape), scores.copy()
    places = np.argpartition(-scores, count - 1, axis=1)[:, :count].astype(np.int64)
    return places, np.take_along_axis(scores, places, axis=1)
