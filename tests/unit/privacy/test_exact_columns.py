"""The draw of columns: how far neighbors' tables are apart, for every adjacency and unit."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from privsyn.columns import marginals as module
from privsyn.columns.marginals import Marginals
from privsyn.columns.settings import ColumnsConfig
from privsyn.data.columns import Column
from privsyn.data.records import Bucket, Cell, Private
from privsyn.dp.accountant import guarantee, rho
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.calibration import calibrate_rho

COLUMNS = {"age": Column(range=(0, 10), bins=1), "channel": Column(values=("web", "phone"))}
LABELS, TARGET = ("x", "y"), Guarantee(1, 1e-6)
KINDS = [(label, (age, channel)) for label in LABELS for age in range(3) for channel in range(4)]
BASES = [(), (("x", (0, 1), "a"), ("y", (2, 3), "a"), ("y", (0, 0), "b"))]


def marginals(adjacency, most=1, pairs=(("age", "channel"),), labels=LABELS):
    cfg = ColumnsConfig(pairs=pairs)
    return Marginals.of(cfg, COLUMNS, labels, TARGET, adjacency, PrivacyUnit("user", most))


def counts(drawn, records):
    """The tables before noise, of (label, row, unit)."""
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


def test_one_record_counts_once_in_every_table():
    drawn = marginals(Adjacency.ADD_REMOVE)
    tables = [table.sum() for table in drawn.split(counts(drawn, unit_of(KINDS[0])))]
    assert tables == [1, 1, 1]
    assert len(counts(drawn, ())) == 2 * 3 + 2 * 4 + 3 * 4, "all declared cells are noised"


def _whole(votes, units, bins, most, one):
    return np.bincount(votes, minlength=bins) * one


def _each_label(clip):
    """A unit's records of each label are clipped by themselves."""

    def broken(votes, units, bins, most, one):
        names = [f"{unit} {vote in _OF_Y}" for unit, vote in zip(units, votes, strict=True)]
        return clip(votes, names, bins, most, one)

    return broken


_OF_Y = {*range(3, 6), *range(10, 14)}  # cells of the second label


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (_whole, "histogram"),
        (_each_label(module.histogram), "histogram"),
        (lambda moves, most: module.LATTICE * math.sqrt(moves), "sensitivity"),
        (lambda moves, most: module.LATTICE * math.sqrt(moves * 3), "sensitivity"),
        (lambda moves, most: module.LATTICE * math.sqrt(most), "sensitivity"),
    ],
    ids=["no clip", "clip of each label", "tables forgotten", "m forgotten", "moves forgotten"],
)
def test_a_broken_draw_is_caught(monkeypatch, broken, name):
    monkeypatch.setattr(module, name, broken)
    same = [((), unit_of(*KINDS[:1] * 4)), ((), unit_of(*KINDS[:1] * 2, *KINDS[-1:] * 2))]
    swap = [(unit_of(*KINDS[:1] * 4), unit_of(*KINDS[-1:] * 4))]
    found = [worst(same, Adjacency.ADD_REMOVE, 4), worst(swap, Adjacency.REPLACE_ONE, 4)]
    assert max(found) > 1.1
