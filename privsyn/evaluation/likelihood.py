"""What the public language model makes of a release: perplexity gap, learning in context.

Every number here reads real records and is internal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from privsyn.evaluation.beside import Texts
from privsyn.evaluation.metrics import Metric, wilson

Likelihoods = Callable[[Sequence[tuple[str, str]]], list[tuple[float, int]]]
"""Log-likelihood of each text behind its prompt, and the tokens it has."""

SHOTS = 4
_FEWEST = 20
_REPLICATES = 1000
_SEED = 20240615
_LONGEST = 400
"""Characters of an example in a prompt."""


def perplexity_gap(
    synthetic: Sequence[str], real: Sequence[str], likelihoods: Likelihoods, most: int
) -> list[Metric]:
    """Perplexity of synthetic and of held-out real texts under the public model, and their ratio.

    A release that only repeats what the model writes anyway is far less perplexing than real texts.

    Args:
        synthetic: Synthetic texts.
        real: Held-out real texts.
        likelihoods: Of the public model.
        most: Texts a side, evenly spaced.

    Returns:
        ``perplexity.synthetic``, ``perplexity.real``, ``perplexity.gap`` (logarithm of their ratio)
        with its interval over texts. Empty where a side has fewer than 20.
    """
    count = min(len(synthetic), len(real), most)
    if count < _FEWEST:
        return []
    sides = [
        likelihoods([("", texts[i]) for i in np.linspace(0, len(texts) - 1, count).astype(int)])
        for texts in (synthetic, real)
    ]
    nats, tokens = (np.array([[pair[k] for pair in side] for side in sides]) for k in (0, 1))
    if not tokens.sum(axis=1).all():
        return []
    ours, theirs = -nats.sum(axis=1) / tokens.sum(axis=1)
    rows = np.random.default_rng(_SEED).integers(0, count, (2, _REPLICATES, count))
    drawn = [
        -side[chosen].sum(axis=1) / np.maximum(1, of[chosen].sum(axis=1))
        for side, of, chosen in zip(nats, tokens, rows, strict=True)
    ]
    low, high = np.quantile(drawn[0] - drawn[1], [0.025, 0.975])
    how = f"{count} texts a side, under models.language"
    numbers = {
        "synthetic": (math.exp(min(ours, 700)), f"perplexity a token of synthetic texts, {how}"),
        "real": (math.exp(min(theirs, 700)), f"perplexity a token of held-out real texts, {how}"),
        "gap": (ours - theirs, "logarithm of their ratio; below 0: less surprising than real"),
        "gap_low": (low, "lower end of its 95% bootstrap interval over texts"),
        "gap_high": (high, "upper end"),
    }
    return [
        Metric(f"perplexity.{name}", float(value), "internal", note)
        for name, (value, note) in numbers.items()
    ]


def in_context(
    sets: dict[str, Texts], tested: Texts, likelihoods: Likelihoods, most: int
) -> list[Metric]:
    """Accuracy of the public model on real records with a few labelled examples in its prompt.

    The prompt holds ``SHOTS`` examples, drawn anew for every record, labels in turn; the answer is
    the label whose tokens have the highest mean log-likelihood behind it.

    Args:
        sets: What examples are taken from, by name: ``synthetic`` and the baselines.
        tested: Held-out real records, none of which is in a set.
        likelihoods: Of the public model.
        most: Records tested at most, evenly spaced.

    Returns:
        ``in_context.<name>`` for every set, the interval of the first, ``in_context.chance`` and
        ``in_context.records``. Empty below 20 held-out records, or with one label.

    Source: Amin et al. 2024, section 5, in-context learning.
    """
    labels = sorted({label for _, label in tested})
    if len(tested) < _FEWEST or not most or len(labels) < 2:
        return []
    chosen = [
        tested[i] for i in np.linspace(0, len(tested) - 1, min(len(tested), most)).astype(int)
    ]
    truth = np.array([label for _, label in chosen])
    hits = {
        name: np.array(
            [_answer(own, text, labels, likelihoods, i) for i, (text, _) in enumerate(chosen)]
        )
        == truth
        for name, own in sets.items()
        if own
    }
    how = f"{SHOTS} examples in the prompt of models.language, {len(truth)} held-out real records"
    notes = {
        "synthetic": f"accuracy with synthetic examples: {how}",
        "real": "the same with other real records as examples",
        "public": "the same with texts of the public model alone as examples",
    }
    found = [
        Metric(f"in_context.{name}", float(right.mean()), "internal", notes[name])
        for name, right in hits.items()
    ]
    low, high = wilson(int(hits["synthetic"].sum()), len(truth))
    chance = max(float((truth == label).mean()) for label in labels)
    return [
        *found,
        Metric("in_context.low", low, "internal", "lower end of its 95% interval (Wilson)"),
        Metric("in_context.high", high, "internal", "upper end"),
        Metric("in_context.chance", chance, "internal", "accuracy of the commonest label"),
        Metric("in_context.records", float(len(truth)), "internal", "records tested on"),
    ]


def _answer(
    examples: Texts, text: str, labels: Sequence[str], likelihoods: Likelihoods, number: int
) -> str:
    rng = np.random.default_rng([_SEED, number])
    prompt = ""
    for shot in range(SHOTS):
        label = labels[(number + shot) % len(labels)]
        own = [example for example, of in examples if of == label] or [text for text, _ in examples]
        prompt += f"Text: {_cut(own[rng.integers(len(own))])}\nLabel: {label}\n\n"
    prompt += f"Text: {_cut(text)}\nLabel:"
    found = likelihoods([(prompt, f" {label}") for label in labels])
    scores = [nats / max(1, tokens) for nats, tokens in found]
    return labels[int(np.argmax(scores))]


def _cut(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]
