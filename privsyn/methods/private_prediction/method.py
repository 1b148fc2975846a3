"""Private prediction: text from clipped, averaged logits, free where the public model knows it.

Source: Amin et al. 2024, "Private prediction for large-scale synthetic text generation",
Algorithm 1, Theorem 1. Guarantee, assumptions and every deviation from the paper:
guarantee.md, whose tags [P1] ... stand at the lines they speak of.

Symbols as in the paper: expected batch size s, private tokens r, clip bound c, temperature tau,
public temperature tau_public, threshold theta, noise level sigma, logits Z and ``z_public``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from privsyn.data.records import Bucket, Cell
from privsyn.dp.accountant import (
    Guarantee,
    calibrate_composed,
    calibrate_rho,
    epsilon_at,
    rho,
)
from privsyn.dp.adjacency import Adjacency, PrivacyUnit
from privsyn.dp.clipping import (
    LATTICE,
    ExactSum,
    clip_recentre,
    grid_bound,
    probability_grid,
    public_grid,
    to_grid,
)
from privsyn.dp.events import Disjoint, Event, Rounds
from privsyn.dp.mechanisms import AboveThreshold, ExponentialMechanism
from privsyn.errors import ConfigError
from privsyn.methods.base import ANYTHING, Backends, MethodPlan, Role, Sample, Subject, unwatched
from privsyn.methods.private_prediction.settings import PrivatePredictionConfig
from privsyn.methods.shared.alone import Recipe
from privsyn.methods.shared.prompts import MIN_TOKENS, ended, resolved_prompt
from privsyn.models.protocols import LogitModel, PromptTemplate, Session
from privsyn.models.settings import PerformanceConfig
from privsyn.models.trial import try_logits

if TYPE_CHECKING:
    from privsyn.data.journal import Journal
    from privsyn.dp.noise import NoiseSource
    from privsyn.models.model_identity import ModelIdentity


class PrivatePrediction:
    """Texts of one bucket after the other, each token drawn from the average of clipped logits.

    Guarantee: a bucket is r draws of the exponential mechanism and, with the sparse vector
    technique, r rounds of AboveThreshold; the buckets are disjoint in units, so the release is r
    rounds of a pure loss 2 E / (s sigma) and a bounded range 2 D / (s tau) under the account's
    adjacency, D = c m, E = m (twice that under replace_one). Tokens of the public prompt cost
    nothing (Amin et al. 2024, Theorem 1, which charges the rounds as rho-zCDP with rho = r
    ((D / (s tau))^2 / 2 + 2 (E / (s sigma))^2); their exact composition is 7 to 9% less epsilon:
    [B15] in dp/bounds.md).
    """

    name: ClassVar[str] = "private_prediction"
    title: ClassVar[str] = "Private prediction"
    paper: ClassVar[str] = "Amin et al. 2024, Private prediction, Algorithm 1"
    Config: ClassVar[type[PrivatePredictionConfig]] = PrivatePredictionConfig

    whole: ClassVar[bool] = False
    samples: ClassVar[bool] = False
    counts: ClassVar[str] = "private tokens"

    def roles(self, cfg: PrivatePredictionConfig) -> tuple[Role, ...]:
        """One language model, whose logits are read."""
        return ("language",)

    def resolve(
        self,
        cfg: PrivatePredictionConfig,
        models: Mapping[Role, ModelIdentity],
        subject: Subject = ANYTHING,
    ) -> PrivatePredictionConfig:
        """Settings with a prompt where the config leaves it open."""
        prompt = resolved_prompt(cfg.prompt, models["language"], subject, cfg.task, cfg.json_schema)
        record = cfg.json_schema is not None or cfg.task == "json"
        least = (0 if record else MIN_TOKENS) if cfg.min_tokens is None else cfg.min_tokens
        return cfg.model_copy(update={"prompt": prompt, "min_tokens": least})

    def plan(
        self,
        cfg: PrivatePredictionConfig,
        target: Guarantee,
        adjacency: Adjacency,
        unit: PrivacyUnit,
        labels: Sequence[str],
        solved: Mapping[str, float] | None = None,
    ) -> MethodPlan:
        """Event of r private tokens; r is what the target buys where the config leaves it open.

        Raises:
            ConfigError: The target does not buy one token; says which setting costs most.
        """
        token, above = _mechanisms(cfg, adjacency, unit)
        if solved is not None:
            r = int(solved["private_tokens"])
        else:
            r = cfg.private_tokens or _affordable(cfg, token, above, target)
        cells = len(self.cells(cfg, labels))
        worst = min(r // cfg.max_tokens, cfg.max_texts)
        return MethodPlan(
            event=Disjoint((_rounds(token, above, r),), cells),
            derived={
                "private_tokens": r,
                "rho_per_token": rho(token.event) or 0.0,
                "rho_per_comparison": (rho(above.event) or 0.0) if above else 0.0,
                "texts_at_worst": worst * cells,
            },
            warnings=_advice(cfg, r, worst, cells),
            rows=(0, cells * cfg.max_texts),
            divisor=cfg.batch_size,
        )

    def cells(self, cfg: PrivatePredictionConfig, labels: Sequence[str]) -> list[Cell]:
        """One cell per bucket: labels in the config's order, ``buckets_per_label`` each."""
        return Cell.grid(labels, cfg.buckets_per_label)

    def alone(self, cfg: PrivatePredictionConfig, labels: Sequence[str]) -> Recipe | None:
        """The public prompt, sampled as public tokens are; None under a grammar."""
        if cfg.prompt is None or cfg.json_schema is not None:
            return None
        return Recipe(
            prompt=cfg.prompt,
            max_tokens=cfg.max_tokens,
            min_tokens=cfg.min_tokens or 0,
            temperature=cfg.public_temperature,
            top_k=cfg.public_vocabulary,
        )

    def prompt(self, cfg: PrivatePredictionConfig) -> tuple[PromptTemplate, int, int]:
        """What the model's context must hold: both prompts, one reference, one text."""
        if cfg.prompt is None:
            raise ConfigError("methods.private_prediction.prompt is not resolved.")
        return cfg.prompt.template, cfg.max_reference_tokens, cfg.max_tokens

    def preflight(
        self,
        cfg: PrivatePredictionConfig,
        unit: PrivacyUnit,
        labels: Sequence[str],
        models: Backends,
    ) -> None:
        """Logits of a public row and one around a public reference; the grammar of the schema."""
        try_logits(models.language, self.prompt(cfg), labels)
        if cfg.json_schema is not None:
            models.language.grammar(cfg.json_schema).allowed([])

    def run(
        self,
        cfg: PrivatePredictionConfig,
        plan: MethodPlan,
        adjacency: Adjacency,
        unit: PrivacyUnit,
        buckets: Sequence[Bucket],
        models: Backends,
        noise: NoiseSource,
        journal: Journal,
        performance: PerformanceConfig,
        progress: Callable[[int, int], None] = unwatched,
    ) -> Iterator[Sample]:
        """The texts of every bucket."""
        token, above = _mechanisms(cfg, adjacency, unit)
        r = int(plan.derived["private_tokens"])
        declared = {bucket.cell.label for bucket in buckets}
        for number, bucket in enumerate(buckets):  # lines 2-3: disjoint batches, by keyed hash [P1]
            tell = partial(_tell, progress, number * r, len(buckets) * r)
            batch = _Batch(cfg, self.prompt(cfg), models.language, bucket, performance, declared)
            for text in _texts(cfg, r, token, above, batch, noise, journal, tell):
                tokens = [value if value >= 0 else ~value for value in text]
                tokens = tokens[:-1] if tokens[-1] in batch.ends else tokens
                public = sum(value < 0 for value in text)
                yield Sample(
                    bucket.cell,
                    ended(models.language.decode(tokens), cfg.prompt)[0],
                    {"tokens": len(text), "public_tokens": public},
                )


