"""Structured records: share of valid JSON, and distances of the fields to those of real records.

privacy: only fields of the public schema are compared. A name that occurs in real records alone is
never read, and no value of a real record appears in a metric's name or note.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.data.profile import number, objects, spelt
from privsyn.data.words import words as words_of
from privsyn.evaluation.metrics import Metric, evenly_spaced, slugs
from privsyn.report.document import STAYS, Block, Grade, Number, ReportSection

MOST_FIELDS = 20
FEWEST = 20
"""A field needs so many records a side."""

_REPLICATES = 500
_SEED = 20240615
_MOST_WORDS = 5000

_APART = 0.1, 0.3
"""Limits of good and fair, beyond the distance of real records to real records."""

_KINDS = {
    "number": "Kolmogorov-Smirnov distance of its numbers",
    "value": "total variation distance of its values",
    "words": "total variation distance of its words",
}
"""How a field is compared, by its type in the schema."""


def structure(texts: Sequence[str], schema: Mapping[str, Any]) -> list[Metric]:
    """Share of texts that parse, and that satisfy the schema: ``dp-release``.

    Both are shares of all texts. Empty if there are no texts.
    """
    if not texts:
        return []
    from jsonschema.validators import validator_for

    validator = validator_for(schema)(schema)
    parsed = valid = 0
    for text in texts:
        try:
            record = json.loads(text)
        # RecursionError: a model may write thousands of opening brackets
        except (ValueError, RecursionError):
            continue
        parsed += 1
        valid += validator.is_valid(record)
    count = len(texts)
    return [
        Metric("json_parse_rate", parsed / count, "dp-release", "share of texts that are JSON"),
        Metric(
            "json_valid_rate",
            valid / count,
            "dp-release",
            "share of texts that satisfy validation.json_schema",
        ),
    ]


def compare_fields(
    synthetic: Sequence[str], real: Sequence[str], schema: Mapping[str, Any]
) -> list[Metric]:
    """Distances of the fields of synthetic records to held-out real ones: ``internal``.

    The same number of records a side is compared, evenly spaced, and the distance of two real
    samples of that size is given as a reference. The interval is over records of both sides.

    Args:
        synthetic: Synthetic texts.
        real: Held-out real texts.
        schema: The public schema. The first ``MOST_FIELDS`` of its ``properties`` are compared, by
            what their ``type`` or ``enum`` says; objects, and fields without either, are not.

    Returns:
        ``fields.<field>.apart`` (0 to 1) with ``_low`` and ``_high``, ``.apart_real`` between real
        records, ``.lacking`` (share of synthetic records without the field, less that of real
        ones). Fields that fewer than 20 records a side have are left out.
    """
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return []
    ours, theirs = objects(synthetic), objects(real)
    names = list(properties)[:MOST_FIELDS]
    metrics = []
    for slug, name in zip(slugs(names), names, strict=True):
        kind = _kind(properties[name])
        if kind is None:
            continue
        sides = [_values(kind, name, records) for records in (ours, theirs)]
        count = min(len(sides[0]), len(sides[1]) // 2)
        if count < FEWEST:
            continue
        metrics += _compare_fields(slug, name, kind, sides, count)
        lack = (1 - len(side) / len(of) for side, of in zip(sides, (ours, theirs), strict=True))
        note = "share of synthetic records without a value of the kind, less that of real ones"
        metrics.append(
            Metric(f"fields.{slug}.lacking", next(lack) - next(lack), "internal", note, name)
        )
    return metrics


def _kind(described: Any) -> str | None:
    """How a field is compared, from the schema alone; None if it is not."""
    if not isinstance(described, Mapping):
        return None
    types = described.get("type")
    types = {types} if isinstance(types, str) else set(types or ())
    if "enum" in described or "boolean" in types:
        return "value"
    if types & {"number", "integer"}:
        return "number"
    return "words" if "string" in types else None


def _values(kind: str, name: str, records: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The field's values of a kind, of the records that have one."""
    values = [record[name] for record in records if name in record]
    if kind == "number":
        return [read for value in values if (read := number(value)) is not None]
    if kind == "words":
        return [Counter(words_of(v.lower())) for v in values if isinstance(v, str)]
    return [spelt(value) for value in values]


@dataclass(frozen=True)
class _Binned:
    """Records of both sides by bin; a record may be in several bins, with a weight in each.

    Attributes:
        sides: Synthetic, real, other real: shape (records, bins), sparse.
        ordered: Whether the bins are in order, as numbers are.
    """

    sides: tuple[Any, Any, Any]
    ordered: bool

    def apart(self, first: Any, second: Any) -> NDArray[np.float64]:
        """Distance of two histograms, 0 to 1, along the last axis."""
        # Numbers: Kolmogorov-Smirnov, from cumulative histograms. Otherwise total variation.
        p, q = (part / np.maximum(part.sum(axis=-1, keepdims=True), 1) for part in (first, second))
        if self.ordered:
            return np.asarray(np.abs(np.cumsum(p - q, axis=-1)).max(axis=-1))
        return np.asarray(np.abs(p - q).sum(axis=-1) / 2)


