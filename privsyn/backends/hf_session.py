"""Rows decoded together over key-value caches, in micro-batches of one fixed shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from privsyn.backends import rowwise

if TYPE_CHECKING:
    from privsyn.backends.hf_logits import HFLogitModel


@dataclass
class _Pass:
    """A micro-batch: which row of the session stands in which slot (-1: a dummy), and its cache."""

    rows: list[int]
    ids: Any  # (slots, prompt width)
    mask: Any  # (slots, prompt width + output)
    cache: Any


class HFSession:
    """Rows decoded together. See protocols.Session.

    A row that was given ``eos`` is finished: its logits are zeros from then on, and once enough
    rows are finished the others move together into fewer passes.
    """

    def __init__(
        self,
        model: HFLogitModel,
        rows: Sequence[Sequence[int]],
        width: int,
        max_tokens: int,
        slots: int,
    ) -> None:
        self._model, self._slots, self._width = model, slots, width
        self._max_tokens, self._taken = max_tokens, 0
        self._live = np.ones(len(rows), dtype=bool)
        self._fed = np.full(len(rows), model.eos)
        self._pending = True
        self._last = np.zeros((len(rows), model.vocab_size), np.float32)
        self._passes = [
            self._prepare(list(range(start, min(start + slots, len(rows)))), rows)
            for start in range(0, len(rows), slots)
        ]

    def logits(self) -> NDArray[np.float32]:
        """Next-token logits of every row, shape (rows, vocabulary), read-only."""
        self._step()
        return self._last

    def append(self, tokens: Sequence[int]) -> None:
        """Append one token to every row.

        Raises:
            ValueError: Not one token per row, a token outside the vocabulary, or more than
                ``max_tokens`` of them.
        """
        fed = np.asarray(tokens, dtype=np.int64)
        if fed.shape != self._live.shape:
            raise ValueError(f"{fed.size} tokens for {self._live.size} rows")
        if fed.size and not (0 <= fed.min() and fed.max() < self._model.vocab_size):
            raise ValueError(f"a token is outside the vocabulary of {self._model.vocab_size}")
        if self._taken >= self._max_tokens:
            raise ValueError(f"a row already holds max_tokens={self._max_tokens} tokens")
        self._step()
        self._fed, self._pending = fed, True
        self._taken += 1
        self._live &= fed != self._model.eos

    def _prepare(self, numbers: list[int], rows: Sequence[Sequence[int]]) -> _Pass:
        """Left-pad rows into a full micro-batch; spare slots hold one end token."""
        device = self._model.network.device
        length = self._width + self._max_tokens
        ids = np.full((self._slots, self._width), self._model.eos)
        mask = np.zeros((self._slots, length), dtype=np.int64)
        mask[:, self._width - 1 :] = 1
        for slot, number in enumerate(numbers):
            row = rows[number]
            ids[slot, self._width - len(row) :] = row
            mask[slot, self._width - len(row) :] = 1
        return _Pass(
            numbers + [-1] * (self._slots - len(numbers)),
            torch.from_numpy(ids).to(device),
            torch.from_numpy(mask).to(device),
            rowwise.new_cache(self._model.network.config, length),
        )

    def _step(self) -> None:
        """Run the pending tokens through the model, if there are any."""
        if not self._pending:
            return
        self._pending = False
        self._regroup()
        last = np.empty_like(self._last)
        last[~self._live] = 0
        end = self._width + self._taken
        for part in self._passes:
            slots = [slot for slot, row in enumerate(part.rows) if row >= 0 and self._live[row]]
            if self._taken:
                fed = [self._fed[row] if row >= 0 else self._model.eos for row in part.rows]
                ids = torch.tensor(fed, device=part.mask.device)[:, None]
            else:
                ids = part.ids
            mask = part.mask[:, :end]
            positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
            logits = self._model.forward(part.cache, ids, mask, positions)
            last[[part.rows[slot] for slot in slots]] = logits[slots]
        last.flags.writeable = False
        self._last = last

    def _regroup(self) -> None:
        """Drop passes without a live row; close up where that saves whole passes."""
        live = [
            (number, slot, row)
            for number, part in enumerate(self._passes)
            for slot, row in enumerate(part.rows)
            if row >= 0 and self._live[row]
        ]
        busy = {number for number, _, _ in live}
        needed = -(-len(live) // self._slots)
        caches = [part.cache for part in self._passes]
        if needed == len(busy) or not self._taken or not _preallocated(caches[0]):
            self._passes = [part for i, part in enumerate(self._passes) if i in busy]
            return
        groups = [live[i : i + self._slots] for i in range(0, len(live), self._slots)]
        picks = [[(number, slot) for number, slot, _ in group] for group in groups]
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


def _preallocated(cache: Any) -> bool:
    return all(type(layer) is rowwise.PreallocatedLayer for layer in cache.layers)
