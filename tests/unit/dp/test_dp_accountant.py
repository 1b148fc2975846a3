"""Composition laws, calibration and the account's filter, with the numbers worked out by hand."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privsyn.dp import conversions
from privsyn.dp.accountant import epsilon_at, format_epsilon, guarantee, loss_at, rho
from privsyn.dp.adjacency import Guarantee
from privsyn.dp.calibration import calibrate, calibrate_rho
from privsyn.dp.event_tree import in_sequence, split_allocation
from privsyn.dp.events import (
    ZCDP,
    BoundedRange,
    Composed,
    DiscreteGaussian,
    Disjoint,
    Event,
    Gaussian,
    Pure,
    RandomAllocation,
    Rounds,
    SampledGaussian,
    dump,
    load,
)
from privsyn.dp.filters import (
    covering_mu_squared,
    filter_budget,
    filter_epsilon,
    filter_order,
    gaussian_mu_squared,
    pure_loss,
)

ORDERS = (1.001, 1.5, 2.0, 4.4, 9.0, 22.0, 300.0)

additive = st.one_of(
    st.builds(Pure, st.floats(0, 5)),
    st.builds(ZCDP, st.floats(0, 2), st.integers(1, 50)),
    st.builds(Gaussian, st.floats(0.3, 100), st.integers(1, 50)),
    st.builds(DiscreteGaussian, st.floats(0.3, 100), st.integers(1, 50)),
)
sampled = st.builds(SampledGaussian, st.floats(0, 1), st.floats(0.5, 10), st.integers(1, 50))
simple = additive | sampled
lists = st.lists(additive, min_size=1, max_size=4)
epsilons = st.floats(1e-3, 500)
deltas = st.sampled_from([1e-15, 1e-9, 1e-6, 1e-5, 1e-2, 0.3])


def test_private_prediction_numbers():
    """100 tokens, clip 10, 255 prompts, temperature 2; then with the sparse vector test."""
    tokens = ZCDP((10 / 255 / 2) ** 2 / 2, count=100)
    assert rho(tokens) == pytest.approx(0.019223, abs=5e-7)
    assert guarantee(tokens, 1e-6).epsilon == pytest.approx(0.8811, abs=5e-5)
    both = Composed((tokens, ZCDP(2 * (1 / 255 / 0.2) ** 2, count=100)))
    assert rho(both) == pytest.approx(0.096117, abs=5e-7)
    assert guarantee(both, 1e-6).epsilon == pytest.approx(2.0963, abs=5e-5)


@pytest.mark.parametrize("other", [ZCDP(2.0), Pure(3.0), Gaussian(0.5), Disjoint((ZCDP(2.0),), 4)])
def test_a_sequence_with_a_sampled_gaussian_costs_no_less_than_any_part_of_it(other):
    """Whatever kind the part is: a histogram of labels beside the training, say."""
    trained = SampledGaussian(0.01, 1.0, 1000)
    both = epsilon_at(Composed((trained, other)), 1e-5)
    assert both >= epsilon_at(other, 1e-5)
    assert both > epsilon_at(trained, 1e-5)


@pytest.mark.parametrize(
    ("sigma", "rounds", "epsilon"),
    [
        (2 * math.sqrt(2), 1, 1.3565),
        (2 * math.sqrt(2), 2, 1.993),
        (2 * math.sqrt(2), 3, 2.502),
        (2 * math.sqrt(2), 4, 2.943),
        (2 * math.sqrt(2), 5, 3.3414),
        (10 * math.sqrt(2), 5, 0.5613),
        (10 * math.sqrt(2), 7, 0.6745),
        (25.0, 17, 0.588),
    ],
)
def test_private_evolution_numbers(sigma, rounds, epsilon):
    for kind in (Gaussian, DiscreteGaussian):
        assert guarantee(kind(sigma, rounds), 1e-5).epsilon == pytest.approx(epsilon, abs=5e-4)


def test_rho_of_each_kind():
    assert rho(Pure(3)) == 4.5
    assert rho(ZCDP(0.5, 4)) == 2
    assert rho(Gaussian(2, 8)) == rho(DiscreteGaussian(2, 8)) == 1
    assert rho(SampledGaussian(0.1, 1, 1)) is None
    assert rho(SampledGaussian(1, 2, 8)) == 1
    assert rho(Composed((ZCDP(1), SampledGaussian(0.1, 1, 1)))) is None
    assert rho(Disjoint((ZCDP(1), Pure(2)), 5)) == 2


@given(st.lists(simple, min_size=1, max_size=4), st.sampled_from(ORDERS))
@settings(deadline=None, max_examples=50)
def test_a_sequence_costs_the_sum_and_parts_the_maximum(events, order):
    losses = [loss_at(event, order) for event in events]
    assert loss_at(Composed(tuple(events)), order) == math.fsum(losses)
    additive = [event for event in events if not isinstance(event, SampledGaussian)]
    if additive:
        parts = Disjoint(tuple(additive), cells=9)
        assert loss_at(parts, order) == max(loss_at(event, order) for event in additive)


@given(additive, deltas)
@example(SampledGaussian(0.1, 1.0, 5), 1e-6)
@settings(deadline=None, max_examples=50)
def test_wrapping_changes_nothing(event, delta):
    alone = epsilon_at(event, delta)
    assert epsilon_at(Composed((event,)), delta) == alone
    if not isinstance(event, SampledGaussian):
        assert epsilon_at(Disjoint((event,), cells=7), delta) == alone
        assert epsilon_at(Disjoint((event, event), cells=7), delta) == alone


@given(st.floats(1e-9, 1), st.integers(1, 1000), deltas)
@settings(deadline=None)
def test_a_count_is_a_repeated_event(one, count, delta):
    assert epsilon_at(ZCDP(one, count), delta) == pytest.approx(
        epsilon_at(ZCDP(one * count), delta), rel=1e-12
    )


@given(additive)
@example(SampledGaussian(0.1, 1.0, 5))
@example(SampledGaussian(0.0, 1.0, 5))
@settings(deadline=None, max_examples=30)
def test_epsilon_falls_with_delta(event):
    falling = [epsilon_at(event, delta) for delta in (1e-12, 1e-9, 1e-6, 1e-3, 0.1)]
    assert all(high >= low for high, low in pairwise(falling))


@given(simple, st.sampled_from(ORDERS))
@settings(deadline=None, max_examples=50)
def test_every_kind_is_below_its_own_rho_line(event, order):
    line = rho(event)
    if line is not None:
        assert loss_at(event, order) <= order * line * (1 + 1e-12)


@given(additive, deltas)
@example(SampledGaussian(0.1, 1.0, 5), 1e-6)
@example(Composed((SampledGaussian(0.1, 1.0, 5), Pure(0.3), ZCDP(0.01))), 1e-6)
@settings(deadline=None, max_examples=30)
def test_guarantee_is_never_looser_than_any_order(event, delta):
    epsilon = epsilon_at(event, delta)
    for order in ORDERS:
        assert epsilon <= filter_epsilon(loss_at(event, order), delta, order) * (1 + 1e-3) + 1e-9


def test_pure_events_at_delta_zero_are_summed():
    both = Composed((Pure(1), Pure(0.25)))
    assert guarantee(both, 0) == Guarantee(1.25, 0)
    assert guarantee(Composed((Pure(1), ZCDP(0))), 0) == Guarantee(1, 0)
    assert guarantee(both, 1e-6).epsilon < 1.25
    for event in (ZCDP(0.1), Gaussian(1), SampledGaussian(0.1, 1, 1), Composed((Pure(1), ZCDP(1)))):
        assert epsilon_at(event, 0) == math.inf
        with pytest.raises(ValueError, match="no finite epsilon at delta=0"):
            guarantee(event, 0)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(-1, 0), (math.nan, 0), (math.inf, 0), (1, 1), (1, -1e-9), (1, math.nan)]
)
def test_a_guarantee_is_two_numbers_in_range(epsilon, delta):
    with pytest.raises(ValueError, match="="):
        Guarantee(epsilon, delta)


@given(epsilons, deltas)
@settings(deadline=None, max_examples=200)
def test_calibrated_rho_is_within_the_target_and_as_large_as_can_be(epsilon, delta):
    found = calibrate_rho(Guarantee(epsilon, delta))
    assert guarantee(ZCDP(found), delta).epsilon <= epsilon
    # Room for the caller to split it over tokens and put it together again.
    assert guarantee(ZCDP(found / 49, count=49), delta).epsilon <= epsilon
    assert guarantee(ZCDP(math.nextafter(found, 1e9)), delta).epsilon <= epsilon
    assert guarantee(ZCDP(found * (1 + 1e-6)), delta).epsilon > epsilon


@given(epsilons, deltas)
@settings(deadline=None, max_examples=200)
def test_a_release_of_the_whole_cap_fits_a_fresh_account(epsilon, delta):
    order = filter_order(epsilon, delta)
    budget = filter_budget(epsilon, delta, order)
    spent = loss_at(ZCDP(calibrate_rho(Guarantee(epsilon, delta))), order)
    assert budget * (1 - 1e-6) <= spent <= budget
    assert filter_epsilon(spent, delta, order) <= epsilon
    assert filter_epsilon(budget, delta, order) == pytest.approx(epsilon, rel=1e-9)
    assert filter_epsilon(budget, delta, order) <= epsilon


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 3.0, 8.0, 100.0])
def test_filter_order_is_the_best_by_brute_force(epsilon, delta):
    orders = 1 + np.geomspace(1e-3, 1e6, 200_001)
    budgets = epsilon + (math.log(delta) + np.log(orders)) / (orders - 1) - np.log1p(-1 / orders)
    best = int(np.argmax(budgets / orders))
    order = filter_order(epsilon, delta)
    assert order == pytest.approx(orders[best], rel=1e-3)
    assert filter_budget(epsilon, delta, order) == pytest.approx(budgets[best], rel=1e-3)
    assert filter_budget(epsilon, delta, order) / order >= (budgets / orders)[best] * (1 - 1e-12)


def test_extreme_caps_still_have_an_order():
    for epsilon in (1e-6, 1e12, 1e30):
        for delta in (1e-300, 1e-6, 0.9):
            order = filter_order(epsilon, delta)
            found = calibrate_rho(Guarantee(epsilon, delta))
            assert order > 1
            assert guarantee(ZCDP(found), delta).epsilon <= epsilon
            assert order * found <= max(0.0, filter_budget(epsilon, delta, order))


def test_a_pure_account_sums_pure_losses():
    order = filter_order(2.0, 0)
    assert order == math.inf
    assert filter_budget(2.0, 0, order) == 2.0
    assert loss_at(Composed((Pure(0.5), Pure(1.5))), order) == 2.0
    assert filter_epsilon(1.5, 0, order) == 1.5
    assert loss_at(ZCDP(1e-9), order) == math.inf


@pytest.mark.parametrize("order", [1.0, 0.0, -3.0, math.nan, math.inf])
def test_a_filter_needs_an_order_above_one(order):
    with pytest.raises(ValueError, match="order="):
        filter_budget(1.0, 1e-6, order)
    with pytest.raises(ValueError, match="order="):
        filter_epsilon(1.0, 1e-6, order)
    with pytest.raises(ValueError, match="order="):
        filter_budget(1.0, 0.0, 9.0)


def test_filter_arguments_are_checked():
    for call in (
        lambda: filter_order(0, 1e-6),
        lambda: filter_order(math.inf, 1e-6),
        lambda: filter_order(1, 1),
        lambda: filter_epsilon(-1, 1e-6, 9),
        lambda: filter_epsilon(math.nan, 1e-6, 9),
        lambda: guarantee(Pure(1), 1),
        lambda: calibrate_rho(Guarantee(1, 0)),
    ):
        with pytest.raises(ValueError, match="="):
            call()
    assert calibrate_rho(Guarantee(0, 1e-6)) == 0


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0, 500.0])
@pytest.mark.parametrize("rounds", [1, 7, 1000])
def test_calibrated_noise_is_within_the_target(epsilon, rounds):
    target = Guarantee(epsilon, 1e-5)

    def make(sigma):
        return DiscreteGaussian(sigma, rounds)

    sigma = calibrate(make, target, 1e-3, 1e7, increasing=False)
    assert guarantee(make(sigma), 1e-5).epsilon <= epsilon
    assert guarantee(make(sigma * (1 - 1e-5)), 1e-5).epsilon > epsilon


def test_calibrated_clip_bound_is_rounded_down():
    def make(clip):
        return ZCDP((clip / 32) ** 2 / 2, count=200)

    clip = calibrate(make, Guarantee(1.0, 1e-6), 1e-6, 1e3, increasing=True)
    assert guarantee(make(clip), 1e-6).epsilon <= 1
    closed_form = 32 * math.sqrt(2 * calibrate_rho(Guarantee(1.0, 1e-6)) / 200)
    assert clip == pytest.approx(closed_form, rel=1e-8)


def test_calibration_at_the_ends_of_its_range():
    target = Guarantee(1.0, 1e-6)
    assert calibrate(ZCDP, target, 1e-9, 1e-6, increasing=True) == 1e-6
    assert calibrate(Gaussian, target, 1e3, 1e6, increasing=False) == 1e3
    with pytest.raises(ValueError, match=r"no parameter in \[1, 2\] reaches epsilon=1 at"):
        calibrate(ZCDP, target, 1.0, 2.0, increasing=True)
    for low, high in ((0, 1), (2, 1), (1, math.inf), (math.nan, 1)):
        with pytest.raises(ValueError, match="low="):
            calibrate(ZCDP, target, low, high, increasing=True)


@given(st.floats(1e-3, 1e3), st.integers(2, 8))
def test_an_epsilon_is_never_shown_below_the_truth(epsilon, digits):
    text = format_epsilon(epsilon, digits)
    assert epsilon <= float(text) <= epsilon * (1 + 10.0 ** (1 - digits))


KINDS: dict[str, Event] = {
    "pure": Pure(0.3),
    "zcdp": ZCDP(0.02, 3),
    "bounded_range": BoundedRange(0.3, 4),
    "gaussian": Gaussian(4.0, 2),
    "discrete_gaussian": DiscreteGaussian(4.0, 2),
    "sampled_gaussian": SampledGaussian(0.1, 1.5, 10),
    "sequence": Composed((Pure(0.1), Gaussian(6.0))),
    "rounds": Rounds((BoundedRange(0.2), Pure(0.1)), 3),
    "disjoint": Disjoint((BoundedRange(0.3, 4), BoundedRange(0.2, 4)), 3),
    "random_allocation": RandomAllocation(Disjoint((BoundedRange(0.3398, 48),), 2), 20),
    "allocation_of_noise": RandomAllocation(Gaussian(1.0), 5),
    "allocation_in_a_sequence": Composed((RandomAllocation(Gaussian(1.0), 5), Pure(0.2))),
    "allocation_in_rounds": Rounds((RandomAllocation(Gaussian(1.0), 5),), 2),
}
PRICES = {
    "epsilon": lambda event: epsilon_at(event, 1e-6),
    "rho": lambda event: rho(event) or 0.0,
    "renyi": lambda event: loss_at(event, 4.4),
    "pure": pure_loss,
    "mu": gaussian_mu_squared,
    "covering mu": lambda event: covering_mu_squared(event, 1e-10),
}


@pytest.mark.parametrize("price", PRICES)
@pytest.mark.parametrize("kind", KINDS)
def test_one_object_many_times_costs_as_many_equal_objects(kind, price):
    """A certificate is priced from the objects in memory, `verify` reads them from JSON."""
    event, cost = KINDS[kind], PRICES[price]
    less = 0.0
    for copies in (1, 2, 3):
        sequence = Composed((event,) * copies)
        once = cost(sequence)
        assert cost(load(dump(sequence))) == once
        nested = Composed((Composed((event,) * (copies - 1)), event)) if copies > 1 else sequence
        assert cost(nested) == pytest.approx(once, rel=1e-12)
        assert once >= less * (1 - 1e-12)
        less = once


def test_another_copy_of_an_allocation_stays_in_the_sequence():
    allocation = KINDS["random_allocation"]
    for copies in (1, 2, 100):
        first, others = split_allocation(Composed((allocation,) * copies))
        assert first == allocation
        assert others == (allocation,) * (copies - 1)
    wide = RandomAllocation(Gaussian(1.0), 9)
    mixed = Composed((Pure(0.1), allocation, Composed((wide, allocation)), wide))
    first, others = split_allocation(mixed)
    assert first == allocation
    assert others == (Pure(0.1), wide, allocation, wide)
    assert len(list(in_sequence(mixed))) == len(others) + 1


def test_two_passes_over_one_allocation_cost_less_than_two_allocations():
    """A method that asks the same buckets twice prices one allocation of both passes."""
    one_pass = Gaussian(2.0)
    passes = RandomAllocation(Composed((one_pass, one_pass)), 20)
    allocations = Composed((RandomAllocation(one_pass, 20),) * 2)
    assert epsilon_at(RandomAllocation(one_pass, 20), 1e-6) < epsilon_at(passes, 1e-6)
    assert epsilon_at(passes, 1e-6) < epsilon_at(allocations, 1e-6)


@pytest.mark.parametrize("loss", [0.5, 3.0, 5.0, 20.0])
def test_a_pure_step_beside_sampled_noise_costs_about_its_loss(loss):
    """A large one once left the window in which delta is known, and the cost was by Renyi alone."""
    noise = SampledGaussian(0.1, 1.0, 30)
    both, alone = epsilon_at(Composed((noise, Pure(loss))), 1e-6), epsilon_at(noise, 1e-6)
    assert alone + 0.7 * loss < both < alone + loss + 1e-5


def test_calibrated_noise_of_a_training_run():
    sigma = calibrate(
        lambda sigma: SampledGaussian(0.01, sigma, 1000), Guarantee(2.0, 1e-5), 0.9, 1.1, False
    )
    assert guarantee(SampledGaussian(0.01, sigma, 1000), 1e-5).epsilon <= 2
    assert guarantee(SampledGaussian(0.01, sigma * 0.999, 1000), 1e-5).epsilon > 2


@given(lists, lists, deltas)
@settings(deadline=None, max_examples=30)
def test_composition_is_associative_and_grows(a, b, delta):
    flat = epsilon_at(Composed((*a, *b)), delta)
    nested = epsilon_at(Composed((Composed(tuple(a)), Composed(tuple(b)))), delta)
    swapped = epsilon_at(Composed((*b, *a)), delta)
    assert nested == pytest.approx(flat, rel=1e-9, abs=1e-12)
    assert swapped == pytest.approx(flat, rel=1e-9, abs=1e-12)
    assert flat >= epsilon_at(Composed(tuple(a)), delta) * (1 - 1e-6)


@pytest.mark.parametrize("draws", [2000, 5000, 20_000])
def test_draws_beyond_any_grid_cost_little_more_than_gaussian_noise(draws):
    epsilon = epsilon_at(BoundedRange(math.sqrt(8 * 1.7 / draws), draws), 1e-6)
    limit = conversions.gaussian_epsilon(math.sqrt(2 * 1.7), 1e-6)
    assert limit < epsilon < 1.006 * limit  # by zCDP 6% above it


def test_filter_orders_of_common_caps():
    for epsilon, order in ((1, 22.4), (3, 9.0), (8, 4.5)):
        assert filter_order(epsilon, 1e-6) == pytest.approx(order, rel=0.02)


def test_gaussian_curve_beats_its_renyi_curve():
    assert guarantee(Gaussian(25, 17), 1e-5).epsilon < 0.645
    assert guarantee(ZCDP(17 / (2 * 25**2)), 1e-5).epsilon == pytest.approx(0.645, abs=1e-3)


def test_losses_at_several_orders():
    assert [loss_at(ZCDP(0.5), order) for order in (2, 4, math.inf)] == [1, 2, math.inf]
    assert loss_at(ZCDP(0), math.inf) == 0
    for bad in (1, 0.5, math.nan):
        with pytest.raises(ValueError, match="must be above 1"):
            loss_at(ZCDP(0.5), bad)


def test_many_small_pure_events_beat_the_sum():
    many = Composed((Pure(0.01),) * 1000)
    assert guarantee(many, 1e-6).epsilon < 2
    assert guarantee(many, 0).epsilon == pytest.approx(10)


def test_nothing_spent_is_epsilon_zero():
    assert filter_epsilon(0, 1e-6, 9.0) == 0
    assert filter_epsilon(1e-300, 1e-6, 9.0) > 0
