"""A TextModel over transformers causal language models: batched sampling over a KV cache.

Prompts are public, so rows need not be independent here. They are sorted by length, the beginning
that a batch shares is read once, also for the next batches, the rest is padded on the left, and
finished rows are dropped.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import Cache

from privsyn.errors import ModelError
from privsyn.models.language import rowwise
from privsyn.models.language.answers import as_text, is_thought
from privsyn.models.language.degenerate_text import thinks_aloud, whole_words
from privsyn.models.language.hf_logits import CausalNetwork, end_tokens, special_tokens
from privsyn.models.language.likelihood import log_likelihoods
from privsyn.models.language.prompts import context_length
from privsyn.models.protocols import Sampling
from privsyn.models.trial import SENTENCE, STILL_THINKING, THOUGHTS_ALONE, refuse_no_numbers

_SHARED = 16
"""Fewest tokens of a shared beginning that is read once."""
_CLOSE_UP = 0.75
"""Finished rows are dropped when at most this share of a batch is unfinished."""

_LONGEST_TEXT = 4096
"""Tokens of a text that ``tokens`` reads."""
_MOST_READ = 512
"""Most tokens of a prompt and a text whose likelihood is read."""
_LONGEST_STOP = 8
"""Tokens of a text's end in which its stop is looked for."""


