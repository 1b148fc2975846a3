"""Structured records: share of valid JSON, and distances of the fields to those of real records.

privacy: only fields of the public schema are compared. A name that occurs in real records alone is
never read, and no value of a real record appears in a metric's name or note.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from privsyn.data.profile import number, objects, spelt
from privsyn.data.words import words as words_of
from privsyn.evaluation.metrics import (
    Metric,
    evenly_spaced,
    kolmogorov_smirnov,
    slugs,
    total_variation,
)
from privsyn.report.document import STAYS, Block, Number, ReportSection

MOST_FIELDS = 20
FEWEST = 20
"""A field needs so many records a side."""

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
    satisfied = "share of texts that satisfy validation.json_schema"
    return [
        Metric(
            "json_parse_rate", parsed / len(texts), "dp-release", "share of texts that are JSON"
        ),
        Metric("json_valid_rate", valid / len(texts), "dp-release", satisfied),
    ]


def compare_fields(
    synthetic: Sequence[str], real: Sequence[str], schema: Mapping[str, Any]
) -> list[Metric]:
    """Distances of the fields of synthetic records to held-out real ones: ``internal``.

    The same number of records a side is compared, evenly spaced, and the distance of two real
    samples of that size is given as a reference.

    Args:
        synthetic: Synthetic texts.
        real: Held-out real texts.
        schema: The public schema. The first ``MOST_FIELDS`` of its ``properties`` are compared, by
            what their ``type`` or ``enum`` says; objects, and fields without either, are not.

    Returns:
        ``fields.<field>.apart`` and ``.apart_real`` between real records, 0 to 1. Fields that fewer
        than 20 records a side have are left out.
    """
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return []
    ours, theirs = objects(synthetic), objects(real)
    names = list(properties)[:MOST_FIELDS]
    metrics = []
    for slug, name in zip(slugs(names), names, strict=True):
        if (kind := _kind(properties[name])) is None:
            continue
        sides = [_values(kind, name, records) for records in (ours, theirs)]
        count = min(len(sides[0]), len(sides[1]) // 2)
        if count < FEWEST:
            continue
        first, second, other = (
            evenly_spaced(part, count) for part in (sides[0], sides[1][::2], sides[1][1::2])
        )
        how = f"{_KINDS[kind]}, {count} records a side, 0 alike"
        for part, value, of in (
            ("apart", _distance(kind, first, second), "to held-out real records"),
            ("apart_real", _distance(kind, second, other), "of real to other real"),
        ):
            metrics.append(Metric(f"fields.{slug}.{part}", value, "internal", f"{how}, {of}", name))
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
        return [words_of(value.lower()) for value in values if isinstance(value, str)]
    return [spelt(value) for value in values]


def _distance(kind: str, first: Sequence[Any], second: Sequence[Any]) -> float:
    if kind == "number":
        return kolmogorov_smirnov(first, second)
    if kind == "words":
        first, second = ([word for text in side for word in text] for side in (first, second))
    return total_variation(Counter(first), Counter(second))


def section(metrics: Sequence[Mapping[str, Any]], why: str | None = None) -> ReportSection:
    """Are the fields distributed as those of real records? A table, not graded.

    Args:
        metrics: The metrics of evaluation.json.
        why: Why nothing could be compared; None if it could.
    """
    title = "Are its fields distributed as those of real records?"
    by_name = {str(metric["name"]): metric for metric in metrics}
    numbers = [
        Number(
            str(metric["label"]),
            float(metric["value"]),
            f"{metric['note']}; real to other real {by_name[f'{name}_real']['value']:.3g}",
        )
        for name, metric in by_name.items()
        if name.startswith("fields.") and name.endswith(".apart")
    ]
    if not numbers:
        why = why or (
            f"no field of validation.json_schema is in {FEWEST} synthetic and {2 * FEWEST} "
            "held-out real records, or no field has a type that is compared"
        )
        missing = Block("missing", f"Fields beside real ones: UNAVAILABLE, since {why}.")
        return ReportSection("structure", title, STAYS, (missing,), None, "Not measured.")
    advice = "Not graded: compare each distance with that of real records to other real ones."
    return ReportSection("structure", title, STAYS, [Block("numbers", *numbers)], None, advice)
