"""Next-token accuracy of a language model on held-out real texts. Internal by nature.

Source: Yu et al. 2023, section 3.2 and Table 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from privsyn.evaluation.metrics import Metric
from privsyn.models.settings import PerformanceConfig
from privsyn.models.torch_runtime import ready

if TYPE_CHECKING:
    from privsyn.models.protocols import PromptTemplate

_REPLICATES = 1000
_SEED = 20240615


def next_token_accuracy(
    model_folder: Path,
    texts: Sequence[tuple[str | None, str]],
    *,
    max_tokens: int,
    called: str = "student",
    template: PromptTemplate | None = None,
    performance: PerformanceConfig | None = None,
) -> list[Metric]:
    """How often a model's most likely next token is the real one.

    Every text stands behind a public prompt, is cut to ``max_tokens``, and ends with the end token
    unless it was cut. The tokens of the text and its end are counted, those of the prompt are not.
    Tokens are the model's own, so models with different tokenizers cannot be compared.

    Args:
        model_folder: A causal language model with its tokenizer, as ``train_student`` writes it.
        texts: Label and text of held-out real records.
        max_tokens: Tokens of a text that are read at most.
        called: What the model is called in the metrics' names.
        template: The prompt. None: the model's own (its folder's ``privsyn.json``).
        performance: Device and threads. None: as the machine is.

    Returns:
        ``<called>.next_token_accuracy`` (a share) and its interval, ``<called>.commonest_token``
        (accuracy of naming the commonest token always), ``<called>.cross_entropy`` (nats per token)
        and ``<called>.tokens``; all internal. Empty without texts.

    Raises:
        ModelError: The model cannot be loaded, or its context is too short.
    """
    import torch
    import torch.nn.functional as F

    from privsyn.models.training import causal_lm as student

    hits: list[int] = []
    lengths: list[int] = []
    nats, seen = 0.0, Counter[int]()
    with ready(performance or PerformanceConfig()) as device, torch.inference_mode():
        tokenizer = student.read_tokenizer(model_folder)
        model = student.read_model(model_folder).to(device).eval()
        template = template or student.prompt_of(model_folder)
        if not texts:  # privacy: a model that cannot be loaded is said whether there is one or not
            return []
        encoded = student.encode(tokenizer, template, texts, max_tokens)
        student.refuse_long(model, encoded, max_tokens, model_folder.name)
        vocabulary = model.get_input_embeddings().num_embeddings
        for group in student.passes(encoded, vocabulary, device):
            ids, targets = student.pad(group, device)
            kept = targets != student.NOT_COUNTED
            logits = model(input_ids=ids, use_cache=False).logits[kept].float()
            truth = targets[kept]
            right = torch.zeros_like(kept)
            right[kept] = logits.argmax(-1) == truth
            hits += right.sum(-1).tolist()
            lengths += kept.sum(-1).tolist()
            nats += float(F.cross_entropy(logits, truth, reduction="sum").item())
            seen.update(truth.tolist())
    tokens = sum(lengths)
    low, high = _interval(hits, lengths)
    over = f"over {tokens} tokens of {len(encoded)} held-out real texts, ends included"
    return [
        Metric(
            f"{called}.next_token_accuracy",
            sum(hits) / tokens,
            "internal",
            f"share of tokens that are the model's most likely next token, {over}",
        ),
        Metric(
            f"{called}.next_token_accuracy_low",
            low,
            "internal",
            "lower end of its 95% bootstrap interval over texts",
        ),
        Metric(f"{called}.next_token_accuracy_high", high, "internal", "upper end"),
        Metric(
            f"{called}.commonest_token",
            max(seen.values()) / tokens,
            "internal",
            "accuracy of naming the commonest token always",
        ),
        Metric(f"{called}.cross_entropy", nats / tokens, "internal", f"nats per token, {over}"),
        Metric(f"{called}.tokens", float(tokens), "internal", "held-out real tokens counted"),
    ]


def _interval(hits: Sequence[int], lengths: Sequence[int]) -> tuple[float, float]:
    """What 95 of 100 bootstrap samples of the texts spread over: tokens of a text hang together."""
    right, of = np.array(hits), np.array(lengths)
    rng = np.random.default_rng(_SEED)
    drawn = []
    for _ in range(_REPLICATES):
        rows = rng.integers(0, len(of), len(of))
        drawn.append(right[rows].sum() / of[rows].sum())
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)
