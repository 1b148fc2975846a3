"""Adapt the text model to the words of the records, by a noisy table of tokens by label [E11].

Votes choose among candidates; they cannot choose what nobody wrote. The table says how often the
records of a label use each token that the public model's own texts use. Where that is more or less
often than in those texts, the token is made likelier or less likely in the texts that follow.

Source of the rescaling: Kneser, Peters, Klakow 1997, "Language model adaptation using dynamic
marginals".
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privsyn.methods.private_evolution.votes import Grid, clip_steps, labels_of

if TYPE_CHECKING:
    from privsyn.models.protocols import Token

MOST_TOKENS = 1000
"""Most tokens of the table. The rarer a token, the less the noise leaves of it."""
MOST_ENTRIES = 125_000
"""Most entries of the table, each a draw of noise: with many labels it has fewer tokens."""
_COMMON = 60
"""Tokens by which the number of a label's records is estimated."""
_SURE = 3.5
"""Deviations from which a difference counts in full: with 1,000 tokens noise alone reaches them
every second time."""
_BORROWED = 8
"""Texts of all labels that join those of one label where its own use of a token is estimated."""
STRENGTH = 0.7
"""Share of a log ratio that is applied: a token also makes its neighbors likelier."""
_MOST = 2.5
"""Largest log ratio."""


@dataclass(frozen=True)
class Adaptation:
    """What the noisy draws before the first vote say of the records [E16].

    Post-processing of these draws and of public texts, so it may be published.

    Attributes:
        labels: The labels; (None,) without labels.
        tokens: The tokens of the table.
        log_ratios: What is added to their logits in texts of each label; (labels, tokens).
        grid: The grid of the mean vectors; None without them.
        means: Noisy sums of directions, shape (labels * width,); None without them.
    """

    labels: tuple[str | None, ...]
    tokens: tuple[Token, ...]
    log_ratios: NDArray[np.float64]
    grid: Grid | None = None
    means: NDArray[np.int64] | None = None

    @classmethod
    def nothing(cls, labels: Sequence[str | None]) -> Adaptation:
        """The adaptation before any draw."""
        return cls(tuple(labels), (), np.zeros((len(labels), 0)))

    @property
    def by_label(self) -> dict[str | None, dict[Token, float]]:
        """What is added to the logits of tokens, by label."""
        return {
            label: dict(zip(self.tokens, row, strict=True))
            for label, row in zip(self.labels, self.log_ratios.tolist(), strict=True)
        }

    def places(
        self, vectors: Sequence[NDArray[np.float32]], sizes: Sequence[int]
    ) -> list[NDArray[np.int64]]:
        """Which of all texts stand for each label: those nearest to its noisy mean [E14].

        Args:
            vectors: Of the texts that were written for each label, shape (texts, width).
            sizes: Fewest texts of each label.
        """
        if self.grid is None or self.means is None:
            ends = np.cumsum([len(group) for group in vectors])
            return np.split(np.arange(ends[-1]), ends[:-1])
        labels = labels_of(self.means, np.concatenate(vectors), self.grid, sizes)
        return [np.flatnonzero(labels == label) for label in range(len(sizes))]

    def to_json(self) -> bytes:
        """The file of an adaptation."""
        values = {
            "labels": self.labels,
            "tokens": self.tokens,
            "log_ratios": self.log_ratios.tolist(),
        }
        if self.grid is not None and self.means is not None:
            values |= {
                "center": self.grid.center.tolist(),
                "scale": float(self.grid.scale),
                "means": self.means.tolist(),
            }
        return json.dumps(values).encode()

    @classmethod
    def of_json(cls, data: bytes) -> Adaptation:
        """The adaptation of such a file."""
        values = json.loads(data)
        grid = means = None
        if "means" in values:
            grid = Grid(np.array(values["center"], np.float32), np.float32(values["scale"]))
            means = np.array(values["means"], np.int64)
        return cls(
            tuple(values["labels"]),
            tuple(values["tokens"]),
            np.array(values["log_ratios"], np.float64),
            grid,
            means,
        )