def _mechanisms(
    cfg: PrivatePredictionConfig, adjacency: Adjacency, unit: PrivacyUnit
) -> tuple[ExponentialMechanism, AboveThreshold | None]:
    """Draw and comparison of one private token: the one place where noise and cost come from.

    Scores and distances are sums over the bucket, so the divisor s stands in the scales [P2].
    """
    moved = adjacency.moves * unit.max_records
    steps = cfg.batch_size * LATTICE
    token = ExponentialMechanism(grid_bound(cfg.clip_bound) * moved, cfg.temperature * steps)
    if cfg.svt_threshold is None:
        return token, None
    return token, AboveThreshold(LATTICE * moved, cfg.svt_noise * steps)


def _rounds(token: ExponentialMechanism, above: AboveThreshold | None, r: int) -> Event:
    """The r private tokens: each a round of comparisons, where they are made, and then a draw."""
    return Rounds((above.event, token.event) if above else (token.event,), r)


def _affordable(
    cfg: PrivatePredictionConfig,
    token: ExponentialMechanism,
    above: AboveThreshold | None,
    target: Guarantee,
) -> int:
    """The most private tokens per bucket that the target buys."""

    def fits(r: int) -> bool:
        return epsilon_at(_rounds(token, above, r), target.delta) <= target.epsilon

    each = rho(_rounds(token, above, 1)) or 0.0
    enough = int(calibrate_rho(target) / each)  # by zCDP: never too many
    if enough < 1 and not fits(1):
        drawn = rho(token.event) or 0.0
        asked = (rho(above.event) or 0.0) if above else 0.0
        culprit = (
            f"svt_noise={cfg.svt_noise:g} makes its comparison cost rho={asked:.3g}"
            if asked > drawn
            else f"clip_bound={cfg.clip_bound:g} over batch_size={cfg.batch_size} and "
            f"temperature={cfg.temperature:g} makes its draw cost rho={drawn:.3g}"
        )
        raise ConfigError(
            f"methods.private_prediction: privacy.epsilon={target.epsilon:g} does not buy one "
            f"private token: {culprit}.",
            hint="Raise svt_noise, batch_size, temperature or privacy.epsilon.",
        )
    enough = max(enough, 1)

    def event(r: float) -> Event:
        return _rounds(token, above, int(r))

    enough = int(calibrate_composed(event, target, enough, tolerance=0.3 / enough))
    for _ in range(16):  # the search ends within a token or so
        if not fits(enough + 1):
            break
        enough += 1
    return enough


