"""Rows of a synthetic file of texts, read without trust, and their summary.

The file is the output of the mechanism, so everything here is post-processing and may be shown.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from privsyn.errors import DataError

SAMPLES = 6
SAMPLE_CHARS = 1200
BINS = 24


@dataclass(frozen=True)
class Row:
    """One line of the file. A field that is missing or not text is None.

    Attributes:
        id: The row's id.
        text: The synthetic text, lone surrogates replaced by U+FFFD.
        label: The row's label.
        well_formed: Whether the line is a JSON object whose id, text and label are strings.
        text_is_json: Whether the text parses as JSON.
    """

    id: str | None
    text: str | None
    label: str | None
    well_formed: bool
    text_is_json: bool


@dataclass(frozen=True)
class Histogram:
    """Counts of texts by number of words.

    Attributes:
        edges: ``len(counts) + 1`` bin edges in words; a bin includes its lower edge.
        counts: Texts per bin. The last bin also counts every longer text.
        longer: Texts beyond the last edge, counted in the last bin.
    """

    edges: tuple[int, ...]
    counts: tuple[int, ...]
    longer: int


@dataclass(frozen=True)
class Profile:
    """A summary of the synthetic file.

    Attributes:
        words: Histogram of text lengths.
        shortest: Fewest words of a text.
        median: Median number of words.
        longest: Most words of a text.
        labels: Rows per declared label, in declared order; then any others together.
        samples: A few rows at even distances, texts cut to 1,200 characters.
    """

    words: Histogram
    shortest: int
    median: float
    longest: int
    labels: tuple[tuple[str, int], ...]
    samples: tuple[Row, ...]


def read_rows(artifact: Path) -> list[Row]:
    """All lines of a JSONL file as rows; a malformed line is a row without fields.

    Raises:
        DataError: The file is missing or cannot be read.
    """
    try:
        with artifact.open("rb") as lines:
            return [_row(line) for line in lines]
    except FileNotFoundError:
        raise DataError(
            f"synthetic file {artifact} does not exist.", hint="Run the generate stage first."
        ) from None
    except OSError as error:
        raise DataError(f"synthetic file {artifact} cannot be read: {error.strerror}.") from None


def profile(rows: Sequence[Row], labels: Sequence[str]) -> Profile:
    """Lengths, label counts and samples of a file's rows."""
    lengths = sorted(len(row.text.split()) for row in rows if row.text is not None)
    seen = Counter(row.label for row in rows if row.label is not None)
    counted = [(label, seen.pop(label, 0)) for label in labels]
    # Together: the names of labels that nobody declared are the model's words.
    if labels and (others := sum(seen.values())):
        counted.append(("(not declared)", others))
    return Profile(
        words=histogram(lengths),
        shortest=lengths[0] if lengths else 0,
        median=float(median(lengths)) if lengths else 0.0,
        longest=lengths[-1] if lengths else 0,
        labels=tuple(counted),
        samples=_samples(rows),
    )


def _row(line: bytes) -> Row:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested too deeply
        value = None
    if not isinstance(value, dict):
        return Row(None, None, None, well_formed=False, text_is_json=False)
    fields = {name: value.get(name) for name in ("id", "text", "label")}
    text = _string(fields["text"])
    return Row(
        id=_string(fields["id"]),
        text=text,
        label=_string(fields["label"]),
        well_formed=isinstance(fields["id"], str)
        and isinstance(fields["text"], str)
        and isinstance(fields["label"], str | None),
        text_is_json=text is not None and _is_json(text),
    )


def _string(value: Any) -> str | None:
    """An encodable text: JSON may contain lone surrogates, which UTF-8 cannot encode."""
    if not isinstance(value, str):
        return None
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def histogram(lengths: Sequence[int]) -> Histogram:
    """Bins of equal round width up to the 99th percentile, so that one huge text hides nothing.

    Args:
        lengths: Sorted integers of at least 0.
    """
    if not lengths:
        return Histogram((0, 1), (0,), 0)
    low, high = lengths[0], lengths[int(0.99 * (len(lengths) - 1))]
    width = next(
        step * 10**power
        for power in range(18)
        for step in (1, 2, 5)
        if (high // (step * 10**power)) - (low // (step * 10**power)) < BINS
    )
    first = low // width
    counts = [0] * (high // width - first + 1)
    for length in lengths:
        # Texts beyond the 99th percentile go into the last bin.
        counts[min(length // width - first, len(counts) - 1)] += 1
    edges = tuple((first + i) * width for i in range(len(counts) + 1))
    return Histogram(edges, tuple(counts), sum(length >= edges[-1] for length in lengths))


def _samples(rows: Sequence[Row]) -> tuple[Row, ...]:
    readable = [row for row in rows if row.text]
    count = min(SAMPLES, len(readable))
    # The middles of equal parts: the first rows may all be of one label.
    chosen = [readable[(2 * i + 1) * len(readable) // (2 * count)] for i in range(count)]
    return tuple(
        Row(row.id, _cut(row.text or ""), row.label, row.well_formed, row.text_is_json)
        for row in chosen
    )


def _cut(text: str) -> str:
    return text if len(text) <= SAMPLE_CHARS else text[:SAMPLE_CHARS].rstrip() + " ..."
