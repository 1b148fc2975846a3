"""Private prediction: text from clipped, averaged logits; predictable tokens are free.

Source: Amin et al. 2024, "Private prediction for large-scale synthetic text generation",
Algorithm 1, Theorem 1. Guarantee, assumptions and every deviation from the paper:
guarantee.md, whose tags [P1] ... mark the lines they refer to.

Symbols as in the paper: expected batch size s, private tokens r, clip bound c, temperature tau,
public temperature tau_public, threshold theta, noise level sigma, logits Z and ``z_public``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privsyn.data.records import Bucket, Cell
from privsyn.dp.adjacency import PrivacyUnit
from privsyn.dp.clipping import (
    LATTICE,
    ExactSum,
    clip_recenter,
    probability_grid,
    public_grid,
    to_grid,
)
from privsyn.methods.base import Backends, Draw, Role, Sample, Size, each
from privsyn.methods.private_prediction.mechanism import (
    PrivatePredictionMechanism,
    calibrate,
    rebuild,
)
from privsyn.methods.private_prediction.settings import (
    PrivatePredictionConfig,
    PrivatePredictionSettings,
)
from privsyn.methods.shared.logits import LogitMethod, open_rows
from privsyn.methods.shared.prompts import cut_at_next_record, released_text, resolved_prompt
from privsyn.models.protocols import LogitModel, PromptTemplate, Session
from privsyn.models.rows import ANYTHING, Subject

if TYPE_CHECKING:
    from privsyn.dp.noise import NoiseSource
    from privsyn.models.model_identity import ModelIdentity


PUBLIC_TEMPERATURE = 1.5
"""tau_public, as in Amin et al. 2024, Table 7."""
_MOST_TOTAL = 10
"""Tokens of a bucket, public ones included, for each private one that it may draw."""


class PrivatePrediction(LogitMethod[PrivatePredictionSettings]):
    """Texts bucket by bucket, with each token drawn from the average of clipped logits.

    Guarantee: a bucket is r draws of the exponential mechanism and, with the sparse vector
    technique, r rounds of AboveThreshold. Buckets are disjoint in units, so the release is r rounds
    of a pure loss 2 E / (s sigma) and a bounded range 2 D / (s tau) under the account's adjacency,
    with D = c m and E = m (twice that under replace_one). Tokens from the public prompt cost
    nothing. Amin et al. 2024, Theorem 1, charge rho-zCDP with rho = r ((D / (s tau))^2 / 2 + 2 (E /
    (s sigma))^2); exact composition needs 7 to 9% less epsilon ([B15] in dp/bounds.md).
    """

    name: ClassVar[str] = "private_prediction"
    title: ClassVar[str] = "Private prediction"
    paper: ClassVar[str] = "Amin et al. 2024, Private prediction, Algorithm 1"
    Config: ClassVar[type[PrivatePredictionConfig]] = PrivatePredictionConfig
    Settings: ClassVar[type[PrivatePredictionSettings]] = PrivatePredictionSettings

    tuning_hint: ClassVar[str] = "batch_size"

    calibrate = staticmethod(calibrate)
    rebuild = staticmethod(rebuild)

    def resolve(
        self,
        cfg: PrivatePredictionConfig,
        models: Mapping[Role, ModelIdentity],
        subject: Subject = ANYTHING,
    ) -> PrivatePredictionSettings:
        """Settings with the default prompt if the config sets none."""
        return PrivatePredictionSettings(
            **cfg.model_dump(exclude={"prompt"}),
            prompt=resolved_prompt(cfg.prompt, models["language"], subject, cfg.json_schema),
        )

    def cells(self, cfg: PrivatePredictionConfig, labels: Sequence[str]) -> list[Cell]:
        """One cell per bucket: labels in the config's order, ``buckets_per_label`` each."""
        return Cell.grid(labels, cfg.buckets_per_label)

    def additions(self, cfg: PrivatePredictionConfig, labels: Sequence[str]) -> dict[str, bool]:
        """What is in no line of Amin et al."""
        return {
            "every token private": cfg.svt_threshold is None,
            "tokens that a JSON schema allows": cfg.json_schema is not None,
        }

    def for_texts(self, cfg: PrivatePredictionConfig, size: Size) -> dict[str, Any]:
        """As many texts a bucket at most; all records are shared out among the buckets.

        Fewer buckets where the records would not fill them: the cost of a token falls with the
        square of their number.
        """
        values: dict[str, Any] = size.lengths("max_tokens")
        labels, buckets = max(1, len(size.labels)), cfg.buckets_per_label
        if size.records is not None:
            buckets = max(1, min(buckets, size.records // (labels * cfg.batch_size)))
            values["batch_size"] = max(1, size.records // (labels * buckets))
        if buckets != cfg.buckets_per_label:
            values["buckets_per_label"] = buckets
        return values | {"max_texts": each(size.texts, labels * buckets)}

    def preflight(
        self,
        settings: PrivatePredictionSettings,
        unit: PrivacyUnit,
        labels: Sequence[str],
        models: Backends,
    ) -> None:
        """As every method that reads logits; try the grammar, too."""
        super().preflight(settings, unit, labels, models)
        if settings.json_schema is not None:
            models.language.grammar(settings.json_schema).allowed_tokens([])

    def run(
        self,
        settings: PrivatePredictionSettings,
        mechanism: PrivatePredictionMechanism,
        buckets: Sequence[Bucket],
        draw: Draw,
    ) -> Iterator[Sample]:
        """The texts of every bucket."""
        model, size = draw.models.language, _size(settings, mechanism)
        keys = [_keys(settings, bucket, draw) for bucket in buckets]
        # privacy: the labels of all cells, also empty ones, decide the width of a row
        declared = {key for its in keys for key in its}
        for number, bucket in enumerate(buckets):  # lines 2-3: disjoint batches, by keyed hash [P1]
            tell = draw.part(number * size, len(buckets) * size)
            read = draw.reading_part(number, len(buckets), "the references")
            rows = draw.performance.rows_per_pass
            batch = _Batch(
                settings, self.prompt(settings), model, bucket, rows, keys[number], declared
            )
            texts = _texts(settings, mechanism, batch, draw, tell, read)
            for place, text in enumerate(texts, bucket.cell.bucket * settings.max_texts):
                tokens = [value if value >= 0 else ~value for value in text]
                public = sum(value < 0 for value in text)
                yield Sample(
                    bucket.cell,
                    released_text(tokens, model, settings),  # [P8]
                    {"tokens": len(text), "public_tokens": public},
                    draw.rows.row(bucket.cell.label, place),
                )


def _texts(
    settings: PrivatePredictionSettings,
    mechanism: PrivatePredictionMechanism,
    batch: _Batch,
    draw: Draw,
    tell: Callable[[int], None],
    read: Callable[[int], None],
) -> Iterator[list[int]]:
    """Algorithm 1 for one batch: texts with their ends, public tokens as ``~token``.

    ``tell`` is called with what is done of the bucket's ``_size``, ``read`` before and after the
    references are read.
    """
    above, r, journal = mechanism.above, mechanism.private_tokens, draw.journal
    size = _size(settings, mechanism)
    # [P4] s is what a bucket is expected to hold: batch_size, unless the account says how many.
    held = draw.expected_records or settings.batch_size
    theta = round((settings.svt_threshold or 0.0) * held * LATTICE)
    # Public tokens are free, so something else must end a bucket that never draws a private one.
    most = _MOST_TOTAL * r
    private = total = 0
    threshold: int | None = None
    for number in range(settings.max_texts):
        text: list[int] = []
        drawn: list[int] = []
        while not batch.over(text) and len(text) < settings.max_tokens:  # line 8
            if private == r or total == most:  # line 6, and within a text: see [P3]
                return
            key = f"{batch.cell}/{number}/{len(text)}"
            if not journal.has(key):
                batch.read(read)
            if above and threshold is None:  # lines 4 and 17 [P3]
                draw_threshold = partial(above.threshold, theta, draw.noise)
                [noisy] = journal.draw_all([(f"{batch.cell}/threshold/{private}", draw_threshold)])
                threshold = int(noisy)
            done = private / r
            if above:  # whichever of its three ends is nearest; all are the mechanism's output
                texts = (number + len(text) / settings.max_tokens) / settings.max_texts
                done = max(done, total / most, texts)
            tell(int(done * size))
            next_token = partial(
                _draw, settings, mechanism, threshold, held, batch, number, text, draw.noise
            )
            # Negative values are public tokens: the journal says which kind each was, so a resumed
            # run counts the private ones alike.
            [value] = journal.draw_all([(key, next_token)])
            total += 1
            if value >= 0:
                # The comparison that found it has used up its threshold.
                private, threshold = private + 1, None
            drawn.append(int(value))
            text.append(drawn[-1] if drawn[-1] >= 0 else ~drawn[-1])
        yield drawn
        if private == r or total == most:
            return


def _keys(settings: PrivatePredictionSettings, bucket: Bucket, draw: Draw) -> list[str | None]:
    """The label of a bucket with the row of each text, or alone without columns."""
    label, first = bucket.cell.label, bucket.cell.bucket * settings.max_texts
    if not draw.rows.columns:
        return [label]
    return [draw.rows.key(label, first + number) for number in range(settings.max_texts)]


def _size(settings: PrivatePredictionSettings, mechanism: PrivatePredictionMechanism) -> int:
    """Tokens of a bucket for progress: with comparisons public ones count, too."""
    r = mechanism.private_tokens
    if mechanism.above is None:
        return r
    return min(_MOST_TOTAL * r, settings.max_texts * settings.max_tokens)


def _draw(
    settings: PrivatePredictionSettings,
    mechanism: PrivatePredictionMechanism,
    threshold: int | None,
    held: float,
    batch: _Batch,
    number: int,
    text: Sequence[int],
    noise: NoiseSource,
) -> int:
    """Lines 9-19: the next token; ``~token`` if it came from the public prompt."""
    allowed = batch.allowed_tokens(text)
    if allowed is not None and len(allowed) == 1:  # known from public facts: no private query [P5]
        return ~int(allowed[0])
    step = batch.predict(number, text, allowed)
    above = mechanism.above
    if above and threshold is not None:
        distance = distance_of(step.probabilities, step.public, held)
        if not above.is_above(distance, threshold, noise):  # lines 12-13
            scores = public_grid(step.public)  # line 19: public randomness
            index = noise.noisy_max(scores, PUBLIC_TEMPERATURE * LATTICE, 0)
            return ~int(step.tokens[index])
    return int(step.tokens[mechanism.token.draw(step.scores, noise)])  # lines 14-15


def distance_of(probabilities: NDArray[np.int64], public: NDArray[Any], records: float) -> int:
    """L1 distance of summed private predictions from ``records`` public ones, on the lattice.

    Eq. 2 times the expected records [P4]. With k records whose predictions are the public one it is
    |k - records|: near 0 only if ``records`` is near what the bucket holds.

    privacy: ``records`` is a public number, so a record moves the distance by its own prediction,
    at most 1. With the number that the bucket holds it would move by up to 2.

    Args:
        probabilities: Sum of ``probability_grid`` over the rows, shape (allowed,).
        public: Logits of the public prompt, shape (allowed,).
        records: Expected number of records.
    """
    expected = np.rint(records * probability_grid(public)).astype(np.int64)
    return int(np.abs(probabilities - expected).sum())


@dataclass(frozen=True)
class _Predictions:
    """Predictions of one token over the tokens that may be drawn.

    Attributes:
        tokens: These tokens, shape (allowed,).
        public: Logits of the public prompt, shape (allowed,).
        scores: Sum of the clipped private logits on the lattice, shape (allowed,).
        probabilities: Sum of the private softmaxes on the lattice, shape (allowed,); zeros without
            comparisons.
    """

    tokens: NDArray[np.int64]
    public: NDArray[np.float64]
    scores: NDArray[np.int64]
    probabilities: NDArray[np.int64]


class _Batch:
    """The rows of one bucket and its public row. Sessions start when the first token is drawn."""

    def __init__(
        self,
        settings: PrivatePredictionSettings,
        prompt: tuple[PromptTemplate, int, int],
        model: LogitModel,
        bucket: Bucket,
        rows_per_pass: int,
        keys: Sequence[str | None],
        declared: Collection[str | None],
    ) -> None:
        self._keys, self._declared = keys, declared
        self._settings, self._prompt = settings, prompt
        self._model, self._bucket = model, bucket
        self._rows_per_pass = rows_per_pass
        self._sessions: tuple[Session, Session] | None = None
        self._number, self._fed, self._rows = 0, 0, 0
        self._grammar = model.grammar(settings.json_schema) if settings.json_schema else None
        self.cell, self.ends = bucket.cell.index, model.ends

    def allowed_tokens(self, text: Sequence[int]) -> NDArray[np.int64] | None:
        """Tokens that public rules allow (grammar, shortest text); None if all are allowed."""
        if self._grammar:
            return self._grammar.allowed_tokens(text)
        if len(text) < self._settings.min_tokens:
            return np.setdiff1d(np.arange(self._model.vocab_size), self._model.breaks)
        return None

    def over(self, text: Sequence[int]) -> bool:
        """Whether a text has ended, or ran into the next record."""
        if not text:
            return False
        return (
            text[-1] in self.ends
            or cut_at_next_record(self._model.decode(text), self._settings.prompt)[1]
        )

    def predict(
        self, number: int, text: Sequence[int], allowed: NDArray[np.int64] | None = None
    ) -> _Predictions:
        """Predictions after the tokens so far of text ``number``, over the allowed tokens."""
        settings, (public, private) = self._settings, self._at(number, text)
        z_public = public.logits()[0]
        allowed = np.arange(len(z_public)) if allowed is None else allowed
        if settings.top_k is not None and settings.top_k < len(allowed):
            logits = np.where(np.isnan(z_public[allowed]), -np.inf, z_public[allowed])
            # [P6] chosen by the public row alone
            best = np.argpartition(-logits, settings.top_k - 1)[: settings.top_k]
            allowed = allowed[np.sort(best)]
        columns = None if len(allowed) == len(z_public) else allowed
        scores = ExactSum(len(allowed))  # [P7]
        probabilities = np.zeros(len(allowed), np.int64)
        for start in range(0, self._rows, self._rows_per_pass):
            # z and clipped: (rows, allowed)
            z = private.logits(slice(start, start + self._rows_per_pass), columns)
            clipped = clip_recenter(z, settings.clip_bound)
            # privacy: integers, so a record changes a score by at most c in any order of the sum
            scores.add(to_grid(clipped, settings.clip_bound))
            if settings.svt_threshold is not None:
                probabilities += probability_grid(z).sum(axis=0, dtype=np.int64)
        public = z_public[allowed].astype(np.float64)
        return _Predictions(allowed, public, scores.clipped(), probabilities)

    def read(self, on_read: Callable[[int], None]) -> None:
        """Read the references once. Progress shows one part, however many references there are."""
        if self._sessions is None:
            on_read(0)
            self._sessions = self._start()
            self._sessions[1].logits(slice(0, 0))  # no rows: this only reads the prompts
            on_read(1)

    def _at(self, number: int, text: Sequence[int]) -> tuple[Session, Session]:
        """The public and the private session, positioned after the tokens of this text."""
        if number != self._number:
            if self._sessions is not None and len(self._keys) == 1:
                for session in self._sessions:
                    session.rewind()
            else:  # another row stands in the prompts
                self._sessions = None
            self._number, self._fed = number, 0
        sessions = self._sessions = self._sessions or self._start()
        for token in text[self._fed :]:
            sessions[0].append([token])
            sessions[1].append([token] * self._rows)
        self._fed = len(text)
        return sessions

    def _start(self) -> tuple[Session, Session]:
        public, private, [rows] = open_rows(
            self._model,
            self._prompt,
            [self._bucket],
            [self._keys[self._number % len(self._keys)]],
            self._declared,
        )
        self._rows = rows.stop
        return public, private
