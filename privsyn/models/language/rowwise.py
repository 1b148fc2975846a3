"""Torch kernels whose result for a row depends on that row alone, to the last bit.

The privacy proofs need a row's logits to be the same at every position of its micro-batch and with
any other rows. Even with one fixed shape, stock kernels on CPU do not guarantee that:

- float32 ``scaled_dot_product_attention`` with one query token splits the keys of a row at the end
  of a thread's share, so rows at some positions are summed in another order;
- MKL's float32 matrix product changes kernel at the tail of a thread's rows (5 rows, or 24 rows on
  two threads), and may cut the inner dimension between threads (50x36 on four);
- float32 attention does the same to queries of odd lengths (17, 33) with heads of odd sizes (10);
- transformers drops the padding mask when no row of the batch is padded, and takes another kernel.

So on CPU linear layers run through oneDNN with prepacked weights. They gave equal rows for every
number of rows from 1 to 1,000 on 1, 2 and 4 threads (and are 2.7 times as fast at the vocabulary
layer). One-token attention in float32 is stock attention over 16 query tokens, or an elementwise
product and a sum if heads have odd sizes. Prompts are padded to a multiple of 16. The mask is
always built. HFLogitModel probes the result before the first private row.
"""

from __future__ import annotations

import inspect
import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.pytorch_utils import Conv1D

from privsyn.errors import ModelError

CACHE_BYTES = 8e9
"""Memory for attention keys and values. Rows beyond it are read again at every token."""
ATTENTION = "privsyn_sdpa"  # "sdpa" in the name: models without SDPA then refuse it
_LANES = 16  # float32 numbers of a cache line
_ROWS_HINT = 64  # row count that oneDNN optimizes the weights' layout for; any number works


class PackedLinear(nn.Module):  # type: ignore[misc]
    """A linear layer over oneDNN with weights packed once.

    Args:
        weight: Shape (out, in).
        bias: Shape (out,), or None.
        keep: Whether ``rows_of`` will be called, which needs the unpacked weights, too.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, keep: bool = False) -> None:
        super().__init__()
        self._unpacked = weight if keep else None
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _ROWS_HINT)
        self.bias = bias
        # Some models read ``layer.weight.dtype``; on "meta" it takes no memory.
        self.weight = torch.empty(weight.shape, dtype=weight.dtype, device="meta")

    def forward(self, x: Tensor) -> Tensor:
        """``x @ weight.T + bias``, shape (..., in) to (..., out)."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return out

    def rows_of(self, outputs: Tensor) -> PackedLinear:
        """A layer that computes only these outputs."""
        if self._unpacked is None:
            raise ValueError("the weights were not kept")
        bias = None if self.bias is None else self.bias[outputs]
        return PackedLinear(self._unpacked[outputs], bias)


def columns_of(head: nn.Module, outputs: Tensor) -> nn.Module:
    """The part of a linear layer that computes only these outputs."""
    if isinstance(head, PackedLinear):
        return head.rows_of(outputs)
    part = nn.Linear(head.in_features, len(outputs), bias=False, device="meta")
    part.weight = nn.Parameter(head.weight[outputs], requires_grad=False)
    if head.bias is not None:
        part.bias = nn.Parameter(head.bias[outputs], requires_grad=False)
    return part


