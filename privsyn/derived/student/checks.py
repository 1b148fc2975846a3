"""What a published model must do. Reads the model's folder alone."""

from __future__ import annotations

from pathlib import Path

from privsyn.errors import ModelError
from privsyn.models.settings import PerformanceConfig
from privsyn.models.torch_runtime import ready
from privsyn.release.verification import Check


def examine_model(folder: Path, performance: PerformanceConfig) -> list[Check]:
    """Whether a causal language model loads, is finite, and gives a distribution over tokens.

    Args:
        folder: Weights, config, tokenizer and prompt.
        performance: Device and threads.
    """
    import torch

    from privsyn.models.training import causal_lm as student

    with ready(performance) as device, torch.inference_mode():
        try:
            tokenizer = student.read_tokenizer(folder)
            model = student.read_model(folder).to(device).eval()
            texts = student.encode(tokenizer, student.prompt_of(folder), [(None, "a")], 2)
        except ModelError as error:
            return [Check("model loads", False, error.message)]
        count = sum(weights.numel() for weights in model.parameters())
        finite = all(bool(torch.isfinite(weights).all()) for weights in model.parameters())
        ids, _ = student.pad(texts, device)
        shares = model(input_ids=ids, use_cache=False).logits.float().softmax(-1)
        known = len(tokenizer) <= shares.shape[-1]
        whole = bool(((shares.sum(-1) - 1).abs() < 1e-3).all())
    return [
        Check("model loads", True, f"{count:,} parameters"),
        Check("weights are finite", finite, "no NaN and no infinity among them"),
        Check("model predicts", whole, "the next token's probabilities add to 1"),
        Check("model knows its tokens", known, f"{len(tokenizer):,} tokens of its tokenizer"),
    ]
