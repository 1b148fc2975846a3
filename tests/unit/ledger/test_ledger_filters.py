"""The filters of an account: what they admit, and that together they are no more than its cap."""

import dataclasses
import math
from collections.abc import Callable
from functools import cache, partial

import pytest
from pydantic import ValidationError
from scipy.stats import norm

from privsyn.dp import conversions
from privsyn.dp.accountant import composed_epsilon, epsilon_at, fixed_epsilon
from privsyn.dp.adjacency import Guarantee
from privsyn.dp.calibration import calibrate, calibrate_range, rooms_budget, rooms_epsilon
from privsyn.dp.event_tree import PureSteps
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
    SampledGaussian,
)
from privsyn.dp.filters import covering_mu_squared, fixed_parts, gaussian_mu_squared
from privsyn.dp.risk import of_profile, risk
from privsyn.dp.rooms import NO_ROOMS, Rooms
from privsyn.errors import AccountMismatch, BudgetExceeded, ConfigError, VerificationError
from privsyn.ledger import balances, caps, entries
from privsyn.ledger.caps import Cap, Charge, limits_of
from privsyn.ledger.settings import AccountConfig
from privsyn.ledger.spec import Split, rooms_for
from tests.unit.ledger.ledger_cases import PURE, finish, reserve, terms

DELTA = 1e-6
DEFAULT = dataclasses.replace(PURE, epsilon=10.0, delta=DELTA, split=Split())
TOKENS = Split(0.08, 0.9, 0.02)
TRAINED = Split(0.08, 0.02, 0.9)


@cache
def draws(epsilon):
    eta = calibrate_range(partial(BoundedRange, count=48), Guarantee(epsilon, DELTA), 48)
    return Disjoint((BoundedRange(eta, 48),), cells=80)


@cache
def votes(epsilon):
    sigma = calibrate(
        partial(DiscreteGaussian, count=4), Guarantee(epsilon, DELTA), 1e-2, 1e4, False
    )
    return DiscreteGaussian(sigma, 4)


@cache
def phrases(epsilon):
    def event(sigma):
        return Composed((Pure(0.2 * epsilon), Disjoint((DiscreteGaussian(sigma),), cells=5)))

    return event(calibrate(event, Guarantee(epsilon, DELTA), 1e-2, 1e4, False))


@cache
def trained(epsilon):
    def event(sigma):
        return SampledGaussian(0.1, sigma, 30)

    sigma = calibrate(event, Guarantee(epsilon, DELTA), 0.1, 1e3, False, tolerance=1e-4)
    return event(sigma)


