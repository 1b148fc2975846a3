"""A LogitModel over transformers causal language models.

Every row is left-padded to one public length, micro-batches have one fixed number of rows, public
rows run in passes of their own, and each session keeps a key-value cache. What makes a row's logits
independent of its neighbours to the last bit is in rowwise.py; ``_probe`` checks it on the machine
at hand before the first private row.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from privsyn.backends.hf_session import HFSession
from privsyn.backends.prompts import PromptEncoder, refuse_overlong
from privsyn.backends.protocols import PromptTemplate
from privsyn.errors import ModelError

ROW_MULTIPLE = 16
"""Micro-batches are rounded up to a multiple of this: BLAS kernels treat tail rows apart."""

PROBE_STEPS = 3


class HFLogitModel:
    """A causal language model and its tokenizer, on one device.

    Args:
        model: A transformers model in eval mode.
        tokenizer: Its tokenizer.
        source: What the model is called in messages.
        revision: Digest that enters the release id.
        rows_per_pass: Private rows per forward pass, rounded up to a multiple of 16.
        texts_per_pass: Public rows per forward pass.

    Raises:
        ModelError: The tokenizer has no end-of-text token, or the model no key-value cache.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        source: str,
        revision: str,
        rows_per_pass: int,
        texts_per_pass: int,
    ) -> None:
        if tokenizer.eos_token_id is None:
            raise ModelError(
                f"models.language={source}: the tokenizer has no end-of-text token (eos_token).",
                hint="Set it in tokenizer_config.json.",
            )
        self.revision = revision
        self.eos = int(tokenizer.eos_token_id)
        self.network = model
        self._tokenizer, self._source = tokenizer, source
        self._text = model.config.get_text_config()
        self.vocab_size = int(self._text.vocab_size)
        self.rows_per_pass = -(-rows_per_pass // ROW_MULTIPLE) * ROW_MULTIPLE
        self.texts_per_pass = texts_per_pass
        self._prompts = PromptEncoder(tokenizer, source)
        self._forward_takes = set(inspect.signature(model.forward).parameters)
        if "past_key_values" not in self._forward_takes:
            raise ModelError(
                f"models.language={source}: {type(model).__name__} keeps no key-value cache.",
                hint="Name a transformer model.",
            )
        self._probed: set[int] = set()
        added = tokenizer.added_tokens_decoder.items()
        special = {*tokenizer.all_special_ids, *(i for i, token in added if token.special)}
        self._plain = set(tokenizer.get_vocab().values()) - special
        generation = getattr(model, "generation_config", None)
        ends = getattr(generation, "eos_token_id", None)
        ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
        self._ends = sorted({self.eos, *(int(t) for t in ends if 0 <= t < self.vocab_size)})

    def check(self, template: PromptTemplate, reference_tokens: int, max_tokens: int) -> None:
        """Refuse a template or lengths that do not fit the model's context.

        Raises:
            ModelError: By how many tokens, or what is wrong with the template.
        """
        self._fits(self._prompts.length(template) + reference_tokens, max_tokens)

    def public_rows(
        self, template: PromptTemplate, labels: Sequence[str | None], max_tokens: int
    ) -> HFSession:
        """One row per label entry without any reference, in fixed-shape passes of their own."""
        known = {label: self._prompts.public(template, label) for label in set(labels)}
        width = max(map(len, known.values()), default=1)
        self._fits(width, max_tokens)
        rows = [known[label] for label in labels]
        return HFSession(self, rows, width, max_tokens, self.texts_per_pass)

    def private_rows(
        self,
        template: PromptTemplate,
        labels: Sequence[str | None],
        references: Sequence[str],
        reference_tokens: int,
        max_tokens: int,
    ) -> HFSession:
        """One row per (label, reference). See LogitModel.

        Raises:
            ModelError: The prompt does not fit, or rows are not independent on this machine.
        """
        known = {label: self._prompts.private(template, label) for label in set(labels)}
        width = self._prompts.length(template, known) + reference_tokens
        self._fits(width, max_tokens)
        rows = []
        for label, reference in zip(labels, references, strict=True):
            before, lead, after = known[label]
            tokens = self._prompts.reference(reference, lead, reference_tokens)
            rows.append([*before, *tokens, *after])
        if rows:
            self._probe(width)
        return HFSession(self, rows, width, max_tokens, self.rows_per_pass)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of generated tokens without special tokens. Total: never raises on any token."""
        kept = [int(token) for token in tokens if int(token) in self._plain]
        text: str = self._tokenizer.decode(kept, clean_up_tokenization_spaces=False)
        return text

    def _fits(self, prompt: int, max_tokens: int) -> None:
        refuse_overlong(self._source, self._text, prompt, max_tokens)

    def _probe(self, width: int) -> None:
        """Run random rows twice, moved and among others, and compare bits. Once per shape.

        Shorter rows stand in for long ones on CPU, where kernels are chosen by the number of rows.
        """
        width = width if self.network.device.type == "cuda" else min(width, ROW_MULTIPLE)
        if width in self._probed:
            return
        rng = np.random.default_rng(0)  # public randomness: which tokens the probe reads
        n = self.rows_per_pass

        def draw(rows: int) -> list[list[int]]:
            lengths = rng.integers(1, width + 1, rows)
            return [rng.integers(0, self.vocab_size, length).tolist() for length in lengths]

        kept, fed = draw(n), rng.integers(0, self.vocab_size, (PROBE_STEPS, n))
        fed[fed == self.eos] = (self.eos + 1) % self.vocab_size
        order = rng.permutation(n)
        among = [kept[i] for i in order]
        among[: n // 3] = draw(n // 3)
        one = HFSession(self, kept, width, PROBE_STEPS + 1, n)
        other = HFSession(self, among, width, PROBE_STEPS + 1, n)
        for step in fed:
            if not np.array_equal(
                one.logits()[order][n // 3 :], other.logits()[n // 3 :], equal_nan=True
            ):
                raise ModelError(
                    f"models.language={self._source}: with rows_per_pass={n} on "
                    f"{self.network.device} in {self.network.dtype} a row's logits change with its "
                    "place in the batch, which breaks the privacy guarantee.",
                    hint="Set models.dtype=bfloat16, performance.threads=1 or device=cpu.",
                )
            one.append(step.tolist())
            other.append(step[order].tolist())
        self._probed.add(width)

    def forward(self, cache: Any, ids: Any, mask: Any, positions: Any) -> NDArray[np.float32]:
        """Logits after the last of ``ids``, shape (rows, vocabulary)."""
        options: dict[str, Any] = {"position_ids": positions, "logits_to_keep": 1}
        options = {k: v for k, v in options.items() if k in self._forward_takes}
        with torch.inference_mode():
            out = self.network(
                input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True, **options
            )
            logits = out.logits[:, -1].float()
            if len(self._ends) > 1:
                logits = self._one_end(logits)
            array: NDArray[np.float32] = logits.cpu().numpy()
        return array

    def _one_end(self, logits: Any) -> Any:
        """Gather the mass of all end tokens (end of turn, end of text) on ``eos``, row by row."""
        logits = logits.clone()
        total, low = logits[:, self._ends].logsumexp(-1), logits.amin(-1)
        logits[:, self._ends] = low[:, None]
        logits[:, self.eos] = total
        return logits
