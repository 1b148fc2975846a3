"""The account's cap holds against an adversary who chooses the second release after the first.

The first release shows one of three outcomes; on the first two the adversary asks for a second
release that fits a filter which takes the minimum over orders of the running sum. Both paths pass
that filter, and together they reach twice the delta. A filter of one order, fixed in advance,
refuses both.
"""

import dataclasses
import math
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest
from scipy.special import logsumexp

from privsyn.dp.adjacency import Guarantee
from privsyn.dp.event_tree import Allocation, PureSteps
from privsyn.dp.events import (
    ZCDP,
    Composed,
    Event,
    Gaussian,
    Pure,
    RandomAllocation,
    SampledGaussian,
    dump,
)
from privsyn.dp.filters import filter_budget, filter_epsilon, filter_order, fixed_parts
from privsyn.dp.rooms import Rooms
from privsyn.errors import BudgetExceeded
from privsyn.ledger.caps import Cap, Charge
from privsyn.ledger.ledger import Ledger
from privsyn.ledger.spec import AccountSpec, Split

EPSILON, DELTA = 3.0, 1e-6


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """Finitely many outcomes: their probabilities on D and their privacy losses to D'.

    What is left of the probability is one more outcome.
    """

    outcomes: tuple[tuple[float, float], ...]

    @property
    def log_p(self):
        p = [p for p, _ in self.outcomes]
        return np.log([*p, 1 - sum(p)])

    @property
    def log_q(self):
        q = [p * np.exp(-loss) for p, loss in self.outcomes]
        return np.log([*q, 1 - sum(q)])

    def loss_at(self, order):
        p, q = self.log_p, self.log_q
        both = [logsumexp(order * x + (1 - order) * y) for x, y in ((p, q), (q, p))]
        return float(max(both)) / (order - 1)


FIRST = Mechanism(((0.7141, 0.9340), (7.01e-5, 1.2362)))
AFTER = {0: Mechanism(((1.400e-5, 2.1711),)), 1: Mechanism(((0.8557, 1.7806),))}
"""Outcome of the first -> the second that the adversary then asks for."""


def delta_of(admits, after=AFTER):
    """Exact delta at EPSILON of the whole strategy; a refused second release is not run."""
    if not admits(FIRST, None):
        return 0.0
    total = 0.0
    for outcome, (p, q) in enumerate(zip(FIRST.log_p, FIRST.log_q, strict=True)):
        second = after.get(outcome)
        if second is not None and admits(FIRST, second):
            log_p, log_q = p + second.log_p, q + second.log_q
        else:
            log_p, log_q = np.array([p]), np.array([q])
        total += float(np.maximum(0, np.exp(log_p) - np.exp(EPSILON + log_q)).sum())
    return total


def spent(order, *releases):
    return sum(release.loss_at(order) for release in releases if release)


@cache
def minimum_over_orders_admits(*releases):
    return any(
        filter_epsilon(spent(order, *releases), DELTA, order) <= EPSILON
        for order in 1 + np.geomspace(1e-2, 1e3, 200)
    )


def fixed_order_admits(*releases):
    order = filter_order(EPSILON, DELTA)
    return spent(order, *releases) <= filter_budget(EPSILON, DELTA, order)


def test_the_adversary_reaches_twice_the_delta_past_the_minimum_over_orders():
    for second in AFTER.values():
        assert minimum_over_orders_admits(FIRST, second)
    assert delta_of(minimum_over_orders_admits) == pytest.approx(2e-6, rel=0.01)


def test_a_fixed_order_refuses_both_paths():
    assert fixed_order_admits(FIRST)
    for second in AFTER.values():
        assert not fixed_order_admits(FIRST, second)


def strongest_that_fits(release):
    [(chance, loss)] = release.outcomes
    low, high = 0.0, loss
    for _ in range(60):
        middle = (low + high) / 2
        fits = fixed_order_admits(FIRST, Mechanism(((chance, middle),)))
        low, high = (middle, high) if fits else (low, middle)
    return Mechanism(((chance, low),))


