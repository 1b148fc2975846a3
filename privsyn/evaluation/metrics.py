"""Metrics of a release, each with its publication class."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from privsyn import layout
from privsyn.layout import Class
from privsyn.section import read_table
from privsyn.sentences import Rows

T = TypeVar("T")

GRADES = Rows(Path(__file__).with_name("grades.yaml"))
"""Grades of the internal report, and their sentences."""
_NOTES = read_table(Path(__file__).with_name("notes.yaml"))


@dataclass(frozen=True)
class Metric:
    """One number.

    Attributes:
        name: Name in the tracking server: lower case, words joined by underscores, parts by dots.
        value: The number, finite.
        cls: ``dp-release`` for a function of the synthetic file alone (post-processing of the
            release), ``internal`` for anything that read real records: never published.
        note: What the number measures, with its unit.
        label: The label it describes, if it describes one.
    """

    name: str
    value: float
    cls: Class
    note: str
    label: str | None = None

    def __post_init__(self) -> None:
        if self.cls not in ("internal", "dp-release"):
            raise ValueError(f"class of {self.name} is {self.cls!r}")
        if not math.isfinite(self.value):
            raise ValueError(f"{self.name} is {self.value}: omit a metric that cannot be computed")

    def to_json(self) -> dict[str, Any]:
        """The metric as plain JSON values."""
        plain = {"name": self.name, "value": self.value, "class": self.cls, "note": self.note}
        return plain if self.label is None else {**plain, "label": self.label}


def read_evaluation(folder: Path) -> dict[str, Any]:
    """What evaluate wrote of a release or a student into its internal folder.

    Empty where it wrote nothing, was killed, or somebody edited what it wrote.
    """
    try:
        written = json.loads((folder / layout.EVALUATION).read_bytes())
        _ = numbers_of(written)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}
    return dict(written)


def numbers_of(written: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an evaluation, by name."""
    return {str(one["name"]): float(one["value"]) for one in written.get("metrics", ())}


def metrics_of(
    values: Mapping[str, float], cls: Class = "internal", *, under: str = "", **facts: object
) -> list[Metric]:
    """Numbers by name, each with its note; ``facts`` are what the notes speak of.

    Args:
        values: By name, as in notes.yaml.
        cls: See Metric.
        under: What stands before each name, and is no part of it there.
        facts: By name.
    """
    return [
        Metric(under + name, float(value), cls, _NOTES[name].format(**facts))
        for name, value in values.items()
    ]


def wilson(hits: int, records: int) -> tuple[float, float]:
    """Wilson's 95% interval of the share of hits among the records.

    A bootstrap fails near 0 and 1: for 20 hits of 20 its width is zero.

    Source: Wilson 1927, "Probable Inference, the Law of Succession, and Statistical Inference".
    """
    from scipy.stats import binomtest

    interval = binomtest(hits, records).proportion_ci(0.95, "wilson")
    return float(interval.low), float(interval.high)


def slugs(labels: Sequence[str]) -> list[str]:
    """Labels as distinct parts of metric names. MLflow allows little punctuation in them."""
    plain = [re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_") for label in labels]
    times = Counter(plain)
    return [
        slug if slug and times[slug] == 1 else f"{slug}_{i}".strip("_")
        for i, slug in enumerate(plain)
    ]


def compare_labels(synthetic: Sequence[str | None], real: Sequence[str | None]) -> list[Metric]:
    """Total variation distance between the labels of both sides; empty if a side has no labels."""
    ours, theirs = (Counter(label for label in part if label) for part in (synthetic, real))
    if not ours or not theirs:
        return []
    apart = sum(
        abs(ours[label] / ours.total() - theirs[label] / theirs.total()) for label in ours | theirs
    )
    return metrics_of({"labels_apart": apart / 2})


def evenly_spaced(items: Sequence[T], most: int) -> list[T]:
    """All, or ``most`` of them, evenly spaced: unlike a random draw it keeps each label's share."""
    return [items[i] for i in np.linspace(0, len(items) - 1, min(len(items), most)).astype(int)]
