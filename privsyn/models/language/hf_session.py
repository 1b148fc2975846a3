"""Rows decoded together over key-value caches, in micro-batches of one fixed shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from privsyn.models.language import rowwise

_COLUMN_MULTIPLE = 16
"""Prompts are padded to a multiple: float32 attention kernels give odd lengths other bits."""


class ScoresRows(Protocol):
    """What a session asks of its model: see hf_logits.HFLogitModel."""

    network: Any
    eos: int

    @property
    def vocab_size(self) -> int:
        """Number of tokens it gives logits for."""

    def forward(self, cache: Any, ids: Any, mask: Any, positions: Any) -> Any:
        """Hidden state after the last of ``ids``, shape (rows, hidden)."""

    def read_prefix(self, tokens: tuple[int, ...]) -> Any:
        """Cache of one row with the tokens that begin every prompt."""

    def score(
        self, states: Any, slots: int, columns: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        """Logits of rows as ``forward`` returned them, shape (rows, columns)."""


@dataclass
class _Pass:
    """A micro-batch: which row of the session stands in which slot (-1: a dummy), and its cache.

    ``cache`` is None before the prompt is read, and for passes beyond the memory for caches.
    """

    rows: list[int]
    ids: Any  # (slots, width)
    mask: Any  # (slots, width + max_tokens), 1 where attended to
    cache: Any = None
    kept: bool = True


class HFSession:
    """Rows decoded together. See protocols.Session.

    All rows hold the same number of tokens: a row's bits depend on how many columns it attends
    over, so rows at different positions of their texts never share a pass. A row is finished once
    ``eos`` is appended to it: its logits are zeros from then on, and once enough rows are finished
    the others move together into fewer passes.

    Args:
        model: The model.
        rows: Prompt tokens of every row.
        prefix: Tokens that all rows begin with: read once.
        width: Length of a padded prompt; the padding stands between the prefix and the rest.
        max_tokens: Most tokens appended to a row.
        slots: Rows of a pass.
        cache_bytes: Memory for keys and values. Rows beyond it are computed anew at every token.
    """

    def __init__(
        self,
        model: ScoresRows,
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
        self._live = np.ones(len(rows), dtype=bool)
        self._fed: list[NDArray[np.int64]] = []
        self._passes: list[_Pass] = []
        self._states: Any = None  # (rows, hidden)
        self._first: Any = None  # the states at the end of the prompts
        self._pending, self._held = True, 0.0
        self._heard: Callable[[int], None] | None = None
        self._begin()

    def watch(self, heard: Callable[[int], None]) -> None:
        """Tell how many rows are read. See protocols.TellsReading."""
        self._heard = heard

    def logits(
        self, rows: slice = slice(None), columns: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        """Next-token logits, shape (rows, columns). See protocols.Session."""
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
        self._fed.append(fed)
        self._pending = True
        self._live &= fed != self._model.eos

    def rewind(self) -> None:
        """Take every row back to the end of its prompt."""
        caches = [part.cache for part in self._passes if part.kept]
        if not (self._first is not None and self._live.all() and all(map(_croppable, caches))):
            self._begin()
            return
        for cache in caches:
            rowwise.rewind(cache, self._width)
        self._fed, self._states, self._pending = [], self._first.clone(), False

    def _begin(self) -> None:
        """Put all rows into passes whose prompts are still to be read."""
        self._live[:] = True
        self._fed, self._states, self._first = [], None, None
        self._pending, self._held = True, 0.0
        self._passes = [
            self._prepare(list(range(start, min(start + self._slots, len(self._rows)))))
            for start in range(0, len(self._rows), self._slots)
        ]

    def _prepare(self, numbers: list[int]) -> _Pass:
        """Pad rows into a full micro-batch; spare slots hold one end token."""
        device = self._model.network.device
        prefix_length = len(self._prefix)
        # privacy: spare slots are filled up, so every pass has one shape whatever rows it holds
        ids = np.full((self._slots, self._width), self._model.eos)  # (slots, width)
        mask = np.zeros((self._slots, self._width + self._max_tokens), dtype=np.int64)
        mask[:, self._width - 1 :] = 1  # the last token of a prompt, and all that is appended
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
            if self._heard and not self._fed:
                self._heard(1 + max(part.rows))
        if not self._fed and self._passes:
            self._first = self._states.clone()
        self._heard = None  # the prompts are read

    def _read(self, part: _Pass) -> Any:
        """Run the prompts, behind their common prefix where the cache can begin with it."""
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
        mask = part.mask[:, :end]  # (slots, columns so far)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]  # (slots, tokens)
        return self._model.forward(part.cache, ids, mask, positions)

    def _keep(self, part: _Pass) -> None:
        """Keep the cache if memory has room; else the pass is computed anew at every token."""
        if not rowwise.is_preallocated(part.cache):
            return
        size = rowwise.size_of(part.cache)
        part.kept = part.kept and (not self._held or self._held + size <= self._cache_bytes)
        if part.kept:
            self._held += size
        else:
            part.cache = None

    def _regroup(self) -> None:
        """Drop passes without a live row; move live rows together where that saves whole passes."""
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
    """Whether rows of the cache can be moved and its last columns dropped."""
    return cache is not None and rowwise.is_preallocated(cache)
