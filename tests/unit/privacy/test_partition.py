"""One unit added, removed or replaced moves nothing of any other unit: partition and hold-out."""

import json
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from privsyn.data.partition import load_shard, partition, read_holdout
from privsyn.data.records import Cell
from privsyn.data.settings import DatasetConfig
from privsyn.data.unit_key import UnitKey
from privsyn.dp.adjacency import Adjacency

KEY = bytes(range(32))
LABELS = ("a", "b", "c")
CELLS = [Cell(i, LABELS[i % 3], i // 3) for i in range(9)]
MOST = 2

Row = tuple[str, str | None, str | None]
"""Unit, label and text as written to the file; None is written as null."""
Content = tuple[str, str]
"""Where a text is (a cell, or the hold-out) and the text."""
Layout = dict[str, list[Content]]
"""Unit -> its contents; every text names its unit."""


def lay_out(rows, *, unit="u", holdout=0.3):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.jsonl"
        lines = [json.dumps({"u": u, "label": label, "text": text}) for u, label, text in rows]
        path.write_text("\n".join(['{"u": null, "label": null, "text": null}', *lines]))
        cfg = DatasetConfig(
            name="d",
            path=path,
            unit=unit,
            label="label",
            labels=LABELS,
            max_records_per_unit=MOST if unit else 1,
            holdout=holdout,
        )
        out = Path(folder) / "out"
        partition(cfg, KEY, CELLS, out, 2, seed="s")
        found = [
            (f"cell {bucket.cell.index}", text)
            for shard in range(2)
            for bucket in load_shard(out, shard, CELLS, 2)
            for text in bucket.contents.reveal()
        ]
        found += [("held out", private.reveal().content) for private in read_holdout(cfg, KEY)]
    return by_unit(found)


def by_unit(found):
    layout: Layout = {}
    for content in found:
        layout.setdefault(content[1].split(":")[0], []).append(content)
    return layout


def neighbors(rows, other):
    """Every dataset one unit away, with the name of the unit that differs."""
    for unit in sorted({row[0] for row in rows}):
        left = [row for row in rows if row[0] != unit]
        yield Adjacency.ADD_REMOVE, unit, left
        nulled: list[Row] = [row if row[0] != unit else (unit, row[1], None) for row in rows]
        yield Adjacency.REPLACE_NULL, unit, nulled
        swapped = [row if row[0] != unit else (unit, other[1], f"{unit}:new") for row in rows]
        yield Adjacency.REPLACE_ONE, unit, swapped
    for place in (0, len(rows) // 2, len(rows)):
        yield Adjacency.ADD_REMOVE, other[0], [*rows[:place], other, *rows[place:]]


def moved(make, rows, other):
    """The neighbors under which anything of another unit moved; none for a sound partition."""
    before = make(rows)
    wrong = []
    for adjacency, unit, changed in neighbors(rows, other):
        after = make(changed)
        if any(
            Counter(before.get(name, [])) != Counter(after.get(name, []))
            for name in {*before, *after} - {unit}
        ):
            wrong.append(adjacency.value)
    return wrong


labels = st.sampled_from([*LABELS, "undeclared", None])


@st.composite
def datasets(draw):
    chosen = draw(st.lists(st.tuples(st.integers(0, 4), labels), max_size=12))
    return [(f"u{user}", label, f"u{user}:{n}") for n, (user, label) in enumerate(chosen)]


DATA: list[Row] = [
    (f"u{user}", LABELS[(user * n) % 3], f"u{user}:{n}") for n in range(4) for user in range(9)
]
OTHER: Row = ("new", "a", "new:0")


@settings(max_examples=10, deadline=None)
@given(rows=datasets(), label=labels, text=st.sampled_from(["new:0", "new:" + "x" * 5000]))
def test_no_other_unit_moves_under_any_adjacency(rows, label, text):
    assert moved(lay_out, rows, ("new", label, text)) == []


@settings(max_examples=25, deadline=None)
@given(rows=datasets(), data=st.data())
def test_one_record_more_of_a_unit_moves_at_most_what_the_bound_allows(rows, data):
    more = (f"u{data.draw(st.integers(0, 5))}", data.draw(st.sampled_from(LABELS)), "")
    record = (more[0], more[1], f"{more[0]}:new")
    before, after = lay_out(rows), lay_out([*rows, record])
    for layout in (before, after):
        for contents in layout.values():
            used = [place for place, _ in contents if place != "held out"]
            assert len(used) <= MOST
            assert not used or len(used) == len(contents)  # held out wholly or not at all
    assert {u: c for u, c in before.items() if u != record[0]} == {
        u: c for u, c in after.items() if u != record[0]
    }
    lost = Counter(before.get(record[0], [])) - Counter(after.get(record[0], []))
    assert sum(lost.values()) <= 1  # the new record displaces at most one of its own unit


def allocation(seed, key=KEY, units=3000, buckets=4):
    """The bucket of each of some units in the release of a seed."""
    names = UnitKey(key, seed)
    return np.array([names.bucket(f"u{unit}") % buckets for unit in range(units)])


def dependence(first, second):
    """How unlikely two allocations are if they are uniform and independent: a p-value."""
    table = np.zeros((4, 4))
    np.add.at(table, (first, second), 1)
    return float(chisquare(table.ravel()).pvalue)


def test_every_release_allocates_units_anew_and_independently():
    """What [B19] asks: uniform, and told by no other release, by the key or by the seed alone."""
    first = allocation("seed of one")
    for other in (allocation("seed of two"), allocation("seed of one", key=bytes(32))):
        assert dependence(first, other) > 1e-6
    assert (first == allocation("seed of one")).all()  # a resumed release stays as it was
    assert dependence(first, first) < 1e-12  # and this is how one that is used twice looks


def test_a_seed_moves_no_unit_into_the_hold_out_and_changes_no_choice_of_records():
    names = {lay: UnitKey(KEY, lay) for lay in ("a", "b", "")}
    for unit in range(100):
        assert len({secret.name(f"u{unit}") for secret in names.values()}) == 1
        assert len({secret.order(f"u{unit}", "a", "text", ()) for secret in names.values()}) == 1
    assert len({secret.check for secret in names.values()}) == 3


def test_a_unit_lies_in_buckets_of_one_number_whatever_its_labels():
    """One place of [B19]: all that a unit adds to a release lies in it."""
    rows = [(f"u{i // 2}", LABELS[i % 2], f"u{i // 2}:{i}") for i in range(60)]
    number = {f"cell {cell.index}": cell.bucket for cell in CELLS}
    layout = lay_out(rows, holdout=0.0)
    assert len(layout) == 30
    places = [{number[cell] for cell, _ in contents} for contents in layout.values()]
    assert all(len(place) == 1 for place in places)
    assert set.union(*places) == {0, 1, 2}


def test_a_nulled_row_moves_no_other_where_rows_are_units():
    def contents(rows, without):
        layout = lay_out(rows, unit=None)
        return sorted(c for cs in layout.values() for c in cs if c[1] != without)

    before = contents(DATA, None)
    assert len(before) == len(DATA)
    for n in range(0, len(DATA), 5):
        unit, _, own = DATA[n]
        others = [content for content in before if content[1] != own]
        for text in (None, own):
            changed = [*DATA[:n], (unit, "b", text), *DATA[n + 1 :]]
            assert contents(changed, own) == others


def test_the_comparison_sees_the_whole_layout():
    layout = lay_out(DATA)
    assert moved(lay_out, DATA, OTHER) == []
    assert {place for contents in layout.values() for place, _ in contents} > {"held out", "cell 3"}
    assert len(layout) == 9