class HFTextModel(CausalNetwork):
    """A TextModel over a causal language model.

    If the tokenizer has a chat template, a prompt is one user message. Completions are the text of
    the answers (answers.as_text) with spaces at their ends; a last word that max_tokens cut off is
    removed.

    Args:
        model: A transformers model in eval mode.
        tokenizer: Its tokenizer.
        source: What the model is called in messages.
        revision: Digest that enters the release id.
        rows_per_pass: Prompts decoded together at most.
        cache_bytes: Memory for their keys and values; it limits the prompts decoded together.
        generator: Public randomness, on the model's device. None: seeded from OS entropy.

    Raises:
        ModelError: The tokenizer has no end-of-text token, or the model no key-value cache.

    Source: top_p after Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration".
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        source: str,
        revision: str,
        rows_per_pass: int,
        cache_bytes: float = rowwise.CACHE_BYTES,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(model, tokenizer, source, revision)
        self._rows = rows_per_pass
        self._tokens_held = cache_bytes / _bytes_per_token(model)
        self._context = context_length(model.config.get_text_config())
        self._ends = sorted({*end_tokens(model, tokenizer), *special_tokens(tokenizer)})
        if generator is None:
            generator = torch.Generator(model.device).manual_seed(secrets.randbits(63))
        self._generator = generator
        self._why: str | None = None
        self._last: tuple[Sequence[int], Cache] = ((), rowwise.new_cache(model.config, 0))

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def check(self) -> None:
        """Compute the logits of one public prompt and refuse values that are not finite."""
        ids = torch.tensor([self._prompts.whole(SENTENCE, None)], device=self.network.device)
        cache = rowwise.new_cache(self.network.config, ids.shape[1])
        refuse_no_numbers(self._forward(cache, ids, torch.ones_like(ids)).float().cpu().numpy())

    def tokens(self, text: str) -> list[int]:
        """The distinct tokens of a text within a prompt, without special ones, spaces and digits.

        A likelier digit would make numbers longer, not more frequent.
        """
        row = self._prompts.reference(text.strip(), " ", _LONGEST_TEXT)
        names = dict(zip(row, self.tokenizer.convert_ids_to_tokens(row), strict=True))
        return sorted(
            token for token, name in names.items() if token in self._plain and _speaks(name)
        )

    def read(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Nats a token of the second text of each pair behind the first, shape (pairs,)."""
        likelihoods = log_likelihoods(self, pairs, min(_MOST_READ, self._context or _MOST_READ))
        nats, tokens = np.array(likelihoods).reshape(-1, 2).T
        return np.asarray(nats / np.maximum(tokens, 1))

    def complete(
        self,
        prompts: Sequence[str],
        *,
        max_tokens: int,
        temperature: float,
        top_p: float = 1.0,
        until: Sequence[str] | None = None,
        log_ratios: Mapping[int, float] | None = None,
    ) -> list[str]:
        """One completion per prompt, in order; ``log_ratios`` are added to the tokens' logits.

        Raises:
            ModelError: ``max_tokens`` or the chat template leaves no room for a prompt.
        """
        if max_tokens < 1 or not temperature >= 0:
            raise ValueError(f"max_tokens={max_tokens}, temperature={temperature}")
        longest = None if self._context is None else self._context - max_tokens
        if longest is not None and longest < 1:
            raise ModelError(
                f"models.language={self._source}: its context of {self._context} tokens has no "
                f"room for a prompt beside max_tokens={max_tokens}.",
                hint="Lower max_tokens, or use another model.",
            )
        rows = [self._prompts.whole(prompt, longest, chat=until is None) for prompt in prompts]
        answers = self.continue_rows(
            rows,
            max_tokens=max_tokens,
            sampling=Sampling(temperature, top_p=top_p),
            ran_out=self._over,
            until=until or (),
            log_ratios=log_ratios,
        )
        for answer in answers:
            if is_thought(answer):
                self._why = THOUGHTS_ALONE
        return [as_text(answer) for answer in answers]

    def why_empty(self) -> str | None:
        """Why the last empty completion was empty: only thoughts."""
        return self._why

    def _over(self, answer: str) -> str:
        """The text of an answer that ran out of tokens."""
        text = as_text(answer)
        if is_thought(answer) or thinks_aloud(text):
            self._why = STILL_THINKING
            return ""
        return whole_words(text)

    def continue_rows(
        self,
        rows: Sequence[Sequence[int]],
        *,
        max_tokens: int,
        sampling: Sampling,
        ran_out: Callable[[str], str] = str,
        until: Sequence[str] = (),
        log_ratios: Mapping[int, float] | None = None,
    ) -> list[str]:
        """The model's continuation of some tokens: one text per row, in order.

        Args:
            rows: At least one token per row; with ``max_tokens`` they must fit the context.
            max_tokens: Longest text, in tokens.
            sampling: How tokens are sampled.
            ran_out: Shortens a text that ran out of tokens.
            until: A text ends before the first of these strings, each with a line break in it.
            log_ratios: What is added to the logits of some tokens.
        """
        device = self.network.device
        added = (
            (
                torch.tensor([*log_ratios], device=device),
                torch.tensor([*log_ratios.values()], dtype=torch.float32, device=device),
            )
            if log_ratios
            else None
        )
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        out = [""] * len(rows)
        for numbers in self._batches(order, [len(row) + max_tokens for row in rows]):
            drawn = self._decode([rows[i] for i in numbers], max_tokens, sampling, until, added)
            for i, tokens in zip(numbers, drawn, strict=True):
                text = self.decode(tokens)
                if ends := [place for stop in until if (place := text.find(stop)) >= 0]:
                    out[i] = text[: min(ends)]
                else:
                    out[i] = ran_out(text) if len(tokens) == max_tokens else text
        return out

    def _batches(self, order: Sequence[int], lengths: Sequence[int]) -> Iterator[Sequence[int]]:
        """Rows in batches whose cache fits; the last row of a batch is its longest."""
        start = 0
        for end in range(1, len(order) + 1):
            count = end + 1 - start
            if end < len(order) and count <= self._rows:
                if count * lengths[order[end]] <= self._tokens_held:
                    continue
            yield order[start:end]
            start = end

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _decode(
        self,
        prompts: Sequence[Sequence[int]],
        max_tokens: int,
        sampling: Sampling,
        until: Sequence[str],
        added: tuple[Tensor, Tensor] | None,
    ) -> list[list[int]]:
        """Tokens of the completions of one batch, without the end token.

        A completion with one of ``until`` in it is not written further. ``added`` are tokens and
        what their logits get, shape (tokens,) each.
        """
        device, width = self.network.device, max(map(len, prompts))
        shared = self._shared_length(prompts, width + max_tokens)
        # (rows, width): the shared beginning, left padding, then the rest of each prompt.
        ids = np.full((len(prompts), width), self._ends[0])
        mask = np.zeros((len(prompts), width + max_tokens), dtype=np.int64)
        mask[:, :shared] = mask[:, width:] = 1
        for row, prompt in enumerate(prompts):
            suffix = width - len(prompt) + shared
            ids[row, :shared], ids[row, suffix:] = prompt[:shared], prompt[shared:]
            mask[row, suffix:width] = 1
        fed, seen = torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)
        cache = rowwise.new_cache(self.network.config, width + max_tokens)
        if shared:
            rowwise.begin_with(cache, self._read(prompts[0][:shared]), len(prompts))
            fed = fed[:, shared:]
        ends = torch.tensor(self._ends, device=device)
        alive = torch.ones(len(prompts), dtype=torch.bool, device=device)
        out: list[list[int]] = [[] for _ in prompts]
        numbers = list(range(len(prompts)))
        for step in range(max_tokens):
            logits = self._forward(cache, fed, seen[:, : width + step])
            if added is not None:
                logits = logits.float().index_add(1, added[0], added[1].expand(len(logits), -1))
            tokens = self._sample(logits, sampling)
            # tokens: (rows,)
            alive &= ~torch.isin(tokens, ends)
            going = alive.tolist()
            for slot, token in enumerate(tokens.tolist()):
                if going[slot]:
                    out[numbers[slot]].append(token)
                    if until and self._is_stopped(out[numbers[slot]], until):
                        going[slot], alive[slot] = False, False
            live = [slot for slot, on in enumerate(going) if on]
            if not live:
                break
            if len(live) <= _CLOSE_UP * len(going) and rowwise.is_preallocated(cache):
                picks = [[(0, slot) for slot in live]]
                [cache] = rowwise.gather_rows([cache], picks, len(live))
                slots = torch.tensor(live, device=device)
                tokens, seen, alive = tokens[slots], seen[slots], alive[slots]
                numbers = [numbers[slot] for slot in live]
            fed = tokens[:, None]
        return out

    def _read(self, tokens: Sequence[int]) -> Cache:
        """The keys and values of some tokens; what the last ones began with is not read again."""
        last, kept = self._last
        cache = rowwise.new_cache(self.network.config, len(tokens))
        known = _common(last, tokens) if rowwise.is_preallocated(kept) else 0
        if known:
            rowwise.rewind(kept, known)
            rowwise.begin_with(cache, kept, 1)
        if known < len(tokens):
            ids = torch.tensor([tokens], device=self.network.device)
            self._forward(cache, ids[:, known:], torch.ones_like(ids))
        self._last = tokens, cache
        return cache

    def _is_stopped(self, tokens: Sequence[int], until: Sequence[str]) -> bool:
        """Whether the text has one of these strings. Its last tokens tell: it had none before."""
        tail = self.decode(tokens[-_LONGEST_STOP:])
        return "\n" in tail and any(stop in tail for stop in until)

    def _shared_length(self, prompts: Sequence[Sequence[int]], columns: int) -> int:
        """Number of tokens that all prompts begin with, less than any prompt's length; or 0.

        It is 0 if there are too few, or if a window of the model is shorter than the ``columns``
        of a row and would count the padding after them.
        """
        if not rowwise.attends_fully(self.network.config, columns):
            return 0
        rows = [list(prompt) for prompt in prompts]
        # A beginning shared by the first and the last is shared by all.
        others = max(rows) if len(rows) > 1 else self._last[0]
        shared = min(_common(min(rows), others), min(map(len, rows)) - 1)
        return shared if shared >= _SHARED else 0

    def _forward(self, cache: Any, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits after the last token, shape (rows, vocabulary)."""
        logits: Tensor = self.network(**self._inputs(cache, ids, mask)).logits[:, -1]
        return logits

    def _sample(self, logits: Tensor, sampling: Sampling) -> Tensor:
        """One token per row, shape (rows,)."""
        logits = torch.nan_to_num(logits.float(), nan=torch.finfo(torch.float32).min)
        if sampling.temperature == 0:
            return logits.argmax(-1)
        scores = (logits - logits.amax(-1, keepdim=True)) / sampling.temperature
        columns = None
        if sampling.top_k is not None:
            scores, columns = scores.topk(min(sampling.top_k, scores.shape[-1]), dim=-1)
        drawn = self._draw(scores, sampling.top_p)
        return drawn if columns is None else columns.gather(-1, drawn[:, None])[:, 0]

    def _draw(self, scores: Tensor, top_p: float) -> Tensor:
        """One column per row by softmax(scores), among the likeliest that hold ``top_p``; (rows,).

        By rejection, without sorting: a column is drawn from all, and again if likelier columns
        hold ``top_p`` without it. Columns of equal probability are all accepted or all rejected.
        """
        shares = F.softmax(scores, dim=-1)
        sums = shares.cumsum(-1, dtype=torch.float64)
        drawn = torch.empty(len(scores), dtype=torch.long, device=scores.device)
        rows = torch.arange(len(scores), device=scores.device)  # those without a column yet
        while len(rows):
            at = torch.rand(
                (len(rows), 1), dtype=torch.float64, device=scores.device, generator=self._generator
            )
            columns = torch.searchsorted(sums, at * sums[:, -1:], right=True)
            columns = columns.clamp(max=scores.shape[-1] - 1)
            drawn[rows] = columns[:, 0]
            if top_p >= 1:
                break
            likelier = shares > shares.gather(-1, columns)
            again = (shares * likelier).sum(-1) >= top_p
            rows, shares, sums = rows[again], shares[again], sums[again]
        return drawn


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Number of tokens that both begin with."""
    most = min(len(one), len(other))
    return next((i for i in range(most) if one[i] != other[i]), most)


def _speaks(name: str) -> bool:
    """Whether a token, by its name in the vocabulary, is more than space and has no digit."""
    return not any(map(str.isdigit, name)) and bool(name.strip("\u0120\u010a\u2581 \n"))


def _bytes_per_token(model: Any) -> float:
    """Bytes of one token's keys and values over all layers, by the model's config."""
    text = model.config.get_text_config()
    heads = getattr(text, "num_attention_heads", None) or 1
    width = getattr(text, "head_dim", None) or text.hidden_size // heads
    key_heads = getattr(text, "num_key_value_heads", None) or heads
    size = torch.finfo(model.dtype).bits // 8
    return float(2 * text.num_hidden_layers * key_heads * width * size)