def pack_linears(model: nn.Module, head: nn.Module | None = None) -> int:
    """Replace every linear layer of a CPU model; returns the number replaced.

    Layers do not change if oneDNN is missing or cannot pack their type. ``head`` is the layer whose
    outputs may be requested in part.
    """
    if not torch.backends.mkldnn.is_available():
        return 0
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                weight = child.weight
            # GPT-2's layer: a linear layer with transposed weights, (in, out)
            elif type(child) is Conv1D:
                weight = child.weight.t()
            else:
                continue
            bias = None if child.bias is None else child.bias.detach()
            try:
                layer = PackedLinear(weight.detach(), bias, keep=child is head)
            except RuntimeError:
                return count
            setattr(parent, name, layer)
            count += 1
    return count


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    mixes: bool = False,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention in transformers' interface; only one-token steps on CPU differ from its SDPA.

    With ``mixes`` rows may depend on each other, which is faster.

    Shapes: query (rows, heads, tokens, size), key and value (rows, key heads, length, size), mask
    (rows, 1, tokens, length), true where attended to. Returns (rows, tokens, heads, size).
    """
    extra = any(kwargs.get(name) is not None for name in ("softcap", "position_bias"))
    if query.shape[2] != 1 or query.device.type != "cpu" or attention_mask is None or extra:
        out: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, is_causal, **kwargs
        )
        return out
    rows, heads, _, size = query.shape
    groups = heads // key.shape[1]
    # (rows, key heads, groups, size): query heads beside the key head they share
    q = query.view(rows, key.shape[1], groups, size) * (size**-0.5 if scaling is None else scaling)
    if mixes:
        kernel = _attend_grouped
    elif query.dtype != torch.float32:
        kernel = _attend_batched
    else:
        kernel = _attend_padded if size % _LANES == 0 else _attend
    return kernel(q, key, value, attention_mask).reshape(rows, 1, heads, value.shape[-1]), None


def _attend_padded(q: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """One token per row by stock attention, with query heads in place of query tokens.

    They are padded to a multiple of 16: kernel and scratch memory are then the same for every row,
    with the same alignment in every thread.
    """
    heads = q.shape[2]
    padded = F.pad(q, (0, 0, 0, -heads % _LANES))  # (rows, key heads, 16 n, size)
    visible = mask.expand(-1, -1, padded.shape[2], -1)  # (rows, 1, 16 n, length)
    out = F.scaled_dot_product_attention(padded, key, value, attn_mask=visible, scale=1.0)
    return out[:, :, :heads]


def _attend_grouped(q: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """One token per row by stock attention; it copies neither keys nor values."""
    visible = mask.expand(-1, -1, q.shape[2], -1)  # (rows, 1, groups, length)
    return F.scaled_dot_product_attention(q, key, value, attn_mask=visible, scale=1.0)


def _attend(q: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """One token per row without a BLAS call, equally fast because memory is the bottleneck."""
    out = []
    for g in range(q.shape[2]):
        scores = (key * q[:, :, g, None]).sum(-1)  # (rows, key heads, length)
        scores = scores.masked_fill(~mask[:, :, 0], torch.finfo(scores.dtype).min)
        out.append((value * F.softmax(scores, dim=-1)[..., None]).sum(2))
    return torch.stack(out, dim=2)  # (rows, key heads, groups, size)


def _attend_batched(q: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """One token per row by batched products: oneDNN computes bfloat16 rows independently."""
    scores = torch.matmul(q, key.transpose(2, 3))  # (rows, key heads, groups, length)
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return torch.matmul(F.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype), value)


def _mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """The attention mask, built even if no row is padded, where transformers would omit it."""
    # privacy: without a mask a row would use another kernel because of its neighbors
    kwargs["allow_is_causal_skip"] = False
    mask: Tensor | None = sdpa_mask(*args, **kwargs)
    return mask


def register(*, mixes: bool = False) -> str:
    """Make the attention known to transformers; returns its name. See ``attention``."""
    name = f"{ATTENTION}_mixed" if mixes else ATTENTION
    AttentionInterface.register(name, partial(attention, mixes=mixes))
    AttentionMaskInterface.register(name, _mask)
    return name


class PreallocatedLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of one layer in buffers of the final length.

    Appending writes one column; the stock layer copies everything at every token.
    """

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length, self.used = length, 0

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write new columns; returns views of all columns, shape (rows, heads, columns, size)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            # (rows, heads, length, size)
            self.keys = key_states.new_zeros(_longer_shape(key_states, self.length))
            self.values = value_states.new_zeros(_longer_shape(value_states, self.length))
        end = self.used + key_states.shape[-2]
        self.keys[:, :, self.used : end] = key_states
        self.values[:, :, self.used : end] = value_states
        self.used = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        """Columns written."""
        return self.used


def _longer_shape(states: Tensor, length: int) -> tuple[int, ...]:
    """The shape of the states with another number of columns."""
    rows, heads, _, size = states.shape
    return rows, heads, length, size


def cache_argument(model: Any) -> str | None:
    """The argument of a model's ``forward`` for keys and values: transformers 5.24 renamed it.

    ``**kwargs`` would silently take an unknown name, and every token would be read without those
    before it. None for a model without attention: its state has the newer name, too.
    """
    layers = DynamicCache(config=model.config).layers
    if layers and not any(isinstance(layer, DynamicLayer) for layer in layers):
        return None
    takes = inspect.signature(model.forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in takes), None)


def refuse_unusable(model: Any, tokenizer: Any, source: str) -> str:
    """The model's ``cache_argument``, where it has one and its tokenizer an end-of-text token.

    Raises:
        ModelError: One of them is missing.
    """
    if tokenizer.eos_token_id is None:
        raise ModelError(
            f"models.language={source}: the tokenizer has no end-of-text token (eos_token).",
            hint="Set it in tokenizer_config.json.",
        )
    argument = cache_argument(model)
    if argument is None:
        raise ModelError(
            f"models.language={source}: {type(model).__name__} keeps no key-value cache.",
            hint="Name a transformer model.",
        )
    return argument