@dataclass(frozen=True)
class TokenTable:
    """The tokens of the table, and how the public model's own texts use them. All is public.

    Attributes:
        tokens: The tokens, most used first.
        weights: Weight of each in the row of a text, before the row is taken at length 1. Rare ones
            weigh more; (tokens,).
        public: Mean row of the public texts of each label, (labels, tokens).
        rates: Share of the public texts with the token, (tokens,).
        texts: Public texts of the label that has fewest.
    """

    tokens: tuple[Token, ...]
    weights: NDArray[np.float64]
    public: NDArray[np.float64]
    rates: NDArray[np.float64]
    texts: int

    @classmethod
    def of(cls, texts: Sequence[Sequence[Sequence[Token]]]) -> TokenTable:
        """The table for public texts, each as its distinct tokens, by label."""
        counts = Counter(token for group in texts for text in group for token in text)
        # the same order on every machine, so that a resumed run reads a noisy table rightly
        most = min(MOST_TOKENS, max(1, MOST_ENTRIES // len(texts)))
        ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:most]
        rates = np.array([count + 0.5 for _, count in ranked]) / (1 + sum(map(len, texts)))
        empty = cls(
            tuple(token for token, _ in ranked),
            (rates + 0.03) ** -0.25,
            np.zeros((len(texts), len(ranked))),
            rates,
            min(map(len, texts), default=0),
        )
        places = empty.places
        for label, group in enumerate(texts):
            for text in group:
                row = [places[token] for token in text if token in places]
                empty.public[label, row] += empty._unit_vector(row) / len(group)
        return empty

    @property
    def places(self) -> Mapping[Token, int]:
        """The place of each token."""
        return {token: place for place, token in enumerate(self.tokens)}

    def _unit_vector(self, row: Sequence[int]) -> NDArray[np.float64]:
        """The weights of some places at length 1; (places,)."""
        weights = self.weights[list(row)]
        # privacy: an exact sum, so that a row depends on its own record to the last bit
        length = math.sqrt(math.fsum(weight * weight for weight in weights.tolist()))
        return np.asarray(weights / length if row else weights)

    def exact_sums(
        self,
        texts: Sequence[Sequence[Sequence[Token]]],
        units: Sequence[Sequence[str]],
        most: int,
        one: int,
    ) -> NDArray[np.int64]:
        """Sum of the rows of all records, shape (labels * tokens,), by label. Not yet private.

        A record's row holds its tokens' weights at an L2 norm of at most ``one``, rounded down,
        whatever the record holds, and no negative number. The sum of a unit's rows is clipped to
        ``one`` times the root of ``most`` [E15].

        Args:
            texts: The records of each label, each as its distinct tokens.
            units: The unit of each record.
            most: Most records of a unit.
            one: Lattice steps of the unit norm.
        """
        places, width = self.places, len(self.tokens)
        rows: dict[str, Counter[int]] = {}
        for label, (records, owners) in enumerate(zip(texts, units, strict=True)):
            for record, owner in zip(records, owners, strict=True):
                present = sorted({places[token] for token in record if token in places})
                steps = [math.floor(value * one) for value in self._unit_vector(present)]
                # privacy: whole numbers, compared exactly; a row that rounding made too long counts
                # as none
                if steps and sum(step * step for step in steps) <= one * one:
                    row = rows.setdefault(owner, Counter())
                    for place, step in zip(present, steps, strict=True):
                        row[label * width + place] += step
        sums = np.zeros(len(texts) * width, np.int64)
        for row in rows.values():
            sums[[*row]] += clip_steps([*row.values()], most, one)
        return sums

    def log_ratios(
        self, noisy: NDArray[np.int64], deviation: float, one: int
    ) -> NDArray[np.float64]:
        """What is added to the logit of each token in texts of a label; (labels, tokens).

        The log of how often the records use a token over how often the public texts do, first of
        all labels together, then what a label differs from that. A difference that noise or the
        few public texts explain is shrunk toward none. Post-processing of the noisy table.

        Args:
            noisy: Noisy sums of rows, shape (labels * tokens,).
            deviation: Standard deviation of the noise, in lattice steps.
            one: Lattice steps of the unit norm.
        """
        labels, width = self.public.shape
        if not width:
            return np.zeros((labels, 0))
        sums, noise = noisy.reshape(labels, width) / one, deviation / one  # (labels, tokens)
        common = np.argsort(-self.public.mean(axis=0), kind="stable")[:_COMMON]
        # Records of each label, up to a factor that is the same for all: (labels, 1)
        uses = np.maximum(self.public[:, common], 1e-9)
        records = np.maximum(np.median(sums[:, common] / uses, axis=1, keepdims=True), 1.0)
        # No label counts for more than the middle one, or all would get the words of the largest.
        counted = np.minimum(1.0, np.median(records) / records)  # (labels, 1)
        all_records = float((counted * records).sum())
        per_text = (
            self.weights * float(np.mean(self.public.sum(axis=1))) / (self.weights @ self.rates)
        )  # what a text that has the token adds to a row, (tokens,)
        rare = 0.2 * per_text * self.rates  # (tokens,)

        expected = (counted * records * self.public).sum(axis=0)  # (tokens,)
        floor = all_records * rare
        spread = noise**2 * float((counted**2).sum()) + all_records * per_text * (
            expected + floor
        ) / (self.texts * labels)
        total = _shrunk((counted * sums).sum(axis=0), expected, floor, np.sqrt(spread))
        change = (total + floor) / (expected + floor)  # (tokens,)
        if labels == 1:
            return np.asarray(STRENGTH * np.clip(np.log(change), -_MOST, _MOST)[None])

        joined = (self.public * self.texts + self.public.mean(axis=0) * _BORROWED) / (
            self.texts + _BORROWED
        )
        expected = records * joined * change  # (labels, tokens)
        floor = records * rare
        spread = noise**2 + records * per_text * (expected + floor) / self.texts
        own = _shrunk(sums, expected, floor, np.sqrt(spread))
        ratios = np.log(change) + np.log((own + floor) / (expected + floor))
        return np.asarray(STRENGTH * np.clip(ratios, -_MOST, _MOST))


def _shrunk(
    sums: NDArray[np.float64],
    expected: NDArray[np.float64],
    floor: NDArray[np.float64],
    deviation: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Sums whose difference to the expected ones is shrunk by the noise in it, 0 at least.

    How far sums usually are from what is expected, in shares of it, is estimated from all tokens
    (empirical Bayes). A difference beyond _SURE deviations is taken as it is.
    """
    excess, size, noise = sums - expected, (expected + floor) ** 2, deviation**2
    share = np.clip(np.sum(excess**2 - noise) / np.sum(size), 0.0, 1.0)
    shrunk = excess * share * size / np.maximum(share * size + noise, 1e-300)
    sure = np.abs(excess) > _SURE * deviation
    return np.maximum(expected + np.where(sure, excess, shrunk), 0.0)