def test_any_adversary_within_the_fixed_order_keeps_delta():
    """The same two paths, the second release made as strong as the filter allows."""
    after = {outcome: strongest_that_fits(second) for outcome, second in AFTER.items()}
    assert all(fixed_order_admits(FIRST, second) for second in after.values())
    assert 0 < delta_of(fixed_order_admits, after) <= DELTA


@pytest.fixture
def make(tmp_path):
    made = []

    def fresh():
        ledger = Ledger(f"sqlite:///{tmp_path}/{len(made)}.db")
        ledger.accounts.open(AccountSpec("a", "d", "person", "add_remove", EPSILON, DELTA))
        made.append(ledger)
        return ledger

    return fresh


def reserve(ledger, name, mechanism):
    # a filter sees an event through its loss at the account's order alone: this one has that loss
    order = ledger.accounts.balance("a").order
    event = ZCDP(mechanism.loss_at(order) / order)
    ledger.releases.reserve("a", name, event, method="toy", guarantee=Guarantee(1.0, DELTA))


def test_the_two_path_adversary_is_refused(make):
    for second in AFTER.values():
        ledger = make()
        reserve(ledger, "first", FIRST)
        with pytest.raises(BudgetExceeded):
            reserve(ledger, "second", second)
        assert len(ledger.releases.all()) == 1
        ledger.verify()


def test_what_the_ledger_admits_stays_within_delta(make):
    def by_ledger(first, second):
        ledger = make()
        try:
            reserve(ledger, "first", first)
            if second:
                reserve(ledger, "second", second)
        except BudgetExceeded:
            return False
        return True

    assert by_ledger(FIRST, None)
    assert delta_of(by_ledger) <= DELTA


@pytest.mark.parametrize(("epsilon", "order"), [(1, 25.0), (3, 9.9), (8, 4.8)])
def test_the_order_is_fixed_at_creation(tmp_path, epsilon, order):
    spec = AccountSpec("a", "d", "person", "add_remove", epsilon, DELTA)
    url = f"sqlite:///{tmp_path}/ledger.db"
    Ledger(url).accounts.open(spec)
    fixed = Ledger(url).accounts.balance("a")
    share = DELTA * Split().renyi
    assert fixed.order == filter_order(epsilon, share) == pytest.approx(order, rel=0.01)
    ledger = Ledger(url)
    for number in range(3):  # spending moves neither order nor budget
        event = ZCDP(fixed.budget / fixed.order / 4)
        ledger.releases.reserve(
            "a", f"r{number}", event, method="toy", guarantee=Guarantee(1.0, DELTA)
        )
        balance = ledger.accounts.balance("a")
        assert (balance.order, balance.budget) == (fixed.order, fixed.budget)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("loss", [math.inf, math.nan])
def test_a_loss_without_a_bound_never_fits(delta, loss):
    cap = Cap.of(100.0, delta)
    held = cap.charge(ZCDP(1e-3) if delta else Pure(1e-3))
    assert cap.fits([held], held)
    # only its losses are read here: the event is one whose cost no rule can tell
    unbounded = Charge(loss, loss if delta else None, dump(Gaussian(1e-9)))
    assert not cap.fits([], unbounded)
    assert not cap.fits([held], unbounded)
    assert not cap.fits([unbounded], held)  # and after it nothing fits


@dataclasses.dataclass(frozen=True)
class Asked:
    """A release an adversary may ask for: its event, and an exact law of its outcomes.

    A row of ``law`` is an outcome: its probability with the unit, and without it.
    """

    event: Event
    law: tuple[tuple[float, float], ...]


