"""Columns beside held-out real records: alone, in pairs (with the label), and with their texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.evaluation.classifiers import FEWEST, has_word, split_holdout, vectorizer
from privsyn.evaluation.metrics import Metric, evenly_spaced, metrics_of, slugs

_MOST = 2000
"""Most records a side that classifiers read."""
_DRAWS = 20
"""Pairs of samples by which the distance of sampling alone is estimated."""


@dataclass(frozen=True)
class CellRecords:
    """Records with their cells.

    Attributes:
        cells: Cell of each column, and last of the label where there is one: (records, columns).
        texts: Of each record.
        label: Whether the last column is the label.
    """

    cells: NDArray[np.int64]
    texts: Sequence[str]
    label: bool

    def __len__(self) -> int:
        return len(self.texts)

    @classmethod
    def of(
        cls,
        rows: Sequence[Sequence[int]],
        texts: Sequence[str],
        labels: Sequence[str | None],
        known: Sequence[str],
    ) -> CellRecords:
        """The rows of records; those without a known label are left out where labels are known."""
        places = {label: [place] for place, label in enumerate(known)} if known else {}
        pairs = [
            ([*row, *places.get(label or "", [])], text)
            for row, text, label in zip(rows, texts, labels, strict=True)
            if not known or label in places
        ]
        cells = np.array([row for row, _ in pairs], np.int64).reshape(len(pairs), -1)
        return cls(cells, [text for _, text in pairs], bool(known))

    def at(self, places: Sequence[int]) -> CellRecords:
        """Some of them."""
        return replace(self, cells=self.cells[places], texts=[self.texts[n] for n in places])

    def independent(self, rng: np.random.Generator) -> CellRecords:
        """The rival: the same columns one by one, tied to nothing; the label stays."""
        width = self.cells.shape[1] - self.label
        cells = self.cells.copy()
        cells[:, :width] = rng.permuted(cells[:, :width], axis=0)
        return replace(self, cells=cells)

    def evenly(self, sizes: Sequence[int], rng: np.random.Generator) -> CellRecords:
        """The public rival: every declared cell as often, tied to nothing; the label stays."""
        cells = self.cells.copy()
        for place, size in enumerate(sizes[: cells.shape[1] - self.label]):
            declared = size - 2  # the last two are ``other`` and ``missing``
            cells[:, place] = rng.permutation(np.arange(len(cells)) % declared)
        return replace(self, cells=cells)


def compare_columns(
    sizes: Mapping[str, int], ours: CellRecords, theirs: CellRecords
) -> list[Metric]:
    """A release's columns beside those of held-out real records; internal.

    Args:
        sizes: Cells of each column, and last of the label where there is one.
        ours: Of the release.
        theirs: Held-out real records.

    Returns:
        Total variation, mean over columns and over pairs, beside that of two samples of these
        sizes, of rows that take every declared cell as often, and of independent columns; accuracy
        of the label on real records by columns, text and both; accuracy by which a classifier of
        real texts finds the column of a text of the release. Empty where one side has fewer than
        ``FEWEST`` records.
    """
    if min(len(ours), len(theirs)) < FEWEST:
        return []
    rng = np.random.default_rng(0)  # the same release measured twice gets the same numbers
    alone = ours.independent(rng)
    known, tested = (
        theirs.at(part) for part in split_holdout(range(len(theirs)), len(theirs) // 2)
    )
    metrics = _distances(sizes, ours, alone, theirs, rng)
    read = evenly_spaced(range(len(ours)), _MOST)
    ours, alone = ours.at(read), alone.at(read)
    worded = any(ours.texts)
    if ours.label:
        metrics += _labels(ours, alone, known, tested, worded=worded)
    return metrics + (_fit(sizes, ours, alone, known, tested) if worded else [])


def _distances(
    sizes: Mapping[str, int],
    ours: CellRecords,
    alone: CellRecords,
    theirs: CellRecords,
    rng: np.random.Generator,
) -> list[Metric]:
    names, widths = list(sizes), list(sizes.values())

    def table(rows: CellRecords, places: Sequence[int]) -> NDArray[np.int64]:
        codes = np.zeros(len(rows), np.int64)
        for place in places:
            codes = codes * widths[place] + rows.cells[:, place]
        return np.bincount(codes, minlength=int(np.prod([widths[place] for place in places])))

    def apart(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
        return float(np.abs(one / one.sum() - other / other.sum()).sum() / 2)

    def sampling(places: Sequence[int]) -> float:
        shares = table(theirs, places) / len(theirs)
        draws = (rng.multinomial(len(rows), shares, _DRAWS) for rows in (ours, theirs))
        return float(np.mean([apart(one, other) for one, other in zip(*draws, strict=True)]))

    def to_real(rows: CellRecords) -> Callable[[Sequence[int]], float]:
        return lambda places: apart(table(rows, places), table(theirs, places))

    even = ours.evenly(widths, rng)
    columns = [[place] for place in range(len(names) - ours.label)]
    pairs = [list(pair) for pair in combinations(range(len(names)), 2)]
    by = {"": to_real(ours), "_sampling": sampling, "_public": to_real(even)}
    metrics: list[Metric] = []
    for kind, tables, distances in (
        ("apart", columns, by),
        ("pairs_apart", pairs, by | {"_independent": to_real(alone)}),
    ):
        if tables:
            values = {
                f"{kind}{end}": float(np.mean([distance(places) for places in tables]))
                for end, distance in distances.items()
            }
            metrics += metrics_of(values, under="columns.")
    for slug, name, (place,) in zip(slugs(names), names, columns, strict=False):
        value, least = apart(table(ours, [place]), table(theirs, [place])), sampling([place])
        note = f"total variation of {name}; sampling alone gives {least:.3f}"
        metrics.append(_metric(f"apart.{slug}", value, note, name))
    return metrics


def _labels(
    ours: CellRecords, alone: CellRecords, known: CellRecords, tested: CellRecords, *, worded: bool
) -> list[Metric]:
    """How well the label of real records is found, by what a classifier learned from."""
    both = True, True  # columns and texts
    by = {
        "columns": (ours, (True, False)),
        "text": (ours, (False, True)),
        "both": (ours, both),
        "independent": (alone, both),
        "real": (known, both),
    }
    if not worded:
        by = {name: (by[name][0], (True, False)) for name in ("columns", "independent", "real")}
    values = {
        f"label.{name}": _accuracy(train, tested, -1, *parts) for name, (train, parts) in by.items()
    }
    values["label.chance"] = int(np.bincount(tested.cells[:, -1]).max()) / len(tested)
    text, best = ("text and ", "both") if worded else ("", "columns")
    return metrics_of(values, under="columns.", known=len(known), by=best, text=text)


def _fit(
    sizes: Mapping[str, int],
    ours: CellRecords,
    alone: CellRecords,
    known: CellRecords,
    tested: CellRecords,
) -> list[Metric]:
    """Whether a text fits its row: its column by a classifier of real texts."""
    by = {"fit": ours, "fit_real": tested, "fit_independent": alone}
    names = list(sizes)[: known.cells.shape[1] - known.label]
    shares = {
        end: [_accuracy(known, side, place) for place in range(len(names))]
        for end, side in by.items()
    }
    means = {end: float(np.mean(each)) for end, each in shares.items()}
    # Two standard deviations of a share near one half, over all texts and columns.
    means["fit_chance"] = float(1 / np.sqrt(len(ours) * len(names)))
    each = []
    for slug, name, share, real, none in zip(slugs(names), names, *shares.values(), strict=True):
        note = f"{name} found from texts; of real texts {real:.2f}, tied to none {none:.2f}"
        each.append(_metric(f"fit.{slug}", share, note, name))
    return [*metrics_of(means, under="columns."), *each]


def _accuracy(
    train: CellRecords, test: CellRecords, place: int, columns: bool = False, texts: bool = True
) -> float:
    """The share of tested records whose cell at a place is found by their columns or texts."""
    from scipy.sparse import hstack
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import ComplementNB
    from sklearn.preprocessing import OneHotEncoder
    from threadpoolctl import threadpool_limits

    truth, learned = test.cells[:, place], train.cells[:, place]
    parts: list[tuple[Any, Any, Any]] = []
    if texts and any(map(has_word, train.texts)):
        parts.append((vectorizer(), train.texts, test.texts))
    if columns:
        others = (rows.cells[:, :-1] for rows in (train, test))
        parts.append((OneHotEncoder(handle_unknown="ignore"), *others))
    if not parts or len(set(learned.tolist())) == 1:
        return float((truth == np.bincount(learned).argmax()).mean())
    # For the many cells of a column a fast one: three numbers of one classifier are compared.
    model = LogisticRegression(C=10.0, max_iter=2000) if place < 0 else ComplementNB()
    with threadpool_limits(limits=1):
        model.fit(hstack([one.fit_transform(known) for one, known, _ in parts]).tocsr(), learned)
        answers = model.predict(hstack([one.transform(new) for one, _, new in parts]).tocsr())
    return float((truth == answers).mean())


def _metric(name: str, value: float, note: str, label: str | None = None) -> Metric:
    return Metric(f"columns.{name}", value, "internal", note, label)