def _bin_values(kind: str, sides: Sequence[Sequence[Any]]) -> _Binned:
    from scipy.sparse import csr_array

    records = [[value if kind == "words" else {value: 1} for value in side] for side in sides]
    if kind == "words":
        total = Counter[str]()
        for record in (record for side in records for record in side):
            total.update(record)
        bins = [word for word, _ in total.most_common(_MOST_WORDS)]
    else:
        bins = sorted({value for side in records for record in side for value in record})
    place = {value: i for i, value in enumerate(bins)}
    made = []
    # sparse rows (row, bin, weight): a word list has thousands of bins, a text few of them
    for side in records:
        cells = [
            (row, place[value], weight)
            for row, record in enumerate(side)
            for value, weight in record.items()
            if value in place
        ]
        rows, columns, weights = np.array(cells, np.int64).reshape(-1, 3).T
        made.append(csr_array((weights, (rows, columns)), shape=(len(side), max(1, len(bins)))))
    return _Binned((made[0], made[1], made[2]), kind == "number")


def _compare_fields(
    slug: str, name: str, kind: str, sides: Sequence[Sequence[Any]], count: int
) -> list[Metric]:
    ours, theirs = sides
    chosen = [evenly_spaced(part, count) for part in (ours, theirs[::2], theirs[1::2])]
    binned = _bin_values(kind, chosen)
    whole = [np.asarray(side.sum(axis=0), np.float64) for side in binned.sides]
    value = float(binned.apart(whole[0], whole[1]))
    rng = np.random.default_rng(_SEED)
    drawn = np.array(
        [
            float(binned.apart(*(_redrawn(side, count, rng) for side in binned.sides[:2])))
            for _ in range(_REPLICATES)
        ]
    )
    # Resamples are further apart than the samples, so they are biased: use their spread only.
    low, high = np.clip(value + np.quantile(drawn - drawn.mean(), [0.025, 0.975]), 0, 1)
    how = f"{_KINDS[kind]}, {count} records a side, 0 alike"
    numbers = {
        "apart": (value, f"{how}, to held-out real records"),
        "apart_low": (low, "where 95 of 100 resamples of so many records lie, from"),
        "apart_high": (high, "upper end"),
        "apart_real": (float(binned.apart(whole[1], whole[2])), f"{how}, of real to other real"),
    }
    return [
        Metric(f"fields.{slug}.{part}", float(number), "internal", note, name)
        for part, (number, note) in numbers.items()
    ]


def _redrawn(side: Any, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """The histogram of a bootstrap sample of the records."""
    times = rng.multinomial(count, np.full(count, 1 / count))
    return np.asarray(side.T @ times, np.float64)


def section(metrics: Sequence[Mapping[str, Any]], why: str | None = None) -> ReportSection:
    """Are the fields distributed as those of real records?

    Args:
        metrics: The metrics of evaluation.json.
        why: Why nothing could be compared; None if it could.
    """
    title = "Are its fields distributed as those of real records?"
    by_field: dict[str, dict[str, Mapping[str, Any]]] = {}
    for metric in metrics:
        if str(metric["name"]).startswith("fields."):
            part = str(metric["name"]).rpartition(".")[2]
            by_field.setdefault(str(metric.get("label")), {})[part] = metric
    if not by_field:
        why = why or (
            f"no field of validation.json_schema is in {FEWEST} synthetic and {2 * FEWEST} "
            "held-out real records, or no field has a type that is compared"
        )
        missing = Block("missing", f"Fields beside real ones: UNAVAILABLE, since {why}.")
        return ReportSection("structure", title, STAYS, (missing,), None, "Not measured.")
    value = {
        name: {part: float(one["value"]) for part, one in parts.items()}
        for name, parts in by_field.items()
    }
    beyond = {
        name: max(field["apart"] - field["apart_real"], abs(field["lacking"]))
        for name, field in value.items()
    }
    worst = max(beyond, key=lambda name: beyond[name])
    good, fair = _APART
    grade: Grade = "good" if beyond[worst] <= good else "fair" if beyond[worst] <= fair else "poor"
    advice = "By every field compared."
    if grade != "good":
        advice = (
            f"The weakest is {worst}, {value[worst]['apart']:.2f} apart; two samples of "
            "real records are "
        )
        advice += f"{value[worst]['apart_real']:.2f} apart."
        if abs(value[worst]["lacking"]) > good:
            advice += (
                " The share of synthetic records without it is "
                f"{value[worst]['lacking']:+.2f} higher."
            )
        advice += " Spend more privacy.epsilon."
    numbers = [
        Number(
            name,
            field["apart"],
            f"{by_field[name]['apart']['note']}; real to other real {field['apart_real']:.3g}; "
            "lacking "
            f"more often by {field['lacking']:+.3g}",
            field["apart_low"],
            field["apart_high"],
        )
        for name, field in value.items()
    ]
    return ReportSection("structure", title, STAYS, [Block("numbers", *numbers)], grade, advice)
