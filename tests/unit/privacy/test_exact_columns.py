"""The draw of columns: how far neighbors' tables are apart, for every adjacency and unit."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from privsyn.columns import marginals as module
from privsyn.columns.marginals import Marginals
from privsyn.columns.rows import explained
from privsyn.columns.settings import ColumnsConfig
from privsyn.data.columns import Column
from privsyn.data.records import Bucket, Cell, Private
from privsyn.dp.accountant import guarantee, rho
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.calibration import calibrate_rho
from privsyn.dp.events import BoundedRange, Composed

COLUMNS = {"age": Column(range=(0, 10), bins=1), "channel": Column(values=("web", "phone"))}
LABELS, TARGET = ("x", "y"), Guarantee(1, 1e-6)
KINDS = [(label, (age, channel)) for label in LABELS for age in range(3) for channel in range(4)]
BASES = [(), (("x", (0, 1), "a"), ("y", (2, 3), "a"), ("y", (0, 0), "b"))]


def marginals(adjacency, most=1, pairs=(("age", "channel"),), labels=LABELS):
    cfg = ColumnsConfig(pairs=pairs)
    return Marginals.of(cfg, COLUMNS, labels, TARGET, adjacency, PrivacyUnit("user", most))


def counts(drawn, records):
    buckets = [
        Bucket(
            Cell(number, label, 0),
            Private(["a text"] * len(mine)),
            Private([unit for _, _, unit in mine]),
            Private([row for _, row, _ in mine]),
        )
        for number, label in enumerate(drawn.labels)
        for mine in [[record for record in records if record[0] == label]]
    ]
    return drawn.count(buckets)


def worst(pairs, adjacency, most=1):
    """Largest distance of neighbors over what the noise is scaled for; at most 1 is safe."""
    drawn = marginals(adjacency, most)
    apart = [counts(drawn, one) - counts(drawn, other) for one, other in pairs]
    return max(math.sqrt(sum(int(step) ** 2 for step in steps)) for steps in apart) / (
        drawn.noise.sensitivity
    )


def unit_of(*kinds):
    return tuple((label, row, "the unit") for label, row in kinds)


def added(records):
    for base, kinds in itertools.product(
        BASES, itertools.combinations_with_replacement(KINDS[::5], records)
    ):
        yield base, (*base, *unit_of(*kinds))


def replaced(records):
    units = list(itertools.combinations_with_replacement(KINDS[::5], records))
    for base, gone, come in itertools.product(BASES, units, units):
        yield (*base, *unit_of(*gone)), (*base, *unit_of(*come))


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_unit_moves_the_tables_by_the_root_of_its_cells(most):
    tight = 1 - 1e-5
    same = [((), unit_of(*KINDS[:1] * most))]  # in few cells: clipped
    assert tight < worst([*added(most), *same], Adjacency.ADD_REMOVE, most) <= 1
    assert tight < worst([*added(most), *same], Adjacency.REPLACE_NULL, most) <= 1
    some = list(replaced(most))[::7]
    some += [(unit_of(*KINDS[:1] * most), unit_of(*KINDS[-1:] * most))]
    assert tight < worst(some, Adjacency.REPLACE_ONE, most) <= 1


def test_what_is_drawn_is_what_is_paid_for():
    """Its share of the target in zCDP, whatever stands beside it."""
    for adjacency, most in itertools.product(Adjacency, (1, 4)):
        event = marginals(adjacency, most).noise.event
        assert rho(event) == pytest.approx(0.25 * calibrate_rho(TARGET), rel=1e-4)
        assert guarantee(event, TARGET.delta).epsilon < TARGET.epsilon


def chosen(adjacency, most):
    cfg, unit = ColumnsConfig(pairs="auto"), PrivacyUnit("user", most)
    columns = COLUMNS | {"urgent": Column(values=("yes",))}
    return Marginals.of(cfg, columns, LABELS, TARGET, adjacency, unit)


def three(records):
    return tuple((label, (*row, min(row[1], 2)), unit) for label, row, unit in records)


def told(every):
    """What noisy tables may make of the pairs: nothing, little, much."""
    for scale in (0.0, 0.5, 3.0):
        yield [
            scale * np.arange(1, size + 1).reshape(every.widths[one], every.widths[other])
            for size, (one, other) in zip(every.sizes, every.tables, strict=True)
        ]


def scores_apart(drawn, one, other):
    """Largest change of a score between two inputs, in records."""
    every, found = drawn.candidates, []
    exact = [np.split(counts(every, three(side)), every.ends[:-1]) for side in (one, other)]
    for one_told in told(every):
        here, there = (drawn.choice.scores(side, one_told) for side in exact)
        found.append(int(np.abs(here - there).max()))
    return max(found) / module.LATTICE


@pytest.mark.parametrize("most", [1, 2])
def test_a_unit_moves_a_score_by_its_records(most):
    """Where nothing explains its cells, by as many; never by more than the draw is scaled for."""
    for adjacency, pairs in (
        (Adjacency.ADD_REMOVE, [*added(most)]),
        (Adjacency.REPLACE_NULL, [*added(most)]),
        (Adjacency.REPLACE_ONE, [*replaced(most)][::5]),
    ):
        drawn = chosen(adjacency, most)
        widest = max(scores_apart(drawn, *pair) for pair in pairs)
        assert drawn.choice.mechanism.sensitivity == adjacency.moves * most * module.LATTICE
        assert widest <= adjacency.moves * most
        assert widest >= most, "and no less"


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_no_pair_is_likelier_by_more_than_is_charged(adjacency):
    """Random neighbors, whatever noisy tables make of them: range of losses, and zCDP."""
    rng, losses, divergences = np.random.default_rng(3), [], []
    for trial in range(150):
        drawn = chosen(adjacency, most := 1 + trial % 4)
        every, price = drawn.candidates, drawn.choice.mechanism.event.range

        def unit(name, most=most):
            # Half of the units have the same record as often as they may.
            kinds = rng.choice(len(KINDS), 1 if rng.random() < 0.5 else most).tolist()
            some = [KINDS[kind] for kind in (kinds * most)[:most]]
            urgent = int(rng.integers(3))
            return tuple((label, (*row, urgent), name) for label, row in some)

        base = unit("a") if rng.random() < 0.5 else ()
        sides = base + unit("c"), base + (unit("c") if adjacency.moves == 2 else ())
        noise = rng.choice([0, 1e-3, 1]) * rng.normal(0, drawn.noise.sigma, drawn.ends[-1])
        noisy = counts(drawn, base) + noise.astype(np.int64)
        by_star = explained(drawn, list(drawn.split(noisy)), every.tables)
        # Whatever is made of noisy tables is the same for neighbors.
        told_so_far = [rng.choice([0, 1, 9], one.shape) * one for one in by_star]
        logs = []
        for side in sides:
            exact = np.split(counts(every, side), every.ends[:-1])
            nats = drawn.choice.scores(exact, told_so_far) / drawn.choice.mechanism.scale
            logs.append(nats - np.logaddexp.reduce(nats))
        losses.append(np.abs(logs[0] - logs[1]).max() / price)
        for order, (one, other) in itertools.product((1.5, 4, 30), (logs, logs[::-1])):
            moment = np.logaddexp.reduce(order * one + (1 - order) * other)
            divergences.append(moment / (order - 1) / (order * price**2 / 8))
    assert 0.6 < max(losses) <= 1 + 1e-9
    assert max(divergences) <= 1


@pytest.mark.parametrize("most", [1, 3])
def test_the_tables_of_chosen_pairs_are_clipped_by_themselves(most):
    drawn = chosen(Adjacency.ADD_REMOVE, most)
    every = drawn.candidates
    assert drawn.choice.rounds == 2
    for pairs in itertools.combinations(every.tables, 2):
        counted, worst_found = replace(every, tables=pairs), 0.0
        for one, other in [*added(most), ((), unit_of(*KINDS[:1] * most))]:
            steps = counts(counted, three(one)) - counts(counted, three(other))
            worst_found = max(worst_found, math.sqrt(sum(int(step) ** 2 for step in steps)))
        assert 1 - 1e-5 < worst_found / drawn.choice.noise.sensitivity <= 1


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_what_chooses_is_paid_for_with_what_is_counted(adjacency):
    drawn = chosen(adjacency, 2)
    first, picks, second = drawn.events
    assert picks == BoundedRange(drawn.choice.mechanism.event.range, 2)
    assert rho(picks) == pytest.approx(0.1 * 0.25 * calibrate_rho(TARGET), rel=1e-4)
    assert (first, second) == (drawn.noise.event, drawn.choice.noise.event)
    assert drawn.noise.sigma == pytest.approx(drawn.choice.noise.sigma, rel=1e-4)
    together = rho(Composed(drawn.events))
    assert 0.2499 * calibrate_rho(TARGET) < together <= 0.25 * calibrate_rho(TARGET)
    for epsilon, delta, names in itertools.product((0.01, 1, 20), (1e-9, 1e-3), ("ab", "abcdefgh")):
        target, columns = Guarantee(epsilon, delta), dict.fromkeys(names, COLUMNS["age"])
        unit = PrivacyUnit("u", 2)
        cfg = ColumnsConfig(pairs="auto")
        whole = Marginals.of(cfg, columns, LABELS, target, adjacency, unit, alone=True)
        assert 0.998 < guarantee(Composed(whole.events), delta).epsilon / epsilon <= 1
    alone = Marginals.of(
        ColumnsConfig(pairs="auto"), {"age": COLUMNS["age"]}, LABELS, TARGET, adjacency,
        PrivacyUnit("u", 1),
    )  # fmt: skip
    assert alone.choice is None, "one column has no pair"


def test_one_record_counts_once_in_every_table():
    drawn = marginals(Adjacency.ADD_REMOVE)
    tables = [table.sum() for table in drawn.split(counts(drawn, unit_of(KINDS[0])))]
    assert tables == [1, 1, 1]
    assert len(counts(drawn, ())) == 2 * 3 + 2 * 4 + 3 * 4, "all declared cells are noised"