KINDS: dict[str, Callable[[float], Event]] = {
    "draws": draws,
    "votes": votes,
    "phrases": phrases,
    "trained": trained,
    "pure": Pure,
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_release_of_the_whole_cap_fits_a_fresh_account_and_closes_it(lite, kind):
    lite.accounts.open(DEFAULT)
    event = KINDS[kind](10.0)
    assert lite.accounts.preview(DEFAULT, event).room == pytest.approx(10, rel=0.02)
    reserve(lite, "whole", event)
    for other in KINDS.values():
        with pytest.raises(BudgetExceeded):
            reserve(lite, "more", other(0.05))
    assert lite.accounts.balance("clinic").share == 1
    lite.verify()


def test_nothing_may_follow_a_first_release_that_no_filter_covers():
    """The broken variant: a small release after it, which the first rule does not look at."""
    cap = Cap.of(10.0, DELTA, Split())
    whole, small = trained(10.0), votes(0.5)
    assert cap.admits([], cap.charge(whole)) == "first"
    assert cap.admits([], cap.charge(small)) == "renyi"
    assert cap.admits([cap.charge(whole)], cap.charge(small)) is None
    assert epsilon_at(Composed((whole, small)), DELTA) > 10


@pytest.mark.parametrize(
    ("kind", "split", "least"),
    [
        # within 5% of the best known composition, which is chosen with hindsight
        ("votes", TOKENS, {10.0: 57, 30.0: 329}),
        ("trained", TRAINED, {10.0: 73, 30.0: 423}),
        ("pure", TOKENS, {10.0: 10, 30.0: 30}),
    ],
)
def test_how_many_releases_of_epsilon_1_fit(kind, split, least):
    event = KINDS[kind](1.0)
    for epsilon, number in least.items():
        cap = Cap.of(epsilon, DELTA, split)
        assert cap.fits([cap.charge(event)] * (number - 1), cap.charge(event))
    one = Cap.of(1.0, DELTA, split)
    assert one.copies([], one.charge(event)) == 1


def calibrate_noise(rate, steps):
    def event(sigma):
        return SampledGaussian(rate, sigma, steps)

    return calibrate(event, Guarantee(1.0, DELTA), 0.3, 50, False, tolerance=1e-3)


def test_copies_are_those_that_reserve_admits(lite):
    spec = dataclasses.replace(DEFAULT, epsilon=3.0, split=TOKENS)
    lite.accounts.open(spec)
    event = votes(1.0)
    fitting = lite.accounts.preview(spec, event).copies
    assert fitting >= 6
    for number in range(fitting):
        finish(lite, f"r{number}", event)
    with pytest.raises(BudgetExceeded):
        reserve(lite, "beyond", event)
    assert lite.accounts.preview(spec, event).copies == 0
    lite.verify()


def test_repeats_are_of_the_first_event_alone():
    """The broken variant: another event of the same price, which an adversary may choose late."""
    cap = Cap.of(10.0, DELTA, TRAINED)
    event = trained(1.0)
    other = SampledGaussian(0.01, calibrate_noise(0.01, 1000), 1000)
    held = [cap.charge(event)] * 60
    assert cap.admits(held, cap.charge(event)) == "repeats"
    assert cap.admits(held, cap.charge(other)) is None


def test_repeats_are_of_one_event_whatever_came_between():
    """The last event is the first one again, and another was in between, which is not priced."""
    cap = Cap.of(3.0, 1e-5, Split())
    event, between = cap.charge(SampledGaussian(0.01, 1.0, 300)), cap.charge(Gaussian(1.9))
    held = [event, between]
    assert cap.admits([event], between) is not None
    while cap.fits(held, event):
        held.append(event)
    together = Composed((SampledGaussian(0.01, 1.0, 300 * (len(held) - 1)), Gaussian(1.9)))
    assert epsilon_at(together, 1e-5) <= 3.0
    assert cap.admits([event, between], event) != "repeats"


def test_repeats_are_of_all_parts_of_a_release_or_of_none():
    """Its accuracy, say: the copies must not be priced without it."""
    with_accuracy = Composed((SampledGaussian(0.01, 1.0, 1000), Pure(1.0)))
    assert fixed_parts(with_accuracy, 3) == ((0.01, 1.0, 3000), PureSteps(1.0, 3))
    assert fixed_parts(Composed((with_accuracy, BoundedRange(0.1))), 3) == ()
    cap = Cap.of(8.0, 1e-5, Split())
    asked, held = cap.charge(with_accuracy), []
    while cap.fits(held, asked):
        held.append(asked)
    assert epsilon_at(Composed((with_accuracy,) * len(held)), 1e-5) <= 8.0


def test_repeats_keep_to_their_share_of_delta():
    """Also where another account, with a larger share, has asked about the same event before."""
    event = trained(1.0)
    for split in (TRAINED, Split(), TOKENS):
        cap = Cap.of(10.0, DELTA, split)
        asked = cap.charge(event)
        most = next(n for n in range(59, 99) if not cap.fits([asked] * n, asked))
        assert cap.admits([asked] * (most - 1), asked) == "repeats"
        held, beyond = (
            fixed_epsilon(fixed_parts(event, n), DELTA * split.repeats) for n in (most, most + 1)
        )
        assert held <= 10 < beyond


def test_delta_is_shared_and_not_doubled():
    for shares in ((0.6, 0.5, 0.0), (1.0, 1.0, 1.0), (0.0, 0.5, 0.5), (-0.1, 0.5, 0.5)):
        with pytest.raises(ValueError, match=r"renyi|shares"):
            Split(*shares)
    cap = Cap.of(10.0, DELTA, Split())
    alone = Cap.of(10.0, DELTA, Split(1, 0, 0))
    assert cap.budget < alone.budget  # at a fifth of delta
    full = conversions.gaussian_epsilon(math.sqrt(cap.gaussian_budget), DELTA * 0.4)
    assert (
        full
        <= 10
        < conversions.gaussian_epsilon(math.sqrt(cap.gaussian_budget) * 1.001, DELTA * 0.4)
    )


def test_charges_of_mixed_events_are_never_below_their_parts():
    one = BoundedRange(0.2, 20)
    assert gaussian_mu_squared(Composed((Pure(0.3), one))) >= gaussian_mu_squared(one)
    assert math.isinf(gaussian_mu_squared(SampledGaussian(0.01, 2.0, 8)))
    assert math.isinf(gaussian_mu_squared(Disjoint((one, BoundedRange(0.1, 40)), cells=2)))
    assert composed_epsilon(one, DELTA) <= conversions.gaussian_epsilon(
        math.sqrt(gaussian_mu_squared(one)), DELTA
    )


@pytest.mark.parametrize("count", [127, 128, 129, 200, 256])
def test_a_charge_of_many_draws_is_of_all_of_them(count):
    """They are covered in pieces, the last of which is seldom whole."""
    event = BoundedRange(0.1, count)
    mu_squared = gaussian_mu_squared(event)
    assert 2 * count * 0.1**2 / 8 < mu_squared < 1.02 * 2 * count * 0.1**2 / 8
    assert composed_epsilon(event, DELTA) <= conversions.gaussian_epsilon(
        math.sqrt(mu_squared), DELTA
    )


def test_repeats_pay_the_sampler_once_a_release(monkeypatch):
    event, delta = SampledGaussian(0.01, 1.0, 100), 1e-6
    bare = fixed_epsilon(fixed_parts(event, 4), delta / 2)
    monkeypatch.setattr(caps, "LATTICE_SLACK", 0.125)
    for room, fits in ((3.9, False), (4.1, True)):
        monkeypatch.setattr(caps, "_KNOWN", {})
        assert caps._copies_fit(event, 4, bare + room * 0.125, delta) is fits


@pytest.mark.parametrize("event", [draws, votes])
def test_a_first_release_just_above_the_cap_is_refused(lite, event):
    """By its price at the account's delta, and no larger one."""
    lite.accounts.open(dataclasses.replace(DEFAULT, epsilon=3.0))
    with pytest.raises(BudgetExceeded):
        reserve(lite, "above", event(3.05))
    reserve(lite, "within", event(3.0))


SECRET = Split.of(rooms=False, chances=True)


@cache
def allocated(epsilon, places=20):
    def event(eta):
        return RandomAllocation(Disjoint((BoundedRange(eta, 48),), cells=4), places)

    return event(calibrate_range(event, Guarantee(epsilon, DELTA), 48))


def test_a_share_of_delta_is_set_aside_for_secret_buckets_and_no_more_is_given_out():
    assert SECRET.chances == pytest.approx(0.05)
    assert SECRET.gaussian + SECRET.chances == pytest.approx(Split().gaussian)
    with pytest.raises(ValueError, match="at most 1"):
        Split(renyi=0.5, gaussian=0.4, repeats=0.1, chances=0.01)
    plain, shared = Cap.of(10.0, DELTA, Split()), Cap.of(10.0, DELTA, SECRET)
    assert 0.99 < shared.gaussian_budget / plain.gaussian_budget < 1


def test_the_chances_of_secret_buckets_run_out(monkeypatch):
    monkeypatch.setattr(caps, "MOST_CHANCES", 3)
    cap = Cap.of(30.0, DELTA, SECRET)
    charge = cap.charge(allocated(1.0))
    assert cap.copies([], charge) >= cap.copies([charge], charge) + 1
    assert [cap.admits([charge] * n, charge) for n in (1, 2)] == ["renyi", "renyi"]
    full = [cap.charge(votes(8.0))] * 7  # so much that the Gaussian filter alone holds it
    assert cap.admits([*full, charge], charge) == "gaussian"
    assert cap.admits([*full, charge, charge], charge) == "gaussian"
    assert cap.admits([*full, charge, charge, charge], charge) is None
    assert cap.admits([*full, charge, charge, charge], cap.charge(votes(1.0))) == "gaussian"
    assert cap.copies([*full, charge], charge) == 2
    assert cap.share([charge, charge, charge]) < 1


def right(cap, charges):
    return cap.right(charges, cap.spent_epsilon(charges))


def test_the_odds_of_an_account_are_those_of_its_releases_together():
    cap, event = Cap.of(10.0, DELTA), votes(1.0)
    charge = cap.charge(event)
    assert right(cap, []) == 0.5
    for count in (1, 2, 5):
        exact = float(norm.cdf(math.sqrt(count * charge.mu_squared) / 2))
        assert exact <= right(cap, [charge] * count) <= exact + 1e-3
    # A pure loss has no Gaussian curve that is its own: never less than the randomized response.
    pure = Cap.of(10.0, DELTA).charge(Pure(1.0))
    assert math.e / (1 + math.e) <= right(cap, [pure]) < 0.8


def test_the_odds_of_a_family_are_those_of_its_units_together():
    cap = Cap.of(10.0, DELTA)
    charge = cap.charge(votes(0.5))
    spent = cap.spent_epsilon([charge] * 2)
    one, *more = (cap.right([charge] * 2, spent, units) for units in (1, 2, 4))
    assert one == cap.right([charge] * 2, spent)
    for units, together in zip((2, 4), more, strict=True):  # their mus add
        exact = float(norm.cdf(units * math.sqrt(2 * charge.mu_squared) / 2))
        assert one < exact <= together <= exact + 1e-3
    secret = Cap.of(10.0, DELTA, SECRET)  # chances have no such sum: by the profile alone
    drawn = secret.charge(allocated(0.1))
    spent = secret.spent_epsilon([drawn])
    assert secret.right([drawn], spent) < secret.right([drawn], spent, 2) < 1


def test_the_odds_count_the_chances_of_secret_buckets():
    cap = Cap.of(10.0, DELTA, SECRET)
    charge = cap.charge(allocated(0.3))
    one, many = right(cap, [charge]), right(cap, [charge] * 20)
    assert risk(allocated(0.3)).right <= one <= many
    assert many <= of_profile([(cap.spent_epsilon([charge] * 20), DELTA)]).right
    # The same chance as of noise alone, and that all is told beside.
    noise = float(norm.cdf(math.sqrt(20 * charge.mu_squared) / 2))
    assert noise < many


def test_chances_that_delta_does_not_pay_for_leave_the_gaussian_filter_no_say(monkeypatch):
    """More than the most fit by Renyi losses alone, which then say what is spent and left."""
    monkeypatch.setattr(caps, "MOST_CHANCES", 3)
    cap, plain = (Cap.of(10.0, DELTA, split) for split in (SECRET, Split(gaussian=0.0)))
    charge, other = cap.charge(allocated(0.05)), cap.charge(votes(6.0))
    paid, beyond = [charge] * 3, [charge] * 4
    assert cap.admits(paid, charge) == "renyi"
    assert cap.spent_epsilon(paid) < plain.spent_epsilon(paid)
    assert cap.spent_epsilon(beyond) == plain.spent_epsilon(beyond)
    assert cap.room_epsilon(beyond) < plain.room_epsilon(beyond) < cap.room_epsilon(paid)
    assert (cap.copies(paid, other), cap.copies(beyond, other)) == (2, 1)


def test_a_training_enters_the_gaussian_filter_beside_other_releases():
    """50 releases of Gaussian noise and 7 trainings: more than the Renyi filter holds."""
    cap, without = Cap.of(10.0, DELTA, SECRET), Cap.of(10.0, DELTA, Split())
    held, training = [cap.charge(votes(1.0))] * 50, cap.charge(trained(1.0))
    assert without.charge(trained(1.0)).mu_squared == math.inf  # no delta is set aside for it
    for _ in range(6):
        assert cap.fits(held, training)
        held.append(training)
    assert training.chance
    assert cap.admits(held[:-1], training) == "gaussian"
    assert without.admits(held[:-1], without.charge(trained(1.0))) is None
    together = fixed_parts(votes(1.0), 50) + fixed_parts(trained(1.0), 6)
    assert fixed_epsilon(together, DELTA) <= 10


def test_a_ledger_charges_secret_buckets_as_it_verifies_them(lite):
    lite.accounts.open(dataclasses.replace(DEFAULT, epsilon=30.0, split=SECRET))
    asked = (allocated(3.0), votes(3.0), allocated(1.0), trained(1.0))
    for number, event in enumerate(asked):
        finish(lite, f"r{number}", event)
    assert lite.verify().accounts == 1
    with lite.database.write() as connection:
        entry = entries.find_entry(connection, "r0")
        assert entry is not None
        body = {"method": "toy", "event": dict(entry.event), "loss": entry.loss, "epsilon": 1.0}
        body |= {"delta": DELTA, "mu_squared": 0.9 * (entry.mu_squared or 0)}
        lite.database.append(connection, "clinic", "r9", "RESERVED", body)
    with pytest.raises(VerificationError, match="is charged a squared mu of"):
        lite.verify()


ROOMS = Split.of(rooms=True, chances=True)


def rooms(trainings, responses=0):
    """Room for so many trainings of epsilon 1, and for responses of loss 1."""
    recipe = trained(1.0)
    return Rooms(recipe.rate, recipe.noise_multiplier, 30 * trainings, 1.0, responses)


def number_that_fits(cap, *mix):
    charges, held = [cap.charge(event) for event in mix], list[Charge]()
    while cap.admits(held, charges[len(held) % len(charges)]):
        held.append(charges[len(held) % len(charges)])
    return len(held)


def test_a_full_account_with_rooms_is_within_its_cap():
    """Its epsilon by the loss distribution of all that was admitted, and by an own one: 10."""
    cap = Cap.of(10.0, DELTA, ROOMS, rooms(33))
    count = number_that_fits(cap, votes(1.0), trained(1.0))
    together = fixed_parts(votes(1.0), (count + 1) // 2) + fixed_parts(trained(1.0), count // 2)
    assert 9.8 < fixed_epsilon(together, DELTA) <= 10
    beyond = fixed_parts(votes(1.0), 34) + fixed_parts(trained(1.0), 35)
    assert fixed_epsilon(beyond, DELTA) > 10  # so that 67 is the most


def test_what_is_beyond_a_room_does_not_fit_it():
    # without a Renyi filter, which holds a few of them as well
    cap = dataclasses.replace(Cap.of(10.0, DELTA, ROOMS, rooms(2, 1)), budget=0.0)
    training, response = cap.charge(trained(1.0)), cap.charge(Pure(0.8))
    assert (training.mu_squared, response.mu_squared) == (0.0, 0.0)
    full = [cap.charge(votes(1.0))] * 20
    assert cap.admits([*full, training], training) == "gaussian"
    assert cap.admits([*full, training, training], training) is None
    assert cap.admits([*full, response], response) is None
    assert cap.admits(full, response) == "gaussian"
    assert cap.copies([*full, training], training) == 1
    assert cap.copies([*full, training, training], training) == 0
    assert cap.share([training, training]) == 1


def test_what_fills_more_than_a_room_leaves_the_gaussian_filter_no_say():
    """The Renyi filter lets it in; by its squared mu of 0 most of the account would look free."""
    recipe = trained(1.0)
    cap = Cap.of(10.0, DELTA, ROOMS, rooms(2, 1))
    large = cap.charge(dataclasses.replace(recipe, steps=50 * recipe.steps))
    assert large.mu_squared == 0
    assert cap.admits([], large) == "renyi"
    asked = cap.charge(Gaussian(0.8))
    assert cap.admits([large], asked) is None
    assert cap.copies([large], asked) == 0
    assert cap.room_epsilon([large]) < 3  # 8.9 by its squared mu
    small = cap.charge(Gaussian(5.0))
    copies = cap.copies([large], small)
    assert cap.admits([large] + [small] * (copies - 1), small) == "renyi"
    assert cap.admits([large] + [small] * copies, small) is None


def test_every_step_in_a_room_owes_what_its_sampler_adds(monkeypatch):
    monkeypatch.setattr("privsyn.dp.calibration.LATTICE_SLACK", 0.001)
    recipe, owed = trained(1.0), 30 * 0.001
    bare = epsilon_at(recipe, DELTA * (1 - owed))
    assert rooms_epsilon(rooms(1), DELTA, 0.0, (30, 0, 0)) == pytest.approx(bare + owed, rel=1e-9)
    assert bare > epsilon_at(recipe, DELTA) * (1 + 1e-6)


def test_beside_rooms_only_what_lies_outside_them_takes_a_chance(monkeypatch):
    monkeypatch.setattr(caps, "MOST_CHANCES", 2)
    cap = dataclasses.replace(Cap.of(10.0, DELTA, ROOMS, rooms(4)), budget=0.0)
    inside = cap.charge(trained(1.0))
    outside = cap.charge(dataclasses.replace(trained(1.0), rate=0.01))
    assert cap.admits([inside, inside, outside], outside) == "gaussian"
    assert cap.admits([inside, outside, outside], inside) == "gaussian"
    assert cap.admits([outside, outside], outside) is None
    assert cap.copies([inside, outside], outside) == 1
    assert cap.room_epsilon([outside] * 3) == 0


def test_what_a_room_was_not_made_for_is_covered_by_gaussian_noise():
    recipe = trained(1.0)
    cap = Cap.of(10.0, DELTA, ROOMS, rooms(2, 1))
    quieter = SampledGaussian(recipe.rate, recipe.noise_multiplier * 0.999, 30)
    denser = SampledGaussian(recipe.rate * 1.001, recipe.noise_multiplier, 30)
    small = SampledGaussian(0.01, recipe.noise_multiplier, 30)
    for event in (quieter, denser, small, Pure(1.001), Pure(0.1)):
        assert cap.charge(event).mu_squared == covering_mu_squared(event, cap._chance) > 0
    both = cap.charge(Composed((recipe, Gaussian(5.0), Pure(0.1))))
    assert both.mu_squared == pytest.approx(1 / 25 + gaussian_mu_squared(Pure(0.1)))
    assert rooms(2, 1).need(Composed((recipe, Pure(0.9), recipe, Pure(0.9)))).used == (60, 2, 0)


def test_rooms_that_leave_nothing_are_refused():
    for asked in (rooms(90), rooms(0, 10)):
        with pytest.raises(ConfigError, match=r"leave nothing of epsilon=10"):
            Cap.of(10.0, DELTA, ROOMS, asked)
    account = {"name": "a", "adjacency": "add_remove", "epsilon": 10.0, "delta": DELTA}
    account["rooms"] = {"amplified": {"buckets": 20, "epsilon": 1.0, "times": 3}}
    for change in ({"delta": 0.0}, {"adjacency": "replace_one"}):
        with pytest.raises(ValidationError, match=r"rooms"):
            AccountConfig.model_validate(account | change)


def test_an_account_keeps_the_rooms_it_was_opened_with(lite):
    spec = dataclasses.replace(DEFAULT, split=ROOMS, rooms=rooms(5))
    lite.accounts.open(spec)
    for number, event in enumerate((trained(1.0), votes(1.0), trained(1.0))):
        finish(lite, f"r{number}", event)
    assert lite.accounts.open(spec).spec.rooms == rooms(5)
    balance = lite.accounts.balance("clinic")
    assert 1.0 < balance.spent_epsilon < 3.0
    assert lite.accounts.preview(spec, trained(1.0)).copies >= 3
    assert lite.verify().entries == 3
    for other in (NO_ROOMS, rooms(6)):
        with pytest.raises(AccountMismatch, match=r"account.rooms=.*fixed for its life"):
            lite.accounts.open(dataclasses.replace(spec, rooms=other))


def test_a_policy_s_period_counts_what_a_room_of_the_account_holds(lite):
    """A charge holds the squared mu of what lies beside the rooms: here 0."""
    month = terms(period_days=30, period_epsilon=2.0)
    spec = dataclasses.replace(DEFAULT, split=ROOMS, rooms=rooms(20), terms=month)
    lite.accounts.open(spec)
    number = 0
    while number < 4 and lite.accounts.preview(spec, trained(1.0)).fits:
        finish(lite, f"r{number}", trained(1.0))
        number += 1
    assert 1 <= number <= 3
    assert fixed_epsilon(fixed_parts(trained(1.0), number), DELTA) <= 2
    assert lite.accounts.preview(spec, trained(1.0)).copies > 10  # of its lifetime
    assert lite.verify().entries == number


@pytest.mark.parametrize("asked", [(5, 0), (0, 6), (5, 2)])
def test_a_ledger_whose_rooms_are_more_than_its_cap_is_found(lite, monkeypatch, asked):
    """Trainings and responses are both composed with the squared mu that the account was given."""
    monkeypatch.setattr(caps, "rooms_budget", lambda *args: 1.01 * rooms_budget(*args))
    lite.accounts.open(dataclasses.replace(DEFAULT, split=ROOMS, rooms=rooms(*asked)))
    with pytest.raises(VerificationError, match=r"are more than epsilon=10.0 allows"):
        lite.verify()


def test_a_policy_s_period_is_priced_at_its_own_order(lite, monkeypatch):
    """A loss at the lifetime's order is smaller: by it more would fit than the policy allows."""
    month = terms(period_days=30, period_epsilon=2.0)
    spec = dataclasses.replace(DEFAULT, split=Split(1.0, 0.0, 0.0), terms=month)
    lite.accounts.open(spec)
    event = ZCDP(0.01)
    lifetime, period = (one.cap for one in limits_of(balances.new_row(spec)))
    assert lifetime.charge(event).loss < 0.5 * period.charge(event).loss
    fitting = math.floor(period.budget / period.charge(event).loss)
    for number in range(fitting):
        finish(lite, f"r{number}", event)
    assert epsilon_at(Composed((event,) * fitting), DELTA) <= 2.0
    seen = lite.accounts.preview(spec, event)
    assert not seen.fits
    assert [one.request.loss for one in seen.filters] == [
        cap.charge(event).loss for cap in (lifetime, period)
    ]
    with pytest.raises(BudgetExceeded, match="in 30 days cannot pay"):
        reserve(lite, "more", event)
    assert lite.verify().entries == fitting
    monkeypatch.setattr(balances, "limits_of", lambda row: limits_of(row)[:1])
    finish(lite, "more", event)
    monkeypatch.undo()
    with pytest.raises(VerificationError, match=r"more does not fit the policy's period"):
        lite.verify()


def test_the_settings_of_rooms_are_what_an_account_is_opened_with():
    account = {"name": "a", "adjacency": "add_remove", "epsilon": 10.0, "delta": DELTA}
    trainings = {"sampling_rate": 0.1, "noise_multiplier": 2.7, "steps": 60}
    pure = {"epsilon": 0.5, "times": 4}
    for asked, opened in (
        ({"trainings": trainings}, Rooms(0.1, 2.7, 60)),
        ({"pure": pure}, Rooms(loss=0.5, responses=4)),
        ({"trainings": trainings, "pure": pure}, Rooms(0.1, 2.7, 60, 0.5, 4)),
    ):
        config = AccountConfig.model_validate(account | {"rooms": asked}).rooms
        assert rooms_for(config, DELTA) == opened
    assert AccountConfig.model_validate(account).rooms is None


def test_releases_of_an_epsilon_enter_the_room_that_is_named_by_it():
    asked = {"amplified": {"buckets": 20, "epsilon": 1.0, "times": 36}}
    config = AccountConfig.model_validate(
        {"name": "a", "adjacency": "add_remove", "epsilon": 10.0, "delta": DELTA, "rooms": asked}
    ).rooms
    room = rooms_for(config, DELTA)
    for event in (allocated(1.0), allocated(0.8), allocated(0.8, places=25)):
        assert room.need(event).used == (0, 0, 1)
    for event in (allocated(1.1), allocated(1.0, places=25), allocated(1.0, places=12), draws(1.0)):
        assert room.need(event).used == (0, 0, 0)


@pytest.mark.parametrize(
    ("kinds", "trainings", "responses", "with_rooms", "without"),
    [
        (("votes", "trained"), 33, 0, 67, 55),
        (("votes", "pure"), 0, 7, 15, 11),
        (("votes", "pure", "trained", "draws"), 5, 5, 21, 17),
    ],
)
def test_rooms_hold_more_of_a_mix(kinds, trainings, responses, with_rooms, without):
    """Cap 10, releases of epsilon 1. The best composition with hindsight holds 67, 15, 23."""
    mix = [KINDS[kind](1.0) for kind in kinds]
    cap = Cap.of(10.0, DELTA, ROOMS, rooms(trainings, responses))
    assert number_that_fits(cap, *mix) >= with_rooms
    assert number_that_fits(Cap.of(10.0, DELTA, SECRET), *mix) == without


def test_secret_buckets_weigh_less_where_delta_is_set_aside_for_them():
    event = allocated(1.0)
    told, counted = (Cap.of(10.0, DELTA, split).charge(event) for split in (Split(), SECRET))
    assert told.mu_squared == gaussian_mu_squared(event)  # as for somebody who knows them
    assert 0.05 < counted.mu_squared < told.mu_squared / 4
    assert told.loss == counted.loss
    assert told.chance
    assert Cap.of(10.0, DELTA, SECRET).charge(Composed((event, Pure(0.1)))).chance
    assert not Cap.of(10.0, DELTA, SECRET).charge(votes(1.0)).chance


def test_the_hint_names_what_is_admitted(lite):
    lite.accounts.open(dataclasses.replace(DEFAULT, split=TOKENS))
    finish(lite, "first", draws(6.0))
    for kind in ("draws", "votes", "phrases", "trained"):
        with pytest.raises(BudgetExceeded) as refused:
            reserve(lite, f"all-{kind}", KINDS[kind](10.0))
        named = float(str(refused.value).partition("privacy.epsilon to ")[2].split()[0])
        seen = lite.accounts.preview(DEFAULT, KINDS[kind](named * 0.999))
        assert named > 1
        assert seen.fits, kind
