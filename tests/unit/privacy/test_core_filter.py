"""The account's filter against an adversary who picks the second release after seeing the first.

The first release shows one of three outcomes; on the first two the adversary asks for a second
release that fits a filter which takes the minimum over orders of the running sum. Both paths pass
that filter, and together they reach twice the delta. A filter of one order, fixed in advance,
refuses both.
"""

import math

import numpy as np
import pytest

from privsyn.dp.filters import filter_budget, filter_epsilon, filter_order

EPSILON, DELTA = 3.0, 1e-6
FIRST = ((0.7141, 0.9340), (7.01e-5, 1.2362))
SECOND = ((1.400e-5, 2.1711), (0.8557, 1.7806))
"""Outcomes as (probability, privacy loss); what is left over is one more outcome."""


def distributions(outcomes):
    p = [chance for chance, _ in outcomes]
    q = [chance * math.exp(-loss) for chance, loss in outcomes]
    return np.array([*p, 1 - sum(p)]), np.array([*q, 1 - sum(q)])


def renyi(outcomes, order):
    p, q = distributions(outcomes)

    def one_way(p, q):
        exponents = order * np.log(p) + (1 - order) * np.log(q)
        return float(np.logaddexp.reduce(exponents)) / (order - 1)

    return max(one_way(p, q), one_way(q, p))


def minimum_over_orders_admits(path):
    return any(
        filter_epsilon(sum(renyi(release, order) for release in path), DELTA, order) <= EPSILON
        for order in 1 + np.geomspace(1e-2, 1e3, 2000)
    )


def fixed_order_admits(path):
    order = filter_order(EPSILON, DELTA)
    spent = sum(renyi(release, order) for release in path)
    return spent <= filter_budget(EPSILON, DELTA, order)


def true_delta():
    p, q = distributions(FIRST)
    excess = 0.0
    for outcome in range(3):
        after = distributions((SECOND[outcome],)) if outcome < 2 else (np.ones(1), np.ones(1))
        joint = p[outcome] * after[0] - math.exp(EPSILON) * q[outcome] * after[1]
        excess += float(np.maximum(joint, 0).sum())
    return excess


def test_the_adversary_reaches_twice_the_delta_past_the_minimum_over_orders():
    for second in SECOND:
        assert minimum_over_orders_admits((FIRST, (second,)))
    assert true_delta() == pytest.approx(2e-6, rel=0.01)


def test_a_fixed_order_refuses_both_paths():
    assert fixed_order_admits((FIRST,))
    for second in SECOND:
        assert not fixed_order_admits((FIRST, (second,)))


def test_any_adversary_within_the_fixed_order_keeps_delta():
    """The same two paths, the second release made as strong as the filter allows."""
    order = filter_order(EPSILON, DELTA)
    left = filter_budget(EPSILON, DELTA, order) - renyi(FIRST, order)
    p, q = distributions(FIRST)
    excess = 0.0
    for outcome, (chance, loss) in enumerate(SECOND):
        low, high = 0.0, loss
        for _ in range(60):
            middle = (low + high) / 2
            fits = renyi(((chance, middle),), order) <= left
            low, high = (middle, high) if fits else (low, middle)
        after = distributions(((chance, low),))
        joint = p[outcome] * after[0] - math.exp(EPSILON) * q[outcome] * after[1]
        excess += float(np.maximum(joint, 0).sum())
    assert 0 <= excess <= DELTA
