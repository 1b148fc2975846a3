"""Random allocation: the bound against exact laws, and what breaks where its premises do."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import binom

from privsyn.dp import bounded_range, conversions, random_allocation
from privsyn.dp.accountant import (
    allocation_epsilon,
    epsilon_at,
    epsilon_without_secret,
    fixed_epsilon,
    profile,
)
from privsyn.dp.adjacency import Adjacency, PrivacyUnit
from privsyn.dp.bounded_range import Draw
from privsyn.dp.event_tree import Allocation, PureSteps
from privsyn.dp.events import (
    ZCDP,
    BoundedRange,
    Composed,
    Disjoint,
    Gaussian,
    Pure,
    RandomAllocation,
    SampledGaussian,
    dump,
    load,
)
from privsyn.dp.filters import covering_mu_squared, gaussian_mu_squared
from privsyn.dp.risk import risk
from privsyn.methods.base import PricingFacts


def deltas(p, q, epsilons):
    """Exact delta of two laws at several epsilons, the larger of both directions."""
    return np.array(
        [
            max(
                np.maximum(p - math.exp(epsilon) * q, 0).sum(),
                np.maximum(q - math.exp(epsilon) * p, 0).sum(),
            )
            for epsilon in epsilons
        ]
    )


def product(laws):
    joint = np.ones(1)
    for law in laws:
        joint = np.outer(joint, law).ravel()
    return joint


def draws(eta, shifts):
    """Exact laws of draws of loss within [t - eta, t], with the unit and without."""
    with_unit, without = [], []
    for t in shifts:
        up = (1 - math.exp(t - eta)) / (1 - math.exp(-eta))
        with_unit.append(np.array([up, 1 - up]))
        without.append(np.array([up * math.exp(-t), (1 - up) * math.exp(eta - t)]))
    return product(with_unit), product(without)


def allocated(with_unit, without, places):
    """The law of a release of several places: the unit in one of them, or in none."""
    laws = []
    for place in range(places):
        laws.append(product([with_unit if other == place else without for other in range(places)]))
    return np.mean(laws, axis=0), product([without] * places)


def quadrature(mu, epsilon, *, forward):
    """Delta of two places, independently: an integral over one of both X of a closed form."""
    c = math.exp(epsilon)

    def call(strike):  # E (X - strike)+
        if strike <= 0:
            return 1 - strike
        z = (math.log(strike) + mu * mu / 2) / mu
        return float(ndtr(mu - z) - strike * ndtr(-z))

    def inner(z):
        x = math.exp(mu * z - mu * mu / 2)
        if forward:
            value = call(2 * c - x) / 2
        else:  # E (1 - c (x + X) / 2)+ by put-call parity
            strike = 2 / c - x
            value = c / 2 * (call(strike) - 1 + strike)
        return value * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    ends = (2 * c, 2 / c)
    kinks = [(math.log(end) + mu * mu / 2) / mu for end in ends]
    low, high = (-12.0, 30.0) if forward else (-12.0, kinks[1])
    inside = [kink for kink in kinks if low < kink < high]
    return float(quad(inner, low, high, points=inside, limit=500, epsabs=1e-15, epsrel=1e-7)[0])


EPSILONS = np.array([0.0, 0.1, 0.5, 1.0, 2.0, 4.0])


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.2, 3.0])
def test_one_place_is_gaussian_noise(mu):
    exact = conversions.gaussian_deltas(mu, EPSILONS)
    bound = random_allocation.deltas(mu, 1, EPSILONS)
    assert np.all(bound >= exact)
    assert np.all(bound <= exact * 1.002 + 1e-9)


@pytest.mark.parametrize("mu", [0.3, 0.8, 1.5, 2.5])
@pytest.mark.parametrize("epsilon", [0.05, 0.7, 2.0, 5.0])
def test_two_places_are_never_below_an_integral_and_close_to_it(mu, epsilon):
    known = random_allocation.ratio(mu, 2)
    c = math.exp(epsilon)
    forward = float(known.mass @ np.maximum(known.values - c, 0)) + known.infinite
    backward = float(known.mass @ np.maximum(1 - c * known.values, 0))
    for bound, exact in (
        (forward, quadrature(mu, epsilon, forward=True)),
        (backward, quadrature(mu, epsilon, forward=False)),
    ):
        assert bound >= exact * (1 - 1e-6) - 1e-13
        if exact > 1e-9:
            assert bound <= exact * 1.02


def test_twenty_places_against_a_fourier_transform():
    """Independent: 2^19 midpoints of X, of which 20 are added by a transform."""
    mu, places, width = 0.744, 20, 5e-4
    edges = width * np.arange(2**19 + 1)
    with np.errstate(divide="ignore"):
        cells = np.diff(ndtr((np.log(edges) + mu * mu / 2) / mu))
    law = np.fft.irfft(np.fft.rfft(cells) ** places)
    mean = width * (np.arange(len(law)) + places / 2) / places
    for epsilon in (0.0, 0.3, 1.0):
        c = math.exp(epsilon)
        exact = max(law @ np.maximum(mean - c, 0), law @ np.maximum(1 - c * mean, 0))
        bound = random_allocation.deltas(mu, places, np.array([epsilon]))[0]
        assert exact * (1 - 1e-4) <= bound <= exact * 1.01


@pytest.mark.parametrize("places", [2, 3, 4])
@pytest.mark.parametrize("shifts", [(0.4, 0.4), (0.1, 0.7), (0.8, 0.0)])
def test_exact_releases_of_draws_are_covered(places, shifts):
    eta = 0.8
    p, q = allocated(*draws(eta, shifts), places)
    mu = bounded_range.gaussian_mu((((Draw(eta),), len(shifts)),))
    exact = deltas(p, q, EPSILONS)
    assert np.all(random_allocation.deltas(mu, places, EPSILONS) >= exact)
    event = RandomAllocation(BoundedRange(eta, len(shifts)), places)
    for epsilon, delta in zip(EPSILONS, exact, strict=True):
        if delta > 1e-12:
            assert epsilon_at(event, float(delta)) >= epsilon - 1e-12


def test_noise_beside_the_places_is_covered():
    """A response told as well, exactly and by the mu that covers it."""
    eta, places, loss = 1.0, 3, 0.5
    p, q = allocated(*draws(eta, (0.5,)), places)
    yes = 1 / (1 + math.exp(-loss))
    response = np.array([yes, 1 - yes])
    for answer, other in ((response, response[::-1]), (response[::-1], response)):
        exact = deltas(product([p, answer]), product([q, other]), EPSILONS)
        event = Composed((RandomAllocation(BoundedRange(eta, 1), places), Pure(loss)))
        for epsilon, delta in zip(EPSILONS, exact, strict=True):
            if delta > 1e-12:
                assert allocation_epsilon(event, float(delta)) >= epsilon - 1e-12


@pytest.mark.parametrize(("mu", "places"), [(0.3, 2), (0.74, 20), (1.2, 20), (2.3, 7)])
def test_covering_mu_covers_the_release_in_both_directions(mu, places):
    failure = 1e-8
    cover = random_allocation.covering_mu(mu, places, failure)
    assert cover < mu
    at = np.linspace(0, 40, 997)
    gaussian = conversions.gaussian_deltas(cover, at)
    release = random_allocation.deltas(mu, places, at) - 2 * random_allocation.ABSOLUTE
    assert np.all(release <= failure + (1 - failure) * gaussian + 1e-16)
    less = conversions.gaussian_deltas(cover * 0.99, at)
    assert np.any(release > failure + (1 - failure) * less)


def test_more_places_and_less_mu_never_cost_more():
    costs = [random_allocation.epsilon(1.0, places, 1e-6) for places in (1, 2, 3, 5, 8, 20, 64)]
    assert costs == sorted(costs, reverse=True)
    costs = [random_allocation.epsilon(mu, 20, 1e-6) for mu in (0.1, 0.5, 1.0, 2.0, 4.0)]
    assert costs == sorted(costs)


def test_delta_is_the_larger_of_both_directions():
    """Of the dominating pair it is nearly always the first: other laws tell them apart."""
    first = random_allocation.Ratio(np.array([0.0, 5.0]), np.array([0.8, 0.2]), 0.1)
    second = random_allocation.Ratio(np.array([0.0, 1.0]), np.array([0.5, 0.5]), 0.0)
    for law, exact in ((first, 0.2 * 4 + 0.1), (second, 0.5)):
        assert law.deltas(np.array([0.0]))[0] == pytest.approx(exact, rel=1e-7)
        # Beside noise of next to no loss delta is the same.
        assert law.deltas(np.array([0.0]), 1e-12)[0] == pytest.approx(exact, rel=1e-4)


def test_golden_costs():
    """For two places, by the integral above."""
    assert random_allocation.epsilon(0.647700, 2, 1e-6) == pytest.approx(2.3627, rel=4e-4)
    assert random_allocation.epsilon(0.236700, 2, 1e-6) == pytest.approx(0.6977, rel=4e-4)


def test_an_event_costs_less_than_without_the_secret_and_never_more():
    inner = Disjoint((BoundedRange(0.4, 48),), 3)
    secret = RandomAllocation(inner, 20)
    assert epsilon_at(secret, 1e-6) < 0.7 * epsilon_at(inner, 1e-6)
    assert risk(secret).advantage < risk(inner).advantage
    assert epsilon_at(RandomAllocation(inner, 1), 1e-6) == epsilon_at(inner, 1e-6)
    assert allocation_epsilon(RandomAllocation(ZCDP(0.1), 20), 1e-6) == math.inf
    assert epsilon_at(RandomAllocation(ZCDP(0.1), 20), 1e-6) == epsilon_at(ZCDP(0.1), 1e-6)
    assert all(delta <= 1 for _, delta in profile(secret))


def test_an_event_is_stored_and_read_back():
    event = Composed((RandomAllocation(Disjoint((BoundedRange(0.4, 48),), 3), 20), Pure(0.1)))
    assert load(dump(event)) == event


@pytest.mark.parametrize(
    ("event", "places"),
    [
        (SampledGaussian(0.1, 1.0, 3), 2),
        (RandomAllocation(Gaussian(1.0), 2), 2),
        (Composed((RandomAllocation(Gaussian(1.0), 2),)), 2),
        (Gaussian(1.0), 0),
        (Gaussian(1.0), 2.0),
    ],
)
def test_what_cannot_run_in_a_place_is_refused(event, places):
    with pytest.raises(ValueError, match=r"place|random allocation"):
        RandomAllocation(event, places)


def test_what_an_account_charges_is_between_one_place_and_none():
    event = RandomAllocation(BoundedRange(0.4, 48), 20)
    whole = gaussian_mu_squared(event)
    assert whole == gaussian_mu_squared(BoundedRange(0.4, 48))
    less = [covering_mu_squared(event, failure) for failure in (1e-10, 1e-9, 1e-8)]
    assert less == sorted(less, reverse=True)
    assert less[0] < whole / 2
    assert covering_mu_squared(Gaussian(2.0), 1e-8) == gaussian_mu_squared(Gaussian(2.0))


def test_the_places_of_all_labels_are_priced_as_one():
    facts = PricingFacts(Adjacency("add_remove"), PrivacyUnit("person", 2), ("A", "B", "C"), True)
    event = facts.in_buckets(BoundedRange(0.4, 8), 5)
    assert event == RandomAllocation(Disjoint((BoundedRange(0.4, 8),), 3), 5)
    assert facts.in_buckets(Pure(1.0), 1) == Disjoint((Pure(1.0),), 3)
    assert len(event.event.events) == 1


@pytest.mark.parametrize("loss", [0.1, 0.5, 1.0])
def test_a_pure_step_beside_an_allocation_costs_its_loss_at_most(loss):
    """As an accuracy that a release pays for: its squared mu alone would price it far above."""
    allocation = RandomAllocation(BoundedRange(0.2, 48), 20)
    alone = epsilon_at(allocation, 1e-6)
    both = Composed((allocation, Pure(loss)))
    assert alone < epsilon_at(both, 1e-6) <= alone + loss + 1e-9
    told = epsilon_without_secret(both, 1e-6)
    assert told > epsilon_at(both, 1e-6)
    points = profile(both)
    least = min(epsilon for epsilon, delta in points if delta <= 1e-6)
    assert least <= (alone + loss) * 1.1  # of a grid


@pytest.mark.parametrize(
    ("mu", "places", "cap", "most"),
    [
        (0.325645, 2, 10, 62),
        (0.744213, 20, 10, 92),
        (0.91709, 50, 10, 129),
        (0.744213, 20, 30, 534),
    ],
)
def test_releases_of_epsilon_1_compose_as_their_exact_composition_does(mu, places, cap, most):
    """An independent accountant found 62, 92, 128 and 533, on a grid that errs upward."""
    assert allocation_epsilon(RandomAllocation(Gaussian(1 / mu), places), 1e-6) <= 1
    one = fixed_epsilon((Allocation(mu, places, 1),), 1e-6)
    assert one == pytest.approx(random_allocation.epsilon(mu, places, 1e-6), rel=1e-3)
    fits, beyond = (fixed_epsilon((Allocation(mu, places, n),), 1e-6) for n in (most, most + 1))
    assert fits <= cap < beyond


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("places", [2, 3])
def test_a_composition_of_allocations_is_above_exact_laws(places, count):
    """Threshold tests in every place, of independent releases: laws with few outcomes."""
    mu, threshold = 1.0, 1.4
    without, above = ndtr(-threshold), ndtr(mu - threshold)
    number = np.arange(places + 1)
    q = binom.pmf(number, places, without)
    moved = np.append(0.0, binom.pmf(number[:-1], places - 1, without)) * above
    p = moved + (1 - above) * binom.pmf(number, places - 1, without)
    composed = product([p] * count), product([q] * count)
    for delta in (1e-2, 1e-4):
        epsilon = fixed_epsilon((Allocation(mu, places, count),), delta)
        assert deltas(*composed, [epsilon])[0] <= delta


def test_pure_steps_compose_as_randomized_responses_do():
    loss, count, delta = 0.4, 12, 1e-4
    right = 1 / (1 + math.exp(-loss))
    number = np.arange(count + 1)
    p, q = binom.pmf(number, count, right), binom.pmf(number, count, 1 - right)
    epsilon = fixed_epsilon((PureSteps(loss, count),), delta)
    assert deltas(p, q, [epsilon])[0] <= delta
    assert deltas(p, q, [epsilon * (1 - 1e-4)])[0] > delta
