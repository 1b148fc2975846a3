"""A Llama to train quickly on few cores, with the parameter names of ``LlamaForCausalLM``.

Two things differ from transformers' own, not the function computed: causal attention in blocks that
leave out what is masked (a quarter faster on CPUs), and a loss that never holds all logits at once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaConfig

_BLOCKS = 4


def causal_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention of ``[batch, heads, length, width]``."""
    if query.is_cuda:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)
    length = query.shape[2]
    step = -(-length // _BLOCKS)
    scale = query.shape[-1] ** -0.5
    outputs = []
    for start in range(0, length, step):
        stop = min(start + step, length)
        scores = (query[:, :, start:stop] * scale) @ key[:, :, :stop].transpose(2, 3)
        future = torch.ones(stop - start, stop, dtype=torch.bool, device=query.device)
        scores = scores.masked_fill(future.triu(start + 1), float("-inf"))
        weights = torch.softmax(scores.float(), dim=-1).to(value.dtype)
        outputs.append(weights @ value[:, :, :stop])
    return torch.cat(outputs, dim=2)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary position embedding, halves of the head paired as in transformers."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


class Norm(nn.RMSNorm):
    """Root mean square norm, taken in float32 whatever the stream."""

    def forward(self, x: Tensor) -> Tensor:
        """``x`` is ``[..., width]``."""
        return super().forward(x.float()).to(x.dtype)


class Attention(nn.Module):
    """Multi-head self-attention with rotary positions."""

    def __init__(self, config: LlamaConfig) -> None:
        """Projections without bias."""
        super().__init__()
        width = config.hidden_size
        self.heads = config.num_attention_heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """``x`` is ``[batch, length, width]``."""
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        query, key, value = (
            projection(x).view(shape).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        cosine, sine = cosine.to(query.dtype), sine.to(query.dtype)
        mixed = causal_attention(rotate(query, cosine, sine), rotate(key, cosine, sine), value)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: LlamaConfig) -> None:
        """Projections without bias."""
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` is ``[batch, length, width]``."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One layer. It alone is compiled: the whole model compiles for minutes and runs no faster."""

    def __init__(self, config: LlamaConfig) -> None:
        """Norms before attention and feed-forward."""
        super().__init__()
        self.input_layernorm = Norm(config.hidden_size, eps=config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = Norm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """``x`` is ``[batch, length, width]``."""
        x = x + self.self_attn(self.input_layernorm(x), cosine, sine)
        return x + self.mlp(self.post_attention_layernorm(x))


def loss_and_slope(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Summed cross-entropy of ``[tokens, vocabulary]`` logits, and its slope in their precision."""
    scores = logits.float()
    normaliser = scores.logsumexp(-1, keepdim=True)
    wanted = targets[:, None]
    hit = torch.arange(logits.shape[1], device=logits.device) == wanted
    slope = (scores - normaliser).exp() - hit.float()
    return (normaliser - scores.gather(1, wanted)).sum(), slope.to(logits.dtype)


class ChunkedLoss(torch.autograd.Function):
    """Summed cross-entropy of a linear head, its gradient taken in the forward pass, in chunks."""

    CHUNK = 512
    of_logits = staticmethod(loss_and_slope)

    @staticmethod
    def forward(ctx: object, hidden: Tensor, head: Tensor, targets: Tensor) -> Tensor:
        """``hidden`` is ``[tokens, width]``, ``head`` ``[vocabulary, width]``."""
        weights = head.to(hidden.dtype)
        total = hidden.new_zeros((), dtype=torch.float32)
        of_hidden = torch.empty_like(hidden)
        of_head = torch.zeros_like(head)
        for start in range(0, len(hidden), ChunkedLoss.CHUNK):
            span = slice(start, start + ChunkedLoss.CHUNK)
            loss, slope = ChunkedLoss.of_logits(hidden[span] @ weights.T, targets[span])
            total += loss
            of_hidden[span] = slope @ weights
            of_head += slope.T @ hidden[span]
        ctx.save_for_backward(of_hidden, of_head)  # type: ignore[attr-defined]
        return total

    @staticmethod
    def backward(ctx: object, slope: Tensor) -> tuple[Tensor, Tensor, None]:
        """Scale what the forward pass kept."""
        of_hidden, of_head = ctx.saved_tensors  # type: ignore[attr-defined]
        return of_hidden * slope, of_head * slope, None


class Model(nn.Module):
    """``model.*`` of ``LlamaForCausalLM``, head tied to the embedding."""

    def __init__(self, config: LlamaConfig) -> None:
        """Random weights; the layers' outputs begin at zero."""
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        self.norm = Norm(config.hidden_size, eps=config.rms_norm_eps)
        half = config.hidden_size // config.num_attention_heads // 2
        speed = config.rope_parameters["rope_theta"] ** (-torch.arange(half) / half)
        angle = torch.outer(torch.arange(config.max_position_embeddings), speed).repeat(1, 2)
        self.register_buffer("cosine", angle.cos(), persistent=False)
        self.register_buffer("sine", angle.sin(), persistent=False)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        for block in self.layers:
            nn.init.zeros_(block.self_attn.o_proj.weight)
            nn.init.zeros_(block.mlp.down_proj.weight)

    def compile_blocks(self) -> None:
        """Compile every layer, and the loss."""
        ChunkedLoss.of_logits = staticmethod(torch.compile(loss_and_slope, dynamic=False))
        for block in self.layers:
            block.compile(dynamic=False)

    def loss(self, rows: Tensor) -> Tensor:
        """Summed nats over ``rows``, ``[batch, length + 1]`` token ids."""
        x = self.embed_tokens(rows[:, :-1])
        cosine, sine = self.cosine[: x.shape[1]], self.sine[: x.shape[1]]
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            x = x.bfloat16()
            for block in self.layers:
                x = block(x, cosine, sine)
            x = self.norm(x)
        return ChunkedLoss.apply(
            x.reshape(-1, x.shape[-1]), self.embed_tokens.weight, rows[:, 1:].reshape(-1)
        )


def weights_of(model: Model) -> dict[str, Tensor]:
    """The weights by the names that ``LlamaForCausalLM`` loads, in float16."""
    return {
        f"model.{name}": weight.detach().cpu().half().contiguous()
        for name, weight in model.state_dict().items()
    }