def peeks(model: Any) -> bool:
    """Whether logits move when a later token changes, as those of an encoder (BERT) do.

    Two passes over eight tokens that differ in the last one. Such a model is shown the token that
    it is to predict: its next-token accuracy is not one, and it cannot write.
    """
    vocabulary = model.get_input_embeddings().num_embeddings
    device, training = model.get_input_embeddings().weight.device, model.training
    first = (torch.arange(1, 9, device=device) * 7 % vocabulary)[None]  # (1, 8)
    second = first.clone()
    second[0, -1] = (second[0, -1] + 1) % vocabulary
    model.eval()
    try:
        with torch.inference_mode():
            one, other = (model(input_ids=ids, use_cache=False).logits for ids in (first, second))
    finally:
        model.train(training)
    earlier = one[0, :-1].float()
    moved = (earlier - other[0, :-1].float()).abs().max()
    return bool(moved > 1e-3 * (earlier.max() - earlier.min()))


def refuse_peeking(model: Any, where: str) -> None:
    """Refuse a model whose logits at a position depend on the tokens after it.

    Raises:
        ModelError: It does: an encoder, read with attention in both directions.
    """
    if peeks(model):
        raise ModelError(
            f"{where}: its logits at a token move when the next token changes, so it is no causal "
            "language model.",
            hint='Name a causal model, or set "is_decoder": true in config.json of an encoder.',
        )


def attends_fully(config: Any, columns: float = math.inf) -> bool:
    """Whether every layer attends over all of so many columns and keeps no other state.

    Only then may padding be inside a row: a shorter window or a convolution counts columns.
    """
    layers = DynamicCache(config=config).layers
    return bool(layers) and all(
        type(layer) is DynamicLayer
        or (type(layer) is DynamicSlidingWindowLayer and layer.sliding_window >= columns)
        for layer in layers
    )


def new_cache(config: Any, length: int) -> Cache:
    """An empty cache for ``length`` columns; the model's own type if it keeps other state, too."""
    stock = DynamicCache(config=config)
    if stock.layers and all(
        type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in stock.layers
    ):
        # A sliding layer's mask hides the older columns, so keeping them all changes nothing.
        return Cache(layers=[PreallocatedLayer(length) for _ in stock.layers])
    return stock


def is_preallocated(cache: Cache) -> bool:
    """Whether rows of the cache can be moved and its last columns removed."""
    return all(type(layer) is PreallocatedLayer for layer in cache.layers)


def rewind(cache: Cache, columns: int) -> None:
    """Forget all columns from ``columns`` on."""
    for layer in cache.layers:
        layer.used = min(layer.used, columns)


def begin_with(cache: Cache, prefix: Cache, rows: int) -> None:
    """Let every row of an empty cache begin with the columns of a one-row cache."""
    for layer, source in zip(cache.layers, prefix.layers, strict=True):
        # (1, heads, columns, size), expanded to (rows, heads, columns, size)
        keys, values = (part[:, :, : source.used] for part in (source.keys, source.values))
        layer.update(keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1))


def gather_rows(caches: list[Cache], picks: list[list[tuple[int, int]]], rows: int) -> list[Cache]:
    """Regroup rows of preallocated caches: ``picks[i]`` are the (cache, row) pairs of new cache i.

    Slots beyond the picks hold zeros. The old caches are emptied.
    """
    new_caches = [Cache(layers=[PreallocatedLayer(0) for _ in caches[0].layers]) for _ in picks]
    for depth in range(len(caches[0].layers)):
        old = [cache.layers[depth] for cache in caches]
        for cache, pairs in zip(new_caches, picks, strict=True):
            layer = cache.layers[depth]
            layer.length, layer.used = old[0].length, old[0].used
            layer.lazy_initialization(old[0].keys, old[0].values)
            # (rows, heads, length, size)
            layer.keys = old[0].keys.new_zeros((rows, *old[0].keys.shape[1:]))
            layer.values = old[0].values.new_zeros((rows, *old[0].values.shape[1:]))
            for slot, (source, row) in enumerate(pairs):
                layer.keys[slot, :, : layer.used] = old[source].keys[row, :, : layer.used]
                layer.values[slot, :, : layer.used] = old[source].values[row, :, : layer.used]
        for layer in old:
            layer.keys = layer.values = None
    return new_caches