def allocation_of_tests(mu, places, threshold):
    """Gaussian noise in every place; whoever looks learns how many places are above a threshold."""
    without, with_unit = NormalDist().cdf(-threshold), NormalDist().cdf(mu - threshold)

    def law(count, others, chance):
        if not 0 <= count <= others:
            return 0.0
        return math.comb(others, count) * chance**count * (1 - chance) ** (others - count)

    rows = []
    for count in range(places + 1):
        above = with_unit * law(count - 1, places - 1, without)
        below = (1 - with_unit) * law(count, places - 1, without)
        rows.append((above + below, law(count, places, without)))
    return Asked(RandomAllocation(Gaussian(1 / mu), places), tuple(rows))


def gaussian_test(mu, threshold):
    p, q = NormalDist().cdf(mu - threshold), NormalDist().cdf(-threshold)
    return Asked(Gaussian(1 / mu), ((p, q), (1 - p, 1 - q)))


def training_of_tests(rate, noise, *thresholds):
    """A step on a sample; whoever looks learns between which thresholds the noisy sum is."""
    cdf = NormalDist().cdf
    without = [0.0, *(cdf(at / noise) for at in thresholds), 1.0]
    moved = [0.0, *(cdf((at - 1) / noise) for at in thresholds), 1.0]
    rows = []
    for i in range(len(thresholds) + 1):
        q, shifted = without[i + 1] - without[i], moved[i + 1] - moved[i]
        rows.append(((1 - rate) * q + rate * shifted, q))
    return Asked(SampledGaussian(rate, noise, 1), tuple(rows))


def response(loss):
    yes = 1 / (1 + math.exp(-loss))
    return Asked(Pure(loss), ((yes, 1 - yes), (1 - yes, yes)))


def most_delta(cap, menu, depth, *, with_unit):
    """Exact delta at the cap's epsilon of the best strategy that the cap admits, one direction."""

    @cache
    def admitted(history):
        *earlier, last = [cap.charge(menu[i].event) for i in history]
        return cap.fits(earlier, last)

    def best(loss, history):
        """From here on, of the probability that is still there."""
        value = max(0.0, -math.expm1(cap.epsilon - loss))
        if len(history) == depth:
            return value
        for choice in range(len(menu)):
            if admitted((*history, choice)):
                gained = 0.0
                for row in menu[choice].law:
                    p, q = row if with_unit else row[::-1]
                    gained += p * best(loss + math.log(p / q), (*history, choice))
                value = max(value, gained)
        return value

    return best(0.0, ())


MENUS = (
    (allocation_of_tests(0.5, 4, 1.5), gaussian_test(0.3, 1.6)),
    (allocation_of_tests(0.5, 4, 1.5), allocation_of_tests(0.6, 2, 1.6)),
    (allocation_of_tests(0.6, 2, 1.6), gaussian_test(0.4, 1.8)),
    (training_of_tests(0.1, 1.0, 2.0), gaussian_test(0.4, 1.8)),
    (training_of_tests(0.2, 1.2, 0.8, 2.4), allocation_of_tests(0.6, 2, 1.6)),
    (training_of_tests(0.2, 1.2, 2.6), training_of_tests(0.05, 0.9, 2.2)),
)
COUNTED = Split.of(rooms=True, chances=True)
WITH_CHANCES = Split(renyi=0.1, gaussian=0.7, repeats=0.1, chances=0.1)


@pytest.mark.parametrize("menu", MENUS)
@pytest.mark.parametrize("epsilon", [0.8, 1.6])
def test_releases_with_a_chance_chosen_one_after_the_other_stay_within_the_cap(menu, epsilon):
    cap = Cap.of(epsilon, 0.02, WITH_CHANCES)
    attained = max(most_delta(cap, menu, 4, with_unit=way) for way in (True, False))
    assert 0.001 * cap.delta < attained <= cap.delta


ROOMS = Rooms(0.2, 1.2, 2, 0.3, 2)
SECRET = Rooms(0.2, 1.2, 1, 0.3, 1, mu=0.7, places=4, allocations=2)


