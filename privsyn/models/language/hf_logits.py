"""A LogitModel over transformers causal language models, its sessions, and JSON grammars.

Every row is padded to one public length, micro-batches have one fixed number of rows, public rows
run in passes of their own, and each session keeps a key-value cache. The vocabulary layer runs
apart from the rest of the model, so that private rows compute logits of the tokens that may be
drawn and of no others; tokens common to all prompts are read once. What makes a row's logits
independent of its neighbors to the last bit is in rowwise.py; ``_probe`` checks it on the machine
at hand before the first private row.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from privsyn.errors import ModelError
from privsyn.models.language import rowwise
from privsyn.models.language.prompts import PromptEncoder, refuse_overlong
from privsyn.models.protocols import PromptTemplate

_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""White space as in ``json.dumps``: free white space could be drawn without end."""


class JSONGrammar:
    """A Grammar over JSON: the tokens that keep a text a prefix of a valid record.

    Args:
        tokenizer: A transformers tokenizer backed by the ``tokenizers`` library.
        schema: A JSON schema.
        vocab_size: Columns of the logits.
        eos: Token that ends a text.
        source: What the model is called in messages.

    Raises:
        ModelError: The tokenizer has another backend, or the grammar engine does not support the
            schema.
    """

    def __init__(
        self, tokenizer: Any, schema: Mapping[str, Any], vocab_size: int, eos: int, source: str
    ) -> None:
        import llguidance
        from llguidance.hf import from_tokenizer

        try:
            vocabulary = from_tokenizer(tokenizer, n_vocab=vocab_size, eos_token=eos)
        except Exception as error:  # the engine's errors are plain ones of Rust
            raise ModelError(
                f"models.language={source}: its tokenizer cannot follow a JSON schema "
                f"({type(error).__name__}).",
                hint="Leave json_schema out, or name a model with a tokenizer.json.",
            ) from None
        rules = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), defaults=_SPACING)
        if problem := llguidance.LLMatcher.validate_grammar(rules, vocabulary):
            raise ModelError(
                f"json_schema cannot be followed while drawing: {' '.join(problem.split())[:200]}.",
                hint="Simplify the schema; a suite of your own may stay strict (validation.suite).",
            )
        self._matcher = llguidance.LLMatcher(vocabulary, rules)
        self._size, self._eos = vocab_size, eos
        self._text: list[int] = []

    def allowed_tokens(self, text: Sequence[int]) -> NDArray[np.int64]:
        """The tokens that may follow, sorted; only the end if the record is complete or broken."""
        # The matcher only moves forward; another text must start from the beginning.
        if self._text != list(text[: len(self._text)]):
            self._matcher.reset()
            self._text = []
        for token in text[len(self._text) :]:
            self._matcher.consume_token(int(token))
            self._text.append(int(token))
        if self._matcher.is_stopped() or self._matcher.is_error():
            return np.array([self._eos])
        bits = np.unpackbits(
            np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little"
        )
        tokens = np.flatnonzero(bits[: self._size])
        return tokens if len(tokens) else np.array([self._eos])


_COLUMN_MULTIPLE = 16
"""Prompts are padded to a multiple: float32 attention kernels round odd lengths differently."""


@dataclass
class _Pass:
    """A micro-batch: the session's row in each slot (-1: a dummy), and its cache.

    ``cache`` is None before the prompt is read, and if there is no memory to keep it.
    """

    rows: list[int]
    ids: Any  # (slots, width)
    mask: Any  # (slots, width + max_tokens), 1 where attended to
    cache: Any = None
    cacheable: bool = True


