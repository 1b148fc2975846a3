"""Language models as judges: divergences of words, perplexity, in-context and student accuracy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from privsyn.data.words import words
from privsyn.evaluation.classifiers import Texts
from privsyn.evaluation.metrics import Metric, evenly_spaced, wilson
from privsyn.models.settings import PerformanceConfig
from privsyn.models.torch_runtime import ready

if TYPE_CHECKING:
    from privsyn.models.protocols import PromptTemplate


T = TypeVar("T")

_FEWEST_OF_CORPUS = 20


def compare_words(synthetic: Sequence[str], real: Sequence[str]) -> list[Metric]:
    """Divergence of the words of two corpora, with that of two halves of the real one.

    Divergences fall with the number of texts, so the same number of each side is compared, evenly
    spaced, and the divergence of two real samples of that size is given as a reference.

    Returns:
        ``words_divergence``, ``pairs_divergence``, ``words_divergence_real`` (Jensen-Shannon, bits,
        0 to 1) and ``words_covered`` (share of real words that occur among the synthetic ones).
        Empty if a side has fewer than 20 texts.
    """
    # Half of the real texts are the comparison's own baseline: real against real.
    count = min(len(synthetic), len(real) // 2)
    if count < _FEWEST_OF_CORPUS // 2:
        return []
    ours, theirs, others = (
        [words(text.lower()) for text in part]
        for part in (evenly_spaced(side, count) for side in (synthetic, real[::2], real[1::2]))
    )
    singles, real_singles, other_singles = (
        Counter(word for text in part for word in text) for part in (ours, theirs, others)
    )
    pairs, real_pairs = (
        Counter(pair for text in part for pair in pairwise(text)) for part in (ours, theirs)
    )
    how = f"{count} texts a side, Jensen-Shannon in bits, 0 alike, 1 nothing in common"
    numbers = {
        "words_divergence": (divergence(singles, real_singles), f"words, {how}"),
        "pairs_divergence": (divergence(pairs, real_pairs), f"word pairs, {how}"),
        "words_divergence_real": (
            divergence(real_singles, other_singles),
            f"words of real texts to other real texts, {how}",
        ),
    }
    if total := real_singles.total():
        covered = sum(number for word, number in real_singles.items() if word in singles)
        note = f"share of the words of {count} real texts that occur in as many synthetic ones"
        numbers["words_covered"] = (covered / total, note)
    return [Metric(name, value, "internal", note) for name, (value, note) in numbers.items()]


def compare_labels(synthetic: Sequence[str | None], real: Sequence[str | None]) -> list[Metric]:
    """Total variation distance between the labels of both sides; empty if a side has no labels."""
    ours, theirs = (Counter(label for label in part if label) for part in (synthetic, real))
    if not ours or not theirs:
        return []
    apart = sum(
        abs(ours[label] / ours.total() - theirs[label] / theirs.total()) for label in ours | theirs
    )
    note = "total variation distance of labels to held-out real records, 0 to 1"
    return [Metric("labels_apart", apart / 2, "internal", note)]


def divergence(first: Counter[T], second: Counter[T]) -> float:
    """Jensen-Shannon divergence of two counts in bits, 0 to 1; 1 if one is empty.

    Source: Lin 1991, "Divergence measures based on the Shannon entropy", section 4.
    """
    if not first or not second:
        return 0.0 if not first and not second else 1.0
    names = list(first | second)
    p, q = (np.array([part[name] for name in names]) / part.total() for part in (first, second))
    middle = (p + q) / 2

    def to_middle(part: Any) -> float:
        # 0 log 0 = 0; the middle is positive wherever a part is
        support = part > 0
        return float((part[support] * np.log2(part[support] / middle[support])).sum())

    return min(1.0, max(0.0, (to_middle(p) + to_middle(q)) / 2))


Likelihoods = Callable[[Sequence[tuple[str, str]]], list[tuple[float, int]]]
"""Log-likelihood in nats and number of tokens of each text after its prompt."""

_FEWEST = 20
_REPLICATES = 1000
_SEED = 20240615
_LONGEST = 400
"""Most characters of an example in a prompt."""


def perplexity_gap(
    synthetic: Sequence[str], real: Sequence[str], likelihoods: Likelihoods, most: int
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
    rows = np.random.default_rng(_SEED).integers(0, count, (2, _REPLICATES, count))
    drawn = [
        -side[chosen].sum(axis=1) / np.maximum(1, of[chosen].sum(axis=1))
        for side, of, chosen in zip(nats, tokens, rows, strict=True)
    ]
    low, high = np.quantile(drawn[0] - drawn[1], [0.025, 0.975])
    how = f"{count} texts a side, under models.language"
    numbers = {
        # exp(709) is the largest float
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
    sets: dict[str, Texts],
    tested: Texts,
    likelihoods: Likelihoods,
    most: int,
    shots: int = 4,
    calibrated: bool = False,
) -> list[Metric]:
    """Accuracy of the public model on real records with a few labeled examples in its prompt.

    The prompt has ``shots`` examples, drawn for each record, with labels in turn. The answer is the
    label with the highest mean log-likelihood of its tokens.

    Args:
        sets: Sources of examples by name: ``synthetic`` and the baselines.
        tested: Held-out real records, none of which is in a set.
        likelihoods: Of the public model.
        most: Most records tested, evenly spaced.
        shots: Examples in a prompt.
        calibrated: Whether a label's probability is divided by the one it has, after the same
            examples, before a text without content.

    Returns:
        ``in_context.<name>`` for every set, the interval of the first, ``in_context.chance`` and
        ``in_context.records``. Empty below 20 held-out records, or with one label.

    Source: Amin et al. 2024, section 5, in-context learning. Zhao et al. 2021, "Calibrate before
    use", section 5, contextual calibration.
    """
    labels = sorted({label for _, label in tested})
    if len(tested) < _FEWEST or not most or len(labels) < 2:
        return []
    chosen = evenly_spaced(tested, most)
    truth = np.array([label for _, label in chosen])
    hits = {
        name: np.array(
            [
                _answer(examples, text, labels, likelihoods, i, shots, calibrated)
                for i, (text, _) in enumerate(chosen)
            ]
        )
        == truth
        for name, examples in sets.items()
        if examples
    }
    how = f"{shots} examples in the prompt of models.language, {len(truth)} held-out real records"
    how += ", calibrated" if calibrated else ""
    notes = {
        "synthetic": f"accuracy with synthetic examples: {how}",
        "real": "the same with other real records as examples",
        "public": "the same with texts of the public model alone as examples",
    }
    metrics = [
        Metric(f"in_context.{name}", float(right.mean()), "internal", notes[name])
        for name, right in hits.items()
    ]
    low, high = wilson(int(hits["synthetic"].sum()), len(truth))
    chance = max(float((truth == label).mean()) for label in labels)
    return [
        *metrics,
        Metric("in_context.low", low, "internal", "lower end of its 95% interval (Wilson)"),
        Metric("in_context.high", high, "internal", "upper end"),
        Metric("in_context.chance", chance, "internal", "accuracy of the commonest label"),
        Metric("in_context.records", float(len(truth)), "internal", "records tested on"),
    ]


_BLANK = ("N/A", "[MASK]", "")
"""Texts without content, as Zhao et al. have them."""


def _answer(
    examples: Texts,
    text: str,
    labels: Sequence[str],
    likelihoods: Likelihoods,
    number: int,
    shots: int,
    calibrated: bool,
) -> str:
    # One generator for each record: all sets use the same positions, and order does not matter.
    rng = np.random.default_rng([_SEED, number])
    prompt = ""
    for shot in range(shots):
        label = labels[(number + shot) % len(labels)]
        known = [example for example, of in examples if of == label] or [
            text for text, _ in examples
        ]
        prompt += f"Text: {_cut(known[rng.integers(len(known))])}\nLabel: {label}\n\n"

    def scores(record: str) -> Any:
        """Logarithms of the labels' probabilities, shape (labels,)."""
        whole = f"{prompt}Text: {_cut(record)}\nLabel:"
        likelihood = likelihoods([(whole, f" {label}") for label in labels])
        mean = np.array([nats / max(1, tokens) for nats, tokens in likelihood])
        return mean - np.logaddexp.reduce(mean)

    score = scores(text)
    if calibrated:
        score -= np.logaddexp.reduce([scores(blank) for blank in _BLANK])
    return labels[int(np.argmax(score))]