@pytest.mark.parametrize(
    ("rooms", "menu"),
    [
        (ROOMS, (training_of_tests(0.2, 1.2, 2.6), gaussian_test(0.4, 1.8))),
        (ROOMS, (training_of_tests(0.2, 1.2, 2.2), response(0.3))),
        (ROOMS, (training_of_tests(0.15, 1.3, 2.4), training_of_tests(0.2, 1, 2), response(0.25))),
        (SECRET, (allocation_of_tests(0.7, 4, 1.5), gaussian_test(0.4, 1.8))),
        (SECRET, (allocation_of_tests(0.7, 4, 1.9), allocation_of_tests(0.6, 7, 1.9))),
        (SECRET, (allocation_of_tests(0.7, 4, 1.8), response(0.3))),
        (SECRET, (allocation_of_tests(0.7, 4, 1.8), training_of_tests(0.2, 1.2, 2.6))),
    ],
)
@pytest.mark.parametrize("epsilon", [1.2, 1.6])
def test_releases_in_and_outside_rooms_stay_within_the_cap(rooms, menu, epsilon):
    cap = Cap.of(epsilon, 0.02, Split.of(rooms=True, chances=True), rooms)
    attained = max(most_delta(cap, menu, 4, with_unit=way) for way in (True, False))
    assert 0.001 * cap.delta < attained <= cap.delta


@pytest.mark.parametrize(("mu", "places"), [(0.5, 4), (1.0, 3), (2.0, 16)])
@pytest.mark.parametrize("epsilon", [0.4, 0.9])
def test_releases_of_one_secret_event_stay_within_the_cap(mu, places, epsilon):
    """As many as the exact composition admits, by the rule for repeats alone."""
    cap = Cap.of(epsilon, 0.05, Split(renyi=0.01, gaussian=0.0, repeats=0.99))
    menu = (allocation_of_tests(mu, places, mu + 0.6), gaussian_test(0.2, 1.5))
    attained = max(most_delta(cap, menu, 6, with_unit=way) for way in (True, False))
    assert 0.001 * cap.delta < attained <= cap.delta


def test_fewer_buckets_than_a_room_was_made_for_do_not_enter_it():
    room = Rooms(mu=1.0, places=16, allocations=3)
    inside, fewer = allocation_of_tests(1.0, 16, 2.0).event, allocation_of_tests(1.0, 8, 2.0).event
    clearer = allocation_of_tests(1.1, 16, 2.0).event
    assert room.need(inside).used == (0, 0, 1)
    assert {room.need(event).used for event in (fewer, clearer)} == {(0, 0, 0)}
    more, less = (allocation_of_tests(mu, n, 2.0).event for mu, n in ((1.0, 20), (0.6, 16)))
    assert {room.need(event).used for event in (more, less)} == {(0, 0, 1)}
    mixed = Composed((inside, Pure(0.1), inside))
    assert room.need(mixed).used == (0, 0, 1)  # the other may be the same draw of buckets
    assert room.need(mixed).rest == Composed((Pure(0.1), Gaussian(1.0)))
    assert fixed_parts(mixed, 5) == (Allocation(1.0, 16, 5), PureSteps(0.1, 5), (1.0, 1.0, 5))


@pytest.mark.parametrize(
    ("cap", "menu"),
    [
        (Cap.of(0.5, 0.02, COUNTED, Rooms(loss=0.3, responses=1)), response(0.3)),
        (
            Cap.of(0.6, 0.1, COUNTED, Rooms(mu=1.0, places=4, allocations=1)),
            allocation_of_tests(1.0, 4, 1.7),
        ),
        (Cap.of(0.3, 0.02, WITH_CHANCES), allocation_of_tests(2.0, 16, 2.0)),
        (Cap.of(0.3, 0.02, WITH_CHANCES), training_of_tests(0.1, 0.4, 0.8)),
    ],
)
def test_what_a_room_or_a_share_of_delta_holds_runs_out(cap, menu):
    """Were it not counted, five of these releases would pass delta."""
    assert max(most_delta(cap, (menu,), 5, with_unit=way) for way in (True, False)) <= cap.delta
