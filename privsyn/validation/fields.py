"""Summary of the fields of structured records: texts that are JSON objects, read without trust.

For synthetic records this is post-processing and may be shown. All sizes are bounded, because a
record may have any number of fields with any names and values.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_FIELDS = 12
MOST_VALUES = 10
MOST_CHARS = 40
_RANGES = 8
_WHOLE = 1e15
"""Larger numbers are treated as text: float64 cannot count above it."""


@dataclass(frozen=True)
class Field:
    """Summary of one field over all records.

    Attributes:
        name: Its name, cut to 40 characters.
        present: Records that have it, including null.
        different: Number of distinct values.
        counts: Records per value, the most common first, or per range of numbers; empty if almost
            every value is different.
    """

    name: str
    present: int
    different: int
    counts: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Fields:
    """Summary of the fields of a file.

    Attributes:
        objects: Number of texts that are JSON objects.
        fields: The most common fields, sorted by name.
        more: Number of other fields.
    """

    objects: int
    fields: tuple[Field, ...]
    more: int


def objects(texts: Sequence[str]) -> list[Mapping[str, Any]]:
    """The JSON objects among texts."""
    result: list[Mapping[str, Any]] = []
    for text in texts:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):  # not JSON, nested too deeply, or too many digits
            continue
        if isinstance(value, dict):
            result.append(value)
    return result


def fields(records: Sequence[Mapping[str, Any]]) -> Fields:
    """Summaries of the most common fields, at most ``MOST_FIELDS``."""
    seen = Counter(name for record in records for name in record)
    common = sorted(seen, key=lambda name: (-seen[name], name))[:MOST_FIELDS]
    result = [_field(name, [r[name] for r in records if name in r]) for name in sorted(common)]
    return Fields(len(records), tuple(result), len(seen) - len(common))


def number(value: Any) -> float | None:
    """A finite number as float; None for anything else, also for true and false."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        read = float(value)
    except OverflowError:
        return None
    return read if math.isfinite(read) and abs(read) <= _WHOLE else None


def written(value: Any) -> str:
    """A value for people: encodable text of at most 40 characters."""
    text = value if isinstance(value, str) else spelt(value)
    # Through UTF-16: a model may write half of a surrogate pair, which no page can encode.
    text = text[: MOST_CHARS + 1].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text if len(text) <= MOST_CHARS else f"{text[: MOST_CHARS - 4].rstrip()} ..."


def spelt(value: Any) -> str:
    """A value as JSON, for comparisons."""
    try:
        return json.dumps(value, sort_keys=True)
    except RecursionError:
        return '"(nested too deeply)"'


def _field(name: str, values: Sequence[Any]) -> Field:
    different = Counter(map(spelt, values))
    numbers = [read for value in values if (read := number(value)) is not None]
    # Few different numbers are codes, such as grades, and are counted one by one.
    if len(different) > MOST_VALUES and 2 * len(numbers) > len(values):
        counts = _ranges(numbers)
        if rest := len(values) - len(numbers):
            counts.append(("no number", rest))
    elif 2 * len(different) > len(values) and len(different) > MOST_VALUES:
        counts = []
    else:
        top = different.most_common(MOST_VALUES)
        counts = [(written(json.loads(value)), count) for value, count in top]
        if rest := len(values) - sum(count for _, count in top):
            counts.append(("other values", rest))
    return Field(written(name), len(values), len(different), tuple(counts))


def _ranges(numbers: Sequence[float]) -> list[tuple[str, int]]:
    """Numbers per range; all ranges have the same round width."""
    low, high = min(numbers), max(numbers)
    # 1e-12: all numbers may be the same, and the logarithm of 0 does not exist.
    power = 10.0 ** math.floor(math.log10(max((high - low) / _RANGES, 1e-12)))
    width = next(
        step * power
        for step in (1, 2, 5, 10, 20)
        if math.floor(high / (step * power)) - math.floor(low / (step * power)) < _RANGES
    )
    first = math.floor(low / width)
    counts = [0] * (math.floor(high / width) - first + 1)
    for read in numbers:
        counts[math.floor(read / width) - first] += 1
    return [
        (f"{(first + i) * width:g} to {(first + i + 1) * width:g}", count)
        for i, count in enumerate(counts)
    ]
