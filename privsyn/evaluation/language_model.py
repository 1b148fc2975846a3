"""Language models as judges: perplexity of the release, and accuracy of its students."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from privsyn.evaluation.metrics import Metric, evenly_spaced, metrics_of
from privsyn.models.torch_runtime import ready

if TYPE_CHECKING:
    from privsyn.models.protocols import PromptTemplate

Likelihoods = Callable[[Sequence[tuple[str, str]]], list[tuple[float, int]]]
"""Log-likelihood in nats and number of tokens of each text after its prompt."""

MOST_READ = 100
"""Texts a side whose perplexity is compared, as in InvisibleInk's experiments (Vinod et al.)."""
_FEWEST = 20
_RESAMPLES = 1000
_SEED = 20240615


def perplexity_gap(
    synthetic: Sequence[str], real: Sequence[str], likelihoods: Likelihoods, most: int = MOST_READ
) -> list[Metric]:
    """Perplexity of synthetic and of held-out real texts under the public model, and their ratio.

    A release that repeats what the model writes anyway has far lower perplexity than real texts.

    Args:
        synthetic: Synthetic texts.
        real: Held-out real texts.
        likelihoods: Of the public model.
        most: Most texts a side, evenly spaced.

    Returns:
        ``perplexity.synthetic``, ``perplexity.real``, ``perplexity.gap`` (logarithm of their ratio)
        with its interval over texts. Empty if a side has fewer than 20.
    """
    count = min(len(synthetic), len(real), most)
    if count < _FEWEST:
        return []
    sides = [
        likelihoods([("", text) for text in evenly_spaced(texts, count)])
        for texts in (synthetic, real)
    ]
    # nats, tokens: shape (2 sides, count)
    nats, tokens = (np.array([[pair[k] for pair in side] for side in sides]) for k in (0, 1))
    if not tokens.sum(axis=1).all():
        return []
    # Per token over all texts: a mean of texts' perplexities would be ruled by a few short texts.
    ours, theirs = -nats.sum(axis=1) / tokens.sum(axis=1)
    # rows: shape (2 sides, replicates, count)
    rows = np.random.default_rng(_SEED).integers(0, count, (2, _RESAMPLES, count))
    drawn = [
        -side[chosen].sum(axis=1) / np.maximum(1, of[chosen].sum(axis=1))
        for side, of, chosen in zip(nats, tokens, rows, strict=True)
    ]
    low, high = np.quantile(drawn[0] - drawn[1], [0.025, 0.975])
    numbers = {
        # exp(709) is the largest float
        "perplexity.synthetic": math.exp(min(ours, 700)),
        "perplexity.real": math.exp(min(theirs, 700)),
        "perplexity.gap": ours - theirs,
        "perplexity.gap_low": low,
        "perplexity.gap_high": high,
    }
    return metrics_of(numbers, how=f"{count} texts a side, under models.language")


def next_token_accuracy(
    model_folder: Path,
    texts: Sequence[tuple[str | None, str]],
    *,
    max_tokens: int,
    called: str = "student",
    template: PromptTemplate | None = None,
) -> list[Metric]:
    """How often a model's most likely next token is the real one.

    Every text follows a public prompt, is truncated to ``max_tokens``, and ends with the end token
    unless it was truncated. Tokens of the text and its end count, those of the prompt do not.
    Models with different tokenizers cannot be compared.

    Args:
        model_folder: A causal language model with its tokenizer, as ``train_student`` writes it.
        texts: Label and text of held-out real records.
        max_tokens: Most tokens of a text.
        called: What the model is called in the metrics' names.
        template: The prompt. None: that of the model's ``privsyn.json``.

    Returns:
        ``<called>.next_token_accuracy`` (a share) and its interval, ``<called>.commonest_token``
        (accuracy of always naming the most frequent token), ``<called>.cross_entropy`` (nats per
        token) and ``<called>.tokens``; all internal. Empty if there are no texts.

    Raises:
        ModelError: The model cannot be loaded, or its context is too short.
    """
    import torch
    import torch.nn.functional as F

    from privsyn.models.training import causal_lm as student

    hits: list[int] = []
    lengths: list[int] = []
    nats, seen = 0.0, Counter[int]()
    with ready() as device, torch.inference_mode():
        tokenizer = student.read_tokenizer(model_folder)
        model = student.read_model(model_folder).to(device).eval()
        template = template or student.prompt_of(model_folder)
        if not texts:  # privacy: a model that cannot be loaded fails with or without held-out texts
            return []
        encoded = student.encode(tokenizer, template, texts, max_tokens)
        student.refuse_long(model, encoded, max_tokens, model_folder.name)
        vocabulary = model.get_input_embeddings().num_embeddings
        for group in student.passes(encoded, vocabulary, device):
            # ids, targets: shape (texts, tokens); logits: shape (counted tokens, vocabulary)
            ids, targets = student.pad(group, device)
            counted = targets != student.NOT_COUNTED
            logits = model(input_ids=ids, use_cache=False).logits[counted].float()
            truth = targets[counted]
            right = torch.zeros_like(counted)
            right[counted] = logits.argmax(-1) == truth
            hits += right.sum(-1).tolist()
            lengths += counted.sum(-1).tolist()
            nats += float(F.cross_entropy(logits, truth, reduction="sum").item())
            seen.update(truth.tolist())
    tokens = sum(lengths)
    low, high = _interval(hits, lengths)
    over = f"over {tokens} tokens of {len(encoded)} held-out real texts, ends included"
    numbers = {
        "next_token_accuracy": sum(hits) / tokens,
        "next_token_accuracy_low": low,
        "next_token_accuracy_high": high,
        "commonest_token": max(seen.values()) / tokens,
        "cross_entropy": nats / tokens,
        "tokens": tokens,
    }
    return metrics_of(numbers, under=f"{called}.", over=over)


def _interval(hits: Sequence[int], lengths: Sequence[int]) -> tuple[float, float]:
    """95% bootstrap interval over texts, not tokens: tokens of a text are dependent."""
    right, of = np.array(hits), np.array(lengths)
    rng = np.random.default_rng(_SEED)
    drawn = []
    for _ in range(_RESAMPLES):
        rows = rng.integers(0, len(of), len(of))
        drawn.append(right[rows].sum() / of[rows].sum())
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)