def _texts(
    cfg: PrivatePredictionConfig,
    r: int,
    token: ExponentialMechanism,
    above: AboveThreshold | None,
    batch: _Batch,
    noise: NoiseSource,
    journal: Journal,
    tell: Callable[[int], None],
) -> Iterator[list[int]]:
    """Algorithm 1 for one batch: texts, end included, public tokens as ``~token``.

    ``tell`` hears of the private tokens drawn.
    """
    theta = round((cfg.svt_threshold or 0.0) * cfg.batch_size * LATTICE)
    most = cfg.max_total_tokens or 10 * r
    private = total = 0
    threshold: int | None = None
    for number in range(cfg.max_texts):
        text: list[int] = []
        drawn: list[int] = []
        while not batch.over(text) and len(text) < cfg.max_tokens:  # line 8
            if private == r or total == most:  # line 6, and within a text: see [P3]
                if cfg.keep_unfinished:
                    yield drawn
                return
            if above and threshold is None:  # lines 4 and 17 [P3]
                draw_threshold = partial(above.threshold, theta, noise)
                [noisy] = journal.draw_all([(f"{batch.cell}/threshold/{private}", draw_threshold)])
                threshold = int(noisy)
            tell(private)
            draw = partial(_draw, cfg, token, above, threshold, batch, number, text, noise)
            [value] = journal.draw_all([(f"{batch.cell}/{number}/{len(text)}", draw)])
            total += 1
            if value >= 0:
                private, threshold = private + 1, None
            drawn.append(int(value))
            text.append(drawn[-1] if drawn[-1] >= 0 else ~drawn[-1])
        yield drawn
        if private == r or total == most:
            return


def _tell(progress: Callable[[int, int], None], before: int, total: int, drawn: int) -> None:
    progress(before + drawn, total)


def _draw(
    cfg: PrivatePredictionConfig,
    token: ExponentialMechanism,
    above: AboveThreshold | None,
    threshold: int | None,
    batch: _Batch,
    number: int,
    text: Sequence[int],
    noise: NoiseSource,
) -> int:
    """Lines 9-19: the next token; ``~token`` where it came from the public prompt."""
    allowed = batch.allowed(text)
    if allowed is not None and len(allowed) == 1:  # known from public facts: nothing is asked [P5]
        return ~int(allowed[0])
    step = batch.predict(number, text, allowed)
    if above and threshold is not None:
        public = cfg.batch_size * probability_grid(step.public)
        distance = int(np.abs(step.probabilities - public).sum())  # Eq. 2, times s [P4]
        if not above.is_above(distance, threshold, noise):  # lines 12-13
            scores = public_grid(step.public)  # line 19: public randomness
            chosen = noise.noisy_max(scores, cfg.public_temperature * LATTICE, 0)
            return ~int(step.tokens[chosen])
    return int(step.tokens[token.draw(step.scores, noise)])  # lines 14-15


@dataclass(frozen=True)
class _Step:
    """Predictions of one token, over the tokens that may be drawn.

    Attributes:
        tokens: These tokens.
        public: Logits of the public prompt.
        scores: Sum of the clipped private logits, on the lattice.
        probabilities: Sum of the private softmaxes, on the lattice; zeros where none is compared.
    """

    tokens: NDArray[np.int64]
    public: NDArray[np.float64]
    scores: NDArray[np.int64]
    probabilities: NDArray[np.int64]


