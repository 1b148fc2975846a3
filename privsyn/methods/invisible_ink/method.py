"""InvisibleInk: differentially private text from the logits of a language model.

Source: Vinod et al. 2025, "InvisibleInk: High-Utility and Low-Cost Text Generation with
Differential Privacy", Algorithm 1, Theorem 2. Guarantee, assumptions and every deviation from the
paper: guarantee.md, whose tags [I1] ... mark the lines they refer to.

Symbols as in the paper: B references, T tokens, clip bound C, temperature tau, top-k, public
logits ``phi_pub``, private logits ``phi_i``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privsyn.data.records import Bucket, Cell
from privsyn.dp.clipping import DEEPEST, ExactSum, clip_difference, public_grid, to_grid
from privsyn.methods.base import Draw, Role, Sample, Size
from privsyn.methods.invisible_ink.mechanism import InvisibleInkMechanism, calibrate, rebuild
from privsyn.methods.invisible_ink.settings import InvisibleInkConfig, InvisibleInkSettings
from privsyn.methods.shared.logits import LogitMethod, open_rows
from privsyn.methods.shared.prompts import cut_at_next_record, released_text, resolved_prompt
from privsyn.models.protocols import LogitModel, PromptTemplate, Session
from privsyn.models.rows import ANYTHING, Subject

if TYPE_CHECKING:
    from privsyn.dp.noise import NoiseSource
    from privsyn.models.model_identity import ModelIdentity

_PASSES_TOGETHER = 8
"""Forward passes that a group of texts fills at first. Rows of finished texts make room, and with
more passes the last one is fuller."""


class InvisibleInk(LogitMethod[InvisibleInkSettings]):
    """Texts drawn token by token from clipped, averaged next-token logits.

    Guarantee: every text is the T-fold composition of the exponential mechanism over its own
    bucket, and buckets are disjoint in units. So the release is T adaptive draws of bounded range
    eta = 2 D / (B tau) under the account's adjacency, with D = C m (2 C m under replace_one). Vinod
    et al. 2025, Theorem 2, charge T eta^2 / 8 zCDP; exact composition needs 6 to 9% less epsilon
    ([B15] in dp/bounds.md).
    """

    name: ClassVar[str] = "invisible_ink"
    title: ClassVar[str] = "InvisibleInk"
    paper: ClassVar[str] = "Vinod et al. 2025, InvisibleInk, Algorithm 1"
    Config: ClassVar[type[InvisibleInkConfig]] = InvisibleInkConfig
    Settings: ClassVar[type[InvisibleInkSettings]] = InvisibleInkSettings

    tuning_hint: ClassVar[str] = "batch_size or guidance"

    calibrate = staticmethod(calibrate)
    rebuild = staticmethod(rebuild)

    def resolve(
        self,
        cfg: InvisibleInkConfig,
        models: Mapping[Role, ModelIdentity],
        subject: Subject = ANYTHING,
    ) -> InvisibleInkSettings:
        """Settings with the model's own prompt and guidance if the config sets none."""
        model = models["language"]
        return InvisibleInkSettings(
            **cfg.model_dump(exclude={"prompt", "guidance"}),
            prompt=resolved_prompt(cfg.prompt, model, subject),
            guidance=model.guidance_default if cfg.guidance is None else cfg.guidance,
        )

    def cells(self, cfg: InvisibleInkConfig, labels: Sequence[str]) -> list[Cell]:
        """One cell per text: labels in the config's order, ``texts_per_label`` buckets each."""
        return Cell.grid(labels, cfg.texts_per_label)

    def additions(self, cfg: InvisibleInkConfig, labels: Sequence[str]) -> dict[str, bool]:
        """What is in no line of Vinod et al.; null is the model's own guidance."""
        guidance = 1.0 if cfg.guidance is None else cfg.guidance
        return {f"guidance {guidance:g} on the private difference": guidance != 1}

    def for_texts(self, cfg: InvisibleInkConfig, size: Size) -> dict[str, Any]:
        """Equally many texts per label; all records are distributed over them."""
        values = {"texts_per_label": size.each}
        values |= size.lengths("max_tokens")
        if size.records is not None:
            buckets = len(Cell.grid(size.labels, size.each))
            values["batch_size"] = max(1, size.records // buckets)
        return values

    def run(
        self,
        settings: InvisibleInkSettings,
        mechanism: InvisibleInkMechanism,
        buckets: Sequence[Bucket],
        draw: Draw,
    ) -> Iterator[Sample]:
        """One text per bucket, several buckets per forward pass."""
        model, performance = draw.models.language, draw.performance
        # privacy: from public numbers alone, because progress shows how many texts run together
        rows = max(settings.batch_size, math.ceil(draw.expected_records))
        most = _PASSES_TOGETHER * performance.rows_per_pass // rows
        together = max(1, min(performance.rows_per_pass, most))
        cells = [bucket.cell for bucket in buckets]
        # One row in the private and the public prompt, so that it cancels in the difference [I9].
        keys = [draw.rows.key(cell.label, cell.bucket) for cell in cells]
        # privacy: the labels of all cells, also empty ones, decide the width of a row [I4]
        declared = set(keys)
        # Progress counts every text as T tokens: where texts end early must not show in its total.
        total = len(buckets) * settings.max_tokens
        groups = range(0, len(buckets), together)
        for number, start in enumerate(groups):
            group = buckets[start : start + together]
            read = draw.reading_part(number, len(groups), "the references")
            its = keys[start : start + together]
            lines = _Lines(self.prompt(settings), model, group, its, declared, read)
            tell = draw.part(start * settings.max_tokens, total)
            texts = _texts(settings, mechanism, lines, draw, tell)
            for bucket, tokens in zip(group, texts, strict=True):
                text = released_text(tokens, model, settings)  # [I8]
                row = draw.rows.row(bucket.cell.label, bucket.cell.bucket)
                yield Sample(bucket.cell, text, row=row)


def _texts(
    settings: InvisibleInkSettings,
    mechanism: InvisibleInkMechanism,
    lines: _Lines,
    draw: Draw,
    tell: Callable[[int], None],
) -> list[list[int]]:
    """Algorithm 1 for several buckets in parallel; ``tell`` is called with the tokens so far."""
    group, model, journal = lines.group, lines.model, draw.journal
    texts: list[list[int]] = [[] for _ in group]
    unfinished = list(range(len(group)))
    for t in range(settings.max_tokens):  # line 2: for t = 1 ... T  [I5]
        # A text that ended early counts as T tokens.
        tell(t * len(unfinished) + settings.max_tokens * (len(group) - len(unfinished)))
        keys = {i: f"{group[i].cell.index}/{t}" for i in unfinished}
        # Replayed: no logits are needed, so the model reads nothing until the first missing draw.
        if all(journal.has(key) for key in keys.values()):
            draws: dict[int, Callable[[], int]] = dict.fromkeys(unfinished, _on_file)
        else:
            phi_pub, phi = lines.logits(texts)  # lines 3-4
            if t < settings.min_tokens:
                phi_pub = phi_pub.copy()
                # A copy: the session may return its own memory.
                phi_pub[:, model.breaks] = -np.inf  # [I8]
            draws = {
                i: partial(_draw, settings, mechanism, phi_pub[i], partial(phi, i), draw.noise)
                for i in unfinished
            }
        drawn = journal.draw_all([(keys[i], draws[i]) for i in unfinished])  # [I6]
        for i, value in zip(unfinished, drawn, strict=True):
            texts[i].append(int(value))
        unfinished = [
            i
            for i in unfinished
            if texts[i][-1] not in model.ends
            and not cut_at_next_record(model.decode(texts[i]), settings.prompt)[1]
        ]
        if not unfinished:
            break
    tell(settings.max_tokens * len(group))
    return texts


def _draw(
    settings: InvisibleInkSettings,
    mechanism: InvisibleInkMechanism,
    phi_pub: NDArray[np.float32],
    phi: Callable[[NDArray[np.int64]], NDArray[np.float32]],
    noise: NoiseSource,
) -> int:
    """Lines 5-7: DClip, average, truncated support, exponential mechanism.

    Shapes: ``phi_pub`` (V,), ``phi(support)`` (rows of the bucket, support). The divisor is the
    public B [I1].
    """
    bound = mechanism.clip_bound
    support = expanded_support(phi_pub, settings.top_k, bound / settings.batch_size)
    public = phi_pub[support].astype(np.float64)  # (support,)
    private = phi(support).astype(np.float64)  # (rows, support)
    difference = clip_difference(private, public, bound, settings.guidance)  # [I2]
    votes = ExactSum(len(support))  # (support,): a record moves an entry by at most C
    votes.add(to_grid(difference, bound))
    # B times the average of the paper: integers, so that nothing is rounded after the clip.
    scores = settings.batch_size * public_grid(public) + votes.clipped()  # below 2^62 [I7]
    return int(support[mechanism.token.draw(scores, noise)])


def expanded_support(
    phi_pub: NDArray[np.float32], k: int | None, shift: float
) -> NDArray[np.int64]:
    """Tokens whose averaged logit could reach the top k: public logit within 2 C/B of the k-th.

    With k None it is the whole vocabulary.

    It depends on public logits alone (Vinod et al. 2025, section 4, truncated top-k sampling) [I3].
    A token more than ``DEEPEST`` below the largest counts as masked, whatever value the model uses
    for masks [I7]. Shape of the result: (support,).
    """
    finite = np.isfinite(phi_pub)  # (V,)
    logits = np.where(finite, phi_pub, -np.inf).astype(np.float64)
    possible = int(finite.sum())
    k = possible if k is None else min(k, possible)
    kth = np.partition(logits, -k)[-k]
    return np.flatnonzero(finite & (logits >= max(kth - 2 * shift, logits.max() - DEEPEST)))


class _Lines:
    """Public and private rows of a group. Sessions start when the first token must be drawn."""

    def __init__(
        self,
        prompt: tuple[PromptTemplate, int, int],
        model: LogitModel,
        group: Sequence[Bucket],
        keys: Sequence[str | None],
        declared: Collection[str | None],
        read: Callable[[int], None],
    ) -> None:
        self._prompt, self._keys, self._declared, self._read = prompt, keys, declared, read
        self.model, self.group = model, group
        self._sessions: tuple[Session, Session] | None = None
        self._fed = 0
        self.rows: list[slice] = []

    def logits(
        self, texts: Sequence[Sequence[int]]
    ) -> tuple[NDArray[np.float32], Callable[[int, NDArray[np.int64]], NDArray[np.float32]]]:
        """Next-token logits after the texts so far: public, (texts, V), and private.

        Private logits are a function of text ``i`` and tokens, with shape (rows of the bucket,
        tokens): only those of the support are computed.
        """
        if self._sessions is None:
            public, private, self.rows = open_rows(
                self.model, self._prompt, self.group, self._keys, self._declared
            )
            # privacy: one report before and one after, however many references there are
            self._read(0)
            private.logits(slice(0, 0))  # no rows: this only reads the prompts
            self._read(1)
            self._sessions = public, private
        public, private = self._sessions
        for t in range(self._fed, max(map(len, texts))):
            # A finished text feeds its end token, so the shape does not change [I4].
            tokens = [text[t] if t < len(text) else self.model.eos for text in texts]
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


def _on_file() -> int:
    raise AssertionError("the journal holds this draw")
