"""What synthetic texts are worth to a small network over sentence vectors, with Deep CORAL or not.

    python benchmarks/mlp.py RELEASE/synthetic.jsonl TEST.jsonl.gz [--embedder NAME] [--most 2000]

Trained on the vectors of synthetic texts, tested on those of real ones: every number reads real
records and is internal. The randomness is public and seeded: the same texts give the same numbers.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from utility import read

from privsyn.data.profile import read_rows
from privsyn.evaluation.metrics import Metric
from privsyn.models.loading import load_embedder
from privsyn.models.settings import ModelsConfig, PerformanceConfig

HIDDEN = (256, 128)
BATCH, PASSES, FEWEST_STEPS = 64, 5, 60
"""Short training: of 5, 10 and 20 passes over 800 vectors the first was best."""
LEARNING_RATE = 1e-3
CORAL_WEIGHT = 10.0
"""Beside the classification loss; of .3, 1, 3 and 10 the best, with a domain shift or without."""

_FEWEST = 20
_SEED = 0


def downstream_mlp(
    synthetic: NDArray[np.float32],
    synthetic_labels: Sequence[str | None],
    real: NDArray[np.float32],
    real_labels: Sequence[str | None],
    called: str,
) -> list[Metric]:
    """Train a 3-layer network on synthetic vectors, with and without Deep CORAL.

    The held-out real vectors are split, at random and without a look at their labels: one part,
    half as many as there are synthetic ones and at most half of them, is CORAL's target domain and
    has no labels; both networks are tested on the rest, of which neither saw anything.

    Args:
        synthetic: Vectors of synthetic texts, shape (texts, width).
        synthetic_labels: Their labels; rows without one are left out.
        real: Vectors of held-out real texts.
        real_labels: Their labels; rows without one are not tested on.
        called: The embedder's name, for the notes.

    Returns:
        ``mlp.accuracy``, ``mlp_coral.accuracy`` and ``mlp.records`` (tested on); all internal.
        Empty where there are fewer than 20 labeled vectors to train on, to adapt to or to test
        on, or fewer than two synthetic labels.

    Source: Nagesh et al. 2025, section 4 and Appendix C.1.2.
    """
    kept = [i for i, label in enumerate(synthetic_labels) if label is not None]
    names = sorted({str(synthetic_labels[i]) for i in kept})
    order = np.random.default_rng(_SEED).permutation(len(real))
    adapted = min(len(kept), len(real)) // 2
    tested = [i for i in order[adapted:] if real_labels[i] is not None]
    if min(len(kept), adapted, len(tested)) < _FEWEST or len(names) < 2:
        return []
    vectors = synthetic[kept]
    targets = np.array([names.index(str(synthetic_labels[i])) for i in kept])
    truth = [real_labels[i] for i in tested]
    scores = []
    for domain in (None, real[order[:adapted]]):
        answers = classify(train(vectors, targets, domain), real[tested])
        hits = Counter(names[a] == t for a, t in zip(answers, truth, strict=True))
        scores.append(hits[True] / len(tested))
    what = f"accuracy of a 3-layer network on held-out real records, vectors of {called}"
    how = f"{what}, adapted to {adapted} other real records by Deep CORAL"
    return [
        Metric("mlp.accuracy", scores[0], "internal", what),
        Metric("mlp_coral.accuracy", scores[1], "internal", how),
        Metric("mlp.records", float(len(tested)), "internal", "held-out real records tested on"),
    ]


def train(
    vectors: NDArray[np.float32], targets: NDArray[np.int64], domain: NDArray[np.float32] | None
) -> Any:
    """Fit the network; with a ``domain``, align the covariances of its outputs to those vectors.

    Args:
        vectors: Shape (texts, width).
        targets: Class of each, from 0.
        domain: Unlabeled vectors to adapt to, or None.

    Returns:
        The network: a torch module from ``inputs`` to one score a class.

    Source: Sun and Saenko 2016, "Deep CORAL", section 3.
    """
    classes, width = int(targets.max()) + 1, vectors.shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        sizes = (width, *HIDDEN, classes)
        layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    net = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    x, y = inputs(vectors), torch.from_numpy(targets)
    other = None if domain is None else inputs(domain)
    rng = np.random.default_rng(_SEED)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    batches = max(1, len(x) // BATCH)
    for _ in range(max(PASSES, -(-FEWEST_STEPS // batches))):
        for rows in np.array_split(rng.permutation(len(x)), batches):
            out = net(x[rows])
            loss = nn.functional.cross_entropy(out, y[rows])
            if other is not None:
                beside = net(other[rng.choice(len(other), min(len(rows), len(other)), False)])
                loss = loss + CORAL_WEIGHT * coral(out, beside)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net


def classify(net: Any, vectors: NDArray[np.float32]) -> NDArray[np.int64]:
    """Class of each vector by a network of ``train``."""
    with torch.inference_mode():
        found: NDArray[np.int64] = net(inputs(vectors)).argmax(-1).numpy()
    return found


def inputs(vectors: NDArray[np.float32]) -> Any:
    """Vectors as the network reads them: entries of a vector of length 1 become about 1."""
    return torch.from_numpy(vectors) * vectors.shape[1] ** 0.5


def coral(source: Any, target: Any) -> Any:
    """The CORAL loss ``||C_S - C_T||_F^2 / (4 d^2)`` of two batches, each of shape (rows, d).

    Source: Sun and Saenko 2016, equation 1. (Nagesh et al. 2025 print the norm in the denominator.)
    """
    apart = torch.cov(source.T) - torch.cov(target.T)
    return (apart**2).sum() / (4 * source.shape[1] ** 2)


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("synthetic", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--embedder", default=ModelsConfig().embedder)
    parser.add_argument("--most", type=int, default=2000, help="texts a side")
    arguments = parser.parse_args()
    models = ModelsConfig(embedder=arguments.embedder)
    embedder = load_embedder(models, PerformanceConfig())
    ours = [(row.text or "", row.label) for row in read_rows(arguments.synthetic)]
    sides: list[Any] = []
    for rows in (ours, read(arguments.test)):
        count = min(len(rows), arguments.most)
        chosen = [rows[i] for i in np.linspace(0, len(rows) - 1, count).astype(int)]
        sides += [embedder.embed([text for text, _ in chosen]), [label for _, label in chosen]]
    metrics = downstream_mlp(*sides, called=arguments.embedder)
    print(json.dumps({metric.name: round(metric.value, 4) for metric in metrics}))


if __name__ == "__main__":
    main()
