"""InvisibleInk: differentially private text from the logits of a language model.

Source: Vinod et al. 2025, "InvisibleInk: High-Utility and Low-Cost Text Generation with
Differential Privacy", Algorithm 1, Theorem 2. Guarantee, assumptions and every deviation from the
paper: invisible_ink.md, whose tags [I1] ... stand at the lines they speak of.

Symbols as in the paper: B references, T tokens, clip norm C, temperature tau, top-k, public
logits ``phi_pub``, private logits ``phi_i``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from privsyn.backends.protocols import LogitModel, PromptTemplate, Session
from privsyn.config import PerformanceConfig, Section
from privsyn.data.records import Bucket, Cell
from privsyn.dp.accountant import Guarantee, calibrate_rho
from privsyn.dp.adjacency import Adjacency, PrivacyUnit
from privsyn.dp.clipping import LATTICE, clip_difference, grid_bound, to_grid
from privsyn.dp.events import ZCDP, Disjoint
from privsyn.dp.mechanisms import ExponentialMechanism
from privsyn.errors import ConfigError
from privsyn.methods.base import Backends, MethodPlan, Role, Sample, unwatched
from privsyn.methods.prompts import PromptConfig, default_prompt

if TYPE_CHECKING:
    from privsyn.backends.load import ModelIdentity
    from privsyn.data.journal import Journal
    from privsyn.dp.noise import NoiseSource


_PASSES_TOGETHER = 8
"""Forward passes a group of texts fills at first: rows of finished texts make room, and the more
there are, the fuller is the last pass."""


class InvisibleInkConfig(Section):
    """Settings of InvisibleInk. All are public; none is read from the data."""

    batch_size: int = Field(
        default=8, ge=1, le=1_000_000, description="References per text (B): the public divisor."
    )
    max_tokens: int = Field(
        default=64, ge=1, le=100_000, description="Tokens per text at most (T)."
    )
    temperature: float = Field(
        default=1.1, gt=0, allow_inf_nan=False, description="Sampling temperature (tau)."
    )
    top_k: int = Field(default=100, ge=1, description="Public top-k that spans the support (k).")
    guidance: float | None = Field(
        default=None,
        ge=1,
        allow_inf_nan=False,
        description="Factor on the private difference before the clip. Null: the model's own "
        "default (3 for builtin, 1 for others).",
    )
    max_reference_tokens: int = Field(
        default=64, ge=1, description="References are cut and padded to exactly this length."
    )
    texts_per_label: int = Field(
        default=100, ge=1, le=1_000_000, description="Texts to write per label."
    )
    prompt: PromptConfig | None = Field(
        default=None, description="Prompts. Null: the model's own default."
    )


class InvisibleInk:
    """Texts drawn token by token from clipped, averaged next-token logits.

    Guarantee: every text is T-fold composition of the exponential mechanism over its own bucket;
    the buckets are disjoint in units, so the release is rho-zCDP with
    rho = T (D / (B tau))^2 / 2 under the account's adjacency, D = C m (2 C m under replace_one)
    (Vinod et al. 2025, Theorem 2).
    """

    name: ClassVar[str] = "invisible_ink"
    title: ClassVar[str] = "InvisibleInk"
    paper: ClassVar[str] = "Vinod et al. 2025, InvisibleInk, Algorithm 1"
    Config: ClassVar[type[InvisibleInkConfig]] = InvisibleInkConfig

    whole: ClassVar[bool] = False

    def roles(self, cfg: InvisibleInkConfig) -> tuple[Role, ...]:
        """One language model, whose logits are read."""
        return ("language",)

    def resolve(
        self, cfg: InvisibleInkConfig, models: Mapping[Role, ModelIdentity]
    ) -> InvisibleInkConfig:
        """Settings with the model's own prompt and guidance where the config leaves them open."""
        model = models["language"]
        prompt = cfg.prompt or default_prompt(model)
        guidance = model.guidance_default if cfg.guidance is None else cfg.guidance
        return cfg.model_copy(update={"prompt": prompt, "guidance": guidance})

    def plan(
        self,
        cfg: InvisibleInkConfig,
        target: Guarantee,
        adjacency: Adjacency,
        unit: PrivacyUnit,
        labels: Sequence[str],
    ) -> MethodPlan:
        """Clip norm and event for a target guarantee: C = B tau sqrt(2 rho / T) / D(1).

        Raises:
            ConfigError: The target is so small that the clip norm is under the integer grid.
        """
        token = self._mechanism(cfg, calibrate_rho(target), adjacency, unit)
        clip_bound = token.sensitivity / (adjacency.moves * unit.max_records) / LATTICE
        return MethodPlan(
            event=Disjoint(
                (ZCDP(token.event.rho, count=cfg.max_tokens),), len(self.cells(cfg, labels))
            ),
            derived={"clip_bound": clip_bound, "rho_per_token": token.event.rho},
            warnings=_advice(cfg),
        )

    def cells(self, cfg: InvisibleInkConfig, labels: Sequence[str]) -> list[Cell]:
        """One cell per text: labels in the config's order, ``texts_per_label`` buckets each."""
        return Cell.grid(labels, cfg.texts_per_label)

    def prompt(self, cfg: InvisibleInkConfig) -> tuple[PromptTemplate, int, int]:
        """What the model's context must hold: both prompts, one reference, one text."""
        if cfg.prompt is None:
            raise ConfigError("methods.invisible_ink.prompt is not resolved.")
        return cfg.prompt.template, cfg.max_reference_tokens, cfg.max_tokens

    def run(
        self,
        cfg: InvisibleInkConfig,
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
        """One text per bucket, several buckets per forward pass."""
        moved = adjacency.moves * unit.max_records
        bound = round(plan.derived["clip_bound"] * LATTICE)
        token = ExponentialMechanism(bound * moved, cfg.temperature * cfg.batch_size * LATTICE)
        most = _PASSES_TOGETHER * performance.rows_per_pass // cfg.batch_size
        together = max(1, min(performance.texts_per_pass, most))
        for start in range(0, len(buckets), together):
            group = buckets[start : start + together]
            texts = self._texts(cfg, bound / LATTICE, token, group, models.language, noise, journal)
            for bucket, tokens in zip(group, texts, strict=True):
                yield Sample(bucket.cell, models.language.decode(tokens).strip())

    def _mechanism(
        self, cfg: InvisibleInkConfig, rho: float, adjacency: Adjacency, unit: PrivacyUnit
    ) -> ExponentialMechanism:
        """The mechanism of one token: the one place where noise and cost come from."""
        moved = adjacency.moves * unit.max_records
        exact = cfg.batch_size * cfg.temperature * math.sqrt(2 * rho / cfg.max_tokens) / moved
        bound = grid_bound(exact)  # down: toward privacy
        if bound < 1:
            raise ConfigError(
                f"privacy.epsilon buys a clip bound of {exact:.3g}, below the grid of "
                f"{1 / LATTICE:.3g}.",
                hint="Raise privacy.epsilon or batch_size, or lower max_tokens.",
            )
        return ExponentialMechanism(bound * moved, cfg.temperature * cfg.batch_size * LATTICE)

    def _texts(
        self,
        cfg: InvisibleInkConfig,
        bound: float,
        token: ExponentialMechanism,
        group: Sequence[Bucket],
        model: LogitModel,
        noise: NoiseSource,
        journal: Journal,
    ) -> list[list[int]]:
        """Algorithm 1 for several buckets side by side."""
        lines = _Lines(self.prompt(cfg), model, group)
        texts: list[list[int]] = [[] for _ in group]
        unfinished = list(range(len(group)))
        for t in range(cfg.max_tokens):  # line 2: for t = 1 ... T  [I5]
            keys = {i: f"{group[i].cell.index}/{t}" for i in unfinished}
            if all(journal.has(key) for key in keys.values()):
                draws: dict[int, Callable[[], int]] = dict.fromkeys(unfinished, _on_file)
            else:
                phi_pub, phi = lines.logits(texts)  # lines 3-4
                draws = {
                    i: partial(_draw, cfg, bound, token, phi_pub[i], partial(phi, i), noise)
                    for i in unfinished
                }
            drawn = journal.draw_all([(keys[i], draws[i]) for i in unfinished])  # [I6]
            for i, value in zip(unfinished, drawn, strict=True):
                texts[i].append(int(value))
            unfinished = [i for i in unfinished if texts[i][-1] != model.eos]
            if not unfinished:
                break
        return [text[:-1] if text[-1] == model.eos else text for text in texts]


def _draw(
    cfg: InvisibleInkConfig,
    bound: float,
    token: ExponentialMechanism,
    phi_pub: NDArray[np.float32],
    phi: Callable[[NDArray[np.int64]], NDArray[np.float32]],
    noise: NoiseSource,
) -> int:
    """Lines 5-7: DClip, average, truncated support, exponential mechanism.

    ``phi_pub`` is (V,), ``phi(support)`` is (rows of the bucket, support). The divisor is the
    public B [I1].
    """
    support = expanded_support(phi_pub, cfg.top_k, bound / cfg.batch_size)
    public = phi_pub[support].astype(np.float64)
    gain = 1.0 if cfg.guidance is None else cfg.guidance
    difference = clip_difference(phi(support).astype(np.float64), public, bound, gain)  # [I2]
    votes = to_grid(difference, bound).sum(axis=0, dtype=np.int64)
    scores = cfg.batch_size * np.rint(public * LATTICE).astype(np.int64) + votes
    return int(support[token.draw(scores, noise)])


def expanded_support(phi_pub: NDArray[np.float32], k: int, shift: float) -> NDArray[np.int64]:
    """Tokens whose averaged logit could reach the top k: public logit within 2 C/B of the k-th.

    Depends on public logits alone (Vinod et al. 2025, section 4, truncated top-k sampling) [I3].
    """
    phi_pub = np.where(np.isfinite(phi_pub), phi_pub, -np.inf)
    k = min(k, int(np.isfinite(phi_pub).sum()))
    kth = np.partition(phi_pub, -k)[-k]
    return np.flatnonzero((phi_pub >= kth - 2 * shift) & np.isfinite(phi_pub))


class _Lines:
    """The public and private rows of a group, started only when a token has to be drawn."""

    def __init__(
        self, prompt: tuple[PromptTemplate, int, int], model: LogitModel, group: Sequence[Bucket]
    ) -> None:
        self._prompt, self._model, self._group = prompt, model, group
        self._sessions: tuple[Session, Session] | None = None
        self._fed = 0
        self.rows: list[slice] = []

    def logits(
        self, texts: Sequence[Sequence[int]]
    ) -> tuple[NDArray[np.float32], Callable[[int, NDArray[np.int64]], NDArray[np.float32]]]:
        """Next-token logits given the texts so far: public ones (texts, V), and private ones.

        The private ones of text ``i`` at some tokens, (rows of its bucket, tokens), on demand.
        """
        if self._sessions is None:
            self._sessions = self._start()
        public, private = self._sessions
        for t in range(self._fed, max(map(len, texts))):
            # A finished text feeds its end token: the shape stays as it is [I4].
            tokens = [text[t] if t < len(text) else self._model.eos for text in texts]
            public.append(tokens)
            private.append(
                [
                    tokens[i]
                    for i, rows in enumerate(self.rows)
                    for _ in range(rows.start, rows.stop)
                ]
            )
        self._fed = max(map(len, texts))
        return public.logits(), lambda i, tokens: private.logits(self.rows[i], tokens)

    def _start(self) -> tuple[Session, Session]:
        template, reference_tokens, max_tokens = self._prompt
        labels: list[str | None] = []
        references: list[str] = []
        for bucket in self._group:
            texts = bucket.texts.reveal()
            self.rows.append(slice(len(references), len(references) + len(texts)))
            references += texts
            labels += [bucket.cell.label] * len(texts)
        public = self._model.public_rows(
            template, [bucket.cell.label for bucket in self._group], max_tokens
        )
        private = self._model.private_rows(
            template, labels, references, reference_tokens, max_tokens
        )
        return public, private


def _on_file() -> int:
    raise AssertionError("the journal holds this draw")


def _advice(cfg: InvisibleInkConfig) -> tuple[str, ...]:
    if cfg.batch_size >= 32:
        return ()
    return (
        f"methods.invisible_ink.batch_size={cfg.batch_size} is below 32: buckets are filled by "
        "hash, so some hold few references and their texts lean on the public model. Privacy is "
        "the same.",
    )