def _cut(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]


_RESAMPLES = 1000
_RESAMPLING_SEED = 20240615


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

    Every text follows a public prompt, is truncated to ``max_tokens``, and ends with the end token
    unless it was truncated. Tokens of the text and its end count, those of the prompt do not.
    Models with different tokenizers cannot be compared.

    Args:
        model_folder: A causal language model with its tokenizer, as ``train_student`` writes it.
        texts: Label and text of held-out real records.
        max_tokens: Most tokens of a text.
        called: What the model is called in the metrics' names.
        template: The prompt. None: that of the model's ``privsyn.json``.
        performance: Device and threads. None: the machine's defaults.

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
    with ready(performance or PerformanceConfig()) as device, torch.inference_mode():
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
            "accuracy of always naming the commonest token",
        ),
        Metric(f"{called}.cross_entropy", nats / tokens, "internal", f"nats per token, {over}"),
        Metric(f"{called}.tokens", float(tokens), "internal", "held-out real tokens counted"),
    ]


def _interval(hits: Sequence[int], lengths: Sequence[int]) -> tuple[float, float]:
    """95% bootstrap interval over texts, not tokens: tokens of a text are dependent."""
    right, of = np.array(hits), np.array(lengths)
    rng = np.random.default_rng(_RESAMPLING_SEED)
    drawn = []
    for _ in range(_RESAMPLES):
        rows = rng.integers(0, len(of), len(of))
        drawn.append(right[rows].sum() / of[rows].sum())
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)
