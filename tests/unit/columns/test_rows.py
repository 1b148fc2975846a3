"""Synthetic rows follow the noisy tables."""

from itertools import product

import numpy as np
import pytest

from privsyn.columns.marginals import Marginals
from privsyn.columns.rows import explained, nearest, synthetic_rows
from privsyn.columns.settings import ColumnsConfig
from privsyn.data.columns import Column
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.histograms import LATTICE
from privsyn.models.rows import SyntheticRows, row_slots

COLUMNS = {
    "age": Column(range=(0, 30), bins=3),
    "channel": Column(values=("web", "phone")),
    "urgent": Column(values=("yes", "no")),
}
PAIRS = (("channel", "age"), ("channel", "urgent"))


def marginals(pairs=PAIRS, epsilon=1.0):
    target, unit = Guarantee(epsilon, 1e-6), PrivacyUnit("user", 1)
    cfg = ColumnsConfig(pairs=pairs)
    return Marginals.of(cfg, COLUMNS, ("a", "b"), target, Adjacency.ADD_REMOVE, unit)


def tables_of(drawn, joint):
    axes = range(joint.ndim)
    parts = []
    for one, other in drawn.tables:
        table = joint.sum(axis=tuple(axis for axis in axes if axis not in (one, other)))
        parts.append(table if one < other else table.T)
    return np.concatenate([np.rint(part.ravel() * LATTICE) for part in parts]).astype(np.int64)


def rows_of(drawn, noisy, counts):
    return synthetic_rows(drawn, list(drawn.split(noisy)), counts, _rng())


def tied_joint():
    """10,000 records; age and urgency follow the channel, and that follows the label."""
    ages, urgencies = (
        np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]]),
        np.array([[0.9, 0.1], [0.3, 0.7]]),
    )
    joint = np.zeros((2, 5, 4, 4))
    for label, shares in enumerate([(0.6, 0.4), (0.3, 0.7)]):
        for channel, share in enumerate(shares):
            tie = np.outer(ages[channel], urgencies[channel])
            joint[label, :3, channel, :2] = 5000 * share * tie
    return joint


def shares_of(rows, *places):
    picks = np.array(rows)[:, places]
    table = np.zeros([len(column.cells) for column in COLUMNS.values()])
    flat = np.zeros([table.shape[place] for place in places])
    np.add.at(flat, tuple(picks.T), 1 / len(rows))
    return flat


def test_rows_have_the_counts_of_their_label_and_the_ties_of_the_pairs():
    drawn, joint = marginals(), tied_joint()
    rows = rows_of(drawn, tables_of(drawn, joint), {"a": 4000, "b": 0})
    assert [len(rows[label]) for label in ("a", "b")] == [4000, 0]
    exact = joint[0] / joint[0].sum()
    assert np.abs(shares_of(rows["a"], 0) - exact.sum((1, 2))).max() < 0.01
    assert np.abs(shares_of(rows["a"], 1) - exact.sum((0, 2))).max() < 0.01
    apart = np.abs(shares_of(rows["a"], 0, 1) - exact.sum(2)).sum() / 2
    untied = rows_of(marginals(()), tables_of(marginals(()), joint), {"a": 4000, "b": 1})
    without = np.abs(shares_of(untied["a"], 0, 1) - exact.sum(2)).sum() / 2
    assert apart < 0.02 < 0.1 < without, "the pair is what ties them"


def test_pairs_that_scores_choose_are_those_that_tie():
    """Without noise: the two pairs of the joint distribution, and no circle."""
    drawn, joint = marginals("auto"), tied_joint()
    every = drawn.candidates
    star = list(drawn.split(tables_of(drawn, joint)))
    exact = np.split(tables_of(every, joint), every.ends[:-1])
    scores = drawn.choice.scores(exact, explained(drawn, star, every.tables))
    seen = []

    def draw(number, free):
        seen.append(free)
        return int(np.argmax(scores[free]))

    pairs = drawn.choice.choose(every.tables, draw)
    assert sorted(pairs) == [(1, 2), (2, 3)]  # age, channel, urgent
    assert [len(free) for free in seen] == [3, 2]
    whole = drawn.with_pairs(pairs)
    rows = rows_of(whole, tables_of(whole, joint), {"a": 4000, "b": 0})
    exact_share = joint[0].sum(2) / joint[0].sum()
    assert np.abs(shares_of(rows["a"], 0, 1) - exact_share).sum() / 2 < 0.02


@pytest.mark.parametrize("prompt", ["{columns}", *(f"{{columns.{name}}}" for name in COLUMNS)])
def test_the_longest_row_is_as_long_as_any(prompt):
    rows = SyntheticRows(COLUMNS)
    (longest,) = row_slots(prompt, rows.longest).values()
    for row in product(*(range(len(column.cells)) for column in COLUMNS.values())):
        (words,) = row_slots(prompt, rows.words(row)).values()
        assert len(words) <= len(longest)


@pytest.mark.parametrize("total", [0.5, 7.0, 100.0])
def test_the_nearest_counts_have_the_sum_and_no_negative_number(total):
    counts = nearest(np.array([5.0, -3.0, 1.0, 0.0]), total)
    assert counts.sum() == pytest.approx(total)
    assert (counts.min() >= 0, counts.argmax()) == (True, 0)


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ((("age", "city"),), "city"),
        ((("age", "age"),), "circle"),
        ((*PAIRS, ("age", "urgent")), "circle at age"),
    ],
)
def test_pairs_that_rows_cannot_follow_are_refused(pairs, why):
    assert why in str(ColumnsConfig(pairs=pairs).why_not(list(COLUMNS)))
    assert ColumnsConfig(pairs=PAIRS).why_not(list(COLUMNS)) is None


def _rng():
    return np.random.default_rng(3)


def test_noise_alone_spreads_rows_over_cells():
    """A label without records: nothing fails, nothing is drawn that is not declared."""
    drawn = marginals(epsilon=0.1)
    noisy = np.rint(_rng().normal(scale=drawn.noise.sigma, size=drawn.ends[-1])).astype(np.int64)
    rows = rows_of(drawn, noisy, {"a": 1000, "b": 3})
    shares = shares_of(rows["a"], 0)
    assert shares.max() < 0.7
    assert np.count_nonzero(shares) >= 4
    assert not np.array_equal(rows["a"], sorted(rows["a"])), "in random order"