class HFSession:
    """A Session over a transformers model.

    All rows hold the same number of tokens: a row's bits depend on the number of columns that it
    attends to, so rows at different positions of their texts never share a pass. A row is finished
    when ``eos`` is appended: its logits are zero from then on. When enough rows are finished, the
    others move into fewer passes.

    Args:
        model: The model.
        rows: Prompt tokens of every row.
        prefix: Tokens that all rows begin with; they are read once.
        width: Length of a padded prompt; the padding is between the prefix and the rest.
        max_tokens: Most tokens appended to a row.
        slots: Rows of a pass.
        cache_bytes: Memory for keys and values. Rows beyond it are computed anew at every token.
    """

    def __init__(
        self,
        model: HFLogitModel,
        rows: Sequence[Sequence[int]],
        prefix: Sequence[int],
        width: int,
        max_tokens: int,
        slots: int,
        cache_bytes: float,
    ) -> None:
        self._model, self._rows, self._prefix = model, rows, tuple(prefix)
        # privacy: prefix, width and slots are public, so no shape depends on the rows [I4]
        rest = -(-(width - len(prefix)) // _COLUMN_MULTIPLE) * _COLUMN_MULTIPLE
        self._slots, self._width, self._max_tokens = slots, len(prefix) + rest, max_tokens
        self._cache_bytes = cache_bytes
        self._begin()

    def _begin(self) -> None:
        """Put all rows into passes with unread prompts."""
        self._live = np.ones(len(self._rows), dtype=bool)
        self._fed: list[NDArray[np.int64]] = []
        self._states: Any = None  # (rows, hidden)
        self._first: Any = None  # the states at the end of the prompts
        self._pending, self._cached_bytes = True, 0.0
        self._passes = [
            self._prepare(list(range(start, min(start + self._slots, len(self._rows)))))
            for start in range(0, len(self._rows), self._slots)
        ]

    def logits(
        self, rows: slice = slice(None), columns: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        """Next-token logits, shape (rows, columns)."""
        self._step()
        numbers = np.arange(len(self._rows))[rows]
        width = self._model.vocab_size if columns is None else len(columns)
        out = np.zeros((len(numbers), width), np.float32)  # (rows, columns)
        live = self._live[numbers]
        if live.any():
            out[live] = self._model.score(
                self._states[torch.from_numpy(numbers[live])], self._slots, columns
            )
        return out

    def append(self, tokens: Sequence[int]) -> None:
        """Append one token to every row.

        Raises:
            ValueError: Not one token per row, a token outside the vocabulary, or more than
                ``max_tokens`` of them.
        """
        fed = np.asarray(tokens, dtype=np.int64)  # (rows,)
        if fed.shape != self._live.shape:
            raise ValueError(f"{fed.size} tokens for {self._live.size} rows")
        if fed.size and not (0 <= fed.min() and fed.max() < self._model.vocab_size):
            raise ValueError(f"a token is outside the vocabulary of {self._model.vocab_size}")
        if len(self._fed) >= self._max_tokens:
            raise ValueError(f"a row already holds max_tokens={self._max_tokens} tokens")
        self._step()
        # The previous token must be in the caches before another is fed.
        self._fed.append(fed)
        self._pending = True
        self._live &= fed != self._model.eos

    def rewind(self) -> None:
        """Return every row to the end of its prompt."""
        caches = [part.cache for part in self._passes if part.cacheable]
        # Regrouped or finished rows have lost their cache: read the prompts again.
        if not (self._first is not None and self._live.all() and all(map(_croppable, caches))):
            self._begin()
            return
        for cache in caches:
            rowwise.rewind(cache, self._width)
        self._fed, self._states, self._pending = [], self._first.clone(), False

    def _prepare(self, numbers: list[int]) -> _Pass:
        """Pad rows into a full micro-batch; spare slots hold one end token."""
        device = self._model.network.device
        prefix_length = len(self._prefix)
        # privacy: spare slots are filled up, so every pass has one shape whatever rows it holds
        ids = np.full((self._slots, self._width), self._model.eos)  # (slots, width)
        mask = np.zeros((self._slots, self._width + self._max_tokens), dtype=np.int64)
        mask[:, self._width - 1 :] = 1  # the last token of a prompt and all appended tokens
        ids[:, :prefix_length] = self._prefix
        mask[:, :prefix_length] = 1
        for slot, number in enumerate(numbers):
            rest = self._rows[number][prefix_length:]
            ids[slot, self._width - len(rest) :] = rest
            mask[slot, self._width - len(rest) :] = 1
        return _Pass(
            numbers + [-1] * (self._slots - len(numbers)),
            torch.from_numpy(ids).to(device),
            torch.from_numpy(mask).to(device),
        )

    def _step(self) -> None:
        """Run the pending tokens through the model, if there are any."""
        if not self._pending:
            return
        self._pending = False
        self._regroup()
        for part in self._passes:
            slots = [slot for slot, row in enumerate(part.rows) if row >= 0 and self._live[row]]
            if part.cache is None:
                states = self._read(part)
                for index in range(len(self._fed)):
                    states = self._advance(part, index)
                self._keep(part)
            else:
                states = self._advance(part, len(self._fed) - 1)
            if self._states is None:
                self._states = states.new_zeros((len(self._rows), states.shape[1]))
            self._states[[part.rows[slot] for slot in slots]] = states[slots]  # (rows, hidden)
        if not self._fed and self._passes:
            self._first = self._states.clone()

    def _read(self, part: _Pass) -> Any:
        """Read the prompts, after their common prefix if there is one."""
        part.cache = rowwise.new_cache(self._model.network.config, self._width + self._max_tokens)
        ids = part.ids
        if self._prefix:
            prefix = self._model.read_prefix(self._prefix)
            rowwise.begin_with(part.cache, prefix, self._slots)
            ids = ids[:, len(self._prefix) :]
        return self._forward(part, ids, self._width)

    def _advance(self, part: _Pass, index: int) -> Any:
        """Run one appended token."""
        fed = [self._fed[index][row] if row >= 0 else self._model.eos for row in part.rows]
        ids = torch.tensor(fed, device=part.mask.device)[:, None]  # (slots, 1)
        return self._forward(part, ids, self._width + index + 1)

    def _forward(self, part: _Pass, ids: Any, end: int) -> Any:
        return self._model.forward(part.cache, ids, part.mask[:, :end])

    def _keep(self, part: _Pass) -> None:
        """Keep the cache if memory has room; otherwise the pass is recomputed at every token."""
        if not rowwise.is_preallocated(part.cache):
            return
        layers = part.cache.layers
        size = sum(array.nbytes for layer in layers for array in (layer.keys, layer.values))
        # One cache is always kept, however small the limit: otherwise nothing would be faster.
        part.cacheable = part.cacheable and (
            not self._cached_bytes or self._cached_bytes + size <= self._cache_bytes
        )
        if part.cacheable:
            self._cached_bytes += size
        else:
            part.cache = None

    def _regroup(self) -> None:
        """Drop passes without live rows; move live rows together if that saves whole passes."""
        live = [
            (number, slot, row)
            for number, part in enumerate(self._passes)
            for slot, row in enumerate(part.rows)
            if row >= 0 and self._live[row]
        ]
        busy = {number for number, _, _ in live}
        fewest = -(-len(live) // self._slots)
        caches = [part.cache for part in self._passes]
        if fewest == len(busy) or not self._fed or not all(map(_croppable, caches)):
            self._passes = [part for i, part in enumerate(self._passes) if i in busy]
            return
        groups = [live[i : i + self._slots] for i in range(0, len(live), self._slots)]
        picks = [[(number, slot) for number, slot, _ in group] for group in groups]
        # privacy: a pass keeps its number of slots, so moving a row changes none of its bits [I4]
        with torch.inference_mode():
            caches = rowwise.gather_rows(caches, picks, self._slots)
        passes = []
        for group, cache in zip(groups, caches, strict=True):
            mask = torch.zeros_like(self._passes[0].mask)
            mask[:, self._width - 1 :] = 1
            for slot, (number, old, _) in enumerate(group):
                mask[slot] = self._passes[number].mask[old]
            rows = [row for _, _, row in group] + [-1] * (self._slots - len(group))
            passes.append(_Pass(rows, self._passes[0].ids, mask, cache))
        self._passes = passes


def _croppable(cache: Any) -> bool:
    """Whether rows of the cache can be moved, and its last columns dropped."""
    return cache is not None and rowwise.is_preallocated(cache)


ROW_MULTIPLE = 16
"""Micro-batches are a multiple of this: BLAS kernels sum tail rows in another order."""

PROBE_STEPS = 3
"""Tokens that ``_probe`` appends to each row."""


class CausalNetwork:
    """A causal language model of transformers and its tokenizer, on one device."""

    def __init__(self, model: Any, tokenizer: Any, source: str, revision: str) -> None:
        self._cache_argument = rowwise.refuse_unusable(model, tokenizer, source)
        self._forward_takes = set(inspect.signature(model.forward).parameters)
        self.network, self.revision = model, revision
        self.tokenizer, self._source = tokenizer, source
        self._prompts = PromptEncoder(tokenizer, source)
        # The tokens that stand for text.
        self._plain = set(tokenizer.get_vocab().values()) - special_tokens(tokenizer)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of generated tokens without special tokens. Total: never raises on any token."""
        plain = [int(token) for token in tokens if int(token) in self._plain]
        text: str = self.tokenizer.decode(plain, clean_up_tokenization_spaces=False)
        return text

    def _inputs(self, cache: Any, ids: Any, mask: Any) -> dict[str, Any]:
        """The arguments of the network for new tokens, as far as it takes them."""
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]  # (rows, tokens)
        options = {"position_ids": positions, "logits_to_keep": 1}
        inputs = {"input_ids": ids, "attention_mask": mask, self._cache_argument: cache}
        taken = {name: value for name, value in options.items() if name in self._forward_takes}
        return inputs | taken | {"use_cache": True}


class HFLogitModel(CausalNetwork):
    """A causal language model and its tokenizer, on one device.

    Args:
        model: A transformers model in eval mode.
        tokenizer: Its tokenizer.
        source: What the model is called in messages.
        revision: Digest that enters the release id.
        rows_per_pass: Private rows per forward pass, rounded up to a multiple of 16.
        cache_bytes: Memory for the keys and values of a session.

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
        cache_bytes: float = rowwise.CACHE_BYTES,
    ) -> None:
        super().__init__(model, tokenizer, source, revision)
        self.eos = int(tokenizer.eos_token_id)
        self._text = model.config.get_text_config()
        self.vocab_size = int(self._text.vocab_size)
        self.rows_per_pass = -(-rows_per_pass // ROW_MULTIPLE) * ROW_MULTIPLE
        self._cache_bytes = cache_bytes
        self._probed: set[tuple[int, int, int]] = set()
        self._prefixes: dict[tuple[int, ...], Any] = {}
        self._full = rowwise.attends_fully(model.config)
        self._body, self._head = self._apart()
        self._ends = end_tokens(model, tokenizer)
        self.ends = frozenset(special_tokens(tokenizer).union(self._ends))

    @cached_property
    def breaks(self) -> NDArray[np.int64]:
        """All ends, and every token with a line break."""
        tokens = [token for token in sorted(self._plain) if token < self.vocab_size]
        pieces = self.tokenizer.batch_decode([[token] for token in tokens])
        lines = [token for token, text in zip(tokens, pieces, strict=True) if "\n" in text]
        ends = [token for token in self.ends if 0 <= token < self.vocab_size]
        return np.union1d(ends, lines).astype(np.int64)

    def check(self, template: PromptTemplate, reference_tokens: int, max_tokens: int) -> None:
        """Refuse a template or lengths that do not fit the model's context.

        Raises:
            ModelError: Says by how many tokens, or what is wrong with the template.
        """
        self._fits(self._prompts.length(template) + reference_tokens, max_tokens)

    def public_rows(
        self, template: PromptTemplate, labels: Sequence[str | None], max_tokens: int
    ) -> HFSession:
        """One row per label, without a reference, in separate passes.

        There are as few passes as possible: how many rows there are or are finished is public.
        """
        prompts = {label: self._prompts.public(template, label) for label in set(labels)}
        width = max(map(len, prompts.values()), default=1)
        self._fits(width, max_tokens)
        rows = [prompts[label] for label in labels]
        slots = min(self.rows_per_pass, -(-max(1, len(rows)) // ROW_MULTIPLE) * ROW_MULTIPLE)
        return HFSession(self, rows, (), width, max_tokens, slots, math.inf)

    def private_rows(
        self,
        template: PromptTemplate,
        labels: Sequence[str | None],
        references: Sequence[str],
        reference_tokens: int,
        max_tokens: int,
        *,
        declared: Collection[str | None],
    ) -> HFSession:
        """One row per (label, reference).

        Raises:
            ModelError: The prompt does not fit, or rows are not independent on this machine.
        """
        # privacy: of all declared labels, with records or not, so that width and prefix are public
        prompts = {label: self._prompts.private(template, label) for label in set(declared)}
        width = self._prompts.length(template, prompts) + reference_tokens
        self._fits(width, max_tokens)
        rows = []
        for label, reference in zip(labels, references, strict=True):
            before, lead, after = prompts[label]
            tokens = self._prompts.reference(reference, lead, reference_tokens)
            rows.append([*before, *tokens, *after])
        # A window or a convolution would count the padding between prefix and reference.
        prefix = self._prompts.shared_tokens(template, declared) if self._full else []
        self._probe(prefix, width, max_tokens)
        return HFSession(
            self, rows, prefix, width, max_tokens, self.rows_per_pass, self._cache_bytes
        )

    def grammar(self, schema: Mapping[str, Any]) -> JSONGrammar:
        """The tokens that continue a record of a JSON schema."""
        return JSONGrammar(self.tokenizer, schema, self.vocab_size, self.eos, self._source)

    def _fits(self, prompt: int, max_tokens: int) -> None:
        refuse_overlong(self._source, self._text, prompt, max_tokens)

    def _probe(self, prefix: Sequence[int], width: int, max_tokens: int) -> None:
        """Run public random rows in two places among other rows and compare bits, once per shape.

        It has the shapes of the private rows, because kernels also depend on the length of rows.

        Raises:
            ModelError: Some bit differs.
        """
        steps = min(PROBE_STEPS, max_tokens)
        shape = len(prefix), width, max_tokens
        if shape in self._probed:
            return
        rng = np.random.default_rng(0)  # public randomness: which tokens the probe reads
        n = self.rows_per_pass

        def draw(rows: int) -> list[list[int]]:
            lengths = rng.integers(1, width - len(prefix) + 1, rows)
            drawn = (rng.integers(0, self.vocab_size, length) for length in lengths)
            return [[*prefix, *tokens.tolist()] for tokens in drawn]

        base, fed = draw(n), rng.integers(0, self.vocab_size, (steps, n))  # fed: (steps, rows)
        # A finished row is not computed, so it would prove nothing.
        fed[fed == self.eos] = (self.eos + 1) % self.vocab_size
        some = rng.permutation(self.vocab_size)[: min(40, self.vocab_size)]
        order = rng.permutation(n)
        among = [base[i] for i in order]
        # A third of the rows is replaced, the others move: neither may change a row's bits.
        among[: n // 3] = draw(n // 3)

        def read(rows: list[list[int]], fed: NDArray[np.int64]) -> list[NDArray[np.float32]]:
            session = HFSession(self, rows, prefix, width, max_tokens, n, math.inf)
            logits = []  # a step: (rows, vocabulary) and (rows, len(some))
            for step in fed:
                logits += [session.logits(), session.logits(columns=some)]
                session.append(step.tolist())
            return logits

        one, other = read(base, fed), read(among, fed[:, order])
        for first, moved in zip(one, other, strict=True):
            if not np.array_equal(first[order][n // 3 :], moved[n // 3 :], equal_nan=True):
                raise ModelError(
                    f"models.language={self._source}: with rows_per_pass={n} on "
                    f"{self.network.device} in {self.network.dtype} a row's logits change with its "
                    "place in the batch, which breaks the privacy guarantee.",
                    hint="Set models.dtype=bfloat16, OMP_NUM_THREADS=1, or use "
                    "the CPU (CUDA_VISIBLE_DEVICES=).",
                )
        self._probed.add(shape)

    def forward(self, cache: Any, ids: Any, mask: Any) -> Any:
        """Hidden state after the last of ``ids``, shape (rows, hidden).

        If the vocabulary layer is not separate: the logits, shape (rows, vocabulary).

        Args:
            cache: Keys and values so far; the new ones are appended.
            ids: Shape (rows, tokens).
            mask: Shape (rows, columns so far and new), 1 where attended to.
        """
        inputs = self._inputs(cache, ids, mask)
        with torch.inference_mode():
            if self._body is None:
                return self.network(**inputs).logits[:, -1]
            inputs.pop("logits_to_keep", None)
            return self._body(**inputs).last_hidden_state[:, -1]

    def read_prefix(self, tokens: tuple[int, ...]) -> Any:
        """Keys and values of the tokens that begin every prompt, for one row; computed once."""
        if tokens not in self._prefixes:
            cache = rowwise.new_cache(self.network.config, len(tokens))
            ids = torch.tensor([tokens], device=self.network.device)  # (1, tokens)
            self.forward(cache, ids, torch.ones_like(ids))
            self._prefixes[tokens] = cache
        return self._prefixes[tokens]

    def score(
        self, states: Any, slots: int, columns: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        """Logits of rows as ``forward`` returned them, shape (rows, columns).

        ``slots`` is the public number of rows per call of the vocabulary layer; the last call is
        padded.
        """
        several = len(self._ends) > 1
        outputs = np.union1d(columns, self._ends) if columns is not None and several else columns
        with torch.inference_mode():
            array: NDArray[np.float32] = self._score(states, slots, outputs).float().cpu().numpy()
        if not several:
            return array
        tokens = np.arange(self.vocab_size) if outputs is None else outputs
        array = array.copy()  # (rows, outputs); the original may be the session's own memory
        _one_end(array, np.isin(tokens, self._ends), tokens == self.eos)
        return array if columns is None else array[:, np.searchsorted(tokens, columns)]

    def _score(self, states: Any, slots: int, columns: NDArray[np.int64] | None) -> Any:
        outputs = None if columns is None else torch.from_numpy(columns).to(states.device)
        if self._head is None:
            return states if outputs is None else states[:, outputs]  # states are logits here
        head = self._head if outputs is None else rowwise.columns_of(self._head, outputs)
        # privacy: a fixed number of rows per call, so a row's bits do not depend on the others
        slots = slots if outputs is None else ROW_MULTIPLE
        parts = []
        for start in range(0, len(states), slots):
            part = states[start : start + slots]
            full = F.pad(part, (0, 0, 0, slots - len(part)))  # (slots, hidden)
            parts.append(head(full)[: len(part)])
        return torch.cat(parts)  # (rows, outputs)

    def _apart(self) -> tuple[Any, Any]:
        """The model without its vocabulary layer, and that layer.

        (None, None) if the model caps or scales the layer's logits, which a trial finds out.
        """
        head = self.network.get_output_embeddings()
        find = getattr(self.network, "get_decoder", None)
        body = find() if find else None
        if not isinstance(head, torch.nn.Linear | rowwise.PackedLinear) or body in (
            None,
            self.network,
        ):
            return None, None
        takes = set(inspect.signature(body.forward).parameters)
        if not self._forward_takes - {"labels", "logits_to_keep"} <= takes | {"kwargs"}:
            return None, None
        rng = np.random.default_rng(0)  # public randomness: which tokens the trial reads
        ids = torch.from_numpy(rng.integers(0, self.vocab_size, (ROW_MULTIPLE, 4)))
        ids = ids.to(self.network.device)
        with torch.inference_mode():
            try:
                apart = head(body(input_ids=ids).last_hidden_state[:, -1]).float()
            except (TypeError, AttributeError, RuntimeError):
                return None, None
            whole = self.network(input_ids=ids).logits[:, -1].float()
        close = 1e-5 if self.network.dtype == torch.float32 else 1e-2
        same = bool(((apart - whole).abs().amax() <= close * whole.abs().amax()).item())
        return (body, head) if same else (None, None)


def special_tokens(tokenizer: Any) -> set[int]:
    """The tokens that are not text: another document or turn begins after them."""
    added = tokenizer.added_tokens_decoder.items()
    return {*tokenizer.all_special_ids, *(i for i, token in added if token.special)}


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end a text (end of text, end of turn), sorted."""
    size = int(model.config.get_text_config().vocab_size)
    ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    return sorted({int(tokenizer.eos_token_id), *(int(t) for t in ends if 0 <= t < size)})


def _one_end(logits: NDArray[np.float32], ends: NDArray[np.bool_], end: NDArray[np.bool_]) -> None:
    """Move the probability of all end tokens (end of turn, end of text) to one, row by row.

    ``logits`` has shape (rows, columns). The other ends get a constant: a value computed from the
    row would depend on the requested columns.
    """
    total = np.logaddexp.reduce(logits[:, ends], axis=1)
    logits[:, ends] = -np.inf
    logits[:, end] = total[:, None]
