"""Rows read without trust, and the summary of a file."""

from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.data.profile import BINS, Profile, Row, profile, read_rows


def rows_of(lengths):
    return [Row(str(i), "w " * n, None, True, False) for i, n in enumerate(lengths)]


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
    summary = profile(rows_of(lengths), ())
    words = summary.words
    assert sum(words.counts) == len(lengths)
    assert len(words.edges) == len(words.counts) + 1 <= BINS + 1
    assert len({b - a for a, b in zip(words.edges, words.edges[1:], strict=False)}) == 1
    for i, count in enumerate(words.counts[:-1]):
        assert count == sum(words.edges[i] <= n < words.edges[i + 1] for n in lengths)
    assert words.longer == sum(n >= words.edges[-1] for n in lengths)
    assert words.edges[0] <= summary.shortest <= summary.median <= summary.longest


def test_one_giant_does_not_hide_the_rest():
    words = profile(rows_of([*range(20, 60), *range(20, 60), *range(20, 60), 10**6]), ()).words
    assert words.edges[-1] <= 62
    assert words.longer == 1


def test_samples_are_spread_and_cut():
    rows = [Row(str(i), "word " * 1000, None, True, False) for i in range(60)]
    samples = profile(rows, ()).samples
    assert [row.id for row in samples] == ["5", "15", "25", "35", "45", "55"]
    assert all(len(row.text or "") < 1210 for row in samples)


def test_labels_are_counted_in_declared_order():
    rows = [Row("a", "x", label, True, False) for label in ("b", "a", "b", "other", None)]
    counted = profile(rows, ("a", "b", "c")).labels
    assert counted == (("a", 1), ("b", 2), ("c", 0), ("(not declared)", 1))


def test_an_empty_file_has_a_profile():
    empty = profile([], ("a",))
    assert isinstance(empty, Profile)
    assert (empty.shortest, empty.median, empty.longest) == (0, 0.0, 0)
    assert empty.samples == ()