class _Batch:
    """The rows of one bucket and its public row, started only when a token has to be drawn."""

    def __init__(
        self,
        cfg: PrivatePredictionConfig,
        prompt: tuple[PromptTemplate, int, int],
        model: LogitModel,
        bucket: Bucket,
        performance: PerformanceConfig,
        declared: Collection[str | None],
    ) -> None:
        self._declared = declared
        self._cfg, self._prompt, self._model, self._bucket = cfg, prompt, model, bucket
        self._rows_per_pass = performance.rows_per_pass
        self._sessions: tuple[Session, Session] | None = None
        self._number, self._fed, self._rows = 0, 0, 0
        self._grammar = model.grammar(cfg.json_schema) if cfg.json_schema else None
        self.cell, self.ends = bucket.cell.index, model.ends

    def allowed(self, text: Sequence[int]) -> NDArray[np.int64] | None:
        """The tokens that public rules leave (a grammar, the shortest text); None where all may."""
        if self._grammar:
            return self._grammar.allowed(text)
        if len(text) < (self._cfg.min_tokens or 0):
            return np.setdiff1d(np.arange(self._model.vocab_size), self._model.breaks)
        return None

    def over(self, text: Sequence[int]) -> bool:
        """Whether a text has its end, or ran into the next record."""
        if not text:
            return False
        return text[-1] in self.ends or ended(self._model.decode(text), self._cfg.prompt)[1]

    def predict(
        self, number: int, text: Sequence[int], allowed: NDArray[np.int64] | None = None
    ) -> _Step:
        """Predictions after the tokens so far of text ``number``, over the allowed tokens."""
        cfg, (public, private) = self._cfg, self._at(number, text)
        z_public = public.logits()[0]
        allowed = np.arange(len(z_public)) if allowed is None else allowed
        if cfg.public_vocabulary is not None and cfg.public_vocabulary < len(allowed):
            known = np.where(np.isnan(z_public[allowed]), -np.inf, z_public[allowed])
            # [P6] by the public row alone
            best = np.argpartition(-known, cfg.public_vocabulary - 1)[: cfg.public_vocabulary]
            allowed = allowed[np.sort(best)]
        columns = None if len(allowed) == len(z_public) else allowed
        scores = ExactSum(len(allowed))  # [P7]
        probabilities = np.zeros(len(allowed), np.int64)
        for start in range(0, self._rows, self._rows_per_pass):
            z = private.logits(slice(start, start + self._rows_per_pass), columns)
            clipped = clip_recentre(z, cfg.clip_bound)
            scores.add(to_grid(clipped, cfg.clip_bound))
            if cfg.svt_threshold is not None:
                probabilities += probability_grid(z).sum(axis=0, dtype=np.int64)
        public = z_public[allowed].astype(np.float64)
        return _Step(allowed, public, scores.held(), probabilities)

    def _at(self, number: int, text: Sequence[int]) -> tuple[Session, Session]:
        """Both sessions, at this place of this text."""
        sessions = self._sessions = self._sessions or self._start()
        if number != self._number:
            for session in sessions:
                session.rewind()
            self._number, self._fed = number, 0
        for taken in text[self._fed :]:
            sessions[0].append([taken])
            sessions[1].append([taken] * self._rows)
        self._fed = len(text)
        return sessions

    def _start(self) -> tuple[Session, Session]:
        template, reference_tokens, max_tokens = self._prompt
        label, texts = self._bucket.cell.label, self._bucket.contents.reveal()
        self._rows = len(texts)
        return (
            self._model.public_rows(template, [label], max_tokens),
            self._model.private_rows(
                template,
                [label] * len(texts),
                texts,
                reference_tokens,
                max_tokens,
                declared=self._declared,
            ),
        )


def _advice(cfg: PrivatePredictionConfig, r: int, worst: int, cells: int) -> tuple[str, ...]:
    where = "methods.private_prediction"
    advice = []
    if not worst:
        advice.append(
            f"{where}: {r} private tokens per bucket are fewer than max_tokens={cfg.max_tokens}: "
            "a bucket may yield no text. Lower max_tokens, or raise svt_noise or batch_size."
        )
    if cfg.batch_size < 100:
        advice.append(
            f"{where}.batch_size={cfg.batch_size} is small: the cost of a token falls with its "
            "square, and the paper uses 127 to 2047."
        )
    return tuple(advice)
