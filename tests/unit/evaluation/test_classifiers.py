"""What classifiers are trained and tested on."""

import numpy as np
import pytest

from privsyn.evaluation import classifiers
from privsyn.evaluation.classifiers import labeled_texts, split_holdout


def test_labeled_texts_are_evenly_spaced():
    assert labeled_texts(["x", "y", "z"], ["a", None, "b"], 9) == [("x", "a"), ("z", "b")]
    assert len(labeled_texts(["x"] * 99, ["a"] * 99, 7)) == 7


@pytest.mark.parametrize(("count", "known"), [(60, 20), (10, 10), (0, 0)])
def test_at_most_half_of_the_held_out_records_are_a_baseline(count, known):
    real = list(range(40))
    first, other = split_holdout(real, count)
    assert (len(first), sorted(first + other)) == (known, real)


@pytest.mark.parametrize(("value", "least"), [(1.0, 0), (0.0, 0), (1.0, -1), (-1.0, -1)])
def test_an_interval_stays_within_what_shares_and_their_differences_can_be(value, least):
    samples = np.array([0.6, 0.8, 1.0])
    found = classifiers.spread(value, samples, least=least)
    assert least <= found.low <= found.value <= found.high <= 1
    assert found.low < found.high
