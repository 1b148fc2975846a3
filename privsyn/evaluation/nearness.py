"""The headline of texts without labels: how near they come to real ones, beside what is free.

Of each held-out record the cosine of its vector to that of its nearest text; the mean over records.
Beside it stand the public model alone and as many real records. Every number here reads held-out
real records and is internal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.evaluation.metrics import Metric
from privsyn.evaluation.vectors import REPLICATES, Comparison, held_apart, spread

FEWEST = 10
"""Texts a side below which nothing is measured."""

_SEED = 20240615


def near(
    synthetic: Sequence[str],
    real: Sequence[str],
    public: Sequence[Sequence[str]],
    embed: Callable[[Sequence[str]], NDArray[np.float32]],
    called: str,
) -> list[Metric]:
    """How near real records the nearest texts of a release are.

    Of the held-out records some are a baseline (held_apart); nearness is that of the rest.

    Args:
        synthetic: The release.
        real: Held-out real records.
        public: What the public model wrote alone, as many texts a draw; the mean over draws stands
            beside the release. Empty where it cannot write here.
        embed: Vectors of texts, shape (texts, width).
        called: The embedder's name, for the notes.

    Returns:
        ``nearness.*``; empty where one side has fewer than 10 texts.
    """
    if min(len(synthetic), len(real) // 2) < FEWEST:
        return []
    known, asked = held_apart(real, len(synthetic))
    sets: dict[str, Sequence[Sequence[str]]] = {"synthetic": [synthetic], "real": [known]}
    if public:
        sets["public"] = public
    of = _unit(embed(asked))
    found = _compared(
        {name: [of @ _unit(embed(own)).T for own in draws] for name, draws in sets.items()}
    )
    return _metrics(found, len(asked), len(known), called, len(public))


def words(metrics: Mapping[str, float]) -> str:
    """What the numbers say; with the public model alone, whether the release is worth its cost."""
    low, high = metrics["nearness.cosine_low"], metrics["nearness.cosine_high"]
    said = (
        f"nearness {metrics['nearness.cosine']:.3f} [{low:.3f}, {high:.3f}], the mean cosine of "
        f"{metrics['nearness.records']:.0f} held-out real records to the nearest text; "
    )
    if "nearness.public" in metrics:
        said += f"public model alone {metrics['nearness.public']:.3f}, "
    said += f"{metrics['nearness.real_records']:.0f} real records {metrics['nearness.real']:.3f}"
    if "nearness.gain" not in metrics:
        return said
    return f"{said}; {over_public(metrics, 'nearness')}"


def over_public(metrics: Mapping[str, float], kind: str) -> str:
    """The gain over the public model alone, and whether it is more than its interval.

    Args:
        metrics: With ``KIND.gain`` and its ends.
        kind: ``vectors`` or ``nearness``.
    """
    gain, low, high = (metrics[f"{kind}.gain{end}"] for end in ("", "_low", "_high"))
    said = f"{gain:+.3f} [{low:+.3f}, {high:+.3f}] over the public model alone"
    if low > 0:
        return said
    return (
        f"{said}, which is NOT more than the interval: by this measure the release is not worth "
        "its epsilon"
    )


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Rows of length 1; a row of zeros stays one."""
    exact = vectors.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    return np.asarray(exact / np.where(lengths > 0, lengths, 1.0))


def _compared(cosines: Mapping[str, Sequence[NDArray[np.float64]]]) -> Comparison:
    """Nearness of each set, and the gain of the first over the others.

    A bootstrap sample draws anew from the texts of every set and from the records.

    Args:
        cosines: Of each draw of a set, shape (records, texts).
    """
    rng = np.random.default_rng(_SEED)
    points = {
        name: float(np.mean([own.max(axis=1).mean() for own in draws]))
        for name, draws in cosines.items()
    }
    samples: dict[str, list[float]] = {name: [] for name in cosines}
    for _ in range(REPLICATES):
        rows: NDArray[np.int64] | None = None
        for name, draws in cosines.items():
            drawn = []
            for own in draws:
                rows = rng.integers(0, len(own), len(own)) if rows is None else rows
                columns = rng.integers(0, own.shape[1], own.shape[1])
                drawn.append(float(own[:, columns].max(axis=1)[rows].mean()))
            samples[name].append(float(np.mean(drawn)))
    held = {name: np.array(values) for name, values in samples.items()}
    first, *others = cosines
    return Comparison(
        {name: spread(points[name], held[name], least=-1) for name in cosines},
        {
            name: spread(points[first] - points[name], held[first] - held[name], least=-2)
            for name in others
        },
    )


def _metrics(found: Comparison, asked: int, real: int, called: str, draws: int) -> list[Metric]:
    own = found.value["synthetic"]
    interval = "95% bootstrap interval over texts and records"
    numbers = {
        "cosine": (own.value, f"mean cosine of a real record to the nearest text, by {called}"),
        "cosine_low": (own.low, f"its {interval}, lower end"),
        "cosine_high": (own.high, f"its {interval}, upper end"),
        "real": (found.value["real"].value, f"the same of {real} other held-out real records"),
        "records": (float(asked), "held-out real records asked"),
        "real_records": (float(real), "held-out real records beside them, for comparison"),
    }
    if "public" in found.value:
        gain = found.gain["public"]
        numbers |= {
            "public": (
                found.value["public"].value,
                f"the same of what the public model writes alone; mean of {draws} draw(s) of as "
                "many texts",
            ),
            "gain": (gain.value, "nearness over that of the public model alone"),
            "gain_low": (gain.low, f"its {interval}, lower end"),
            "gain_high": (gain.high, f"its {interval}, upper end"),
        }
    return [
        Metric(f"nearness.{name}", float(value), "internal", note)
        for name, (value, note) in numbers.items()
    ]
