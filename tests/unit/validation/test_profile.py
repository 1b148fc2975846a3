"""Rows read without trust, and what is shown of a file."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.data.profile import BINS, Row, count_labels, histogram, read_rows, samples_of


def test_rows_keep_what_is_text(write):
    path = write(
        [
            {"id": "a", "text": "hi\u2028there", "label": "x", "more": [1]},
            {"id": 1, "text": "{}", "label": 2},
            b"not json",
            {"id": "b", "text": "\ud83d alone", "label": None},
        ]
    )
    assert read_rows(path) == [
        Row("a", "hi\u2028there", "x", True, False, {"more": [1]}),
        Row(None, "{}", None, False, True),
        Row(None, None, None, False, False),
        Row("b", "\ufffd alone", None, True, False),
    ]


@settings(deadline=None)
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=60))
def test_the_histogram_counts_every_text_once(lengths):
    words = histogram(sorted(lengths))
    edges, counts = words["edges"], words["counts"]
    assert sum(counts) == len(lengths)
    assert len(edges) == len(counts) + 1 <= BINS + 1
    assert len({b - a for a, b in itertools.pairwise(edges)}) == 1
    for i, count in enumerate(counts[:-1]):
        assert count == sum(edges[i] <= n < edges[i + 1] for n in lengths)
    assert words["longer"] == sum(n >= edges[-1] for n in lengths)
    assert edges[0] <= min(lengths)


def test_one_giant_does_not_hide_the_rest():
    words = histogram([*sorted([*range(20, 60)] * 3), 10**6])
    assert words["edges"][-1] <= 62
    assert words["longer"] == 1


def test_samples_are_spread_and_cut():
    rows = [Row(str(i), "word " * 1000, None, True, False) for i in range(60)]
    samples = samples_of(rows)
    assert [row.id for row in samples] == ["5", "15", "25", "35", "45", "55"]
    assert all(len(row.text or "") < 1210 for row in samples)


def test_labels_are_counted_in_declared_order():
    rows = [Row("a", "x", label, True, False) for label in ("b", "a", "b", "other", None)]
    counted = count_labels(rows, ("a", "b", "c"))
    assert counted == [("a", 1), ("b", 2), ("c", 0), ("(not declared)", 1)]
